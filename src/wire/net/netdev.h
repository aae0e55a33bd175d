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
  Gid default_gid{};           // link-local, from the interface's own MAC (0 where it has none), as the host's RDMA core derives it
  unsigned mtu = 0;            // bytes of the Ethernet payload
  std::vector<Gid> addresses;  // in the kernel's order; IPv4 mapped (::ffff:a.b.c.d)
};

// `wanted` empty: the first interface that is up, not loopback, and has an address; else lo. ENODEV: no such interface.
Result<NetdevInfo> choose_netdev(const std::string& wanted);

// Addresses of all interfaces of this host (network namespace), duplicates removed.
Result<std::vector<Gid>> local_addresses();

// The IPv4-mapped GID of four bytes in network order.
Gid mapped_gid(const void* ipv4);
// fe80:: and the EUI-64 of the MAC: the default GID of a RoCE port.
Gid link_local_gid(const Mac& mac);
bool is_mapped(const Gid& gid);

}  // namespace uhca::wire
