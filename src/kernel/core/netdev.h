// SPDX-License-Identifier: MIT
// What the core asks the host's network stack: addresses, MAC, neighbours.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

struct NetdevAddresses {
  int ifindex = 0;  // 0: no such netdev
  std::array<std::uint8_t, 6> mac{};
  std::vector<ib_gid> addresses;  // IPv4 (as ::ffff:a.b.c.d) before IPv6, each in the kernel's order
};
NetdevAddresses netdev_addresses(const std::string& netdev);

// Whether an interface of this host has that address.
bool is_local_address(const ib_gid& gid);

// The kernel's neighbour table (RTM_GETNEIGH): false when there is no entry with a link-layer address.
bool find_neighbour(int ifindex, const ib_gid& gid, std::array<std::uint8_t, 6>& mac);

bool is_v4_mapped(const ib_gid& g);

}  // namespace uhca::kernel
