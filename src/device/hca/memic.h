// SPDX-License-Identifier: MIT
// Memory of the device itself (MEMIC): a window of BAR 0 that programs map, that keys of access mode MEMIC lie in, and windows of the same
// size where an access is an operation on it. Real counterpart: ConnectX-5's and later device memory. Addresses are offsets in BAR 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "device/hca/hca.h"
#include "prm/memic.h"

namespace uhca::hca {

class Memic {
 public:
  // `memory`: Hca::kMemicBytes that are zero, and outlive this; nullptr: its own.
  explicit Memic(std::uint8_t* memory);

  // One allocation: `bytes` from the key of the map on.
  struct Block {
    std::uint64_t bytes = 0;
    unsigned operations = 0;  // bit per operation whose address has been asked for
  };

  // `size` bytes, zeroed, in [first, first + range), aligned to `align` (a power of two). nullopt: no room there.
  std::optional<std::uint64_t> allocate(std::uint64_t first, std::uint64_t range, std::uint64_t size, std::uint64_t align);
  // The block that begins there, or nullptr.
  Block* at(std::uint64_t start);
  // Whether [start, start + bytes) lies in one block.
  const Block* around(std::uint64_t start, std::uint64_t bytes) const;
  void free(std::uint64_t start) { blocks_.erase(start); }
  void reset() { blocks_.clear(); }
  std::size_t live() const { return blocks_.size(); }

  // The memory behind a range of the first window, for as long as its block lives; nullptr: not in the window.
  std::uint8_t* memory(std::uint64_t start, std::uint64_t bytes) const;

  // Where accesses to `start` perform `operation`.
  static std::uint64_t operation_address(std::uint64_t start, std::uint8_t operation) {
    return start + (std::uint64_t{operation} + 1) * Hca::kMemicBytes;
  }
  static bool in_windows(std::uint64_t offset) {
    return offset >= Hca::kMemicStart && offset - Hca::kMemicStart < Hca::kMemicWindows * Hca::kMemicBytes;
  }
  // A trapped access, of 1, 2, 4 or 8 aligned bytes in a window (values as in pci::Function). A load from an increment address, or where
  // nothing is allocated, is all ones; a store that is no operation goes nowhere.
  std::uint64_t load(std::uint64_t offset, unsigned size);
  void store(std::uint64_t offset, std::uint64_t value, unsigned size);

 private:
  // The memory that an access to a window means, and which window: 0 the memory itself, else operation + 1. nullptr: nothing.
  std::uint8_t* target(std::uint64_t offset, unsigned size, std::uint64_t* window) const;

  std::unique_ptr<std::uint8_t[]> own_;
  std::uint8_t* memory_;
  std::map<std::uint64_t, Block> blocks_;
};

}  // namespace uhca::hca
