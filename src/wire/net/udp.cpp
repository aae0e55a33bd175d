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
#include "wire/net/udp_socket.h"

#ifndef UDP_NO_CHECK6_RX
#define UDP_NO_CHECK6_RX 102
#endif

namespace uhca::wire {
namespace {

constexpr unsigned kBatch = 16;                          // datagrams, each with as many frames as the kernel has put together
constexpr std::size_t kHeadroom = 14 + 40 + kUdpHeader;  // the longest header that is rebuilt in front of a datagram
constexpr std::size_t kDatagram = 1 << 16;
constexpr std::size_t kControl = 128;

template <class T>
T control_value(const cmsghdr* c) {
  T v{};
  std::memcpy(&v, CMSG_DATA(c), std::min(sizeof v, static_cast<std::size_t>(c->cmsg_len - CMSG_LEN(0))));
  return v;
}

}  // namespace

// What the kernel says of a datagram.
struct UdpPort::Datagram {
  bool ipv6 = false;
  Gid sgid{}, dgid{};
  std::uint16_t sport = 0;
  std::uint8_t tos = 0, ttl = 0;
  std::size_t bytes = 0;
  std::size_t segment = 0;  // bytes of each datagram that was put into it; the last one may have fewer. 0: dropped
};

struct UdpPort::Batch {
  Batch() {
    for (unsigned i = 0; i < kBatch; ++i) iov[i] = {frames[i] + kHeadroom, kDatagram};
  }
  unsigned used = kBatch;  // messages that must be made ready again
  Datagram datagrams[kBatch];
  mmsghdr messages[kBatch];
  iovec iov[kBatch];
  sockaddr_storage from[kBatch];
  alignas(cmsghdr) char control[kBatch][kControl];
  std::byte frames[kBatch][kHeadroom + kDatagram];
};

UdpPort::UdpPort(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters)
    : netdev_(netdev), epoll_(epoll_fd), counters_(counters), tx_(netdev, epoll_fd, counters), batch_(std::make_unique<Batch>()) {
  set_.fd = fd::adopt(epoll_create1(EPOLL_CLOEXEC));
  epoll_event e{0, {.ptr = &set_}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, set_.fd, &e);
}

UdpPort::~UdpPort() {
  for (auto& s : rx_) fd::close(s.load());
  fd::close(set_.fd);
}

Nanos UdpPort::bind_sockets(Nanos now) {
  bool retry = false;
  for (bool ipv6 : {false, true}) {
    if (bound(ipv6) || impossible_[ipv6]) continue;
    int s = udp_socket(ipv6);
    if (s < 0) {
      impossible_[ipv6] = errno == EAFNOSUPPORT;
      retry |= !impossible_[ipv6];
      continue;
    }
    if (ipv6) {
      set_option(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
      set_option(s, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
      set_option(s, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
      set_option(s, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, 1);
      set_option(s, IPPROTO_UDP, UDP_NO_CHECK6_RX, 1);  // RoCEv2 permits checksum 0
    } else {
      set_option(s, IPPROTO_IP, IP_PKTINFO, 1);
      set_option(s, IPPROTO_IP, IP_RECVTOS, 1);
      set_option(s, IPPROTO_IP, IP_RECVTTL, 1);
    }
    set_option(s, IPPROTO_UDP, UDP_GRO, 1);
    set_option(s, SOL_SOCKET, SO_REUSEPORT, 1);
    set_buffer(s, SO_RCVBUFFORCE, SO_RCVBUF);
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

// Takes a batch from a socket. false: there is none.
bool UdpPort::fetch(bool ipv6) {
  const int s = rx_[ipv6].load(std::memory_order_acquire);
  if (s < 0) return false;
  Batch& b = *batch_;
  // As the kernel left those that it filled.
  for (unsigned i = 0; i < b.used; ++i) {
    msghdr& m = b.messages[i].msg_hdr;
    m = {};
    m.msg_name = &b.from[i];
    m.msg_namelen = sizeof b.from[i];
    m.msg_iov = &b.iov[i];
    m.msg_iovlen = 1;
    m.msg_control = b.control[i];
    m.msg_controllen = kControl;
  }
  b.used = 0;
  long n = syscall(SYS_recvmmsg, s, b.messages, kBatch, MSG_DONTWAIT, nullptr);
  if (n <= 0) return false;
  fetched_ = b.used = static_cast<unsigned>(n);
  at_ = 0;
  offset_ = 0;
  for (unsigned i = 0; i < fetched_; ++i) {
    b.datagrams[i] = describe(ipv6, b.messages[i], b.from[i]);
    if (b.datagrams[i].segment == 0) counters_.udp_dropped.add();
  }
  return true;
}

// Segment 0: the kernel left something out.
UdpPort::Datagram UdpPort::describe(bool ipv6, mmsghdr& message, const sockaddr_storage& sender) {
  msghdr& m = message.msg_hdr;
  Datagram d;
  d.ipv6 = ipv6;
  d.bytes = message.msg_len;
  if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) return d;
  bool have_destination = false;
  std::size_t segment = d.bytes;
  d.ttl = 64;
  in_pktinfo d4{};
  in6_pktinfo d6{};
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level == IPPROTO_IP) {
      if (c->cmsg_type == IP_PKTINFO) d4 = control_value<in_pktinfo>(c), have_destination = !ipv6;
      if (c->cmsg_type == IP_TOS) d.tos = control_value<std::uint8_t>(c);
      if (c->cmsg_type == IP_TTL) d.ttl = static_cast<std::uint8_t>(control_value<int>(c));
    } else if (c->cmsg_level == IPPROTO_IPV6) {
      if (c->cmsg_type == IPV6_PKTINFO) d6 = control_value<in6_pktinfo>(c), have_destination = ipv6;
      if (c->cmsg_type == IPV6_TCLASS) d.tos = static_cast<std::uint8_t>(control_value<int>(c));
      if (c->cmsg_type == IPV6_HOPLIMIT) d.ttl = static_cast<std::uint8_t>(control_value<int>(c));
    } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      segment = static_cast<std::size_t>(control_value<int>(c));
    }
  }
  if (!have_destination) return d;
  if (ipv6) {
    auto* from = reinterpret_cast<const sockaddr_in6*>(&sender);
    d.sport = ntohs(from->sin6_port);
    std::memcpy(d.sgid.data(), &from->sin6_addr, 16);
    std::memcpy(d.dgid.data(), &d6.ipi6_addr, 16);
  } else {
    auto* from = reinterpret_cast<const sockaddr_in*>(&sender);
    d.sport = ntohs(from->sin_port);
    std::memcpy(d.sgid.data() + 12, &from->sin_addr, 4);
    std::memcpy(d.dgid.data() + 12, &d4.ipi_addr, 4);
  }
  d.segment = segment;
  return d;
}

// Writes Ethernet, IP and UDP headers in front of a datagram's payload, which has the room for them (what is there has been handed on
// before). Empty: too short for a packet, or too long.
Frame UdpPort::rebuild(const Datagram& d, std::byte* payload, std::size_t bytes, unsigned place, bool& checked) {
  if (bytes < kBthSize + kIcrcSize || kHeadroom + bytes > kMaxFrame) return {};
  auto* udp = reinterpret_cast<std::uint8_t*>(payload) - kUdpHeader;
  std::uint8_t* ip = udp - (d.ipv6 ? 40 : 20);
  if (d.ipv6) {
    store_be<std::uint32_t>(ip, 6u << 28 | std::uint32_t{d.tos} << 20);
    store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(kUdpHeader + bytes));
    ip[6] = IPPROTO_UDP;
    ip[7] = d.ttl;
    std::memcpy(ip + 8, d.sgid.data(), 16);
    std::memcpy(ip + 24, d.dgid.data(), 16);
  } else {
    ip[0] = 0x45;
    ip[1] = d.tos;
    store_be<std::uint16_t>(ip + 2, static_cast<std::uint16_t>(20 + kUdpHeader + bytes));
    store_be<std::uint32_t>(ip + 4, 0x4000);
    ip[8] = d.ttl;
    ip[9] = IPPROTO_UDP;
    std::memcpy(ip + 12, d.sgid.data() + 12, 4);
    std::memcpy(ip + 16, d.dgid.data() + 12, 4);
  }
  store_be(udp, d.sport);
  store_be(udp + 2, kRoceV2UdpPort);
  store_be(udp + 4, static_cast<std::uint16_t>(kUdpHeader + bytes));
  store_be<std::uint16_t>(udp + 6, 0);
  checked = !d.ipv6 && find_identification(ip, 20 + kUdpHeader + bytes - kIcrcSize, place);

  std::uint8_t* eth = ip - 14;
  std::memcpy(eth, netdev_.mac.data(), 6);
  std::memset(eth + 6, 0, 6);
  store_be<std::uint16_t>(eth + 12, d.ipv6 ? 0x86dd : 0x0800);
  return {reinterpret_cast<std::byte*>(eth), static_cast<std::size_t>(udp + kUdpHeader + bytes - eth)};
}

// `covered`: bytes of the IP packet in front of the ICRC. The kernel counts the packets that it makes of one datagram, so that `place`,
// where it lies among those that were put together here, is the first guess. True: the packet is whole.
bool UdpPort::find_identification(std::uint8_t* ip, std::size_t covered, unsigned place) {
  std::uint32_t received, source;
  std::memcpy(&received, ip + covered, sizeof received);
  std::memcpy(&source, ip + 12, sizeof source);
  store_be(ip + 4, static_cast<std::uint16_t>(place));
  std::uint32_t computed = icrc({reinterpret_cast<std::byte*>(ip), covered}, false);
  bool whole = true;
  if (received == computed) {
    idents_.matched_guess(source);
  } else {
    if (place != 0) computed ^= crc_of_difference(byteswap(static_cast<std::uint16_t>(place)), static_cast<std::int64_t>(covered - 4));
    Identification id = solve_identification(received, computed, covered);
    if (id.solved && id.dont_fragment && id.id < UdpSender::kMaxSegments) {
      idents_.matched_guess(source);
    } else if (idents_.may_solve(source) && id.solved) {
      idents_.was_solved(source);
      counters_.ident_solved.add();
    } else {
      id = {};
      whole = false;
      counters_.ident_unsolved.add();
    }
    store_be(ip + 4, id.id);
    store_be<std::uint16_t>(ip + 6, id.dont_fragment ? 0x4000 : 0);
  }
  std::uint32_t sum = 0;
  store_be<std::uint16_t>(ip + 10, 0);
  for (int k = 0; k < 20; k += 2) sum += load_be<std::uint16_t>(ip + k);
  sum = (sum & 0xffff) + (sum >> 16);
  sum += sum >> 16;
  store_be(ip + 10, static_cast<std::uint16_t>(~sum));
  return whole;
}

unsigned UdpPort::deliver(FrameSink& sink, unsigned budget) {
  unsigned done = 0;
  for (; at_ < fetched_ && done < budget; ++at_, offset_ = 0) {
    const Datagram& d = batch_->datagrams[at_];
    std::byte* data = batch_->frames[at_] + kHeadroom;
    while (d.segment != 0 && offset_ < d.bytes) {
      if (done == budget) return done;
      ++done;
      const std::size_t at = offset_, bytes = std::min(d.segment, d.bytes - at);
      offset_ += bytes;
      bool checked;
      Frame frame = rebuild(d, data + at, bytes, static_cast<unsigned>(at / d.segment), checked);
      if (frame.empty()) {
        counters_.udp_dropped.add();
        continue;
      }
      counters_.rx_udp.add();
      if (trace::capturing()) trace::capture(frame);
      checked ? sink.receive_checked(frame) : sink.receive(frame);
    }
  }
  return done;
}

unsigned UdpPort::poll(FrameSink& sink, unsigned budget, bool thorough) {
  constexpr unsigned kOtherFamilyEvery = 8;
  tx_.retry();
  unsigned done = deliver(sink, budget);
  const bool first = last_ipv6_, both = thorough || ++looks_ % kOtherFamilyEvery == 0;
  for (bool ipv6 : {first, !first}) {
    if (ipv6 != first && !both) break;
    while (done < budget && fetch(ipv6)) {
      last_ipv6_ = ipv6;
      const bool last = fetched_ < kBatch;
      done += deliver(sink, budget - done);
      if (last) break;
    }
  }
  return done;
}

}  // namespace uhca::wire
