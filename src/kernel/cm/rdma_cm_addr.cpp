// SPDX-License-Identifier: MIT
// Binding, and from addresses to GIDs and paths.
#include <algorithm>

#include "base/log.h"
#include "kernel/cm/rdma_cm.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::uint8_t kIboePacketLifetime = 16;  // Linux: CMA_IBOE_PACKET_LIFETIME
constexpr std::uint8_t kHopLimit = 64;            // of an IP packet of this host
constexpr Nanos kNeighbourLook = 5'000'000;

// Linux: cma_select_ib_ps. The port space that an AF_IB service id lies in; 0: none that the id may use.
std::uint16_t select_ib_ps(std::uint16_t ps, Sockaddr& a) {
  constexpr std::uint64_t kPsMask = 0xffff'ffff'ffff'0000;
  std::uint64_t mask = byteswap(a.ib.sib_sid_mask) & kPsMask;
  std::uint64_t sid = byteswap(a.ib.sib_sid) & mask;
  for (std::uint16_t p : {kPsIb, kPsTcp, kPsUdp}) {
    std::uint64_t base = std::uint64_t{p} << 16;
    if ((ps != kPsIb && ps != p) || sid != (base & mask)) continue;
    std::uint16_t port = a.port();
    a.ib.sib_sid = byteswap(base | port);
    a.ib.sib_sid_mask = byteswap(kPsMask | byteswap(a.ib.sib_sid_mask));
    return p;
  }
  return 0;
}

}  // namespace

Status RdmaCm::bind_addr(RdmaId& id, const Sockaddr& addr) {
  return bind_addr_dst(id, addr, id.dst);
}

Status RdmaCm::acquire_dev_by_src(RdmaId& id) {
  if (id.ps == kPsIpoib) return refuse(EINVAL, "rdma_cm: RDMA_PS_IPOIB needs an InfiniBand port");
  if (id.src.family() == kAfIb) return refuse(ENODEV, "rdma_cm: AF_IB addresses belong to InfiniBand ports; the port is Ethernet");
  if (removed_) return refuse(ENODEV, "rdma_cm: no RDMA device has a GID for {}: the device was removed", id.src.text());
  auto gid = env_.device().find_gid(id.src.gid(), true);
  if (!gid) gid = env_.device().find_gid(id.src.gid(), false);
  if (!gid) return refuse(ENODEV, "rdma_cm: no RDMA device has a GID for {}", id.src.text());
  id.sgid_attr = *gid;
  id.port_num = env_.device().port_num();
  id.bound = true;
  if (!id.bound_dev_if) id.bound_dev_if = static_cast<int>(gid->ifindex);
  return success();
}

Status RdmaCm::bind_addr_dst(RdmaId& id, const Sockaddr& src, const Sockaddr& dst) {
  if (src.size() == 0) return refuse(EAFNOSUPPORT, "rdma_cm: address family {}", src.family());
  if (id.state != RdmaState::IDLE) return refuse(EINVAL, "rdma_cm: bind in state {}", to_string(id.state));
  if (src.is_link_local()) {
    if (!src.in6.sin6_scope_id) return refuse(EINVAL, "rdma_cm: link-local address {} without a scope id", src.text());
    id.bound_dev_if = static_cast<int>(src.in6.sin6_scope_id);
  }
  Sockaddr old = id.src;
  id.src = src;
  auto fail = [&](Errno e) {
    id.src = old;
    id.bound = false;
    id.sgid_attr = {};
    return e;
  };
  if (!src.is_any()) {
    if (src.family() != kAfIb && !env_.is_local_address(src.gid()))
      return fail(refuse(EADDRNOTAVAIL, "rdma_cm: {} is no address of this host", src.text()));
    if (Status s = acquire_dev_by_src(id); !s) return fail(s.error());
  }
  if (!id.afonly_set) id.afonly = src.family() == AF_INET;
  std::uint16_t ps = src.family() == kAfIb ? select_ib_ps(id.ps, id.src) : id.ps;
  if (!ps) return fail(refuse(EPROTONOSUPPORT, "rdma_cm: port space {:#x} does not go with {}", id.ps, src.text()));
  id.dst = dst;
  id.dst.sa.sa_family = src.family();
  id.port.afonly = id.afonly;
  id.port.reuseaddr = id.reuseaddr;
  if (Status s = ports_.bind(id.port, ps, id.src, id.dst); !s) return fail(s.error());
  id.state = RdmaState::ADDR_BOUND;
  return success();
}

Status RdmaCm::bind_loopback(RdmaId& id) {
  // Linux has a loopback GID on InfiniBand only and answers ENODEV for RoCE; here the port's own address stands in for it, so that
  // connections to 127.0.0.1 and ::1 work.
  ib_gid_attr gid = env_.loopback_gid();
  if (!gid.valid || removed_) return refuse(ENODEV, "rdma_cm: no RDMA device with a GID for loopback");
  id.sgid_attr = gid;
  id.port_num = env_.device().port_num();
  id.bound = true;
  id.bound_dev_if = static_cast<int>(gid.ifindex);
  std::uint16_t port = id.src.port();
  if (id.src.family() == AF_INET) {
    id.src.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else if (id.src.family() == AF_INET6) {
    id.src.in6.sin6_addr = in6addr_loopback;
  } else {
    return refuse(ENODEV, "rdma_cm: AF_IB addresses belong to InfiniBand ports; the port is Ethernet");
  }
  id.src.set_port(port);
  return success();
}

Status RdmaCm::resolve_addr(RdmaId& id, const Sockaddr& src, const Sockaddr& dst, std::uint32_t timeout_ms) {
  if (id.state == RdmaState::ADDR_BOUND) {
    id.dst = dst;
  } else {
    Sockaddr from = src;
    if (!src.family()) {
      from = Sockaddr::any(dst.family());
      if (dst.family() == AF_INET6) {
        from.in6.sin6_scope_id = dst.in6.sin6_scope_id;
        if (dst.is_link_local()) id.bound_dev_if = static_cast<int>(dst.in6.sin6_scope_id);
      } else if (dst.family() == kAfIb) {
        from.ib.sib_pkey = dst.ib.sib_pkey;
      }
    }
    UHCA_CHECK(bind_addr_dst(id, from, dst));
  }
  if (id.src.family() != dst.family())
    return refuse(EINVAL, "rdma_cm: source {} and destination {} are of different families", id.src.text(), dst.text());

  if (dst.is_any()) {
    if (!id.bound) UHCA_CHECK(bind_loopback(id));
    id.state = RdmaState::ADDR_QUERY;
    queries_.push_back({.id = &id, .deadline = now_, .next_look = now_});
    return success();
  }
  if (dst.family() == kAfIb) return refuse(ENODEV, "rdma_cm: AF_IB addresses belong to InfiniBand ports; the port is Ethernet");
  ib_gid from = id.src.gid();
  IpRoute route = UHCA_TRY(env_.route(dst.gid(), id.src.is_any() ? nullptr : &from, id.bound_dev_if));
  id.state = RdmaState::ADDR_QUERY;
  Query q{.id = &id,
          .source = id.src.is_any() ? route.source : from,
          .next_hop = route.next_hop,
          .ifindex = route.ifindex,
          .deadline = now_,
          .next_look = now_};
  if (route.needs_neighbour && !env_.neighbour_known(route.ifindex, route.next_hop)) {
    env_.solicit(route.next_hop, route.ifindex);
    q.neighbour = true;
    q.deadline = now_ + Nanos{timeout_ms} * 1'000'000;
    q.next_look = now_ + kNeighbourLook;
  }
  queries_.push_back(q);
  return success();
}

// `source`: the address that the host's routing chose; zero: the id has its own. Linux: addr_handler.
void RdmaCm::addr_resolved(RdmaId& id, const ib_gid& source, int status) {
  if (id.state != RdmaState::ADDR_QUERY) return;
  Sockaddr old = id.src;
  if (source != ib_gid{} && !status) {
    std::uint16_t port = id.src.port();
    Sockaddr chosen = sockaddr_of_gid(source);
    if (chosen.is_link_local()) chosen.in6.sin6_scope_id = static_cast<std::uint32_t>(id.bound_dev_if);
    id.src = chosen;
    id.src.set_port(port);
  }
  if (!status && !id.bound) {
    // An address of lo, or of another interface that has no RDMA device: nothing to go out by.
    if (Status s = id.src.is_loopback() ? bind_loopback(id) : acquire_dev_by_src(id); !s) status = -s.code();
  }
  RdmaEvent e;
  e.status = status;
  if (status) {
    id.src = old;
    id.state = RdmaState::ADDR_BOUND;
    e.type = RdmaEventType::ADDR_ERROR;
  } else {
    id.state = RdmaState::ADDR_RESOLVED;
    e.type = RdmaEventType::ADDR_RESOLVED;
  }
  deliver_or_destroy(id, e);
}

void RdmaCm::cancel_query(RdmaId& id) {
  queries_.remove_if([&](const Query& q) { return q.id == &id; });
}

void RdmaCm::run_timers() {
  for (auto it = queries_.begin(); it != queries_.end();) {
    if (it->next_look > now_ && it->deadline > now_) {
      ++it;
      continue;
    }
    bool known = !it->neighbour || env_.neighbour_known(it->ifindex, it->next_hop);
    if (!known && it->deadline > now_) {
      it->next_look = now_ + kNeighbourLook;
      ++it;
      continue;
    }
    Query q = *it;
    it = queries_.erase(it);
    if (q.id->state == RdmaState::ROUTE_QUERY) {
      route_resolved(*q.id);
      continue;
    }
    if (!known)
      (void)refuse(ETIMEDOUT, "rdma_cm: {} does not answer address resolution (next hop {})", q.id->dst.text(),
                   sockaddr_of_gid(q.next_hop).text());
    addr_resolved(*q.id, q.source, known ? 0 : -ETIMEDOUT);
  }
}

Nanos RdmaCm::next_deadline() const {
  Nanos t = kNever;
  for (const Query& q : queries_) t = std::min({t, q.next_look, q.deadline});
  return t;
}

Status RdmaCm::resolve_route(RdmaId& id, std::uint32_t timeout_ms) {
  if (!timeout_ms) return refuse(EINVAL, "rdma_cm: resolve_route with a timeout of 0");
  if (id.state != RdmaState::ADDR_RESOLVED) return refuse(EINVAL, "rdma_cm: resolve_route in state {}", to_string(id.state));
  PathRec p;
  p.sgid = id.src.is_loopback() ? id.sgid_attr.gid : id.src.gid();
  p.dgid = id.dst.is_any() ? id.sgid_attr.gid : id.dst.gid();
  p.roce_v2 = id.sgid_attr.roce_v2;
  p.hop_limit = kHopLimit;
  p.traffic_class = id.tos;
  p.mtu = env_.active_mtu();
  p.packet_life_time = id.ack_timeout_set && id.ack_timeout ? static_cast<std::uint8_t>(id.ack_timeout - 1) : kIboePacketLifetime;
  // Spreads flows over the ports of UDP, hence over paths (Linux: cma_get_roce_udp_flow_label).
  std::uint32_t label = id.src.family() == AF_INET6 ? ntohl(id.src.in6.sin6_flowinfo) & 0xfffff : 0;
  p.flow_label = label ? label : (id.src.port() * 31u + id.dst.port()) & 0xfffff;
  if (!p.mtu) return refuse(EINVAL, "rdma_cm: the netdev's MTU leaves no room for a path MTU");
  id.path = p;
  id.state = RdmaState::ROUTE_QUERY;
  queries_.push_back({.id = &id, .deadline = now_, .next_look = now_});
  return success();
}

// Linux: cma_work_handler.
void RdmaCm::route_resolved(RdmaId& id) {
  id.state = RdmaState::ROUTE_RESOLVED;
  RdmaEvent e;
  e.type = RdmaEventType::ROUTE_RESOLVED;
  deliver_or_destroy(id, e);
}

Status RdmaCm::set_ib_path(RdmaId& id, const PathRec& path) {
  if (id.state != RdmaState::ADDR_RESOLVED) return refuse(EINVAL, "rdma_cm: a path is set in state {}", to_string(id.state));
  id.path = path;
  id.path->roce_v2 = id.sgid_attr.roce_v2;
  id.state = RdmaState::ROUTE_RESOLVED;
  RdmaEvent e;
  e.type = RdmaEventType::ROUTE_RESOLVED;
  return deliver(id, e);
}

Status RdmaCm::resolve_ib_service(RdmaId& id) {
  if (!id.bound || id.state != RdmaState::ADDR_BOUND)
    return refuse(EINVAL, "rdma_cm: resolve_ib_service in state {}, {}", to_string(id.state), id.bound ? "bound" : "without a device");
  return refuse(EOPNOTSUPP, "rdma_cm: service records are kept by a subnet administrator; an Ethernet port has none");
}

}  // namespace uhca::kernel::cm
