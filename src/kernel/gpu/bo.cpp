// SPDX-License-Identifier: MIT
#include "kernel/gpu/bo.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/fd.h"
#include "base/log.h"
#include "base/safecopy.h"
#include "base/trace.h"
#include "kernel/gpu/gpu.h"

namespace uhca::kernel::gpu {

const char* place_name(Place p) {
  switch (p) {
    case Place::kGtt: return "GTT";
    case Place::kVram: return "VRAM";
    case Place::kUser: return "user memory";
    default: return "nowhere";
  }
}

GttMemory::~GttMemory() {
  if (memory != nullptr) syscall(SYS_munmap, memory, size);
  if (fd >= 0) fd::close(fd);
  if (gpu != nullptr) gpu->gtt_used_ -= size;
}

Bo::~Bo() {
  gpu_.forget(*this);
  if (trace::on()) trace::Event("gpu", "bo_free").unum("bo", number_);
}

bool Bo::visible() const {
  const std::uint64_t limit = gpu_.vram_->visible();
  return std::all_of(blocks_.begin(), blocks_.end(), [limit](const Block& b) { return b.offset + b.size <= limit; });
}

std::vector<FilePiece> Bo::pieces() const {
  std::vector<FilePiece> p;
  if (place_ == Place::kGtt) p.push_back({gtt_->fd, 0, size_});
  for (const Block& b : blocks_) p.push_back({gpu_.vram_->fd(), b.offset, b.size});
  return p;
}

// copy(memory of the kernel, user address, bytes, offset from the first): one of the first two.
template <class Copy>
Status Bo::each_run(std::uint64_t offset, std::uint64_t n, Copy copy) {
  if (offset > size_ || n > size_ - offset) return refuse(EFAULT, "gpu: [{:#x}, +{:#x}) of a buffer of {:#x} bytes", offset, n, size_);
  std::lock_guard g(*resv_);
  resv_->wait(mm::DmaResvUsage::kKernel);
  if (place_ == Place::kUser) return copy(nullptr, user_ + offset, n, std::uint64_t{0});
  if (place_ == Place::kGtt) return copy(gtt_->memory + offset, UserPtr{0}, n, std::uint64_t{0});
  std::uint64_t at = 0;
  for (const Block& b : blocks_) {
    const std::uint64_t from = std::max(at, offset), to = std::min(at + b.size, offset + n);
    if (from < to) UHCA_CHECK(copy(gpu_.vram_->at(b.offset + (from - at)), UserPtr{0}, to - from, from - offset));
    at += b.size;
  }
  return success();
}

Status Bo::read(std::uint64_t offset, void* to, std::uint64_t n) {
  return each_run(offset, n, [to](const std::byte* memory, UserPtr user, std::uint64_t bytes, std::uint64_t at) -> Status {
    if (memory == nullptr) return copy_from_user(static_cast<char*>(to) + at, user, bytes);
    std::memcpy(static_cast<char*>(to) + at, memory, bytes);
    return success();
  });
}

Status Bo::write(std::uint64_t offset, const void* from, std::uint64_t n) {
  return each_run(offset, n, [from](std::byte* memory, UserPtr user, std::uint64_t bytes, std::uint64_t at) -> Status {
    if (memory == nullptr) return copy_to_user(user, static_cast<const char*>(from) + at, bytes);
    std::memcpy(memory, static_cast<const char*>(from) + at, bytes);
    return success();
  });
}

Status Bo::add64(void* at, std::uint64_t value) {
  std::uint64_t seen = 0, before;
  do {
    before = seen;
    if (!safecopy::cas64(at, &seen, before + value))
      return refuse(EFAULT, "gpu: an atomic access at {:#x}", reinterpret_cast<std::uintptr_t>(at));
  } while (seen != before);
  return success();
}

Status Bo::atomic_add64(std::uint64_t offset, std::uint64_t value) {
  return each_run(offset, 8, [value](std::byte* memory, UserPtr user, std::uint64_t, std::uint64_t) {
    return add64(memory != nullptr ? static_cast<void*>(memory) : reinterpret_cast<void*>(user), value);
  });
}

// Linux: amdgpu_gem_object_mmap, amdgpu_bo_fault_reserve_notify.
Result<std::uintptr_t> Bo::mmap(const mm::UserMapping& m) {
  if (place_ == Place::kUser || flags_ & kNoCpuAccess) return refuse(EPERM, "mmap: the CPU must not see this buffer of the GPU");
  std::lock_guard g(*resv_);
  if (place_ == Place::kVram && !visible()) {
    if (pins_ != 0) return refuse(EINVAL, "mmap: the buffer is pinned where the aperture does not reach");
    UHCA_CHECK(gpu_.validate(*this, kDomainVram | (allowed_ & kDomainGtt), true));
  }
  resv_->wait(mm::DmaResvUsage::kKernel);
  auto at = view_map(shared_from_this(), m, pieces());
  if (trace::on() && at.ok()) trace::Event("gpu", "cpu_map").unum("bo", number_).hex("va", *at).str("place", place_name(place_));
  return at;
}

}  // namespace uhca::kernel::gpu
