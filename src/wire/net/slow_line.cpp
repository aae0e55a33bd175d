// SPDX-License-Identifier: MIT
#include "wire/net/slow_line.h"

#include <algorithm>

namespace uhca::wire {

Send SlowLine::send(Frame frame) {
  if (under_way_.size() >= kQueue) return Send::kBusy;
  const Nanos now = clock_.now();
  free_at_ = std::max(free_at_, now);
  if (rate_ != 0) free_at_ += (frame.size() + kOverhead) * 8 * 1'000'000'000 / rate_;
  under_way_.push_back({free_at_ + delay_, {frame.begin(), frame.end()}});
  if (under_way_.size() == 1) next_.store(under_way_.front().arrives, std::memory_order_relaxed);
  return Send::kSent;
}

void SlowLine::release() {
  const Nanos now = clock_.now();
  while (!under_way_.empty() && under_way_.front().arrives <= now) {
    const std::vector<std::byte>& f = under_way_.front().frame;
    if (inner_.send({f.data(), f.size()}) == Send::kBusy) break;
    under_way_.pop_front();
  }
  inner_.flush();
  next_.store(under_way_.empty() ? kNever : under_way_.front().arrives, std::memory_order_relaxed);
}

}  // namespace uhca::wire
