// SPDX-License-Identifier: MIT
#include "kernel/gpu/cpu_views.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "base/inside.h"
#include "base/log.h"
#include "kernel/gpu/bo.h"
#include "kernel/mm/unpinnable.h"

namespace uhca::kernel::gpu {
namespace {

struct View {
  std::uintptr_t begin, end;
  std::shared_ptr<Bo> bo;  // a mapping holds its buffer
  std::uint64_t offset;    // of begin, in the buffer
  int prot, flags;
  unsigned moves = 0;       // under way
  std::uint64_t moved = 0;  // so often it has come back
};

// A fault takes the lock; its holders are inside of our floors and touch no view meanwhile.
constinit std::mutex lock;
constinit std::vector<View>* views = nullptr;
constinit std::atomic<std::size_t> count{0};

// [begin, end) of the view shows the pieces. Each call replaces one run of pages.
int show(const View& v, const std::vector<FilePiece>& pieces) {
  std::uint64_t at = 0;
  for (const FilePiece& p : pieces) {
    const std::uint64_t from = std::max(at, v.offset), to = std::min(at + p.length, v.offset + (v.end - v.begin));
    if (from < to) {
      const long r = syscall(SYS_mmap, v.begin + (from - v.offset), to - from, v.prot, v.flags | MAP_FIXED, p.fd, p.offset + (from - at));
      if (r == -1) return errno;
      // A child would see whatever comes to lie there, and could not follow.
      syscall(SYS_madvise, v.begin + (from - v.offset), to - from, MADV_DONTFORK);
    }
    at += p.length;
  }
  return 0;
}

}  // namespace

Result<std::uintptr_t> view_map(const std::shared_ptr<Bo>& bo, const mm::UserMapping& m, const std::vector<FilePiece>& pieces) {
  if ((m.flags & MAP_TYPE) == MAP_PRIVATE && (m.prot & PROT_WRITE))
    return refuse(EINVAL, "mmap: memory of a GPU has no private copies");  // ttm_bo_mmap_obj: is_cow_mapping
  inside::Guard guard;
  const std::size_t length = (m.length + 4095) & ~std::size_t{4095};
  const int place = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (m.flags & (MAP_FIXED | MAP_FIXED_NOREPLACE));
  const long at = syscall(SYS_mmap, m.addr, length, PROT_NONE, place, -1, 0L);
  if (at == -1) return refuse(errno, "mmap: no place for {} bytes of a GPU", length);
  View v{static_cast<std::uintptr_t>(at), static_cast<std::uintptr_t>(at) + length, bo, m.offset, m.prot, MAP_SHARED};
  if (int e = show(v, pieces)) {
    syscall(SYS_munmap, at, length);
    return refuse(e, "mmap: {} bytes of a GPU", length);
  }
  std::lock_guard g(lock);
  if (views == nullptr) views = new std::vector<View>;
  mm::unpinnable.store(views_overlap, std::memory_order_release);
  views->push_back(std::move(v));
  count.store(views->size(), std::memory_order_release);
  return static_cast<std::uintptr_t>(at);
}

void views_close(const Bo& bo) {
  if (count.load(std::memory_order_acquire) == 0) return;
  inside::Guard guard;
  std::lock_guard g(lock);
  for (View& v : *views)
    if (v.bo.get() == &bo && v.moves++ == 0 && syscall(SYS_mprotect, v.begin, v.end - v.begin, PROT_NONE) != 0)
      log::warn("gpu: the mapping at {:#x} stays open while its buffer moves: errno {}", v.begin, errno);
}

void views_open(const Bo& bo, const std::vector<FilePiece>& pieces) {
  if (count.load(std::memory_order_acquire) == 0) return;
  inside::Guard guard;
  std::lock_guard g(lock);
  for (View& v : *views) {
    if (v.bo.get() != &bo || v.moves == 0) continue;
    if (--v.moves != 0) continue;
    if (int e = show(v, pieces)) log::warn("gpu: the mapping at {:#x} could not follow its buffer: errno {}", v.begin, e);
    ++v.moved;
  }
}

void views_unmapped(std::uintptr_t va, std::size_t length) {
  if (count.load(std::memory_order_acquire) == 0) return;
  inside::Guard guard;
  std::vector<std::shared_ptr<Bo>> dropped;  // a buffer's end takes locks of its own
  std::lock_guard g(lock);
  const std::uintptr_t end = va + length < va ? ~std::uintptr_t{0} : (va + length + 4095) & ~std::uintptr_t{4095};
  std::vector<View> left;
  for (View& v : *views) {
    if (v.end <= va || v.begin >= end) {
      left.push_back(std::move(v));
      continue;
    }
    auto part = [&](std::uintptr_t from, std::uintptr_t to) {
      if (from >= to) return;
      View p = v;
      p.begin = from, p.end = to, p.offset = v.offset + (from - v.begin);
      left.push_back(std::move(p));
    };
    part(v.begin, va);
    part(end, v.end);
    dropped.push_back(std::move(v.bo));
  }
  *views = std::move(left);
  count.store(views->size(), std::memory_order_release);
}

bool views_overlap(std::uintptr_t va, std::size_t length) {
  if (count.load(std::memory_order_acquire) == 0) return false;
  inside::Guard guard;
  std::lock_guard g(lock);
  return std::any_of(views->begin(), views->end(), [&](const View& v) { return v.begin < va + length && va < v.end; });
}

bool views_fault(std::uintptr_t at) {
  static thread_local constinit std::uintptr_t last_at __attribute__((tls_model("initial-exec"))) = 0;
  static thread_local constinit std::uint64_t last_moved __attribute__((tls_model("initial-exec"))) = 0;
  if (count.load(std::memory_order_acquire) == 0 || inside::active()) return false;
  inside::Guard guard;
  while (true) {
    {
      std::lock_guard g(lock);
      auto v = std::find_if(views->begin(), views->end(), [&](const View& x) { return at >= x.begin && at < x.end; });
      if (v == views->end()) return false;
      if (v->moves == 0) {
        // It arrived between the fault and here, or the access is one that the mapping does not allow: then it faults again.
        const bool again = v->moved != 0 && (last_at != at || last_moved != v->moved);
        last_at = at;
        last_moved = v->moved;
        return again;
      }
    }
    timespec pause{0, 50'000};
    syscall(SYS_nanosleep, &pause, nullptr);
  }
}

void views_forget_after_fork() {
  new (&lock) std::mutex;
  views = nullptr;  // leaked: the buffers are the parent's
  count.store(0);
}

}  // namespace uhca::kernel::gpu
