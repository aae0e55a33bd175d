// SPDX-License-Identifier: MIT
#include "wire/net/netdev.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "base/no_cancel.h"

namespace uhca::wire {
namespace {

using IfList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Result<IfList> list_interfaces() {
  NoCancel alive;
  ifaddrs* head = nullptr;
  if (getifaddrs(&head) != 0) return refuse(errno, "cannot list the interfaces of this host");
  return IfList(head, &freeifaddrs);
}

bool address_of(const ifaddrs& i, Gid& gid) {
  if (!i.ifa_addr) return false;
  if (i.ifa_addr->sa_family == AF_INET) {
    gid = mapped_gid(&reinterpret_cast<const sockaddr_in*>(i.ifa_addr)->sin_addr);
    return true;
  }
  if (i.ifa_addr->sa_family == AF_INET6) {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(i.ifa_addr)->sin6_addr, 16);
    return true;
  }
  return false;
}

// Stable across processes and reboots: the same host name and interface name give the same address.
Mac invented_mac(const std::string& interface) {
  utsname u{};
  uname(&u);
  std::uint64_t h = 0xcbf29ce484222325;  // FNV-1a
  auto mix = [&h](const char* s) {
    for (; *s; ++s) h = (h ^ static_cast<unsigned char>(*s)) * 0x100000001b3;
  };
  mix(u.nodename);
  mix(interface.c_str());
  return {0x02,
          static_cast<std::uint8_t>(h >> 56),
          static_cast<std::uint8_t>(h >> 48),
          static_cast<std::uint8_t>(h >> 40),
          static_cast<std::uint8_t>(h >> 32),
          static_cast<std::uint8_t>(h >> 24)};
}

unsigned mtu_of(const std::string& name) {
  NoCancel alive;
  int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (s < 0) s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq r{};
  name.copy(r.ifr_name, IFNAMSIZ - 1);
  bool known = s >= 0 && ioctl(s, SIOCGIFMTU, &r) == 0;
  if (s >= 0) ::close(s);
  return known && r.ifr_mtu > 0 ? static_cast<unsigned>(r.ifr_mtu) : 1500;
}

}  // namespace

Gid mapped_gid(const void* ipv4) {
  Gid g{};
  g[10] = g[11] = 0xff;
  std::memcpy(g.data() + 12, ipv4, 4);
  return g;
}

bool is_mapped(const Gid& gid) {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kPrefix, 12) == 0;
}

Gid link_local_gid(const Mac& m) {
  return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(m[0] ^ 2), m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
}

Result<NetdevInfo> choose_netdev(const std::string& wanted) {
  IfList list = UHCA_TRY(list_interfaces());
  NetdevInfo n;
  if (!wanted.empty()) {
    n.name = wanted;
  } else {
    std::string loopback;
    for (const ifaddrs* i = list.get(); i && n.name.empty(); i = i->ifa_next) {
      Gid g;
      if (!(i->ifa_flags & IFF_UP) || !address_of(*i, g)) continue;
      if (i->ifa_flags & IFF_LOOPBACK) {
        if (loopback.empty()) loopback = i->ifa_name;
      } else {
        n.name = i->ifa_name;
      }
    }
    if (n.name.empty()) n.name = loopback;
    if (n.name.empty()) return refuse(ENODEV, "no interface of this host is up and has an address, not even lo");
  }

  n.ifindex = static_cast<int>(if_nametoindex(n.name.c_str()));
  if (n.ifindex == 0) return refuse(ENODEV, "no interface {} on this host", n.name);
  for (const ifaddrs* i = list.get(); i; i = i->ifa_next) {
    if (n.name != i->ifa_name) continue;
    if (i->ifa_addr && i->ifa_addr->sa_family == AF_PACKET) {
      auto* ll = reinterpret_cast<const sockaddr_ll*>(i->ifa_addr);
      if (ll->sll_halen == 6) std::copy_n(ll->sll_addr, 6, n.mac.begin());
    }
    Gid g;
    if (address_of(*i, g)) n.addresses.push_back(g);
  }
  n.default_gid = link_local_gid(n.mac);
  if (n.mac == Mac{}) n.mac = invented_mac(n.name);
  n.mtu = mtu_of(n.name);
  return n;
}

Result<std::vector<Gid>> local_addresses() {
  IfList list = UHCA_TRY(list_interfaces());
  std::vector<Gid> all;
  for (const ifaddrs* i = list.get(); i; i = i->ifa_next) {
    Gid g;
    if (address_of(*i, g) && std::find(all.begin(), all.end(), g) == all.end()) all.push_back(g);
  }
  return all;
}

}  // namespace uhca::wire
