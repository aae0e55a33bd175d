// SPDX-License-Identifier: MIT
// RoCE packets of both versions: parsed values (repr) and their emission into and parsing out of whole Ethernet frames.
// Sources: IBTA Architecture Specification vol. 1, chapters 8 (GRH) and 9 (BTH, RETH, AETH, ...), annexes A16 (RoCE) and A17 (RoCEv2);
// RFC 791, 8200, 768.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/types.h"
#include "wire/net/port.h"
#include "wire/roce/opcode.h"

namespace uhca::wire {

using Mac = std::array<std::uint8_t, 6>;
using Gid = std::array<std::uint8_t, 16>;  // network order; an IPv4 address is ::ffff:a.b.c.d

inline constexpr std::uint16_t kRoceV2UdpPort = 4791;
inline constexpr std::uint16_t kRoceV1EtherType = 0x8915;
inline constexpr std::uint8_t kGrhNextBth = 0x1b;  // GRH NxtHdr: an InfiniBand transport header follows

// Everything below BTH: Ethernet, IP and UDP fields of one packet, or (RoCE v1) Ethernet and GRH.
struct NetHeader {
  Mac dmac{};
  Mac smac{};
  std::uint16_t vlan = 0xffff;  // the 802.1Q tag's TCI (priority and VLAN id); 0xffff: untagged
  bool roce_v1 = false;         // a GRH takes the place of IP and UDP: GIDs of every kind travel whole
  bool ipv6 = false;            // RoCE v2: whether sgid/dgid travel as IPv6; else as the mapped IPv4 addresses
  Gid sgid{};
  Gid dgid{};
  std::uint8_t traffic_class = 0;  // DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;      // IPv6, GRH
  std::uint16_t identification = 0;  // IPv4
  std::uint16_t udp_sport = 0xc000;
};

struct Bth {
  Opcode opcode{};
  bool solicited = false;
  bool mig_req = true;
  std::uint8_t pad_count = 0;  // 0..3
  std::uint8_t version = 0;    // 0
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint32_t dest_qp = 0;  // 24 bits
  bool ack_req = false;
  std::uint32_t psn = 0;  // 24 bits
};

struct Reth {
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
};

struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  // 24 bits
};

struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t src_qp = 0;
};

struct AtomicEth {
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
};

// Names the initiator of a DC request and its session with the target: a run of requests without a break, from start_psn on. The first
// packet that arrives opens the session at the target, so nothing has to be exchanged before.
struct DcEth {
  std::uint64_t access_key = 0;
  std::uint16_t session = 0;
  std::uint32_t src_qp = 0;     // 24 bits
  std::uint32_t start_psn = 0;  // 24 bits
};

// One packet, header by header; which of the optional ones are meant follows from the opcode (opcode.h).
struct Packet {
  NetHeader net;
  Bth bth;
  Reth reth;
  Aeth aeth;
  Deth deth;
  AtomicEth atomic_eth;
  std::uint64_t atomic_ack = 0;  // AtomicAckETH: original remote data
  std::uint32_t imm = 0;         // host order of the ImmDt word
  std::uint32_t ieth = 0;        // rkey to invalidate
  std::uint32_t xrc_srq = 0;     // XRCETH: 24-bit SRQ number
  DcEth dc_eth;
  std::span<const std::byte> payload;  // without padding
};

// Bytes before the payload: Ethernet up to the last extension header of this packet.
std::size_t header_size(const Packet& p);
// The whole frame: headers, payload, padding, ICRC.
std::size_t frame_size(const Packet& p);

// The extension headers that `props` names, wire format: to `out`, returns what is behind them; and back.
std::uint8_t* emit_extensions(const Packet& p, Prop props, std::uint8_t* out);
void parse_extensions(Packet& p, Prop props, const std::uint8_t* in);

// Writes the headers of `p` into `out` and returns their size; the caller then places payload (p.payload.size() bytes) right
// behind and calls seal(). `out` must hold frame_size(p) bytes. pad_count is set from the payload's size.
std::size_t emit_headers(const Packet& p, std::span<std::byte> out);
// Appends padding and ICRC to headers + payload already in `out` and returns the frame's size.
std::size_t seal(const Packet& p, std::span<std::byte> out);
// Headers, payload (copied from p.payload), padding, ICRC.
std::size_t emit(const Packet& p, std::span<std::byte> out);

// The 40 bytes that go in front of a received datagram's data: the IPv6 header, or 20 bytes of zeros and the IPv4 header (annex A17.9.2).
void emit_grh(const Packet& p, std::span<std::byte, 40> out);

// Why a frame is not a packet for us. The names appear in traces and counters.
enum class ParseError : std::uint8_t {
  kNone,
  kShort,        // truncated, or lengths that do not fit each other
  kNotRoce,      // not IPv4/IPv6 + UDP 4791, nor a GRH before a BTH; fragments, other ethertypes
  kBadIpHeader,  // version (of the GRH too), header length, IPv4 header checksum
  kBadVersion,   // BTH.TVer != 0
  kUnknownOpcode,
  kBadPad,
  kBadIcrc,
};
const char* parse_error_name(ParseError e);

// Parses and checks one frame (ICRC included). The payload points into `frame`.
// `icrc_known`: somebody has found it right already.
ParseError parse(Frame frame, Packet& out, bool icrc_known = false);

// ICRC of a frame whose headers start at the IP header: CRC-32 over 8 bytes of ones and the packet with the variant fields
// masked (TOS, TTL, checksum / traffic class, flow label, hop limit; UDP checksum; BTH resv8a). Value as stored: little-endian
// on the wire, i.e. store with memcpy on a little-endian host. `len` excludes the ICRC itself.
std::uint32_t icrc(std::span<const std::byte> ip_packet_without_icrc, bool ipv6);
// The same for RoCE v1, from the GRH on: masked are the GRH's traffic class, flow label and hop limit and BTH resv8a.
std::uint32_t icrc_v1(std::span<const std::byte> packet_from_grh_without_icrc);

// PSN arithmetic on 24 bits.
inline constexpr std::uint32_t kPsnMask = 0xffffff;
constexpr std::uint32_t psn_add(std::uint32_t a, std::uint32_t n) {
  return (a + n) & kPsnMask;
}
// Signed distance a - b in [-2^23, 2^23).
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

}  // namespace uhca::wire
