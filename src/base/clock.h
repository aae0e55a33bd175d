// SPDX-License-Identifier: MIT
// Time is injected: the same engine runs on the machine's clock and on a virtual one (DESIGN, decision 10).
#pragma once

#include <cstdint>

namespace uhca {

// Nanoseconds since an arbitrary start; never goes back.
using Nanos = std::uint64_t;
inline constexpr Nanos kNever = ~Nanos{0};

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Nanos now() const = 0;
  // Likewise, cheaper, and right but for a few nanoseconds: may go back by these, and from one thread to another.
  virtual Nanos recent() const { return now(); }
};

// CLOCK_MONOTONIC.
class SystemClock final : public Clock {
 public:
  Nanos now() const override;
  Nanos recent() const override;
  static SystemClock& instance();
};

// Stands still until told otherwise.
class VirtualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos d) { now_ += d; }
  void set(Nanos t) { now_ = t; }

 private:
  Nanos now_ = 1'000'000'000;
};

}  // namespace uhca
