// SPDX-License-Identifier: MIT
// Enhanced connection establishment: what two ends of a connection offer each other beyond the standard. The highest four bits are the
// version; this device knows the first, and no enhancement.
#pragma once

#include <cstdint>

namespace uhca::hca {

constexpr std::uint32_t granted_ece(std::uint32_t asked) {
  constexpr std::uint32_t kVersionMask = 0xf0000000, kFirstVersion = 0x10000000;
  return (asked & kVersionMask) == kFirstVersion ? kFirstVersion : 0;
}

}  // namespace uhca::hca
