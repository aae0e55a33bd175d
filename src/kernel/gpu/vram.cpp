// SPDX-License-Identifier: MIT
#include "kernel/gpu/vram.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "kernel/mm/trap_names.h"

namespace uhca::kernel::gpu {
namespace {

constexpr std::uint64_t kPage = Buddy::kPage;

Result<std::byte*> map_shared(int fd, std::uint64_t size, int prot) {
  const long at = syscall(SYS_mmap, nullptr, size, prot, MAP_SHARED | MAP_NORESERVE, fd, 0L);
  if (at == -1) return refuse(errno, "gpu: {} bytes of VRAM cannot be mapped", size);
  syscall(SYS_madvise, at, size, MADV_DONTFORK);
  return reinterpret_cast<std::byte*>(at);
}

}  // namespace

Result<std::unique_ptr<Vram>> Vram::make(std::uint64_t size, std::uint64_t visible) {
  std::unique_ptr<Vram> v(new (std::nothrow) Vram(size, visible));
  if (!v) return Errno{ENOMEM};
  v->fd_ = UHCA_TRY(fd::sealed_memfd("uhca:vram", size));
  v->own_ = UHCA_TRY(map_shared(v->fd_, size, PROT_READ | PROT_WRITE));
  v->aperture_ = UHCA_TRY(map_shared(v->fd_, visible, PROT_NONE));
  v->importers_.resize(visible / kPage);
  mm::name_trap(v->aperture_, visible, "stale bus address of the GPU: this page of the VRAM aperture is mapped by no importer");
  return v;
}

Vram::~Vram() {
  if (aperture_ != nullptr) {
    mm::forget_trap(aperture_);
    syscall(SYS_munmap, aperture_, visible_);
  }
  if (own_ != nullptr) syscall(SYS_munmap, own_, size_);
  if (fd_ >= 0) fd::close(fd_);
}

Result<std::vector<Block>> Vram::alloc(std::uint64_t size, std::uint64_t limit, bool top_down) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  return buddy_.alloc(size, limit, top_down);
}

void Vram::free(const std::vector<Block>& blocks) {
  inside::Guard guard;
  for (const Block& b : blocks)
    if (syscall(SYS_fallocate, fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, b.offset, b.size) != 0)
      std::memset(at(b.offset), 0, b.size);
  std::lock_guard g(lock_);
  buddy_.free(blocks);
}

std::uint64_t Vram::free_bytes(std::uint64_t limit) const {
  inside::Guard guard;
  std::lock_guard g(lock_);
  return buddy_.free_bytes(limit);
}

Result<std::byte*> Vram::open_aperture(std::uint64_t offset, std::uint64_t length) {
  if (offset > visible_ || length > visible_ - offset)
    return refuse(ENOMEM, "gpu: VRAM at {:#x} (+{:#x}) lies beyond the aperture of {:#x} bytes", offset, length, visible_);
  UHCA_CHECK(change_aperture(offset, length, true));
  return aperture_ + offset;
}

void Vram::close_aperture(std::uint64_t offset, std::uint64_t length) {
  (void)change_aperture(offset, length, false);
}

std::uint64_t Vram::aperture_used() const {
  inside::Guard guard;
  std::lock_guard g(lock_);
  return used_;
}

// Pages whose first importer comes, or whose last one goes, change; runs of them at once.
Status Vram::change_aperture(std::uint64_t offset, std::uint64_t length, bool open) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  const std::uint64_t first = offset / kPage, end = (offset + length + kPage - 1) / kPage;
  auto changes = [&](std::uint64_t page) { return importers_[page] == (open ? 0 : 1); };
  for (std::uint64_t page = first; page < end;) {
    std::uint64_t run = page;
    while (run < end && changes(run)) ++run;
    if (run == page) {
      ++page;
      continue;
    }
    const int prot = open ? PROT_READ | PROT_WRITE : PROT_NONE;
    if (syscall(SYS_mprotect, aperture_ + page * kPage, (run - page) * kPage, prot) != 0) {
      Errno e = refuse(errno, "gpu: aperture at {:#x}", page * kPage);
      if (open) {
        for (std::uint64_t p = first; p < page; ++p)
          if (importers_[p] == 0) syscall(SYS_mprotect, aperture_ + p * kPage, kPage, PROT_NONE);
        return e;
      }
      // Closing counts all the same: the pages stay open until their next importer has gone.
    }
    page = run;
  }
  for (std::uint64_t page = first; page < end; ++page) {
    if (changes(page)) used_ += open ? kPage : -kPage;
    importers_[page] += open ? 1u : -1u;
  }
  return success();
}

}  // namespace uhca::kernel::gpu
