// SPDX-License-Identifier: MIT
// What the data path counts. Per QP: mlx5's Q counters (prm::query_q_counter_out) in the QP's counter set and in the lane's totals. Per
// lane: frames that never reached a QP.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "device/hca/objects.h"
#include "prm/cmd_object.h"
#include "wire/net/port.h"

namespace uhca::hca {

using Qc = prm::query_q_counter_out;

// Frames by kind of destination and by size, as management counters show them (RFC 2863, RFC 2819).
struct Traffic {
  enum Cast : std::uint8_t { kUnicast, kMulticast, kBroadcast };
  std::array<std::uint64_t, 3> packets{}, octets{};                                                       // octets without FCS
  static constexpr std::array<std::uint16_t, 9> kSizes{64, 127, 255, 511, 1023, 1518, 2047, 4095, 8191};  // with FCS; larger: the last
  std::array<std::uint64_t, 10> by_size{};

  // The index of the first of kSizes that is not smaller; what is shorter than the first counts as padded.
  static constexpr std::size_t size_class(std::size_t size) {
    if (size <= kSizes[0]) return 0;
    const auto bits = static_cast<std::size_t>(std::bit_width(size));
    if (bits == 11) return size <= kSizes[5] ? 5 : 6;
    return bits < 11 ? bits - 6 : std::min<std::size_t>(bits - 5, kSizes.size());
  }
  void add(wire::Frame f);
  void add_unicast(std::size_t bytes, std::uint64_t n) { count(kUnicast, bytes, n); }  // n frames of so many bytes
  std::uint64_t all_packets() const { return packets[0] + packets[1] + packets[2]; }
  std::uint64_t all_octets() const { return octets[0] + octets[1] + octets[2]; }
  Traffic since(const Traffic& base) const;

 private:
  static constexpr std::size_t kFcs = 4;
  void count(Cast cast, std::size_t bytes, std::uint64_t n) {
    packets[cast] += n;
    octets[cast] += bytes * n;
    by_size[size_class(bytes + kFcs)] += n;
  }
};

struct Counters {
  CounterSet totals;  // over all QPs, those without a counter set too
  std::uint64_t rx_frames = 0;
  std::uint64_t tx_frames = 0;
  std::uint64_t tx_busy = 0;  // the port had no room
  std::uint64_t rx_bad_icrc = 0;
  std::uint64_t rx_malformed = 0;   // every other parse error
  std::uint64_t rx_no_qp = 0;       // no such QP, or one that takes no frames in its state
  std::uint64_t rx_wrong_path = 0;  // addresses, P_Key or service are not the QP's
  std::uint64_t rx_bad_qkey = 0;    // datagrams with a Q_Key that is not the QP's
  std::uint64_t eq_overruns = 0;
  // Congestion (names: Linux mlx5_ifc.h, query_cong_statistics_out).
  std::uint64_t np_ecn_marked = 0, np_cnp_sent = 0, rp_cnp_handled = 0, rp_cnp_ignored = 0;
  std::uint64_t rp_flows = 0;  // QPs that began to be slowed down
  // The port (everything on the wire), and of it and of local loopback what belongs to the Ethernet half.
  Traffic port_rx, port_tx, vport_rx, vport_tx;
  Traffic rdma_rx, rdma_tx;
  std::uint64_t rx_discards = 0;  // Ethernet: port down, too long, queue not ready
  std::uint64_t tx_discards = 0;  // Ethernet: port down, too long
};

template <prm::Field F>
void count(Counters& c, Objects& objects, const Qp& qp, std::uint32_t n = 1) {
  c.totals.add<F>(n);
  if (qp.counter_set == 0) return;
  if (CounterSet* set = objects.counter_set(qp.counter_set)) set->add<F>(n);
}

}  // namespace uhca::hca
