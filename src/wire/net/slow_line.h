// SPDX-License-Identifier: MIT
// A long or narrow line in front of a port: each frame takes the time that its bits need, one after the other, and arrives later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "wire/net/port.h"

namespace uhca::wire {

class SlowLine {
 public:
  // `bits_per_second` 0: as fast as can be. What `inner` and `clock` are must outlive this.
  SlowLine(Port& inner, std::uint64_t bits_per_second, Nanos delay, const Clock& clock)
      : inner_(inner), rate_(bits_per_second), delay_(delay), clock_(clock) {}

  bool slow() const { return rate_ != 0 || delay_ != 0; }
  // kBusy: as many frames as a port's queue holds are under way.
  Send send(Frame frame);
  // Hands on what has arrived.
  void release();
  // When release() has something to do again; from any thread.
  Nanos next() const { return next_.load(std::memory_order_relaxed); }

  static constexpr std::size_t kQueue = 1024;  // frames
  // What a frame takes on an Ethernet beyond its own bytes: FCS, preamble, gap (IEEE 802.3).
  static constexpr std::size_t kOverhead = 4 + 8 + 12;

 private:
  struct UnderWay {
    Nanos arrives;
    std::vector<std::byte> frame;
  };

  Port& inner_;
  const std::uint64_t rate_;
  const Nanos delay_;
  const Clock& clock_;
  Nanos free_at_ = 0;  // the line, of the frames before
  std::deque<UnderWay> under_way_;
  std::atomic<Nanos> next_{kNever};
};

}  // namespace uhca::wire
