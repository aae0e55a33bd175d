// SPDX-License-Identifier: MIT
// The buddy allocator of VRAM. Linux: drivers/gpu/drm/drm_buddy.c.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/result.h"

namespace uhca::kernel::gpu {

struct Block {
  std::uint64_t offset = 0, size = 0;  // bytes; size is a power of two, offset a multiple of it
};

class Buddy {
 public:
  static constexpr std::uint64_t kPage = 4096;
  explicit Buddy(std::uint64_t size);  // bytes, whole pages

  // Blocks of `size` bytes (whole pages) in all, each below `limit`, as few as there can be. `top_down`: from the end of the memory, which
  // leaves its beginning to those who need it. ENOSPC, and nothing is taken.
  Result<std::vector<Block>> alloc(std::uint64_t size, std::uint64_t limit, bool top_down);
  void free(const std::vector<Block>& blocks);
  // Bytes below `limit`.
  std::uint64_t free_bytes(std::uint64_t limit) const;

 private:
  bool take(unsigned order, std::uint64_t limit, bool top_down, Block* out);
  void give(Block b);

  std::uint64_t size_;
  std::vector<std::set<std::uint64_t>> free_;  // by order: offsets
  std::set<std::uint64_t> roots_;              // starts of the largest blocks, which have no buddy
};

}  // namespace uhca::kernel::gpu
