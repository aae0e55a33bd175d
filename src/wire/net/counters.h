// SPDX-License-Identifier: MIT
// What a port did with frames. Written by one thread at a time per counter, read by anyone.
#pragma once

#include <atomic>
#include <cstdint>

namespace uhca::wire {

class Counter {
 public:
  void add(std::uint64_t n = 1) { v_.store(v_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  std::uint64_t get() const { return v_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> v_{0};
};

struct UplinkCounters {
  // frames sent, by way
  Counter tx_loopback, tx_switch, tx_udp;
  Counter tx_busy;         // answered kBusy
  Counter tx_unreachable;  // answered kUnreachable
  Counter tx_malformed;    // of those: no RoCE packet
  // frames received, by way
  Counter rx_loopback, rx_switch, rx_udp;
  Counter udp_handed_on;    // came over UDP for another function of this host
  Counter udp_dropped;      // could not be handed on, truncated, or without the ancillary data
  Counter udp_ports_taken;  // source ports that were asked for and are another program's
  Counter ident_solved;     // IPv4 Identification recovered from the ICRC
  Counter ident_unsolved;   // no Identification explains the ICRC: handed up, where parse() says kBadIcrc
  // links of the host switch
  Counter links_opened;  // by us
  Counter links_accepted;
  Counter links_refused;  // hello without a proper ring, too many links
  Counter links_lost;     // the other end went away
  Counter links_corrupt;  // the other end broke the ring's rules
};

}  // namespace uhca::wire
