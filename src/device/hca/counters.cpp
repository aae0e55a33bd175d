// SPDX-License-Identifier: MIT
#include "device/hca/counters.h"

#include <algorithm>

namespace uhca::hca {
void Traffic::add(wire::Frame f) {
  Cast cast = kUnicast;
  if (!f.empty() && (std::to_integer<unsigned>(f[0]) & 1)) {
    bool all = f.size() >= 6 && std::all_of(f.begin(), f.begin() + 6, [](std::byte b) { return b == std::byte{0xff}; });
    cast = all ? kBroadcast : kMulticast;
  }
  count(cast, f.size(), 1);
}

Traffic Traffic::since(const Traffic& base) const {
  Traffic t;
  for (std::size_t i = 0; i < packets.size(); ++i) {
    t.packets[i] = packets[i] - base.packets[i];
    t.octets[i] = octets[i] - base.octets[i];
  }
  for (std::size_t i = 0; i < by_size.size(); ++i) t.by_size[i] = by_size[i] - base.by_size[i];
  return t;
}

}  // namespace uhca::hca
