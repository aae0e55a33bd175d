// SPDX-License-Identifier: MIT
// RoCEv2 over the host's own UDP sockets: no privilege, no raw sockets. Real counterpart: the encapsulation half of a NIC's
// Ethernet port; rxe_net.c in Linux.
//
// Sent: the datagram behind the UDP header of a given frame; source address, TOS and TTL of the frame are asked of the kernel; IPv4 leaves
// with Identification 0 and DF. Where what leaves differs from what the ICRC was computed for (source port, Identification), the ICRC is
// corrected. Received: the frame is rebuilt around the datagram. The source MAC is unknown and 0; the flow label is 0; the Identification
// comes from ident.h. Sources: ip(7), ipv6(7), udp(7); net/ipv4/ip_output.c and route.c (Identification 0 for unconnected sockets with DF).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "wire/net/counters.h"
#include "wire/net/ident.h"
#include "wire/net/netdev.h"
#include "wire/net/peek.h"
#include "wire/net/port.h"
#include "wire/net/switch.h"

namespace uhca::wire {

class UdpPort {
 public:
  // `epoll_fd`: gets one descriptor for the receiving sockets, readable only while arm(true).
  UdpPort(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters);
  ~UdpPort();
  UdpPort(const UdpPort&) = delete;
  UdpPort& operator=(const UdpPort&) = delete;

  // ---- engine
  Send send(Frame frame, const Route& route);
  unsigned poll(FrameSink& sink, unsigned budget);
  void want_group(const Gid& gid, bool wanted);

  // ---- service side
  // Binds 4791 for the families that are not bound yet. Returns when to try again (kNever: both are bound or impossible).
  Nanos bind_sockets(Nanos now);
  void arm(bool readable);
  bool bound(bool ipv6) const { return rx_[ipv6].load(std::memory_order_relaxed) >= 0; }

  static constexpr unsigned kPool = 8;  // source ports per family
  static constexpr std::uint16_t kFirstSourcePort = 0xc000;
  static constexpr Nanos kRetry = 5'000'000'000;

 private:
  struct TxSocket {
    Source source{Source::Kind::kUdpTx, -1};
    std::uint16_t port = 0;
  };
  struct Batch;
  TxSocket* tx_socket(bool ipv6, std::uint16_t wanted);
  void join(int s, bool ipv6, const Gid& gid, bool on) const;
  bool rebuild(bool ipv6, unsigned i, std::size_t bytes, Frame& out);

  NetdevInfo netdev_;
  int epoll_;
  UplinkCounters& counters_;
  Source set_{Source::Kind::kUdpSet, -1};  // an epoll of the receiving sockets
  std::array<std::atomic<int>, 2> rx_{-1, -1};
  std::mutex groups_lock_;  // engine and service side
  std::vector<Gid> groups_;
  std::array<bool, 2> impossible_{};
  std::array<std::array<TxSocket, kPool>, 2> tx_{};
  IdentMemory idents_;
  std::unique_ptr<Batch> batch_;
};

}  // namespace uhca::wire
