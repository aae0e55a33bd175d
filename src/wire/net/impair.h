// SPDX-License-Identifier: MIT
// A bad wire on purpose: a decorator that loses, doubles, reorders, damages, delays and paces what is sent, by seeded rules.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/net/counters.h"
#include "wire/net/port.h"
#include "wire/net/slow_line.h"

namespace uhca::wire {

struct ImpairRules {
  // Probabilities of 2^-32 each.
  std::uint32_t drop = 0, duplicate = 0, reorder = 0, corrupt = 0;
  std::vector<std::uint64_t> drop_at;  // frames to lose, counted from 1
  Nanos delay = 0;
  std::uint64_t rate = 0;  // bits a second; 0: no limit
  std::uint64_t seed = 1;
};

// "drop=0.01,dup=0.001,reorder=0.01,corrupt=0.001,drop_at=3:7,delay=50us,rate=10g,seed=42" (all optional; delays in ns, us, ms or s, rates
// in bits a second with k, m or g behind them). EINVAL names the part that is wrong.
Result<ImpairRules> parse_impair_rules(std::string_view text);

class Impair final : public Port {
 public:
  // `inner` and `clock` must outlive this.
  Impair(Port& inner, ImpairRules rules, const Clock& clock = SystemClock::instance());

  Send send(Frame frame) override;
  void flush() override { inner_.flush(); }
  unsigned poll(FrameSink& sink, unsigned budget, bool thorough) override;
  void want_group(const std::array<std::uint8_t, 16>& gid, bool wanted) override { inner_.want_group(gid, wanted); }
  Send send_ethernet(Frame frame) override { return inner_.send_ethernet(frame); }
  void want_ethernet(bool wanted) override { inner_.want_ethernet(wanted); }
  int wait_fd() const override { return inner_.wait_fd(); }
  void set_asleep(bool asleep) override { inner_.set_asleep(asleep); }
  Nanos service(Nanos now) override { return std::min(inner_.service(now), next()); }
  // When poll() has to be called at the latest, for what is under way.
  Nanos next() const { return line_.next(); }
  bool holds_frames() const override { return inner_.holds_frames(); }

  Counter dropped, duplicated, reordered, corrupted;

 private:
  bool chance(std::uint32_t p) { return p && static_cast<std::uint32_t>(random() >> 32) < p; }
  std::uint64_t random();
  Send pass(Frame frame);
  Send forward(Frame frame) { return line_.slow() ? line_.send(frame) : inner_.send(frame); }
  void release_held();

  Port& inner_;
  ImpairRules rules_;
  SlowLine line_;
  std::uint64_t state_;
  std::uint64_t sent_ = 0;
  std::vector<std::byte> held_;  // overtaken by the next frame, or sent at the next poll
  std::size_t held_size_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace uhca::wire
