// SPDX-License-Identifier: MIT
// MAC addresses of functions that have one of their own on the host switch (a guest's HCA; a program's HCA shares the netdev's). The
// address names the slot, so that the switch forwards without learning.
#pragma once

#include <cstring>

#include "wire/roce/roce.h"

namespace uhca::wire {

// In the place of a slot: a function that is on the wire of an interface and not on the host switch, so that functions of that host do not
// look for it there.
inline constexpr unsigned kOffTheSwitch = 0xffff;

// Locally administered, unicast; the last three bytes are the netdev's.
inline Mac function_mac(const Mac& netdev, unsigned slot) {
  Mac m = netdev;
  m[0] = static_cast<std::uint8_t>((m[0] | 2) & ~1);
  m[1] = static_cast<std::uint8_t>(slot >> 8);
  m[2] = static_cast<std::uint8_t>(slot);
  return m;
}

// The slot whose function has this address; 0: none.
inline unsigned slot_of(const Mac& netdev, const std::uint8_t* mac) {
  unsigned slot = mac[1] << 8 | mac[2];
  return slot < 1u << 12 && function_mac(netdev, slot) == Mac{mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]} &&
                 std::memcmp(mac, netdev.data(), netdev.size()) != 0
             ? slot
             : 0;
}

}  // namespace uhca::wire
