// SPDX-License-Identifier: MIT
// The netdev whose identity (MAC, MTU, addresses) the port shares, and the addresses of this host.
// Source: getifaddrs(3), netdevice(7).
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "wire/roce/roce.h"

namespace uhca::wire {

struct NetdevInfo {
  std::string name;
  int ifindex = 0;
  Mac mac{};                   // never 0: interfaces without one (lo, tun) get a stable, locally administered one
  unsigned mtu = 0;            // bytes of the Ethernet payload
  std::vector<Gid> addresses;  // in the kernel's order; IPv4 mapped (::ffff:a.b.c.d)
};

// `wanted` empty: the first interface that is up, not loopback, and has an address; else lo. ENODEV: no such interface.
Result<NetdevInfo> choose_netdev(const std::string& wanted);

// Addresses of all interfaces of this host (network namespace), duplicates removed.
Result<std::vector<Gid>> local_addresses();

// The IPv4-mapped GID of four bytes in network order.
Gid mapped_gid(const void* ipv4);
bool is_mapped(const Gid& gid);

}  // namespace uhca::wire
