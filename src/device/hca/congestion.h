// SPDX-License-Identifier: MIT
// Congestion control of RoCE v2: who receives a packet that a switch has marked (ECN: congestion experienced) tells its sender by a CNP
// (IBTA annex A17.9.3), and that one sends more slowly for a while: DCQCN (Zhu et al., Congestion Control for Large-Scale RDMA Deployments,
// SIGCOMM 2015), with the parameters that a ConnectX has from the factory (names: Linux mlx5_ifc.h, cong_control_r_roce_ecn_rp and _np).
// Datagrams and RoCE v1 take no part.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "device/hca/objects.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

struct Lane;

// Whether the peers of this port are notified, and whether it reacts to their notifications.
struct CongestionSwitches {
  bool notify = true;
  bool react = true;
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
