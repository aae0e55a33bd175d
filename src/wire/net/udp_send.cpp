// SPDX-License-Identifier: MIT
#include "wire/net/udp_send.h"

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
#include "wire/net/ident.h"
#include "wire/net/udp_socket.h"

namespace uhca::wire {
namespace {

constexpr std::size_t kMaxBytes = 65000;  // below the largest UDP payload of both families
constexpr std::size_t kControl = 128;

constexpr std::size_t kIdToUdpPayload = 20 - 4 + kUdpHeader;  // from the IPv4 Identification

template <class T>
void add_control(msghdr& m, int level, int type, const T& value) {
  auto* c = reinterpret_cast<cmsghdr*>(static_cast<char*>(m.msg_control) + m.msg_controllen);
  c->cmsg_level = level;
  c->cmsg_type = type;
  c->cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(CMSG_DATA(c), &value, sizeof value);
  m.msg_controllen += CMSG_SPACE(sizeof value);
}

std::uint8_t traffic_class_of(const Route& r, const std::uint8_t* ip) {
  return r.ipv6 ? static_cast<std::uint8_t>(load_be<std::uint16_t>(ip) >> 4) : ip[1];
}

bool is_acknowledgement(const std::uint8_t* bth) {
  return op_of(static_cast<Opcode>(bth[0])) == Op::kAcknowledge;
}

}  // namespace

struct UdpSender::Burst {
  Socket* socket = nullptr;
  bool ipv6 = false;
  Gid sgid{}, dgid{};
  std::uint8_t traffic_class = 0, hop_limit = 0;
  std::uint32_t dest_qp = 0;  // of the first frame, for the log
  std::size_t segment = 0;    // bytes of each datagram; the last one may have fewer
  std::size_t bytes = 0;      // of all of them
  unsigned count = 0;
  std::byte data[kMaxBytes];
};

UdpSender::UdpSender(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters)
    : netdev_(netdev), epoll_(epoll_fd), counters_(counters), burst_(std::make_unique<Burst>()) {}

UdpSender::~UdpSender() {
  flush();
  for (auto& family : sockets_) {
    for (auto& t : family) fd::close(t.source.fd);
  }
}

bool UdpSender::open(Socket& t, bool ipv6, std::uint16_t wanted) {
  int s = udp_socket(ipv6);
  if (s < 0) return false;
  if (ipv6) {
    set_option(s, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    set_option(s, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
    set_option(s, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
  } else {
    set_option(s, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  }
  set_buffer(s, SO_SNDBUFFORCE, SO_SNDBUF);
  set_option(s, SOL_SOCKET, SO_RCVBUF, 1);  // nobody answers to the source port
  std::uint16_t port = wanted >= kFirstSourcePort ? wanted : kFirstSourcePort;
  for (int attempt = 0; bind_any(s, ipv6, port) != 0; ++attempt) {
    std::uint16_t random = 0;
    if (errno != EADDRINUSE || attempt == 64 || getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) {
      log::warn("no UDP source port: {}", strerrordesc_np(errno));
      fd::close(s);
      return false;
    }
    if (attempt == 0) {
      counters_.udp_ports_taken.add();
      static_cast<void>(refuse(EADDRINUSE, "UDP source port {} is another program's: frames leave by another one", port));
    }
    port = static_cast<std::uint16_t>(random | kFirstSourcePort);
  }
  t.source.fd = s;
  t.port = port;
  t.asked = wanted;
  epoll_event e{0, {.ptr = &t.source}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, s, &e);
  return true;
}

// A socket of the pool, made when first needed, bound to the port that is asked for where that is free. When the pool is full, ports share
// sockets.
UdpSender::Socket* UdpSender::socket_for(bool ipv6, std::uint16_t wanted) {
  auto& pool = sockets_[ipv6];
  const unsigned first = (wanted * 40503u >> 8) % kPool;
  for (unsigned i = 0; i < kPool; ++i) {
    Socket& t = pool[(first + i) % kPool];
    if (t.source.fd < 0) return open(t, ipv6, wanted) ? &t : nullptr;
    if (t.asked == wanted) return &t;
  }
  return &pool[first];
}

// An acknowledgement, which is not ECN-capable where data is, may leave as the request that it goes with does: the ICRC does not cover the
// traffic class.
bool UdpSender::same_path(const Route& r, const std::uint8_t* ip, const Socket& t, bool acknowledges) const {
  constexpr std::uint8_t kEcn = 3;
  const Burst& b = *burst_;
  const auto differs = static_cast<std::uint8_t>(b.traffic_class ^ traffic_class_of(r, ip));
  return segmentation_ && b.socket == &t && (differs & ~(acknowledges ? kEcn : 0)) == 0 && b.hop_limit == ip[r.ipv6 ? 7 : 8] &&
         b.dgid == r.dgid && b.sgid == r.sgid;
}

bool UdpSender::fits(std::size_t bytes) const {
  const Burst& b = *burst_;
  return b.count < kMaxSegments && bytes <= b.segment && b.bytes == b.count * b.segment && b.bytes + bytes <= kMaxBytes;
}

// A request may overtake the acknowledgement that waits: what answers a message leaves with it, and only the last segment may be a shorter
// one.
bool UdpSender::overtakes(const std::uint8_t* bth) const {
  const Burst& b = *burst_;
  return b.count == 1 && is_acknowledgement(reinterpret_cast<const std::uint8_t*>(b.data)) &&
         has(info(static_cast<Opcode>(bth[0])).props, Prop::kRequest);
}

// What a segment's Identification does to its ICRC.
void UdpSender::correct_id(std::byte* datagram, std::size_t bytes, unsigned id) const {
  if (burst_->ipv6 || id == 0) return;
  std::uint32_t crc;
  std::memcpy(&crc, datagram + bytes - kIcrcSize, sizeof crc);
  crc ^= crc_of_difference(byteswap(static_cast<std::uint16_t>(id)), static_cast<std::int64_t>(kIdToUdpPayload + bytes - kIcrcSize));
  std::memcpy(datagram + bytes - kIcrcSize, &crc, sizeof crc);
}

Send UdpSender::send(Frame frame, const Route& r) {
  auto* f = reinterpret_cast<const std::uint8_t*>(frame.data());
  const std::uint8_t* ip = f + r.ip;
  if (load_be<std::uint16_t>(f + r.udp + 4) != r.end - r.udp) return Send::kUnreachable;
  auto sport = load_be<std::uint16_t>(f + r.udp);
  Socket* t = socket_for(r.ipv6, sport);
  if (!t) return Send::kUnreachable;

  Burst& b = *burst_;
  const std::size_t bytes = r.end - r.udp - kUdpHeader;
  const std::uint8_t* bth = f + r.udp + kUdpHeader;
  std::size_t at = b.bytes;  // in the burst
  unsigned place = b.count;
  const bool acknowledges = is_acknowledgement(bth);
  if (b.count > 0 && !(fits(bytes) && same_path(r, ip, *t, acknowledges))) {
    if (bytes > b.segment && overtakes(bth) && same_path(r, ip, *t, true)) {
      std::memmove(b.data + bytes, b.data, b.bytes);
      correct_id(b.data + bytes, b.bytes, 1);
      b.segment = bytes;
      b.traffic_class = traffic_class_of(r, ip);
    } else {
      flush();
      if (b.count > 0) return Send::kBusy;
    }
    at = 0;
    place = 0;
  }
  if (b.count == 0) {
    b.socket = t;
    b.ipv6 = r.ipv6;
    b.sgid = r.sgid;
    b.dgid = r.dgid;
    b.traffic_class = traffic_class_of(r, ip);
    b.hop_limit = ip[r.ipv6 ? 7 : 8];
    b.dest_qp = r.dest_qp;
    b.segment = bytes;
  }

  const std::size_t icrc_at = r.end - kIcrcSize;
  std::uint32_t crc;
  std::memcpy(&crc, f + icrc_at, sizeof crc);
  if (t->port != sport) {
    crc ^= crc_of_difference(byteswap(static_cast<std::uint16_t>(t->port ^ sport)), static_cast<std::int64_t>(icrc_at - r.udp));
  }
  if (!r.ipv6) {
    std::uint32_t is;
    std::memcpy(&is, ip + 4, sizeof is);
    const std::uint32_t leaves = 0x40u << 16 | byteswap(static_cast<std::uint16_t>(place));  // Identification, DF, no fragment
    if (is != leaves) crc ^= crc_of_difference(is ^ leaves, static_cast<std::int64_t>(icrc_at - r.ip - 4));
  }
  std::memcpy(b.data + at, bth, bytes - kIcrcSize);
  std::memcpy(b.data + at + bytes - kIcrcSize, &crc, sizeof crc);
  b.bytes += bytes;
  ++b.count;
  return Send::kSent;
}

void UdpSender::flush() {
  Burst& b = *burst_;
  if (b.count == 0) return;
  int error = hand_over(0, b.bytes, b.count > 1 ? b.segment : 0);
  full_ = error == EAGAIN;
  if (full_) {
    // Makes the epoll readable once when there is room again.
    epoll_event e{EPOLLOUT | EPOLLONESHOT, {.ptr = &b.socket->source}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, b.socket->source.fd, &e);
    return;
  }
  if (error != 0) {
    b.count > 1 ? hand_over_singly(error) : lose(1, error);
  }
  b.count = 0;
  b.bytes = 0;
}

void UdpSender::lose(unsigned frames, int error) {
  counters_.tx_unreachable.add(frames);
  static_cast<void>(refuse(error, "{} packet(s) to QPN {:#x} lost: the host's way to its address takes no datagram of {} bytes: {}", frames,
                           burst_->dest_qp, burst_->segment, strerrordesc_np(error)));
}

// Each datagram by itself, so with Identification 0. Where that goes well, the kernel or the netdev cannot segment (EIO: no checksums by
// the netdev; EINVAL: an old kernel; but EINVAL is what it says as well when the path does not carry a segment).
void UdpSender::hand_over_singly(int error) {
  Burst& b = *burst_;
  unsigned lost = 0;
  int last = 0;
  for (unsigned i = 0; i < b.count; ++i) {
    std::byte* at = b.data + i * b.segment;
    const std::size_t n = std::min(b.segment, b.bytes - i * b.segment);
    correct_id(at, n, i);
    if (int e = hand_over(i * b.segment, n, 0); e != 0) ++lost, last = e;
  }
  if (lost > 0) return lose(lost, last);
  if (error != EIO && error != EINVAL && error != EOPNOTSUPP) return;  // of this moment
  segmentation_ = false;
  log::info("no UDP segmentation on {}: {}", netdev_.name, strerrordesc_np(error));
}

int UdpSender::hand_over(std::size_t first, std::size_t bytes, std::size_t segment) {
  Burst& b = *burst_;
  iovec iov{b.data + first, bytes};
  alignas(cmsghdr) char control[kControl] = {};
  sockaddr_in a4{};
  sockaddr_in6 a6{};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  m.msg_control = control;
  if (b.ipv6) {
    a6.sin6_family = AF_INET6;
    a6.sin6_port = htons(kRoceV2UdpPort);
    std::memcpy(&a6.sin6_addr, b.dgid.data(), 16);
    if (IN6_IS_ADDR_LINKLOCAL(&a6.sin6_addr) || IN6_IS_ADDR_MULTICAST(&a6.sin6_addr))
      a6.sin6_scope_id = static_cast<std::uint32_t>(netdev_.ifindex);
    m.msg_name = &a6;
    m.msg_namelen = sizeof a6;
    in6_pktinfo source{};
    std::memcpy(&source.ipi6_addr, b.sgid.data(), 16);
    add_control(m, IPPROTO_IPV6, IPV6_PKTINFO, source);
    add_control(m, IPPROTO_IPV6, IPV6_TCLASS, int{b.traffic_class});
    add_control(m, IPPROTO_IPV6, IPV6_HOPLIMIT, int{b.hop_limit});
  } else {
    a4.sin_family = AF_INET;
    a4.sin_port = htons(kRoceV2UdpPort);
    std::memcpy(&a4.sin_addr, b.dgid.data() + 12, 4);
    m.msg_name = &a4;
    m.msg_namelen = sizeof a4;
    in_pktinfo source{};
    std::memcpy(&source.ipi_spec_dst, b.sgid.data() + 12, 4);
    if (IN_MULTICAST(ntohl(a4.sin_addr.s_addr))) source.ipi_ifindex = netdev_.ifindex;
    add_control(m, IPPROTO_IP, IP_PKTINFO, source);
    add_control(m, IPPROTO_IP, IP_TOS, int{b.traffic_class});
    add_control(m, IPPROTO_IP, IP_TTL, int{b.hop_limit});
  }
  if (segment != 0) add_control(m, IPPROTO_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(segment));
  for (;;) {
    if (syscall(SYS_sendmsg, b.socket->source.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 0;
    if (errno != EINTR) return errno;
  }
}

}  // namespace uhca::wire
