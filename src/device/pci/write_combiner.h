// SPDX-License-Identifier: MIT
// What a processor's write-combining buffer does, behind the trap: a guest's 64-byte copy to a BlueFlame register arrives as eight stores
// of 8 bytes, one message each, which become one write again. Real counterpart: the WC memory type of the page (Intel SDM vol. 3, 12.3.1).
#pragma once

#include <array>
#include <cstdint>
#include <unordered_set>

#include "base/clock.h"
#include "device/pci/function.h"

namespace uhca::pci {

// A store to the start of a line may be a doorbell of 8 bytes, with nothing to follow: only a page on which stores were seen to follow has
// its first stores held back, and only until one does not.
class WriteCombiner {
 public:
  static constexpr unsigned kLine = 64;
  // How long the next store of a copy may take to arrive, nanoseconds: some traps.
  static constexpr Nanos kPatience = 300'000;

  WriteCombiner(Function& device, Nanos patience) : device_(device), patience_(patience) {}

  // A store of 8 bytes to BAR 0.
  void store(std::uint64_t offset, std::uint64_t value, Nanos now);
  // Passes on what is held. Before every access that is no store() as well: nothing overtakes.
  void flush();
  // When `flush_late` must be called; kNever: nothing is held.
  Nanos deadline() const { return held_ == 0 ? kNever : deadline_; }
  void flush_late(Nanos now);
  void reset();

 private:
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

  Function& device_;
  const Nanos patience_;
  std::array<std::uint64_t, kLine / 8> words_{};
  unsigned held_ = 0;              // words of the line at `line_` that are held
  std::uint64_t line_ = 0;         // offset in BAR 0
  std::uint64_t next_ = kNowhere;  // where the second store of a line would go that was begun without holding it
  Nanos deadline_ = kNever;
  std::unordered_set<std::uint64_t> combining_;  // pages, by number
};

}  // namespace uhca::pci
