// SPDX-License-Identifier: MIT
// Building and sending one packet of a connected QP in the lane's frame buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/hca/lane.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

enum class Tx : std::uint8_t {
  kSent,   // or lost on the way: the protocol copes
  kBusy,   // the port has no room: try again at the next drive
  kLater,  // the QP may not send so soon (congestion.h); it comes up again
  kFault,  // the payload could not be read
};

// The service that a QP of this type speaks.
wire::Service service_of(QpType t);

// The n-th other source port in the range that RoCE uses (0xc000 and up). What lies between the ends chooses its way by it: after a loss
// that only a timer has noticed, a request leaves by another one, and so do the answers to it, in case that the way has broken down, or a
// function of the peer's host that does not run any more takes frames meant for others.
std::uint16_t detour(std::uint16_t udp_sport, unsigned n);

// Fills net header and BTH (destination QP, P_Key, PSN) of `p`, emits its headers and returns where `payload` bytes of data go: into a
// frame, or into a host packet (host_packet.h) where the peer takes these. nullptr: no room now. The extension headers that the opcode has
// must have been set before.
// `peer`: what direct_peer() has just said; asked once per packet, as the answer changes when the peer dies or tracing begins, and a frame
// holds no more than the path MTU.
std::byte* begin_packet(Lane& lane, const Qp& qp, wire::PeerFunction* peer, wire::Packet& p, wire::Op op, std::uint32_t psn,
                        std::size_t payload);
// Emits the headers of `p`, complete but for its payload's size, and returns where `payload` bytes of data go.
std::byte* begin_headers(Lane& lane, wire::Packet& p, std::size_t payload);
// Net header and BTH alone.
void address_packet(const Qp& qp, wire::Packet& p, wire::Op op, std::uint32_t psn);
// Padding, ICRC, capture, send: of a frame.
Tx finish_packet(Lane& lane, std::uint32_t qpn, const wire::Packet& p);
// Of what begin_packet() has begun.
Tx finish_packet(Lane& lane, const Qp& qp, const wire::Packet& p);

}  // namespace uhca::hca
