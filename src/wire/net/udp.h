// SPDX-License-Identifier: MIT
// RoCEv2 over the host's own UDP sockets: no privilege, no raw sockets. Real counterpart: the encapsulation half of a NIC's
// Ethernet port; rxe_net.c in Linux.
//
// Sent: udp_send.h. Received: the kernel may have put datagrams of one flow together (UDP_GRO), which are taken apart again, and the frame
// is rebuilt around each. The source MAC is unknown and 0; the flow label is 0; the Identification comes from ident.h. Sources: ip(7),
// ipv6(7), udp(7).
#pragma once

#include <sys/socket.h>

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
#include "wire/net/udp_send.h"

namespace uhca::wire {

class UdpPort {
 public:
  // `epoll_fd`: gets one descriptor for the receiving sockets, readable only while arm(true).
  UdpPort(const NetdevInfo& netdev, int epoll_fd, UplinkCounters& counters);
  ~UdpPort();
  UdpPort(const UdpPort&) = delete;
  UdpPort& operator=(const UdpPort&) = delete;

  // ---- engine
  Send send(Frame frame, const Route& route) { return tx_.send(frame, route); }
  void flush() { tx_.flush(); }
  // The socket of the family that has had no frame for longer is looked at now and then only, unless `thorough`.
  unsigned poll(FrameSink& sink, unsigned budget, bool thorough);
  void want_group(const Gid& gid, bool wanted);
  // Something has been taken from the sockets and not been handed on yet.
  bool holds_frames() const { return at_ < fetched_; }

  // ---- service side
  // Binds 4791 for the families that are not bound yet. Returns when to try again (kNever: both are bound or impossible).
  Nanos bind_sockets(Nanos now);
  void arm(bool readable);
  bool bound(bool ipv6) const { return rx_[ipv6].load(std::memory_order_relaxed) >= 0; }

  static constexpr Nanos kRetry = 5'000'000'000;

 private:
  struct Datagram;
  struct Batch;
  void join(int s, bool ipv6, const Gid& gid, bool on) const;
  bool fetch(bool ipv6);
  unsigned deliver(FrameSink& sink, unsigned budget);
  static Datagram describe(bool ipv6, mmsghdr& message, const sockaddr_storage& sender);
  // `checked`: the ICRC has been found right on the way.
  Frame rebuild(const Datagram& d, std::byte* payload, std::size_t bytes, unsigned place, bool& checked);
  bool find_identification(std::uint8_t* ip, std::size_t covered, unsigned place);

  NetdevInfo netdev_;
  int epoll_;
  UplinkCounters& counters_;
  Source set_{Source::Kind::kUdpSet, -1};  // an epoll of the receiving sockets
  std::array<std::atomic<int>, 2> rx_{-1, -1};
  std::mutex groups_lock_;  // engine and service side
  std::vector<Gid> groups_;
  std::array<bool, 2> impossible_{};
  UdpSender tx_;
  IdentMemory idents_;
  std::unique_ptr<Batch> batch_;   // what was taken from a socket last
  unsigned fetched_ = 0, at_ = 0;  // datagrams of it; the next one
  std::size_t offset_ = 0;         // in that one
  bool last_ipv6_ = false;         // the family of the last frame
  unsigned looks_ = 0;
};

}  // namespace uhca::wire
