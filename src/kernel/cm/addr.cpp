// SPDX-License-Identifier: MIT
#include "kernel/cm/addr.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/types.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel::cm {
namespace {

constexpr in6_addr kLoopback6 = IN6ADDR_LOOPBACK_INIT;

bool all_zero(const void* p, std::size_t n) {
  auto* b = static_cast<const std::uint8_t*>(p);
  return std::all_of(b, b + n, [](std::uint8_t x) { return x == 0; });
}

}  // namespace

std::size_t Sockaddr::size() const {
  switch (family()) {
    case AF_INET: return sizeof in;
    case AF_INET6: return sizeof in6;
    case kAfIb: return sizeof ib;
    default: return 0;
  }
}

bool Sockaddr::is_zero() const {
  switch (family()) {
    case AF_INET: return in.sin_addr.s_addr == 0;
    case AF_INET6: return all_zero(&in6.sin6_addr, 16);
    case kAfIb: return all_zero(ib.sib_addr, 16);
    default: return false;
  }
}

bool Sockaddr::is_loopback() const {
  switch (family()) {
    case AF_INET: return (ntohl(in.sin_addr.s_addr) >> 24) == 127;
    case AF_INET6: return std::memcmp(&in6.sin6_addr, &kLoopback6, 16) == 0;
    case kAfIb: return std::memcmp(ib.sib_addr, &kLoopback6, 16) == 0;
    default: return false;
  }
}

bool Sockaddr::is_multicast() const {
  if (family() == AF_INET) return IN_MULTICAST(ntohl(in.sin_addr.s_addr));
  return family() == AF_INET6 && in6.sin6_addr.s6_addr[0] == 0xff;
}

bool Sockaddr::is_link_local() const {
  return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6.sin6_addr);
}

std::uint16_t Sockaddr::port() const {
  switch (family()) {
    case AF_INET: return ntohs(in.sin_port);
    case AF_INET6: return ntohs(in6.sin6_port);
    case kAfIb: return static_cast<std::uint16_t>(byteswap(ib.sib_sid) & byteswap(ib.sib_sid_mask));
    default: return 0;
  }
}

void Sockaddr::set_port(std::uint16_t port) {
  switch (family()) {
    case AF_INET: in.sin_port = htons(port); break;
    case AF_INET6: in6.sin6_port = htons(port); break;
    case kAfIb:
      ib.sib_sid = byteswap((byteswap(ib.sib_sid) & byteswap(ib.sib_sid_mask)) | port);
      ib.sib_sid_mask = ~std::uint64_t{0};
      break;
    default: break;
  }
}

ib_gid Sockaddr::gid() const {
  ib_gid g{};
  switch (family()) {
    case AF_INET:
      g[10] = g[11] = 0xff;
      std::memcpy(&g[12], &in.sin_addr, 4);
      break;
    case AF_INET6: std::memcpy(g.data(), &in6.sin6_addr, 16); break;
    case kAfIb: std::memcpy(g.data(), ib.sib_addr, 16); break;
    default: break;
  }
  return g;
}

bool Sockaddr::same_address(const Sockaddr& o) const {
  return family() == o.family() && gid() == o.gid() && (!is_link_local() || in6.sin6_scope_id == o.in6.sin6_scope_id);
}

std::string Sockaddr::text() const {
  char buf[INET6_ADDRSTRLEN] = "?";
  switch (family()) {
    case AF_INET: inet_ntop(AF_INET, &in.sin_addr, buf, sizeof buf); return fmt::format("{}:{}", buf, port());
    case AF_INET6: inet_ntop(AF_INET6, &in6.sin6_addr, buf, sizeof buf); return fmt::format("[{}]:{}", buf, port());
    case kAfIb: inet_ntop(AF_INET6, ib.sib_addr, buf, sizeof buf); return fmt::format("ib {} sid {:#x}", buf, byteswap(ib.sib_sid));
    default: return fmt::format("family {}", family());
  }
}

Sockaddr Sockaddr::any(unsigned short family) {
  Sockaddr a;
  a.sa.sa_family = family;
  return a;
}

Sockaddr sockaddr_of_gid(const ib_gid& gid) {
  Sockaddr a;
  if (is_v4_mapped(gid)) {
    a.in.sin_family = AF_INET;
    std::memcpy(&a.in.sin_addr, &gid[12], 4);
  } else {
    a.in6.sin6_family = AF_INET6;
    std::memcpy(&a.in6.sin6_addr, gid.data(), 16);
  }
  return a;
}

// ---------------------------------------------------------------- routing

namespace {

class RouteRequest {
 public:
  RouteRequest(int family) {
    msg_.nlh.nlmsg_type = RTM_GETROUTE;
    msg_.nlh.nlmsg_flags = NLM_F_REQUEST;
    msg_.nlh.nlmsg_len = NLMSG_LENGTH(sizeof(rtmsg));
    msg_.rtm.rtm_family = static_cast<unsigned char>(family);
  }
  void attr(unsigned short type, const void* data, std::size_t n) {
    auto* a = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(&msg_) + NLMSG_ALIGN(msg_.nlh.nlmsg_len));
    a->rta_type = type;
    a->rta_len = static_cast<unsigned short>(RTA_LENGTH(n));
    std::memcpy(RTA_DATA(a), data, n);
    msg_.nlh.nlmsg_len = static_cast<std::uint32_t>(NLMSG_ALIGN(msg_.nlh.nlmsg_len) + RTA_ALIGN(a->rta_len));
    if (type == RTA_DST) msg_.rtm.rtm_dst_len = static_cast<unsigned char>(n * 8);
    if (type == RTA_SRC) msg_.rtm.rtm_src_len = static_cast<unsigned char>(n * 8);
  }
  const nlmsghdr& header() const { return msg_.nlh; }

 private:
  struct {
    nlmsghdr nlh{};
    rtmsg rtm{};
    char attrs[128]{};
  } msg_;
};

void put_address(ib_gid& gid, bool v4, const rtattr* a) {
  gid = {};
  if (v4) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(&gid[12], RTA_DATA(a), 4);
  } else {
    std::memcpy(gid.data(), RTA_DATA(a), 16);
  }
}

bool resolves_neighbours(int ifindex) {
  ifreq r{};
  if (!if_indextoname(static_cast<unsigned>(ifindex), r.ifr_name)) return false;
  int s = static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (s < 0) return false;
  bool ok = ioctl(s, SIOCGIFFLAGS, &r) == 0 && !(r.ifr_flags & (IFF_NOARP | IFF_LOOPBACK | IFF_POINTOPOINT));
  syscall(SYS_close, s);
  return ok;
}

}  // namespace

Result<IpRoute> ip_route(const ib_gid& dst, const ib_gid* src, int ifindex) {
  bool v4 = is_v4_mapped(dst);
  std::size_t n = v4 ? 4 : 16;
  RouteRequest q(v4 ? AF_INET : AF_INET6);
  q.attr(RTA_DST, v4 ? &dst[12] : dst.data(), n);
  if (src) q.attr(RTA_SRC, v4 ? &(*src)[12] : src->data(), n);
  if (ifindex) q.attr(RTA_OIF, &ifindex, sizeof ifindex);
  int s = static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (s < 0) return refuse(errno, "rdma_cm: no socket to ask for a route");
  alignas(nlmsghdr) char buf[4096];
  long got = -1;
  if (syscall(SYS_sendto, s, &q.header(), q.header().nlmsg_len, 0, nullptr, 0) > 0)
    got = syscall(SYS_recvfrom, s, buf, sizeof buf, 0, nullptr, nullptr);
  int err = errno;
  syscall(SYS_close, s);
  auto* h = reinterpret_cast<nlmsghdr*>(buf);
  if (got < static_cast<long>(sizeof *h) || !NLMSG_OK(h, static_cast<unsigned>(got)))
    return refuse(err ? err : EIO, "rdma_cm: no answer about a route");
  if (h->nlmsg_type == NLMSG_ERROR) {
    int e = -static_cast<nlmsgerr*>(NLMSG_DATA(h))->error;
    return refuse(e ? e : EIO, "rdma_cm: no route to {}{}", sockaddr_of_gid(dst).text(),
                  src ? " from " + sockaddr_of_gid(*src).text() : "");
  }
  auto* rtm = static_cast<rtmsg*>(NLMSG_DATA(h));
  IpRoute r;
  r.local = rtm->rtm_type == RTN_LOCAL;
  r.next_hop = dst;
  if (src) r.source = *src;
  int left = static_cast<int>(RTM_PAYLOAD(h));
  for (auto* a = RTM_RTA(rtm); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
    if (a->rta_type == RTA_OIF) std::memcpy(&r.ifindex, RTA_DATA(a), sizeof r.ifindex);
    if (RTA_PAYLOAD(a) < n) continue;
    if (a->rta_type == RTA_GATEWAY) put_address(r.next_hop, v4, a);
    if (a->rta_type == RTA_PREFSRC && !src) put_address(r.source, v4, a);
  }
  if (r.local) r.source = dst;
  r.needs_neighbour = !r.local && rtm->rtm_type == RTN_UNICAST && resolves_neighbours(r.ifindex);
  return r;
}

void ip_solicit(const ib_gid& dst, int ifindex) {
  Sockaddr to = sockaddr_of_gid(dst);
  to.set_port(9);
  if (to.is_link_local()) to.in6.sin6_scope_id = static_cast<std::uint32_t>(ifindex);
  int s = static_cast<int>(syscall(SYS_socket, to.family(), SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (s < 0) return;
  syscall(SYS_sendto, s, "", 0, MSG_DONTWAIT, &to, to.size());
  syscall(SYS_close, s);
}

}  // namespace uhca::kernel::cm
