// SPDX-License-Identifier: MIT
// Ones' complement sums of the Internet protocols (RFC 1071).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/types.h"

namespace uhca::hca {

// Sums 16-bit words of memory in any byte order; only the last piece may have an odd length (RFC 1071, 2: pad with zero).
class InetSum {
 public:
  InetSum& add(const void* p, std::size_t len) {
    const auto* b = static_cast<const std::uint8_t*>(p);
    for (; len >= 4; b += 4, len -= 4) {
      std::uint32_t w;
      std::memcpy(&w, b, 4);
      sum_ += w;
    }
    if (len > 0) {
      std::uint32_t w = 0;
      std::memcpy(&w, b, len);
      sum_ += w;
    }
    return *this;
  }
  // A number of the pseudo header, as it would stand in memory in network order.
  InetSum& add_word(std::uint32_t v) {
    sum_ += byteswap(v);
    return *this;
  }

  // The sum as a 16-bit number in host order; not complemented.
  std::uint16_t value() const {
    std::uint64_t s = (sum_ >> 32) + (sum_ & 0xffffffff);
    s = (s >> 32) + (s & 0xffffffff);
    s = (s >> 16) + (s & 0xffff);
    s = (s >> 16) + (s & 0xffff);
    s = (s >> 16) + (s & 0xffff);
    return byteswap(static_cast<std::uint16_t>(s));
  }
  // What goes into a checksum field.
  std::uint16_t checksum() const { return static_cast<std::uint16_t>(~value()); }

 private:
  std::uint64_t sum_ = 0;
};

}  // namespace uhca::hca
