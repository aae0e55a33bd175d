// SPDX-License-Identifier: MIT
// A buffer of the GPU, wherever it lies. Linux: struct amdgpu_bo, struct ttm_buffer_object. What says "resv held" is done with the
// buffer's reservation held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernel/gpu/buddy.h"
#include "kernel/gpu/cpu_views.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/dma_resv.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::gpu {

class Gpu;

// AMDGPU_GEM_DOMAIN_*.
inline constexpr unsigned kDomainCpu = 1, kDomainGtt = 2, kDomainVram = 4;
// AMDGPU_GEM_CREATE_*, as far as they change something.
inline constexpr std::uint64_t kCpuAccessRequired = 1 << 0, kNoCpuAccess = 1 << 1, kVmAlwaysValid = 1 << 6;

enum class Place : std::uint8_t { kNone, kGtt, kVram, kUser };
const char* place_name(Place p);

// System memory that the GPU reaches.
struct GttMemory {
  ~GttMemory();
  int fd = -1;
  std::byte* memory = nullptr;
  std::uint64_t size = 0;
  Gpu* gpu = nullptr;
};

class Bo : public std::enable_shared_from_this<Bo> {
 public:
  ~Bo();
  Gpu& gpu() const { return gpu_; }
  std::uint64_t size() const { return size_; }
  unsigned number() const { return number_; }  // in traces
  unsigned preferred() const { return preferred_; }
  unsigned allowed() const { return allowed_; }
  std::uint64_t flags() const { return flags_; }
  mm::DmaResv& resv() const { return *resv_; }
  const std::shared_ptr<mm::DmaResv>& shared_resv() const { return resv_; }

  // resv held.
  Place place() const { return place_; }
  unsigned pins() const { return pins_; }
  bool visible() const;  // all of it in the aperture
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::shared_ptr<GttMemory>& gtt() const { return gtt_; }
  // Where its bytes are, in descriptors. Not of user memory.
  std::vector<FilePiece> pieces() const;

  // The GPU copies n bytes at `offset` to or from `memory` of the kernel, once its moves have ended. Not held. EFAULT: user memory is gone.
  Status read(std::uint64_t offset, void* to, std::uint64_t n);
  Status write(std::uint64_t offset, const void* from, std::uint64_t n);
  Status atomic_add64(std::uint64_t offset, std::uint64_t value);
  // ... of memory that may not be there. EFAULT.
  static Status add64(void* at, std::uint64_t value);
  // A program maps it. EPERM: it must not; EINVAL: it lies beyond the aperture and is pinned there.
  Result<std::uintptr_t> mmap(const mm::UserMapping& m);

  // The one dma-buf of it, made by the first who asks (amdgpu_dma_buf.cpp, nv_dma_buf.cpp keep it here).
  std::weak_ptr<mm::DmaBuf> exported;

 private:
  friend class Gpu;
  Bo(Gpu& gpu, std::uint64_t size, unsigned preferred, unsigned allowed, std::uint64_t flags, unsigned number)
      : gpu_(gpu), size_(size), preferred_(preferred), allowed_(allowed), flags_(flags), number_(number) {}
  template <class Copy>
  Status each_run(std::uint64_t offset, std::uint64_t n, Copy copy);

  Gpu& gpu_;
  const std::uint64_t size_;
  const unsigned preferred_, allowed_;
  const std::uint64_t flags_;
  const unsigned number_;
  const std::shared_ptr<mm::DmaResv> resv_ = std::make_shared<mm::DmaResv>();
  Place place_ = Place::kNone;
  unsigned pins_ = 0;
  std::vector<Block> blocks_;       // kVram
  std::shared_ptr<GttMemory> gtt_;  // kGtt
  UserPtr user_ = 0;                // kUser
  std::list<Bo*>::iterator lru_;    // kVram: of the GPU's list, under its lock
  bool in_lru_ = false;
};

}  // namespace uhca::kernel::gpu
