// SPDX-License-Identifier: MIT
// The sending half of udp.h: frames that follow each other along one path leave as one datagram of the kernel's, which takes it apart
// (UDP_SEGMENT; what a netdev's tx-udp-segmentation does, or the kernel for those without).
//
// Of a frame, what lies behind the UDP header is sent; source address, TOS and TTL are asked of the kernel. IPv4 leaves with DF; the
// Identification is the frame's place among those that left with it, from 0. Where that, or the source port, is not what the ICRC was
// computed for, the ICRC is corrected. Sources: ip(7), ipv6(7), udp(7); net/ipv4/route.c and ip_output.c (Identification 0 for unconnected
// sockets with DF), af_inet.c inet_gso_segment (the segments' Identifications count up), udp.c udp_send_skb (limits).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "wire/net/counters.h"
#include "wire/net/netdev.h"
#include "wire/net/peek.h"
#include "wire/net/port.h"
#include "wire/net/switch.h"

namespace uhca::wire {

class UdpSender {
 public:
  // `epoll_fd`: becomes readable when a socket that was full has room again.
  UdpSender(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters);
  ~UdpSender();
  UdpSender(const UdpSender&) = delete;
  UdpSender& operator=(const UdpSender&) = delete;

  // Takes the frame; it leaves with the next flush() at the latest. kBusy: a socket is full. kUnreachable: no frame for UDP, no socket.
  // What the kernel refuses later is lost, counted (tx_unreachable), and named in the log.
  Send send(Frame frame, const Route& route);
  // What the kernel has no room for stays, for retry().
  void flush();
  void retry() {
    if (full_) flush();
  }

  static constexpr unsigned kPool = 32;  // source ports per family
  static constexpr std::uint16_t kFirstSourcePort = 0xc000;
  static constexpr unsigned kMaxSegments = 64;  // Linux: UDP_MAX_SEGMENTS

 private:
  struct Socket {
    Source source{Source::Kind::kUdpTx, -1};
    std::uint16_t port = 0;
    std::uint16_t asked = 0;  // the one that was wanted
  };
  struct Burst;
  Socket* socket_for(bool ipv6, std::uint16_t wanted);
  bool open(Socket& t, bool ipv6, std::uint16_t wanted);
  bool same_path(const Route& r, const std::uint8_t* ip, const Socket& t, bool acknowledges) const;
  bool fits(std::size_t bytes) const;
  bool overtakes(const std::uint8_t* bth) const;
  void correct_id(std::byte* datagram, std::size_t bytes, unsigned id) const;
  // errno, or 0.
  int hand_over(std::size_t first, std::size_t bytes, std::size_t segment);
  void hand_over_singly(int error);
  void lose(unsigned frames, int error);

  NetdevInfo netdev_;
  int epoll_;
  UplinkCounters& counters_;
  bool full_ = false;         // the kernel had no room for the burst
  bool segmentation_ = true;  // false: this host's kernel or netdev cannot
  std::array<std::array<Socket, kPool>, 2> sockets_{};
  std::unique_ptr<Burst> burst_;
};

}  // namespace uhca::wire
