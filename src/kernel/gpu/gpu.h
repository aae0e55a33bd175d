// SPDX-License-Identifier: MIT
// The simulated GPU: memory, placement of buffers, eviction, power. Linux: drivers/gpu/drm/ttm, drivers/gpu/drm/amd/amdgpu
// (amdgpu_object.c, amdgpu_ttm.c). Locks, outermost first: a buffer's reservation, this one's own, those of Vram and of the CPU views; the
// reservation of a second buffer is only tried.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "kernel/gpu/bo.h"
#include "kernel/gpu/copy_engine.h"
#include "kernel/gpu/vram.h"
#include "uapi/gpu.h"

namespace uhca::kernel::gpu {

class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> make(const uhca::gpu::Config& config);
  const uhca::gpu::Config& config() const { return config_; }
  Vram& vram() { return *vram_; }
  CopyEngine& engine() { return engine_; }

  static constexpr std::uint64_t kGttSize = std::uint64_t{4} << 30;  // bytes of system memory that it can reach at a time
  std::uint64_t gtt_used() const { return gtt_used_.load(); }

  // A new buffer of zeros, placed as it prefers. `size`: bytes, rounded up to pages. EINVAL: 0, no domain; ENOMEM.
  Result<std::shared_ptr<Bo>> create(std::uint64_t size, unsigned preferred, unsigned allowed, std::uint64_t flags);
  // Memory of the program as a buffer: [va, va + size), whole pages.
  Result<std::shared_ptr<Bo>> create_user(UserPtr va, std::uint64_t size);

  // The rest: resv of the buffer held.
  // It lies in one of the domains afterwards; moves if it must, and out of the way if others need the place. In GTT instead of VRAM it
  // is for want of space only. EINVAL: pinned elsewhere; ENOMEM.
  Status validate(Bo& bo, unsigned domains, bool visible);
  // amdgpu_bo_pin: in the domain that it prefers, of these. EINVAL: pinned elsewhere already; ENOMEM.
  Status pin(Bo& bo, unsigned domains);
  void unpin(Bo& bo);

  // pci_p2pdma_distance(): whether the bus routes between the NIC and this card, directly or through the host bridge.
  bool peers_reach() const { return config_.p2p; }
  // Runtime power. The card is awake while anybody holds it; without runtime_pm it always is.
  void power_get();
  void power_put();
  bool power_get_if_active();
  bool active() const;

 private:
  friend class Bo;
  friend struct GttMemory;
  explicit Gpu(const uhca::gpu::Config& config) : config_(config) {}
  Result<std::vector<Block>> alloc_vram(Bo& bo, bool visible, bool evict);
  Result<std::shared_ptr<GttMemory>> alloc_gtt(std::uint64_t size);
  bool evict_one(Bo& for_whom, std::uint64_t limit);
  Status to_gtt(Bo& bo);
  void move(Bo& bo, Place to, std::vector<Block> blocks, std::shared_ptr<GttMemory> gtt);
  void use(Bo& bo);
  void forget(Bo& bo);

  const uhca::gpu::Config config_;
  std::unique_ptr<Vram> vram_;
  std::atomic<std::uint64_t> gtt_used_{0};
  std::atomic<unsigned> next_number_{1};
  std::mutex lock_;
  std::list<Bo*> lru_;  // buffers in VRAM, those longest unused first
  std::atomic<unsigned> awake_{0};
  CopyEngine engine_;  // goes first: its last job may end the last user of a buffer
};

}  // namespace uhca::kernel::gpu
