// SPDX-License-Identifier: MIT
// Socket addresses of the three families that rdma_cm knows, and what the host's IP stack says about them.
// Linux: drivers/infiniband/core/addr.c, <rdma/ib_addr.h>.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel::cm {

inline constexpr unsigned short kAfIb = 27;  // AF_IB

// Linux: struct sockaddr_ib (<rdma/ib.h>), in the uapi by its use in rdma_user_cm.h.
struct sockaddr_ib {
  unsigned short sib_family;
  std::uint16_t sib_pkey;
  std::uint32_t sib_flowinfo;
  std::uint8_t sib_addr[16];
  std::uint64_t sib_sid;       // big-endian
  std::uint64_t sib_sid_mask;  // big-endian
  std::uint64_t sib_scope_id;
};

union Sockaddr {
  sockaddr sa;
  sockaddr_in in;
  sockaddr_in6 in6;
  sockaddr_ib ib;
  sockaddr_storage ss;

  Sockaddr() : ss{} {}
  unsigned short family() const { return sa.sa_family; }
  // 0 for a family that is none of ours.
  std::size_t size() const;
  bool is_zero() const;
  bool is_loopback() const;
  // Zero or loopback: rdma_cm takes both as "any address" (Linux: cma_any_addr).
  bool is_any() const { return is_zero() || is_loopback(); }
  bool is_multicast() const;
  bool is_link_local() const;
  // Host order. AF_IB: the part of the service id that the mask leaves open or names.
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  // The address as a GID: ::ffff:a.b.c.d for IPv4.
  ib_gid gid() const;
  // 0: same address. Link-local ones are the same only on the same interface.
  bool same_address(const Sockaddr& o) const;
  std::string text() const;

  static Sockaddr any(unsigned short family);
};

// From `gid` back to an address of family `family`; port 0.
Sockaddr sockaddr_of_gid(const ib_gid& gid);

// Where the host's routing table sends a packet.
struct IpRoute {
  int ifindex = 0;
  bool local = false;            // the destination is an address of this host
  bool needs_neighbour = false;  // the link resolves addresses (ARP, ND)
  ib_gid source{};               // preferred source address
  ib_gid next_hop{};
};
// ENETUNREACH, EHOSTUNREACH, ... as the kernel answers. `ifindex`: only through that interface; 0: any.
Result<IpRoute> ip_route(const ib_gid& dst, const ib_gid* src, int ifindex);
// Makes the kernel resolve the next hop (an empty datagram to the discard port does), without waiting.
void ip_solicit(const ib_gid& dst, int ifindex);

}  // namespace uhca::kernel::cm
