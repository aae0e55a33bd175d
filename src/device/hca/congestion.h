// SPDX-License-Identifier: MIT
// Congestion control of RoCE v2: who receives a packet that a switch has marked (ECN: congestion experienced) tells its sender by a CNP
// (IBTA annex A17.9.3), and that one sends more slowly for a while: DCQCN (Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
// SIGCOMM 2015), with parameters as a ConnectX has them (names: Linux mlx5_ifc.h, cong_control_r_roce_ecn_rp and _np).
// Datagrams and RoCE v1 take no part.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "device/hca/objects.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

struct Lane;

// What the driver may set (cmd_congestion.cpp). Times in microseconds, rates in Mb/s (0: that of the line).
struct CongestionSettings {
  // Whether the peers of this port are notified, and whether it reacts to their notifications: one bit for each priority.
  std::uint8_t notify = 0xff, react = 0xff;
  // Reaction point: what a cut leaves of the target rate; how often and how fast it goes up again; how deep a cut goes; alpha.
  std::uint32_t clamp_tgt_rate = 0, clamp_tgt_rate_after_time_inc = 1;
  std::uint32_t rpg_time_reset = 300, rpg_threshold = 5, rpg_max_rate = 0, rpg_ai_rate = 5, rpg_hai_rate = 50;
  std::uint32_t rpg_min_dec_fac = 50, rpg_min_rate = 1, rate_to_set_on_first_cnp = 0;
  std::uint32_t dce_tcp_g = 1019, dce_tcp_rtt = 55, rate_reduce_monitor_period = 4, initial_alpha_value = 1023;
  // Notification point.
  std::uint32_t min_time_between_cnps = 4, cnp_dscp = 48;
};

// How fast a QP may send; part of its transport.
struct FlowRate {
  std::uint64_t current = 0;  // bytes per second; 0: as fast as it goes
  std::uint64_t target = 0;
  std::uint32_t alpha = 0;  // estimate of the congestion, in units of 1/1024
  unsigned steps = 0;       // upward since the last notification
  Nanos notified = 0;       // the rate was cut
  Nanos decayed = 0;        // alpha was
  Nanos raised = 0;         // the rate was
  Nanos next = 0;           // when the next packet may leave
  Nanos cnp_allowed = 0;    // when the peer may be told again
  bool paced = false;       // waits in Lane::paced
};

// The traffic class of a packet with data: "ECN-capable", unless the program has chosen these bits itself.
std::uint8_t data_traffic_class(const Lane& lane, const wire::NetHeader& path);
// A packet for this QP came: if it is marked, its sender is told.
void note_mark(Lane& lane, Qp& qp, const wire::Packet& p);
// The peer (or who receives in its place) was told so by us.
void receive_cnp(Lane& lane, Qp& qp, const wire::Packet& p);
// Before a packet with data. True: not yet; the QP comes up again when its time has come.
bool must_wait(Lane& lane, Qp& qp);
// A packet of so many bytes has left.
void charge(const Lane& lane, Qp& qp, std::size_t bytes);
// The QPs whose time has come go to the work list.
void release_paced(Lane& lane);
void forget_pace(Lane& lane, Qp& qp);

}  // namespace uhca::hca
