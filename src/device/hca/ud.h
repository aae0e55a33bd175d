// SPDX-License-Identifier: MIT
// Unreliable datagrams (IBTA vol. 1 9.8.3) and QP1: address vectors, Q_Keys, the network header in front of received data, multicast.
#pragma once

#include "device/hca/lane.h"
#include "wire/net/peek.h"

namespace uhca::hca {

inline constexpr std::uint32_t kGsiQpn = 1;
inline constexpr std::uint32_t kMulticastQpn = wire::kGroupQpn;
// In front of the data of every received datagram: a GRH, or the IPv4 header in the second half of its room.
inline constexpr std::size_t kGrhBytes = 40;

// What a datagram WQE must fulfil besides its segments: a source address that is set, one packet.
WcError check_datagram(const Lane& lane, const Qp& qp, const SendWqe& w);
// Fills `p` from the address vector and emits its headers; returns where the data go.
std::byte* begin_datagram(Lane& lane, const Qp& qp, const SendWqe& w, wire::Packet& p, bool imm, std::uint32_t psn, std::size_t payload);
// The frame that was just sent goes to the groups' members on this device, too (delivered by deliver_loopback()).
void loop_back_multicast(Lane& lane, const Qp& qp, const wire::Packet& p);
// True: there was something.
bool deliver_loopback(Lane& lane);

// Why a datagram is not for this QP; nullptr: it is.
const char* wrong_datagram(Lane& lane, const Qp& qp, const wire::Packet& p);
void receive_datagram(Lane& lane, Qp& qp, const wire::Packet& p);
// To every member of the group that takes frames, except one QPN (0: nobody).
void receive_multicast(Lane& lane, const wire::Packet& p, std::uint32_t except_qpn);

}  // namespace uhca::hca
