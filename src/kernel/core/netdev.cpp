// SPDX-License-Identifier: MIT
#include "kernel/core/netdev.h"

#include <ifaddrs.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/log.h"
#include "base/no_cancel.h"

namespace uhca::kernel {
namespace {

// ::ffff:a.b.c.d or the IPv6 address; false for other families.
bool to_gid(const sockaddr* sa, ib_gid& gid) {
  gid = {};
  if (sa->sa_family == AF_INET) {
    gid[10] = gid[11] = 0xff;
    std::memcpy(&gid[12], &reinterpret_cast<const sockaddr_in*>(sa)->sin_addr, 4);
    return true;
  }
  if (sa->sa_family == AF_INET6) {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(sa)->sin6_addr, 16);
    return true;
  }
  return false;
}

}  // namespace

bool is_v4_mapped(const ib_gid& g) {
  for (int i = 0; i < 10; ++i)
    if (g[i]) return false;
  return g[10] == 0xff && g[11] == 0xff;
}

NetdevAddresses netdev_addresses(const std::string& netdev) {
  NoCancel alive;
  NetdevAddresses out;
  if (netdev.empty()) return out;
  out.ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
  ifaddrs* list = nullptr;
  if (!out.ifindex || getifaddrs(&list) != 0) return out;
  std::vector<ib_gid> v6;
  for (ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !i->ifa_name) continue;
    // Labels of further addresses read "eth0:1".
    std::string_view name = i->ifa_name;
    if (name.substr(0, name.find(':')) != netdev) continue;
    ib_gid gid;
    if (i->ifa_addr->sa_family == AF_PACKET) {
      auto* ll = reinterpret_cast<const sockaddr_ll*>(i->ifa_addr);
      if (ll->sll_halen == 6) std::memcpy(out.mac.data(), ll->sll_addr, 6);
    } else if (to_gid(i->ifa_addr, gid)) {
      (i->ifa_addr->sa_family == AF_INET ? out.addresses : v6).push_back(gid);
    }
  }
  freeifaddrs(list);
  out.addresses.insert(out.addresses.end(), v6.begin(), v6.end());
  return out;
}

bool is_local_address(const ib_gid& gid) {
  NoCancel alive;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  bool found = false;
  for (ifaddrs* i = list; i && !found; i = i->ifa_next) {
    ib_gid g;
    found = i->ifa_addr && to_gid(i->ifa_addr, g) && g == gid;
  }
  freeifaddrs(list);
  return found;
}

int rdma_netdev_news() {
  int s = fd::adopt(static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)));
  sockaddr_nl a{};
  a.nl_family = AF_NETLINK;
  a.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (s >= 0 && syscall(SYS_bind, s, &a, sizeof a) == 0) return s;
  log::warn("no news of address changes, the GID table stays as it is: {}", strerrordesc_np(errno));
  fd::close(s);
  return -1;
}

void rdma_drain_netdev_news(int fd) {
  char buf[4096];
  long n;
  do n = syscall(SYS_recvfrom, fd, buf, sizeof buf, MSG_DONTWAIT, nullptr, nullptr);
  while (n > 0 || (n < 0 && (errno == ENOBUFS || errno == EINTR)));
}

bool find_neighbour(int ifindex, const ib_gid& gid, std::array<std::uint8_t, 6>& mac) {
  bool v4 = is_v4_mapped(gid);
  struct {
    nlmsghdr nlh;
    ndmsg ndm;
    rtattr rta;
    std::uint8_t dst[16];
  } req{};
  std::size_t alen = v4 ? 4 : 16;
  req.rta.rta_type = NDA_DST;
  req.rta.rta_len = static_cast<unsigned short>(sizeof(rtattr) + alen);
  std::memcpy(req.dst, v4 ? &gid[12] : gid.data(), alen);
  req.nlh.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(sizeof(ndmsg)) + req.rta.rta_len);
  req.nlh.nlmsg_type = RTM_GETNEIGH;
  req.nlh.nlmsg_flags = NLM_F_REQUEST;
  req.ndm.ndm_family = v4 ? AF_INET : AF_INET6;
  req.ndm.ndm_ifindex = ifindex;

  int s = static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (s < 0) return false;
  bool found = false;
  alignas(nlmsghdr) char buf[4096];
  long n = -1;
  if (syscall(SYS_sendto, s, &req, req.nlh.nlmsg_len, 0, nullptr, 0) == static_cast<long>(req.nlh.nlmsg_len))
    n = syscall(SYS_recvfrom, s, buf, sizeof buf, 0, nullptr, nullptr);
  auto* h = reinterpret_cast<nlmsghdr*>(buf);
  if (n >= static_cast<long>(sizeof *h) && NLMSG_OK(h, static_cast<unsigned>(n)) && h->nlmsg_type == RTM_NEWNEIGH &&
      h->nlmsg_len >= NLMSG_LENGTH(sizeof(ndmsg))) {
    auto* ndm = static_cast<ndmsg*>(NLMSG_DATA(h));
    int left = static_cast<int>(h->nlmsg_len - NLMSG_LENGTH(sizeof(ndmsg)));
    for (auto* a = reinterpret_cast<rtattr*>(reinterpret_cast<char*>(ndm) + NLMSG_ALIGN(sizeof(ndmsg))); RTA_OK(a, left);
         a = RTA_NEXT(a, left)) {
      if (a->rta_type == NDA_LLADDR && RTA_PAYLOAD(a) == 6 && !(ndm->ndm_state & (NUD_INCOMPLETE | NUD_FAILED))) {
        std::memcpy(mac.data(), RTA_DATA(a), 6);
        found = true;
      }
    }
  }
  syscall(SYS_close, s);
  return found;
}

}  // namespace uhca::kernel
