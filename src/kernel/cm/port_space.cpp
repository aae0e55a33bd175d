// SPDX-License-Identifier: MIT
#include "kernel/cm/port_space.h"

#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/log.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::uint16_t kFirstUnprivileged = 1024;  // PROT_SOCK

bool may_bind_low_ports() {
  __user_cap_header_struct h{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct d[2]{};
  if (syscall(SYS_capget, &h, d) != 0) return false;
  return d[0].effective >> CAP_NET_BIND_SERVICE & 1;
}

std::pair<unsigned, unsigned> local_port_range() {
  unsigned low = 32768, high = 60999;
  if (std::FILE* f = std::fopen("/proc/sys/net/ipv4/ip_local_port_range", "re")) {
    unsigned l, h;
    if (std::fscanf(f, "%u %u", &l, &h) == 2 && l > 0 && l <= h && h < 65536) low = l, high = h;
    std::fclose(f);
  }
  return {low, high};
}

std::uint32_t random_number() {
  std::uint32_t r = 0;
  [[maybe_unused]] long n = getrandom(&r, sizeof r, GRND_NONBLOCK);
  return r;
}

// A key is family ('4', '6', 'i'), whether it is for that family only ('o') or all ('a'), and the address in hex or "*".
struct Key {
  char family, only;
  std::string_view address;
  explicit Key(std::string_view k)
      : family(k.size() > 0 ? k[0] : '?'), only(k.size() > 1 ? k[1] : '?'), address(k.size() > 2 ? k.substr(2) : "") {}
};

// Linux: the comparisons of cma_check_port. 0: both can live on one port.
int conflict(std::string_view a, std::string_view b) {
  Key x(a), y(b);
  if (x.only == 'o' && y.only == 'o' && x.family != y.family) return 0;
  if (x.address == "*" || y.address == "*") return EADDRNOTAVAIL;
  return x.family == y.family && x.address == y.address ? EADDRINUSE : 0;
}

std::string hex(const ib_gid& g) {
  std::string s;
  for (std::uint8_t b : g) s += fmt::format("{:02x}", b);
  return s;
}

}  // namespace

PortSpace::~PortSpace() {
  for (auto& [name, held] : names_)
    if (watch_) watch_(context_, held.first.fd(), false);
}

std::string PortSpace::port_prefix(std::uint16_t ps, std::uint16_t port) const {
  return fmt::format("{}port/{:x}/{}/", prefix_, ps, port);
}

std::string PortSpace::key_of(const Sockaddr& src, bool afonly) {
  std::string k;
  k += src.family() == AF_INET ? '4' : src.family() == AF_INET6 ? '6' : 'i';
  k += afonly ? 'o' : 'a';
  k += src.is_any() ? "*" : hex(src.gid());
  return k;
}

Status PortSpace::check_own(const PortBinding& b, std::uint16_t port, bool reuseaddr) const {
  for (const PortBinding* o : bindings_) {
    if (o == &b || o->ps != b.ps || o->port != port) continue;
    if (reuseaddr && o->reuseaddr) continue;
    if (int e = conflict(b.key, o->key))
      return refuse(e, "rdma_cm: port {} of port space {:#x} is bound by {}", port, b.ps, o->src->text());
  }
  return success();
}

// Takes the host's name of the binding, or shares it with other bindings of this process.
Status PortSpace::hold_name(PortBinding& b) {
  std::string prefix = port_prefix(b.ps, b.port);
  std::string full = prefix + b.key;
  auto it = names_.find(full);
  if (it == names_.end()) {
    auto name = HostName::bind(full);
    if (!name && name.code() != EADDRINUSE) return refuse(name.code(), "rdma_cm: no descriptor for port {}", b.port);
    if (!name) {
      return refuse(Key(b.key).address == "*" ? EADDRNOTAVAIL : EADDRINUSE,
                    "rdma_cm: port {} of port space {:#x} is bound by another process", b.port, b.ps);
    }
    // Bind first, look then: of two that do so at once, at least one sees the other.
    for (const std::string& other : bound_names(prefix)) {
      if (other == b.key || names_.count(prefix + other)) continue;
      if (int e = conflict(b.key, other))
        return refuse(e, "rdma_cm: port {} of port space {:#x} is bound by another process ({})", b.port, b.ps, other);
    }
    it = names_.emplace(full, std::pair{std::move(*name), 0u}).first;
  }
  ++it->second.second;
  b.name = &it->second.first;
  return success();
}

Status PortSpace::bind(PortBinding& b, std::uint16_t ps, Sockaddr& src, const Sockaddr& dst) {
  b.ps = ps;
  b.src = &src;
  b.dst = &dst;
  b.key = key_of(src, b.afonly);
  std::uint16_t port = src.port();
  if (port == 0) return bind_any(b, src);
  if (port < kFirstUnprivileged && !may_bind_low_ports()) return refuse(EACCES, "rdma_cm: port {} needs CAP_NET_BIND_SERVICE", port);
  UHCA_CHECK(check_own(b, port, b.reuseaddr));
  b.port = port;
  if (Status s = hold_name(b); !s) {
    b.port = 0;
    return s.error();
  }
  src.set_port(port);
  bindings_.push_back(&b);
  return success();
}

Status PortSpace::bind_any(PortBinding& b, Sockaddr& src) {
  auto range = local_port_range();
  unsigned low = range.first, high = range.second;  // a lambda cannot capture a structured binding in clang 14
  auto take = [&](std::uint16_t first, Block& block) {
    // Not the port that was used last: late packets of its old owner would find the new one.
    unsigned start = random_number() % kBlock;
    for (unsigned n = 0; n < kBlock; ++n) {
      unsigned i = (start + n) % kBlock;
      auto port = static_cast<std::uint16_t>(first + i);
      if (block.used >> i & 1 || port == last_port_ || first + i < low || first + i > high) continue;
      if (std::any_of(bindings_.begin(), bindings_.end(), [&](PortBinding* o) { return o->ps == b.ps && o->port == port; })) continue;
      block.used |= std::uint64_t{1} << i;
      b.port = last_port_ = port;
      b.ephemeral = true;
      src.set_port(port);
      bindings_.push_back(&b);
      return true;
    }
    return false;
  };
  for (auto& [at, block] : blocks_)
    if (at.first == b.ps && take(at.second, block)) return success();
  unsigned first_block = low / kBlock, blocks = high / kBlock - first_block + 1;
  unsigned start = random_number() % blocks;
  for (unsigned n = 0; n < blocks; ++n) {
    auto first = static_cast<std::uint16_t>((first_block + (start + n) % blocks) * kBlock);
    if (blocks_.count({b.ps, first})) continue;
    auto name = HostName::bind(fmt::format("{}block/{:x}/{}", prefix_, b.ps, first));
    if (!name && name.code() != EADDRINUSE) return refuse(name.code(), "rdma_cm: no descriptor for a block of ports");
    if (!name) continue;
    Block& block = blocks_[{b.ps, first}];
    block.name = std::move(*name);
    if (take(first, block)) return success();
    blocks_.erase({b.ps, first});
  }
  return refuse(EADDRNOTAVAIL, "rdma_cm: no free port in port space {:#x}", b.ps);
}

Status PortSpace::listen(PortBinding& b) {
  UHCA_CHECK(check_own(b, b.port, false));
  if (!b.name) UHCA_CHECK(hold_name(b));
  UHCA_CHECK(b.name->listen());
  b.reuseaddr = false;
  b.listening = true;
  if (watch_) watch_(context_, b.name->fd(), true);
  return success();
}

void PortSpace::unbind(PortBinding& b) {
  if (b.port == 0) return;
  bindings_.remove(&b);
  if (b.name) {
    auto it = names_.find(b.name->name());
    if (--it->second.second == 0) {
      if (watch_) watch_(context_, it->second.first.fd(), false);
      names_.erase(it);
    }
  }
  if (b.ephemeral) {
    auto it = blocks_.find({b.ps, static_cast<std::uint16_t>(b.port / kBlock * kBlock)});
    if (it != blocks_.end()) {
      it->second.used &= ~(std::uint64_t{1} << b.port % kBlock);
      // One empty block stays: the next connection wants a port as well.
      auto empty = std::count_if(blocks_.begin(), blocks_.end(), [](auto& x) { return x.second.used == 0; });
      if (it->second.used == 0 && empty > 1) blocks_.erase(it);
    }
  }
  b = {};
}

std::vector<std::string> PortSpace::names_for(std::uint16_t ps, std::uint16_t port, const ib_gid& at) const {
  std::string prefix = port_prefix(ps, port);
  Sockaddr a = sockaddr_of_gid(at);
  char family = a.family() == AF_INET ? '4' : '6';
  std::string address = hex(at);
  std::vector<std::string> names;
  for (char only : {'o', 'a'}) names.push_back(fmt::format("{}{}{}{}", prefix, family, only, address));
  for (const char* any : {"4o*", "6o*"})
    if (any[0] == family) names.push_back(prefix + any);
  for (const char* any : {"4a*", "6a*", "io*", "ia*"}) names.push_back(prefix + any);
  return names;
}

bool PortSpace::listens(const std::string& name) const {
  auto it = names_.find(name);
  if (it == names_.end()) return false;
  return std::any_of(bindings_.begin(), bindings_.end(), [&](PortBinding* b) { return b->listening && b->name == &it->second.first; });
}

}  // namespace uhca::kernel::cm
