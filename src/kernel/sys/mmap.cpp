// SPDX-License-Identifier: MIT
// mmap of a uverbs file or of a dma-buf; and everything that takes memory away from under a registration.
#include <fcntl.h>
#include <sys/mman.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernel/gpu/cpu_views.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/io_map.h"
#include "kernel/sys/memory.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/uar_map.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(mmap, void*(void*, size_t, int, int, int, off_t));
UHCA_NEXT(munmap, int(void*, size_t));
UHCA_NEXT(mremap, void*(void*, size_t, size_t, int, void*));
UHCA_NEXT(madvise, int(void*, size_t, int));
UHCA_NEXT(sbrk, void*(intptr_t));
UHCA_NEXT(brk, int(void*));

void* fail(int err) {
  errno = err;
  return MAP_FAILED;
}

// The pages go, the mapping stays.
void discarding(void* va, size_t n) {
  Instance* i = instance();
  if (inside::active() || !own_process()) return;
  int saved = errno;
  inside::Guard guard;
  i->device->invalidate_range(reinterpret_cast<kernel::UserPtr>(va), n, "discarded by madvise");
  errno = saved;
}

void* map_verbs(CmdFile& f, void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
  if (f.inherited.load()) {
    KernelEntry entry;
    auto e = refuse(EIO, "mmap: this uverbs descriptor was opened by the parent process");
    return fail(e.value);
  }
  auto target = [&] {
    KernelEntry entry;
    return f.file->mmap(length, prot, flags, static_cast<std::uint64_t>(offset));
  }();
  long r = -target.code();
  if (target) {
    if (flags & MAP_FIXED) memory_going(addr, length, "replaced (mmap MAP_FIXED)");
    if (target->trapped) {
      const int private_flags = (flags & ~MAP_TYPE) | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      r = raw::call(SYS_mmap, raw::arg(addr), static_cast<long>(length), PROT_NONE, private_flags, -1, 0);
    } else {
      r = raw::call(SYS_mmap, raw::arg(addr), static_cast<long>(length), prot, flags, target->fd, static_cast<long>(target->offset));
    }
    if (r >= 0 || r < -4095) {
      const auto va = static_cast<std::uintptr_t>(r);
      if (target->uar_index != 0) uar_map_add(va, length, target->offset, target->uar_index, &f);
      if (target->trapped || target->hold) {
        raw::call(SYS_madvise, r, static_cast<long>(length), MADV_DONTFORK);  // a child has no part in its parent's device
        io_map_add(va, length, target->offset, target->trapped, std::move(target->hold));
      }
    }
  }
  bool ok = r >= 0 || r < -4095;
  if (trace::on()) {
    trace::Event e("syscall", "mmap");
    e.num("fd", fd).unum("length", length).hex("offset", static_cast<std::uint64_t>(offset)).num("errno", ok ? 0 : -r);
    if (ok) e.hex("va", static_cast<std::uint64_t>(r)).unum("uar", target->uar_index);
  }
  return ok ? reinterpret_cast<void*>(r) : fail(static_cast<int>(-r));
}

// A dma-buf is mapped as its exporter has it, within its size. Linux: dma_buf_mmap_internal.
Result<std::uintptr_t> map_exported(kernel::mm::DmaBuf& buf, const kernel::mm::UserMapping& m) {
  KernelEntry entry;
  const std::uint64_t pages = (std::uint64_t{m.length} + 4095) & ~std::uint64_t{4095};
  if (m.offset > buf.size() || pages > buf.size() - m.offset)
    return refuse(EINVAL, "mmap: {} bytes at {} of a dma-buf of {}", m.length, m.offset, buf.size());
  return buf.exporter().mmap(m);
}

void* map_gpu(kernel::gpu::File& file, void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
  if (flags & MAP_FIXED) memory_going(addr, length, "replaced (mmap MAP_FIXED)");
  auto at = [&] {
    KernelEntry entry;
    return file.mmap({reinterpret_cast<std::uintptr_t>(addr), length, prot, flags, static_cast<std::uint64_t>(offset)});
  }();
  if (trace::on()) trace::Event("syscall", "mmap").num("fd", fd).unum("length", length).str("of", "GPU").num("errno", at.code());
  return at.ok() ? reinterpret_cast<void*>(*at) : fail(at.code());
}

void* map_dma_buf(kernel::mm::DmaBuf& buf, void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
  if (flags & MAP_FIXED) memory_going(addr, length, "replaced (mmap MAP_FIXED)");
  auto at = map_exported(buf, {reinterpret_cast<std::uintptr_t>(addr), length, prot, flags, static_cast<std::uint64_t>(offset)});
  if (trace::on()) trace::Event("syscall", "mmap").num("fd", fd).unum("length", length).str("of", "dma-buf").num("errno", at.code());
  return at.ok() ? reinterpret_cast<void*>(*at) : fail(at.code());
}

void* map(void* addr, size_t length, int prot, int flags, int fd, off_t offset) {
  if (!inside::active()) {
    if (fd >= 0 && !(flags & MAP_ANONYMOUS)) {
      struct stat st;
      if (any_cmd_files() && raw::fstat(fd, &st) == 0 && vfd::plausible(st)) {
        if (auto f = cmdfile_of(fd)) return map_verbs(*f, addr, length, prot, flags, fd, offset);
      }
      if (auto file = gpu_file_of(fd)) return map_gpu(*file, addr, length, prot, flags, fd, offset);
      if (auto buf = kernel::mm::dma_buf_of_fd(fd)) return map_dma_buf(*buf, addr, length, prot, flags, fd, offset);
    }
    if (flags & MAP_FIXED) memory_going(addr, length, "replaced (mmap MAP_FIXED)");
  }
  return next_mmap(addr, length, prot, flags, fd, offset);
}

// Where the heap begins: field start_brk of /proc/self/stat (proc(5)). 0: not to be known.
std::uintptr_t heap_start() {
  int f = static_cast<int>(raw::call(SYS_openat, AT_FDCWD, raw::arg("/proc/self/stat"), O_RDONLY | O_CLOEXEC));
  if (f < 0) return 0;
  char text[1024];
  long n = raw::call(SYS_read, f, raw::arg(text), sizeof text - 1);
  raw::call(SYS_close, f);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = std::strrchr(text, ')');  // ends field 2, which may hold anything
  for (int field = 2; at && field < 47; ++field) {
    at = std::strchr(at, ' ');
    if (at) ++at;
  }
  return at ? std::strtoull(at, nullptr, 10) : 0;
}

// The break is about to become `to`: whole pages go, and none when the kernel is going to refuse (mm/mmap.c).
void break_going(std::uintptr_t to, const char* how) {
  int saved = errno;
  auto now = reinterpret_cast<std::uintptr_t>(next_sbrk(intptr_t{0}));
  auto page = [](std::uintptr_t x) { return (x + 4095) & ~std::uintptr_t{4095}; };
  if (page(to) < page(now) && to >= heap_start()) memory_going(reinterpret_cast<void*>(page(to)), page(now) - page(to), how);
  errno = saved;
}

}  // namespace

IoRanges memory_going(void* va, size_t n, const char* how) {
  Instance* i = instance();
  if (!i || n == 0 || inside::active() || !own_process()) return {};
  int saved = errno;
  {
    inside::Guard guard;
    i->device->invalidate_range(reinterpret_cast<kernel::UserPtr>(va), n, how);
  }
  uar_map_remove(reinterpret_cast<std::uintptr_t>(va), n);
  IoRanges taken = io_map_take(reinterpret_cast<std::uintptr_t>(va), n);
  kernel::gpu::views_unmapped(reinterpret_cast<std::uintptr_t>(va), n);
  errno = saved;
  return taken;
}

}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT void* mmap(void* addr, size_t length, int prot, int flags, int fd, off_t offset) noexcept {
  return map(addr, length, prot, flags, fd, offset);
}
UHCA_EXPORT void* mmap64(void* addr, size_t length, int prot, int flags, int fd, off_t offset) noexcept {
  return map(addr, length, prot, flags, fd, offset);
}
UHCA_EXPORT int munmap(void* addr, size_t length) noexcept {
  // Linux refuses a crooked address before it does anything.
  IoRanges going;
  if (__builtin_expect(instance() != nullptr, 0) && (reinterpret_cast<std::uintptr_t>(addr) & 4095) == 0)
    going = memory_going(addr, length, "unmapped (munmap)");
  return next_munmap(addr, length);
}
UHCA_EXPORT void* mremap(void* addr, size_t old_length, size_t new_length, int flags, ...) noexcept {
  va_list ap;
  va_start(ap, flags);
  void* to = flags & MREMAP_FIXED ? va_arg(ap, void*) : nullptr;
  va_end(ap);
  if (__builtin_expect(instance() == nullptr, 1)) return next_mremap(addr, old_length, new_length, flags, to);
  const auto from = reinterpret_cast<std::uintptr_t>(addr);
  // Mappings of a device do not grow (Linux: VM_DONTEXPAND).
  if (new_length > old_length && io_map_touches(from, old_length)) return fail(EFAULT);
  // Memory of a GPU follows its buffer where it was mapped, and shows nothing else.
  if (kernel::gpu::views_overlap(from, old_length)) return fail(EFAULT);
  // Growing in place leaves the old pages where they are; moving or shrinking does not.
  IoRanges moving, shrinking, replaced;
  if (flags & MREMAP_MAYMOVE)
    moving = memory_going(addr, old_length, "moved or shrunk (mremap)");
  else if (new_length < old_length)
    shrinking = memory_going(static_cast<char*>(addr) + new_length, old_length - new_length, "moved or shrunk (mremap)");
  if (flags & MREMAP_FIXED) replaced = memory_going(to, new_length, "replaced (mremap MREMAP_FIXED)");
  void* now = next_mremap(addr, old_length, new_length, flags, to);
  const bool done = now != MAP_FAILED;
  if (!moving.all.empty())
    io_map_put(std::move(moving), from, done ? reinterpret_cast<std::uintptr_t>(now) : from, done ? new_length : old_length);
  return now;
}
// The break as the C library's own allocator moves it is not seen here, as its other inner calls are not (docs/support.md).
UHCA_EXPORT void* sbrk(intptr_t increment) noexcept {
  if (__builtin_expect(instance() != nullptr, 0) && increment < 0) {
    auto now = reinterpret_cast<std::uintptr_t>(next_sbrk(intptr_t{0}));
    auto less = std::uintptr_t{0} - static_cast<std::uintptr_t>(increment);
    if (less <= now) break_going(now - less, "given back (sbrk)");
  }
  return next_sbrk(increment);
}
UHCA_EXPORT int brk(void* addr) noexcept {
  if (__builtin_expect(instance() != nullptr, 0)) break_going(reinterpret_cast<std::uintptr_t>(addr), "given back (brk)");
  return next_brk(addr);
}
UHCA_EXPORT int madvise(void* addr, size_t length, int advice) noexcept {
  if (__builtin_expect(instance() != nullptr, 0)) {
    if (advice == MADV_DONTNEED || advice == MADV_REMOVE || advice == MADV_FREE) discarding(addr, length);
  }
  return next_madvise(addr, length, advice);
}
