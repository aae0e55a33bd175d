// SPDX-License-Identifier: MIT
// Packets of RC QPs between two functions of one host and user: what a packet says, without the headers, checksums and cuts that only a
// wire needs. One host packet stands for one or several packets of the path MTU (their PSNs are used up all the same), and long payload is
// not carried but named: the receiver fetches it from the sender's memory. Everything else, order, keys, receive WQEs, answers, is up to
// the same requester, responder and completer that frames go through (DESIGN, decision 5; docs/decisions/0004).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/hca/direct.h"
#include "device/hca/rc_requester.h"
#include "wire/roce/roce.h"

namespace uhca::hca {

// By value: bytes in one host packet. More than that is fetched, in runs of so many packets of the path MTU.
inline constexpr std::uint32_t kMaxHostValue = 8192;
inline constexpr std::uint32_t kMaxFetchPackets = 256;
inline constexpr std::size_t kMaxFetchPieces = 8;

// The payload of a host packet as its receiver sees it.
struct HostBody {
  std::uint32_t packets = 1;     // of the sender's path MTU
  std::uint32_t length = 0;      // bytes
  bool fetch = false;            // not in Packet::payload but with the sender
  std::uint32_t sender_seq = 0;  // fetch: as the sender's QP is published as long as the memory is the message's
  std::uint32_t pieces = 0;
  RangePiece at[kMaxFetchPieces];
};

// How much of a message's data, of which `left` bytes have never been sent, goes into the next packet at most: by value, or fetched (0:
// not).
std::uint64_t by_value(const Qp& qp, std::uint64_t left);
std::uint64_t to_fetch(const Qp& qp, std::uint64_t left);

// As begin_packet() does for frames; nullptr, false: the port has no room. A fetch packet names the data instead of carrying it.
std::byte* begin_host_packet(Lane& lane, wire::PeerFunction& to, const Qp& qp, const wire::Packet& p, std::uint32_t payload);
bool begin_fetch_packet(Lane& lane, wire::PeerFunction& to, const Qp& qp, const wire::Packet& p, std::uint32_t payload,
                        std::span<const RangePiece> pieces);
// Counts what would have been on a wire. `p` has its net header.
void count_host_packet(const Qp& qp, const wire::Packet& p, std::uint32_t length, Traffic& port, Traffic& rdma);
void commit_host_packet(Lane& lane, const Qp& qp, const wire::Packet& p);

// Takes one apart: headers into `p` (the net header is left alone), the rest into `body`. *path: path_hash() of (receiver, sender). False:
// malformed.
bool parse_host_packet(std::span<const std::byte> record, wire::Packet& p, HostBody& body, std::uint64_t* path);

// Fetches the payload into our `pieces`, as many bytes as they have. False: it is not there any more, or not the message's.
bool fetch_payload(Lane& lane, const Qp& qp, const HostBody& body, const Pieces& pieces);

}  // namespace uhca::hca
