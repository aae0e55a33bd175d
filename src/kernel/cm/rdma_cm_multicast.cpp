// SPDX-License-Identifier: MIT
// Multicast groups of UD ids. On Ethernet there is no subnet administrator to ask: the group's MGID is the IP address, and the host
// joins it by IGMP. Linux: cma_iboe_join_multicast.
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "kernel/cm/rdma_cm.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::uint32_t kMulticastQpn = 0xffffff;
constexpr std::uint8_t kHopLimit = 64;  // IPV6_DEFAULT_HOPLIMIT
constexpr int kErrnoNotSupp = 524;      // ENOTSUPP, which the C library has no name for

// A socket that is a member of the group on that interface; -1 with errno.
int join_group(const Sockaddr& group, int ifindex) {
  int s = fd::adopt(static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (s < 0) return -1;
  ip_mreqn m{};
  m.imr_multiaddr = group.in.sin_addr;
  m.imr_ifindex = ifindex;
  if (setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m) == 0) return s;
  int err = errno;
  fd::close(s);
  errno = err;
  return -1;
}

}  // namespace

Status RdmaCm::join_multicast(RdmaId& id, const Sockaddr& addr, bool send_only, void* context) {
  if (!id.bound || (id.state != RdmaState::ADDR_BOUND && id.state != RdmaState::ADDR_RESOLVED))
    return refuse(EINVAL, "rdma_cm: join_multicast in state {}, {}", to_string(id.state), id.bound ? "bound" : "without a device");
  if (id.qp_type != ib_qp_type::UD) return refuse(EINVAL, "rdma_cm: join_multicast of an id that is not UD");
  if (addr.is_zero()) return refuse(EINVAL, "rdma_cm: join_multicast of a zero address");
  if (!id.bound_dev_if) return refuse(ENODEV, "rdma_cm: join_multicast of an id without an interface");
  if (addr.family() != AF_INET) return refuse(kErrnoNotSupp, "rdma_cm: RoCE v2 has multicast groups of IPv4 addresses only");

  auto mc = std::make_unique<RdmaMulticast>();
  mc->addr = addr;
  mc->context = context;
  if (!send_only) {
    mc->membership = join_group(addr, id.bound_dev_if);
    if (mc->membership < 0) return refuse(errno, "rdma_cm: the host cannot join {}", addr.text());
  }
  if (!id.qkey) set_default_qkey(id);

  RdmaEvent e;
  e.type = RdmaEventType::MULTICAST_JOIN;
  e.multicast = context;
  e.ud.ah_attr.is_global = true;
  e.ud.ah_attr.dgid = addr.gid();
  e.ud.ah_attr.sgid_attr = id.sgid_attr;
  e.ud.ah_attr.sgid_index = static_cast<std::uint8_t>(id.sgid_attr.index);
  e.ud.ah_attr.hop_limit = kHopLimit;
  e.ud.ah_attr.port_num = id.port_num;
  e.ud.qp_num = kMulticastQpn;
  e.ud.qkey = id.qkey;
  id.multicasts.push_back(std::move(mc));
  return deliver(id, e);
}

void RdmaCm::leave_multicast(RdmaId& id, const Sockaddr& addr) {
  for (auto it = id.multicasts.begin(); it != id.multicasts.end(); ++it) {
    if (!(*it)->addr.same_address(addr)) continue;
    id.multicasts.erase(it);
    return;
  }
}

}  // namespace uhca::kernel::cm
