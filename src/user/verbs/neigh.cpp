// SPDX-License-Identifier: MIT
// Which Ethernet address leads to an IP address: route lookup, then the kernel's neighbour table; when that has no entry, a datagram to the
// discard port makes the kernel ask (rdma-core's neigh.c does the same through libnl).
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "user/verbs/internal.h"

// After <net/if.h>: the kernel's own header of the VLAN ioctls.
#include <linux/if_vlan.h>
#include <linux/sockios.h>

namespace uhca::verbs {
namespace {

constexpr int kTries = 11, kTryMs = 3000 / kTries;  // rdma-core: three seconds in eleven tries

struct Address {
  int family = AF_UNSPEC;
  std::uint8_t bytes[16] = {};
  unsigned len() const { return family == AF_INET ? 4 : 16; }
  bool operator==(const Address& o) const { return family == o.family && std::memcmp(bytes, o.bytes, len()) == 0; }
};

Address make_address(int family, const void* p) {
  Address a;
  a.family = family;
  std::memcpy(a.bytes, p, a.len());
  return a;
}

struct Sock {
  sockaddr_storage addr{};
  socklen_t len = 0;
};
Sock make_sockaddr(const Address& a, std::uint16_t port, int scope) {
  Sock s;
  if (a.family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&s.addr);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    std::memcpy(&in->sin_addr, a.bytes, 4);
    s.len = sizeof *in;
  } else {
    auto* in = reinterpret_cast<sockaddr_in6*>(&s.addr);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    std::memcpy(&in->sin6_addr, a.bytes, 16);
    in->sin6_scope_id = static_cast<std::uint32_t>(scope);
    s.len = sizeof *in;
  }
  return s;
}

int interface_of(const Address& a) {
  ifaddrs* list;
  if (getifaddrs(&list)) return 0;
  int index = 0;
  for (ifaddrs* i = list; i && !index; i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != a.family) continue;
    const void* p = a.family == AF_INET ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(i->ifa_addr)->sin_addr)
                                        : static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr);
    if (std::memcmp(p, a.bytes, a.len()) == 0) index = static_cast<int>(if_nametoindex(i->ifa_name));
  }
  freeifaddrs(list);
  return index;
}

// One rtnetlink conversation; f(type, payload after the family header of size `fixed`, its length, the family header).
template <class F>
bool rtnl(std::uint16_t type, std::uint16_t flags, const void* body, std::size_t body_len, F f) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return false;
  struct {
    nlmsghdr h;
    char body[256];
  } req{};
  req.h.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(body_len));
  req.h.nlmsg_type = type;
  req.h.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  req.h.nlmsg_seq = 1;
  std::memcpy(req.body, body, body_len);
  bool ok = send(fd, &req, req.h.nlmsg_len, 0) >= 0;
  constexpr std::size_t kSize = 32768;
  char* buf = static_cast<char*>(std::malloc(kSize));
  bool more = ok && buf;
  ok = more;
  while (more) {
    ssize_t n = recv(fd, buf, kSize, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      ok = false;
      break;
    }
    auto left = static_cast<unsigned>(n);
    for (auto* h = reinterpret_cast<nlmsghdr*>(buf); NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
      if (h->nlmsg_type == NLMSG_DONE) {
        more = false;
      } else if (h->nlmsg_type == NLMSG_ERROR) {
        int e = static_cast<nlmsgerr*>(NLMSG_DATA(h))->error;
        if (e) {
          errno = -e;
          ok = false;
        }
        more = false;
      } else {
        f(h);
        if (!(h->nlmsg_flags & NLM_F_MULTI)) more = false;
      }
    }
  }
  int saved = errno;
  std::free(buf);
  close(fd);
  errno = saved;
  return ok;
}

void put_attr(char* buf, std::size_t* at, std::uint16_t type, const void* data, std::size_t len) {
  rtattr a{};
  a.rta_type = type;
  a.rta_len = static_cast<std::uint16_t>(RTA_LENGTH(len));
  std::memcpy(buf + *at, &a, sizeof a);
  std::memcpy(buf + *at + RTA_LENGTH(0), data, len);
  *at += RTA_ALIGN(a.rta_len);
}

struct Route {
  bool found = false;
  unsigned char type = RTN_UNSPEC;
  Address next_hop;
  int oif = 0;
};

Route lookup_route(const Address& dst, int oif) {
  char body[128] = {};
  rtmsg rt{};
  rt.rtm_family = static_cast<unsigned char>(dst.family);
  rt.rtm_dst_len = static_cast<unsigned char>(dst.len() * 8);
  std::memcpy(body, &rt, sizeof rt);
  std::size_t at = NLMSG_ALIGN(sizeof rt);
  put_attr(body, &at, RTA_DST, dst.bytes, dst.len());
  if (oif > 0) put_attr(body, &at, RTA_OIF, &oif, sizeof oif);
  Route r;
  r.next_hop = dst;
  rtnl(RTM_GETROUTE, 0, body, at, [&](const nlmsghdr* h) {
    if (h->nlmsg_type != RTM_NEWROUTE) return;
    auto* m = static_cast<const rtmsg*>(NLMSG_DATA(h));
    r.found = true;
    r.type = m->rtm_type;
    auto left = static_cast<unsigned>(RTM_PAYLOAD(h));
    for (auto* a = RTM_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
      if (a->rta_type == RTA_OIF && RTA_PAYLOAD(a) >= 4) std::memcpy(&r.oif, RTA_DATA(a), 4);
      if (a->rta_type == RTA_GATEWAY && RTA_PAYLOAD(a) == dst.len()) r.next_hop = make_address(dst.family, RTA_DATA(a));
      if (a->rta_type == RTA_VIA && RTA_PAYLOAD(a) >= sizeof(rtvia)) {
        auto* via = static_cast<const rtvia*>(RTA_DATA(a));
        const unsigned n = static_cast<unsigned>(RTA_PAYLOAD(a) - sizeof(rtvia));
        if ((via->rtvia_family == AF_INET && n == 4) || (via->rtvia_family == AF_INET6 && n == 16))
          r.next_hop = make_address(via->rtvia_family, via->rtvia_addr);
      }
    }
  });
  return r;
}

bool link_address(int index, std::uint8_t mac[6]) {
  ifinfomsg info{};
  info.ifi_family = AF_UNSPEC;
  info.ifi_index = index;
  bool found = false;
  rtnl(RTM_GETLINK, 0, &info, sizeof info, [&](const nlmsghdr* h) {
    if (h->nlmsg_type != RTM_NEWLINK) return;
    auto* m = static_cast<const ifinfomsg*>(NLMSG_DATA(h));
    auto left = static_cast<unsigned>(IFLA_PAYLOAD(h));
    for (auto* a = IFLA_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left))
      if (a->rta_type == IFLA_ADDRESS && RTA_PAYLOAD(a) == 6) {
        std::memcpy(mac, RTA_DATA(a), 6);
        found = true;
      }
  });
  return found;
}

bool neighbour_entry(const Address& hop, int oif, std::uint8_t mac[6]) {
  ndmsg nd{};
  nd.ndm_family = static_cast<unsigned char>(hop.family);
  bool found = false;
  rtnl(RTM_GETNEIGH, NLM_F_DUMP, &nd, sizeof nd, [&](const nlmsghdr* h) {
    if (h->nlmsg_type != RTM_NEWNEIGH || found) return;
    auto* m = static_cast<const ndmsg*>(NLMSG_DATA(h));
    if (m->ndm_ifindex != oif || m->ndm_family != hop.family || (m->ndm_state & (NUD_FAILED | NUD_INCOMPLETE))) return;
    bool same = false, has_mac = false;
    std::uint8_t lladdr[6];
    auto left = static_cast<unsigned>(h->nlmsg_len - NLMSG_LENGTH(sizeof *m));
    for (auto* a = reinterpret_cast<const rtattr*>(reinterpret_cast<const char*>(m) + NLMSG_ALIGN(sizeof *m)); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
      if (a->rta_type == NDA_DST && RTA_PAYLOAD(a) == hop.len()) same = std::memcmp(RTA_DATA(a), hop.bytes, hop.len()) == 0;
      if (a->rta_type == NDA_LLADDR && RTA_PAYLOAD(a) == 6) {
        std::memcpy(lladdr, RTA_DATA(a), 6);
        has_mac = true;
      }
    }
    if (same && has_mac) {
      std::memcpy(mac, lladdr, 6);
      found = true;
    }
  });
  return found;
}

// Addresses whose MAC follows from their bits: multicast (RFC 1112, RFC 2464) and link-local with an embedded EUI-64.
bool encoded_mac(const Address& a, std::uint8_t mac[6]) {
  if (a.family == AF_INET && (a.bytes[0] & 0xf0) == 0xe0) {
    mac[0] = 0x01, mac[1] = 0x00, mac[2] = 0x5e;
    mac[3] = a.bytes[1] & 0x7f, mac[4] = a.bytes[2], mac[5] = a.bytes[3];
    return true;
  }
  if (a.family != AF_INET6) return false;
  if (a.bytes[0] == 0xff) {
    mac[0] = mac[1] = 0x33;
    std::memcpy(mac + 2, a.bytes + 12, 4);
    return true;
  }
  static constexpr std::uint8_t kLinkLocal[8] = {0xfe, 0x80};
  if (std::memcmp(a.bytes, kLinkLocal, 8) != 0) return false;
  std::memcpy(mac, a.bytes + 8, 3);
  std::memcpy(mac + 3, a.bytes + 13, 3);
  mac[0] ^= 2;
  return true;
}

// Makes the kernel resolve `hop`, and waits for it.
bool ask_kernel(const Address& src, const Address& hop, int oif, std::uint8_t mac[6]) {
  constexpr std::uint16_t kDiscard = 9;
  int fd = socket(hop.family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const Sock from = make_sockaddr(src, 0, oif), to = make_sockaddr(hop, kDiscard, oif);
  bool found = false;
  if (src.family == hop.family && bind(fd, reinterpret_cast<const sockaddr*>(&from.addr), from.len) == 0) {
    for (int i = 0; i < kTries && !found; ++i) {
      if (sendto(fd, "H", 2, 0, reinterpret_cast<const sockaddr*>(&to.addr), to.len) < 0 && errno != EADDRNOTAVAIL) break;
      // The neighbour table is asked in short steps: an answer usually takes less than a millisecond.
      for (int waited = 0, step = 1; waited < kTryMs && !found; waited += step, step = step < 32 ? step * 2 : 32) {
        poll(nullptr, 0, step);
        found = neighbour_entry(hop, oif, mac);
      }
    }
  }
  close(fd);
  return found;
}

std::uint16_t vlan_of(int oif) {
  vlan_ioctl_args args{};
  args.cmd = GET_VLAN_VID_CMD;
  std::uint16_t vid = 0xffff;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return vid;
  char name[IF_NAMESIZE];
  if (if_indextoname(static_cast<unsigned>(oif), name)) {
    std::snprintf(args.device1, sizeof args.device1, "%s", name);
    if (ioctl(fd, SIOCGIFVLAN, &args) == 0 && args.u.VID <= 0xfff) vid = static_cast<std::uint16_t>(args.u.VID);
  }
  close(fd);
  return vid;
}

}  // namespace

int resolve_neighbour(int src_family, const void* src_bytes, int dst_family, const void* dst_bytes, std::uint8_t mac[6],
                      std::uint16_t* vid) {
  const Address src = make_address(src_family, src_bytes), dst = make_address(dst_family, dst_bytes);
  const int oif = interface_of(src);
  if (oif <= 0) return -EINVAL;
  const Route route = lookup_route(dst, oif);
  if (!route.found || route.type == RTN_BLACKHOLE || route.type == RTN_UNREACHABLE || route.type == RTN_PROHIBIT || route.type == RTN_THROW)
    return -EHOSTUNREACH;
  bool found;
  if (route.type == RTN_LOCAL)
    found = link_address(oif, mac);
  else
    found = encoded_mac(route.next_hop, mac) || neighbour_entry(route.next_hop, oif, mac) || ask_kernel(src, route.next_hop, oif, mac);
  if (!found) return -EHOSTUNREACH;
  if (vid) *vid = vlan_of(oif);
  return 0;
}

}  // namespace uhca::verbs
