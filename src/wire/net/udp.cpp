// SPDX-License-Identifier: MIT
#include "wire/net/udp.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/log.h"
#include "base/trace.h"

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

namespace uhca::wire {
namespace {

constexpr unsigned kBatch = 16;
constexpr std::size_t kHeadroom = 14 + 40 + kUdpHeader;  // the longest header that is rebuilt in front of a datagram
constexpr std::size_t kDatagram = kMaxFrame;
constexpr std::size_t kControl = 128;
constexpr int kBuffer = 4 << 20;

void set(int s, int level, int option, int value) {
  setsockopt(s, level, option, &value, sizeof value);
}

void set_buffer(int s, int force, int plain, int bytes) {
  if (setsockopt(s, SOL_SOCKET, force, &bytes, sizeof bytes) != 0) setsockopt(s, SOL_SOCKET, plain, &bytes, sizeof bytes);
}

int datagram_socket(bool ipv6) {
  return fd::adopt(static_cast<int>(syscall(SYS_socket, ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
}

int bind_any(int s, bool ipv6, std::uint16_t port) {
  sockaddr_in a4{};
  a4.sin_family = AF_INET;
  a4.sin_port = htons(port);
  sockaddr_in6 a6{};
  a6.sin6_family = AF_INET6;
  a6.sin6_port = htons(port);
  return ipv6 ? bind(s, reinterpret_cast<sockaddr*>(&a6), sizeof a6) : bind(s, reinterpret_cast<sockaddr*>(&a4), sizeof a4);
}

template <class T>
T control_value(const cmsghdr* c) {
  T v{};
  std::memcpy(&v, CMSG_DATA(c), std::min(sizeof v, static_cast<std::size_t>(c->cmsg_len - CMSG_LEN(0))));
  return v;
}

template <class T>
void add_control(msghdr& m, int level, int type, const T& value) {
  auto* c = reinterpret_cast<cmsghdr*>(static_cast<char*>(m.msg_control) + m.msg_controllen);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  m.msg_controllen += CMSG_SPACE(sizeof value);
}

}  // namespace

struct UdpPort::Batch {
  mmsghdr messages[kBatch];
  iovec iov[kBatch];
  sockaddr_storage from[kBatch];
  alignas(cmsghdr) char control[kBatch][kControl];
  std::byte frames[kBatch][kHeadroom + kDatagram];
};

UdpPort::UdpPort(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters)
    : netdev_(netdev), epoll_(epoll_fd), counters_(counters), batch_(std::make_unique<Batch>()) {
  set_.fd = fd::adopt(epoll_create1(EPOLL_CLOEXEC));
  epoll_event e{0, {.ptr = &set_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, set_.fd, &e);
}

UdpPort::~UdpPort() {
  for (auto& s : rx_) fd::close(s.load());
  for (auto& family : tx_) {
    for (auto& t : family) fd::close(t.source.fd);
  }
  fd::close(set_.fd);
}

Nanos UdpPort::bind_sockets(Nanos now) {
  bool retry = false;
  for (bool ipv6 : {false, true}) {
    if (bound(ipv6) || impossible_[ipv6]) continue;
    int s = datagram_socket(ipv6);
    if (s < 0) {
      impossible_[ipv6] = errno == EAFNOSUPPORT;
      retry |= !impossible_[ipv6];
      continue;
    }
    if (ipv6) {
      set(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
      set(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
      set(s, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
      set(s, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
      set(s, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);  // RoCEv2 permits checksum 0
    } else {
      set(s, IPPROTO_IP, IP_PKTINFO, 1);
      set(s, IPPROTO_IP, IP_RECVTOS, 1);
      set(s, IPPROTO_IP, IP_RECVTTL, 1);
    }
    set(s, SOL_SOCKET, SO_REUSEPORT, 1);
    set_buffer(s, SO_RCVBUFFORCE, SO_RCVBUF, kBuffer);
    if (bind_any(s, ipv6, kRoceV2UdpPort) != 0) {
      int e = errno;
      fd::close(s);
      impossible_[ipv6] = e == EADDRNOTAVAIL;  // IPv6 switched off
      retry |= !impossible_[ipv6];
      log::info("UDP port 4791 (IPv{}) cannot be bound: {}; frames come through the function that holds it, if one does", ipv6 ? 6 : 4,
                strerrordesc_np(e));
      continue;
    }
    epoll_event e{EPOLLIN, {.fd = s}};
    epoll_ctl(set_.fd, EPOLL_CTL_ADD, s, &e);
    std::lock_guard lock(groups_lock_);
    for (const Gid& g : groups_) join(s, ipv6, g, true);
    rx_[ipv6].store(s, std::memory_order_release);
  }
  return retry ? now + kRetry : kNever;
}

// The host's membership in a group (IGMP, MLD), for as long as the socket lives.
void UdpPort::join(int s, bool ipv6, const Gid& gid, bool on) const {
  if (ipv6 == is_mapped(gid)) return;
  int r;
  if (ipv6) {
    ipv6_mreq m{};
    std::memcpy(&m.ipv6mr_multiaddr, gid.data(), 16);
    m.ipv6mr_interface = static_cast<unsigned>(netdev_.ifindex);
    r = setsockopt(s, IPPROTO_IPV6, on ? IPV6_ADD_MEMBERSHIP : IPV6_DROP_MEMBERSHIP, &m, sizeof m);
  } else {
    ip_mreqn m{};
    std::memcpy(&m.imr_multiaddr, gid.data() + 12, 4);
    m.imr_ifindex = netdev_.ifindex;
    r = setsockopt(s, IPPROTO_IP, on ? IP_ADD_MEMBERSHIP : IP_DROP_MEMBERSHIP, &m, sizeof m);
  }
  if (r != 0) log::warn("the host does not {} a multicast group: {}", on ? "join" : "leave", strerrordesc_np(errno));
}

void UdpPort::want_group(const Gid& gid, bool wanted) {
  std::lock_guard lock(groups_lock_);
  if (wanted) {
    groups_.push_back(gid);
  } else {
    std::erase(groups_, gid);
  }
  for (bool ipv6 : {false, true}) {
    if (int s = rx_[ipv6].load(std::memory_order_relaxed); s >= 0) join(s, ipv6, gid, wanted);
  }
}

void UdpPort::arm(bool readable) {
  epoll_event e{readable ? std::uint32_t{EPOLLIN} : 0u, {.ptr = &set_}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, set_.fd, &e);
}

// A socket of the pool, made when first needed. The first frame's port where it is free, else another one of 0xc000-0xffff.
UdpPort::TxSocket* UdpPort::tx_socket(bool ipv6, std::uint16_t wanted) {
  TxSocket& t = tx_[ipv6][(wanted * 40503u >> 8) % kPool];
  if (t.source.fd >= 0) return &t;
  int s = datagram_socket(ipv6);
  if (s < 0) return nullptr;
  if (ipv6) {
    set(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set(s, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
  } else {
    set(s, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  }
  set_buffer(s, SO_SNDBUFFORCE, SO_SNDBUF, kBuffer);
  set(s, SOL_SOCKET, SO_RCVBUF, 1);  // nobody answers to the source port
  std::uint16_t port = wanted >= kFirstSourcePort ? wanted : kFirstSourcePort;
  for (int attempt = 0; bind_any(s, ipv6, port) != 0; ++attempt) {
    std::uint16_t random = 0;
    if (errno != EADDRINUSE || attempt == 64 || getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
      log::warn("no UDP source port: {}", strerrordesc_np(errno));
      fd::close(s);
      return nullptr;
    }
    port = static_cast<std::uint16_t>(random | kFirstSourcePort);
  }
  t.source.fd = s;
  t.port = port;
  epoll_event e{0, {.ptr = &t.source}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, s, &e);
  return &t;
}

Send UdpPort::send(Frame frame, const Route& r) {
  auto* f = reinterpret_cast<const std::uint8_t*>(frame.data());
  const std::uint8_t* ip = f + r.ip;
  if (load_be<std::uint16_t>(f + r.udp + 4) != r.end - r.udp) return Send::kUnreachable;
  auto sport = load_be<std::uint16_t>(f + r.udp);
  TxSocket* t = tx_socket(r.ipv6, sport);
  if (!t) return Send::kUnreachable;

  const std::size_t icrc_at = r.end - kIcrcSize;
  std::uint32_t crc;
  std::memcpy(&crc, f + icrc_at, sizeof crc);
  if (t->port != sport) {
    crc ^= crc_of_difference(byteswap(static_cast<std::uint16_t>(t->port ^ sport)), static_cast<std::int64_t>(icrc_at - r.udp));
  }
  if (!r.ipv6) {
    std::uint32_t id_and_flags;
    std::memcpy(&id_and_flags, ip + 4, sizeof id_and_flags);
    constexpr std::uint32_t kLeaves = 0x40u << 16;  // Identification 0, DF, no fragment
    if (id_and_flags != kLeaves) crc ^= crc_of_difference(id_and_flags ^ kLeaves, static_cast<std::int64_t>(icrc_at - r.ip - 4));
  }

  iovec iov[2] = {{const_cast<std::uint8_t*>(f + r.udp + kUdpHeader), icrc_at - r.udp - kUdpHeader}, {&crc, sizeof crc}};
  alignas(cmsghdr) char control[kControl] = {};
  sockaddr_in a4{};
  sockaddr_in6 a6{};
  msghdr m{};
  m.msg_iov = iov;
  m.msg_iovlen = 2;
  m.msg_control = control;
  if (r.ipv6) {
    a6.sin6_family = AF_INET6;
    a6.sin6_port = htons(kRoceV2UdpPort);
    std::memcpy(&a6.sin6_addr, r.dgid.data(), 16);
    if (IN6_IS_ADDR_LINKLOCAL(&a6.sin6_addr) || IN6_IS_ADDR_MULTICAST(&a6.sin6_addr))
      a6.sin6_scope_id = static_cast<std::uint32_t>(netdev_.ifindex);
    m.msg_name = &a6;
    m.msg_namelen = sizeof a6;
    in6_pktinfo source{};
    std::memcpy(&source.ipi6_addr, r.sgid.data(), 16);
    add_control(m, IPPROTO_IPV6, IPV6_PKTINFO, source);
    add_control(m, IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(load_be<std::uint16_t>(ip) >> 4 & 0xff));
    add_control(m, IPPROTO_IPV6, IPV6_HOPLIMIT, static_cast<int>(ip[7]));
  } else {
    a4.sin_family = AF_INET;
    a4.sin_port = htons(kRoceV2UdpPort);
    std::memcpy(&a4.sin_addr, r.dgid.data() + 12, 4);
    m.msg_name = &a4;
    m.msg_namelen = sizeof a4;
    in_pktinfo source{};
    std::memcpy(&source.ipi_spec_dst, r.sgid.data() + 12, 4);
    if (IN_MULTICAST(ntohl(a4.sin_addr.s_addr))) source.ipi_ifindex = netdev_.ifindex;
    add_control(m, IPPROTO_IP, IP_PKTINFO, source);
    add_control(m, IPPROTO_IP, IP_TOS, static_cast<int>(ip[1]));
    add_control(m, IPPROTO_IP, IP_TTL, static_cast<int>(ip[8]));
  }

  long n;
  do n = syscall(SYS_sendmsg, t->source.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  if (n >= 0) return Send::kSent;
  if (errno == EAGAIN) {
    // Makes the epoll readable once when there is room again.
    epoll_event e{EPOLLOUT | EPOLLONESHOT, {.ptr = &t->source}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, t->source.fd, &e);
    return Send::kBusy;
  }
  log::warn("UDP send of {} bytes: {}", frame.size(), strerrordesc_np(errno));
  return Send::kUnreachable;
}

// Writes Ethernet, IP and UDP headers in front of datagram i of the batch. false: the kernel left something out.
bool UdpPort::rebuild(bool ipv6, unsigned i, std::size_t bytes, Frame& out) {
  msghdr& m = batch_->messages[i].msg_hdr;
  auto* udp = reinterpret_cast<std::uint8_t*>(batch_->frames[i]) + kHeadroom - kUdpHeader;
  if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || bytes < kBthSize + kIcrcSize) return false;

  bool have_destination = false;
  int tos = 0, ttl = 64;
  in_pktinfo d4{};
  in6_pktinfo d6{};
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level == IPPROTO_IP) {
      if (c->cmsg_type == IP_PKTINFO) d4 = control_value<in_pktinfo>(c), have_destination = !ipv6;
      if (c->cmsg_type == IP_TOS) tos = control_value<std::uint8_t>(c);
      if (c->cmsg_type == IP_TTL) ttl = control_value<int>(c);
    } else if (c->cmsg_level == IPPROTO_IPV6) {
      if (c->cmsg_type == IPV6_PKTINFO) d6 = control_value<in6_pktinfo>(c), have_destination = ipv6;
      if (c->cmsg_type == IPV6_TCLASS) tos = control_value<int>(c);
      if (c->cmsg_type == IPV6_HOPLIMIT) ttl = control_value<int>(c);
    }
  }
  if (!have_destination) return false;

  std::uint16_t sport;
  std::uint8_t* ip;
  if (ipv6) {
    auto* from = reinterpret_cast<const sockaddr_in6*>(&batch_->from[i]);
    sport = ntohs(from->sin6_port);
    ip = udp - 40;
    store_be<std::uint32_t>(ip, 6u << 28 | (static_cast<std::uint32_t>(tos) & 0xff) << 20);
    store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(kUdpHeader + bytes));
    ip[6] = IPPROTO_UDP;
    ip[7] = static_cast<std::uint8_t>(ttl);
    std::memcpy(ip + 8, &from->sin6_addr, 16);
    std::memcpy(ip + 24, &d6.ipi6_addr, 16);
  } else {
    auto* from = reinterpret_cast<const sockaddr_in*>(&batch_->from[i]);
    sport = ntohs(from->sin_port);
    ip = udp - 20;
    ip[0] = 0x45;
    ip[1] = static_cast<std::uint8_t>(tos);
    store_be<std::uint16_t>(ip + 2, static_cast<std::uint16_t>(20 + kUdpHeader + bytes));
    store_be<std::uint32_t>(ip + 4, 0x4000);
    ip[8] = static_cast<std::uint8_t>(ttl);
    ip[9] = IPPROTO_UDP;
    std::memcpy(ip + 12, &from->sin_addr, 4);
    std::memcpy(ip + 16, &d4.ipi_addr, 4);
  }
  store_be(udp, sport);
  store_be(udp + 2, kRoceV2UdpPort);
  store_be(udp + 4, static_cast<std::uint16_t>(kUdpHeader + bytes));
  store_be<std::uint16_t>(udp + 6, 0);

  if (!ipv6) {
    const std::size_t covered = 20 + kUdpHeader + bytes - kIcrcSize;
    std::uint32_t received, source;
    std::memcpy(&received, ip + covered, sizeof received);
    std::memcpy(&source, ip + 12, sizeof source);
    std::uint32_t computed = icrc({reinterpret_cast<std::byte*>(ip), covered}, false);
    if (received == computed) {
      idents_.matched_guess(source);
    } else if (Identification id; idents_.may_solve(source) && (id = solve_identification(received, computed, covered)).solved) {
      idents_.was_solved(source);
      counters_.ident_solved.add();
      store_be(ip + 4, id.id);
      store_be<std::uint16_t>(ip + 6, id.dont_fragment ? 0x4000 : 0);
    } else {
      counters_.ident_unsolved.add();
    }
    std::uint32_t sum = 0;
    store_be<std::uint16_t>(ip + 10, 0);
    for (int k = 0; k < 20; k += 2) sum += load_be<std::uint16_t>(ip + k);
    sum = (sum & 0xffff) + (sum >> 16);
    sum += sum >> 16;
    store_be(ip + 10, static_cast<std::uint16_t>(~sum));
  }

  std::uint8_t* eth = ip - 14;
  std::memcpy(eth, netdev_.mac.data(), 6);
  std::memset(eth + 6, 0, 6);
  store_be<std::uint16_t>(eth + 12, ipv6 ? 0x86dd : 0x0800);
  out = {reinterpret_cast<std::byte*>(eth), static_cast<std::size_t>(udp + kUdpHeader + bytes - eth)};
  return true;
}

unsigned UdpPort::poll(FrameSink& sink, unsigned budget) {
  unsigned done = 0;
  for (bool ipv6 : {false, true}) {
    int s = rx_[ipv6].load(std::memory_order_acquire);
    if (s < 0) continue;
    while (done < budget) {
      const unsigned want = std::min(kBatch, budget - done);
      for (unsigned i = 0; i < want; ++i) {
        batch_->iov[i] = {batch_->frames[i] + kHeadroom, kDatagram};
        msghdr& m = batch_->messages[i].msg_hdr;
        m = {};
        m.msg_name = &batch_->from[i];
        m.msg_namelen = sizeof batch_->from[i];
        m.msg_iov = &batch_->iov[i];
        m.msg_iovlen = 1;
        m.msg_control = batch_->control[i];
        m.msg_controllen = kControl;
      }
      long n = syscall(SYS_recvmmsg, s, batch_->messages, want, MSG_DONTWAIT, nullptr);
      if (n <= 0) break;
      for (unsigned i = 0; i < static_cast<unsigned>(n); ++i) {
        Frame frame;
        if (!rebuild(ipv6, i, batch_->messages[i].msg_len, frame)) {
          counters_.udp_dropped.add();
          continue;
        }
        counters_.rx_udp.add();
        if (trace::capturing()) trace::capture(frame);
        sink.receive(frame);
      }
      done += static_cast<unsigned>(n);
      if (static_cast<unsigned>(n) < want) break;
    }
  }
  return done;
}

}  // namespace uhca::wire
