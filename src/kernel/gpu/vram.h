// SPDX-License-Identifier: MIT
// The memory on the card, and the two ways to it: the GPU's own, and the BAR aperture, by which peers on the bus (the NIC) come. Real
// counterpart: framebuffer and BAR 0 (amdgpu: gmc.aper_base; NVIDIA: BAR 1).
//
// A page of the aperture is there only while an importer has it mapped; DMA to any other page, which would be a stale address, traps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "kernel/gpu/buddy.h"

namespace uhca::kernel::gpu {

// Where the simulated bus decodes the aperture; what a real driver adds to an offset to get the address that it hands to dma_map_resource.
inline constexpr std::uint64_t kApertureBase = std::uint64_t{0x60} << 32;

class Vram {
 public:
  // `visible`: bytes from the beginning that the aperture shows. ENOMEM, EMFILE.
  static Result<std::unique_ptr<Vram>> make(std::uint64_t size, std::uint64_t visible);
  ~Vram();
  Vram(const Vram&) = delete;
  Vram& operator=(const Vram&) = delete;

  std::uint64_t size() const { return size_; }
  std::uint64_t visible() const { return visible_; }
  int fd() const { return fd_; }
  // What the GPU itself uses.
  std::byte* at(std::uint64_t offset) const { return own_ + offset; }

  // ENOSPC.
  Result<std::vector<Block>> alloc(std::uint64_t size, std::uint64_t limit, bool top_down);
  // The blocks' bytes are zero when they are allocated again (AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE).
  void free(const std::vector<Block>& blocks);
  std::uint64_t free_bytes(std::uint64_t limit) const;

  // The pages of [offset, +length), all visible, for one more importer: where its DMA finds them. ENOMEM.
  Result<std::byte*> open_aperture(std::uint64_t offset, std::uint64_t length);
  void close_aperture(std::uint64_t offset, std::uint64_t length);
  // Bytes of the aperture that somebody has mapped.
  std::uint64_t aperture_used() const;

 private:
  Vram(std::uint64_t size, std::uint64_t visible) : size_(size), visible_(visible), buddy_(size) {}
  Status change_aperture(std::uint64_t offset, std::uint64_t length, bool open);

  const std::uint64_t size_, visible_;
  int fd_ = -1;
  std::byte* own_ = nullptr;
  std::byte* aperture_ = nullptr;
  mutable std::mutex lock_;
  Buddy buddy_;
  std::vector<std::uint32_t> importers_;  // by page
  std::uint64_t used_ = 0;
};

}  // namespace uhca::kernel::gpu
