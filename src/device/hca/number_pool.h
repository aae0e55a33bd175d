// SPDX-License-Identifier: MIT
// Object numbers: fresh ones first, freed ones reused in the order in which they were freed, so that a stale number stays stale
// for as long as possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace uhca::hca {

class NumberPool {
 public:
  // Numbers first .. first + count - 1.
  NumberPool(std::uint32_t first, std::uint32_t count) : first_(first), next_(first), end_(first + count) {}

  std::optional<std::uint32_t> take() {
    if (next_ != end_) return next_++;
    if (freed_.empty()) return std::nullopt;
    std::uint32_t n = freed_.front();
    freed_.pop_front();
    return n;
  }
  void give_back(std::uint32_t n) { freed_.push_back(n); }
  void reset() {
    next_ = first_;
    freed_.clear();
  }

 private:
  std::uint32_t first_, next_, end_;
  std::deque<std::uint32_t> freed_;
};

}  // namespace uhca::hca
