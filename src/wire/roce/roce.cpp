// SPDX-License-Identifier: MIT
#include "wire/roce/roce.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

namespace uhca::wire {
namespace {

constexpr std::size_t kEth = 14;
constexpr std::size_t kVlanTag = 4;
constexpr std::size_t kIp4 = 20;
constexpr std::size_t kIp6 = 40;
constexpr std::size_t kGrh = 40;  // laid out as an IPv6 header
constexpr std::size_t kUdp = 8;
constexpr std::size_t kBth = 12;
constexpr std::size_t kIcrc = 4;

constexpr std::uint16_t kEtherIp4 = 0x0800;
constexpr std::uint16_t kEtherIp6 = 0x86dd;
constexpr std::uint16_t kEtherVlan = 0x8100;
constexpr std::uint8_t kProtoUdp = 17;
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3fff;  // MF and offset

std::uint32_t crc32(std::uint32_t seed, const std::uint8_t* p, std::size_t n) {
  return crc32_gzip_refl(seed, p, n);
}

// RFC 1071 over an even number of bytes.
std::uint16_t ones_complement_sum(const std::uint8_t* p, std::size_t n) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < n; i += 2) sum += load_be<std::uint16_t>(p + i);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

std::size_t ip_offset(const NetHeader& n) {
  return kEth + (n.vlan == 0xffff ? 0 : kVlanTag);
}
std::size_t ip_size(const NetHeader& n) {
  return n.roce_v1 ? kGrh : n.ipv6 ? kIp6 : kIp4;
}
std::size_t udp_size(const NetHeader& n) {
  return n.roce_v1 ? 0 : kUdp;
}
std::uint8_t pad_of(std::size_t payload) {
  return static_cast<std::uint8_t>(-payload & 3);
}

void store24(std::uint8_t* p, std::uint8_t top, std::uint32_t low24) {
  store_be(p, static_cast<std::uint32_t>(top) << 24 | (low24 & 0xffffff));
}

std::uint8_t* emit_ethernet(const NetHeader& n, std::uint8_t* p) {
  std::memcpy(p, n.dmac.data(), 6);
  std::memcpy(p + 6, n.smac.data(), 6);
  p += 12;
  if (n.vlan != 0xffff) {
    store_be<std::uint16_t>(p, kEtherVlan);
    store_be<std::uint16_t>(p + 2, n.vlan);
    p += kVlanTag;
  }
  store_be<std::uint16_t>(p, n.roce_v1 ? kRoceV1EtherType : n.ipv6 ? kEtherIp6 : kEtherIp4);
  return p + 2;
}

// `behind`: bytes behind the IP header or GRH.
std::uint8_t* emit_ip(const NetHeader& n, std::uint8_t* p, std::size_t behind) {
  if (n.ipv6 || n.roce_v1) {
    store_be<std::uint32_t>(p, 6u << 28 | static_cast<std::uint32_t>(n.traffic_class) << 20 | (n.flow_label & 0xfffff));
    store_be<std::uint16_t>(p + 4, static_cast<std::uint16_t>(behind));
    p[6] = n.roce_v1 ? kGrhNextBth : kProtoUdp;
    p[7] = n.hop_limit;
    std::memcpy(p + 8, n.sgid.data(), 16);
    std::memcpy(p + 24, n.dgid.data(), 16);
    return p + kIp6;
  }
  p[0] = 0x45;
  p[1] = n.traffic_class;
  store_be<std::uint16_t>(p + 2, static_cast<std::uint16_t>(kIp4 + behind));
  store_be<std::uint16_t>(p + 4, n.identification);
  store_be<std::uint16_t>(p + 6, kDontFragment);
  p[8] = n.hop_limit;
  p[9] = kProtoUdp;
  store_be<std::uint16_t>(p + 10, 0);
  std::memcpy(p + 12, n.sgid.data() + 12, 4);
  std::memcpy(p + 16, n.dgid.data() + 12, 4);
  store_be<std::uint16_t>(p + 10, static_cast<std::uint16_t>(~ones_complement_sum(p, kIp4)));
  return p + kIp4;
}

// `bytes`: of the datagram, this header included. Checksum 0 in both families: RoCEv2 lets it be 0 over IPv6 too (annex A17, RFC 6936),
// and the ICRC does not cover it.
std::uint8_t* emit_udp(const NetHeader& n, std::uint8_t* p, std::size_t bytes) {
  store_be(p, n.udp_sport);
  store_be(p + 2, kRoceV2UdpPort);
  store_be(p + 4, static_cast<std::uint16_t>(bytes));
  store_be<std::uint16_t>(p + 6, 0);
  return p + kUdp;
}

// Ethernet and IP or GRH. On success `ip` is that header's offset and `end` the end of its packet in the frame.
ParseError parse_network(Frame frame, NetHeader& n, std::size_t& ip, std::size_t& end) {
  auto* f = reinterpret_cast<const std::uint8_t*>(frame.data());
  if (frame.size() < kEth) return ParseError::kShort;
  std::copy_n(f, 6, n.dmac.begin());
  std::copy_n(f + 6, 6, n.smac.begin());
  auto type = load_be<std::uint16_t>(f + 12);
  ip = kEth;
  if (type == kEtherVlan) {
    if (frame.size() < kEth + kVlanTag) return ParseError::kShort;
    n.vlan = load_be<std::uint16_t>(f + 14);
    type = load_be<std::uint16_t>(f + 16);
    ip += kVlanTag;
  }
  const std::uint8_t* h = f + ip;
  const std::size_t left = frame.size() - ip;
  if (type == kEtherIp4) {
    if (left < kIp4) return ParseError::kShort;
    // Options do not occur: annex A17 fixes the header length at 5 words.
    if (h[0] != 0x45 || ones_complement_sum(h, kIp4) != 0xffff) return ParseError::kBadIpHeader;
    if (h[9] != kProtoUdp || (load_be<std::uint16_t>(h + 6) & kFragmentMask)) return ParseError::kNotRoce;
    std::size_t total = load_be<std::uint16_t>(h + 2);
    if (total < kIp4 || total > left) return ParseError::kShort;
    end = ip + total;
    n.ipv6 = false;
    n.traffic_class = h[1];
    n.identification = load_be<std::uint16_t>(h + 4);
    n.hop_limit = h[8];
    for (auto [gid, at] : {std::pair{&n.sgid, h + 12}, std::pair{&n.dgid, h + 16}}) {
      gid->fill(0);
      (*gid)[10] = (*gid)[11] = 0xff;
      std::copy_n(at, 4, gid->begin() + 12);
    }
    return ParseError::kNone;
  }
  if (type == kEtherIp6 || type == kRoceV1EtherType) {
    n.roce_v1 = type == kRoceV1EtherType;
    if (left < kIp6) return ParseError::kShort;
    if (h[0] >> 4 != 6) return ParseError::kBadIpHeader;
    if (h[6] != (n.roce_v1 ? kGrhNextBth : kProtoUdp)) return ParseError::kNotRoce;
    std::size_t behind = load_be<std::uint16_t>(h + 4);
    if (behind > left - kIp6) return ParseError::kShort;
    end = ip + kIp6 + behind;
    n.ipv6 = !n.roce_v1;
    auto word = load_be<std::uint32_t>(h);
    n.traffic_class = static_cast<std::uint8_t>(word >> 20);
    n.flow_label = word & 0xfffff;
    n.hop_limit = h[7];
    std::copy_n(h + 8, 16, n.sgid.begin());
    std::copy_n(h + 24, 16, n.dgid.begin());
    return ParseError::kNone;
  }
  return ParseError::kNotRoce;
}

// The ICRC is computed over a copy of the headers in which what may change on the way is all ones.
std::size_t copy_prefix(std::span<const std::byte> packet, std::uint8_t* masked, std::size_t prefix) {
  const std::size_t have = std::min(prefix, packet.size());
  if (have) std::memcpy(masked, packet.data(), have);
  std::memset(masked + have, 0, prefix - have);
  return have;
}
// Traffic class, flow label, hop limit.
void mask_ip6(std::uint8_t* h) {
  h[0] |= 0x0f;
  h[1] = h[2] = h[3] = 0xff;
  h[7] = 0xff;
}
std::uint32_t crc_of_packet(std::span<const std::byte> packet, const std::uint8_t* masked, std::size_t have) {
  // The CRC register after the eight bytes of ones that stand for the local routing header.
  constexpr std::uint32_t kSeed = 0x2144df1c;
  std::uint32_t crc = crc32(kSeed, masked, have);
  if (packet.size() > have) crc = crc32(crc, reinterpret_cast<const std::uint8_t*>(packet.data()) + have, packet.size() - have);
  return crc;
}
std::uint32_t icrc_of(const NetHeader& n, std::span<const std::byte> packet) {
  return n.roce_v1 ? icrc_v1(packet) : icrc(packet, n.ipv6);
}

}  // namespace

std::uint8_t* emit_extensions(const Packet& k, Prop props, std::uint8_t* p) {
  if (has(props, Prop::kXrcEth)) store24(p, 0, k.xrc_srq), p += 4;
  if (has(props, Prop::kDcEth)) {
    store_be(p, k.dc_eth.access_key);
    store24(p + 8, static_cast<std::uint8_t>(k.dc_eth.session >> 8), k.dc_eth.src_qp);
    store24(p + 12, static_cast<std::uint8_t>(k.dc_eth.session), k.dc_eth.start_psn);
    p += 16;
  }
  if (has(props, Prop::kDeth)) {
    store_be(p, k.deth.qkey);
    store24(p + 4, 0, k.deth.src_qp);
    p += 8;
  }
  if (has(props, Prop::kReth)) {
    store_be(p, k.reth.va);
    store_be(p + 8, k.reth.rkey);
    store_be(p + 12, k.reth.length);
    p += 16;
  }
  if (has(props, Prop::kAtomicEth)) {
    store_be(p, k.atomic_eth.va);
    store_be(p + 8, k.atomic_eth.rkey);
    store_be(p + 12, k.atomic_eth.swap_add);
    store_be(p + 20, k.atomic_eth.compare);
    p += 28;
  }
  if (has(props, Prop::kAeth)) store24(p, k.aeth.syndrome, k.aeth.msn), p += 4;
  if (has(props, Prop::kAtomicAckEth)) store_be(p, k.atomic_ack), p += 8;
  if (has(props, Prop::kImm)) store_be(p, k.imm), p += 4;
  if (has(props, Prop::kIeth)) store_be(p, k.ieth), p += 4;
  return p;
}

void parse_extensions(Packet& k, Prop props, const std::uint8_t* p) {
  if (has(props, Prop::kXrcEth)) k.xrc_srq = load_be<std::uint32_t>(p) & 0xffffff, p += 4;
  if (has(props, Prop::kDcEth)) {
    k.dc_eth = {load_be<std::uint64_t>(p), static_cast<std::uint16_t>(p[8] << 8 | p[12]), load_be<std::uint32_t>(p + 8) & 0xffffff,
                load_be<std::uint32_t>(p + 12) & 0xffffff};
    p += 16;
  }
  if (has(props, Prop::kDeth)) {
    k.deth.qkey = load_be<std::uint32_t>(p);
    k.deth.src_qp = load_be<std::uint32_t>(p + 4) & 0xffffff;
    p += 8;
  }
  if (has(props, Prop::kReth)) {
    k.reth = {load_be<std::uint64_t>(p), load_be<std::uint32_t>(p + 8), load_be<std::uint32_t>(p + 12)};
    p += 16;
  }
  if (has(props, Prop::kAtomicEth)) {
    k.atomic_eth = {load_be<std::uint64_t>(p), load_be<std::uint32_t>(p + 8), load_be<std::uint64_t>(p + 12),
                    load_be<std::uint64_t>(p + 20)};
    p += 28;
  }
  if (has(props, Prop::kAeth)) {
    k.aeth = {p[0], load_be<std::uint32_t>(p) & 0xffffff};
    p += 4;
  }
  if (has(props, Prop::kAtomicAckEth)) k.atomic_ack = load_be<std::uint64_t>(p), p += 8;
  if (has(props, Prop::kImm)) k.imm = load_be<std::uint32_t>(p), p += 4;
  if (has(props, Prop::kIeth)) k.ieth = load_be<std::uint32_t>(p);
}

std::size_t header_size(const Packet& p) {
  return ip_offset(p.net) + ip_size(p.net) + udp_size(p.net) + kBth + info(p.bth.opcode).ext_bytes;
}

std::size_t frame_size(const Packet& p) {
  return header_size(p) + p.payload.size() + pad_of(p.payload.size()) + kIcrc;
}

std::size_t emit_headers(const Packet& p, std::span<std::byte> out) {
  const OpcodeInfo& row = info(p.bth.opcode);
  auto* start = reinterpret_cast<std::uint8_t*>(out.data());
  const std::size_t behind_ip = udp_size(p.net) + kBth + row.ext_bytes + p.payload.size() + pad_of(p.payload.size()) + kIcrc;

  std::uint8_t* q = emit_ip(p.net, emit_ethernet(p.net, start), behind_ip);
  if (!p.net.roce_v1) q = emit_udp(p.net, q, behind_ip);

  q[0] = static_cast<std::uint8_t>(p.bth.opcode);
  q[1] = static_cast<std::uint8_t>(p.bth.solicited << 7 | p.bth.mig_req << 6 | pad_of(p.payload.size()) << 4 | (p.bth.version & 15));
  store_be(q + 2, p.bth.pkey);
  store24(q + 4, static_cast<std::uint8_t>(p.bth.fecn << 7 | p.bth.becn << 6), p.bth.dest_qp);
  store24(q + 8, static_cast<std::uint8_t>(p.bth.ack_req << 7), p.bth.psn);
  q += kBth;

  std::uint8_t* body = emit_extensions(p, row.props, q);
  if (p.bth.opcode == kCnp) {
    std::memset(q, 0, row.ext_bytes);
    body = q + row.ext_bytes;
  }
  return static_cast<std::size_t>(body - start);
}

std::size_t seal(const Packet& p, std::span<std::byte> out) {
  std::size_t at = header_size(p) + p.payload.size();
  std::size_t pad = pad_of(p.payload.size());
  std::memset(out.data() + at, 0, pad);
  at += pad;
  std::size_t ip = ip_offset(p.net);
  std::uint32_t crc = icrc_of(p.net, out.subspan(ip, at - ip));
  std::memcpy(out.data() + at, &crc, kIcrc);
  return at + kIcrc;
}

std::size_t emit(const Packet& p, std::span<std::byte> out) {
  std::size_t n = emit_headers(p, out);
  if (!p.payload.empty()) std::memcpy(out.data() + n, p.payload.data(), p.payload.size());
  return seal(p, out);
}

void emit_grh(const Packet& p, std::span<std::byte, 40> out) {
  auto* at = reinterpret_cast<std::uint8_t*>(out.data());
  std::size_t behind = frame_size(p) - ip_offset(p.net) - ip_size(p.net);
  std::size_t blank = kIp6 - ip_size(p.net);
  std::memset(at, 0, blank);
  emit_ip(p.net, at + blank, behind);
}

const char* parse_error_name(ParseError e) {
  switch (e) {
    case ParseError::kNone: return "none";
    case ParseError::kShort: return "short";
    case ParseError::kNotRoce: return "not_roce";
    case ParseError::kBadIpHeader: return "bad_ip_header";
    case ParseError::kBadVersion: return "bad_version";
    case ParseError::kUnknownOpcode: return "unknown_opcode";
    case ParseError::kBadPad: return "bad_pad";
    case ParseError::kBadIcrc: return "bad_icrc";
  }
  return "?";
}

ParseError parse(Frame frame, Packet& out, bool icrc_known) {
  out = Packet{};
  std::size_t ip = 0, end = 0;
  if (auto e = parse_network(frame, out.net, ip, end); e != ParseError::kNone) return e;
  auto* f = reinterpret_cast<const std::uint8_t*>(frame.data());

  std::size_t at = ip + ip_size(out.net);
  if (!out.net.roce_v1) {
    if (end - at < kUdp) return ParseError::kShort;
    out.net.udp_sport = load_be<std::uint16_t>(f + at);
    if (load_be<std::uint16_t>(f + at + 2) != kRoceV2UdpPort) return ParseError::kNotRoce;
    if (load_be<std::uint16_t>(f + at + 4) != end - at) return ParseError::kShort;
    at += kUdp;
  }
  if (end - at < kBth + kIcrc) return ParseError::kShort;

  // The ICRC first: what is damaged has no opcode, and must not be counted as a peer's mistake.
  std::uint32_t received;
  std::memcpy(&received, f + end - kIcrc, kIcrc);
  if (!icrc_known && received != icrc_of(out.net, frame.subspan(ip, end - kIcrc - ip))) return ParseError::kBadIcrc;

  const std::uint8_t* b = f + at;
  out.bth.opcode = static_cast<Opcode>(b[0]);
  out.bth.solicited = b[1] >> 7;
  out.bth.mig_req = b[1] >> 6 & 1;
  out.bth.pad_count = b[1] >> 4 & 3;
  out.bth.version = b[1] & 15;
  out.bth.pkey = load_be<std::uint16_t>(b + 2);
  out.bth.fecn = b[4] >> 7;
  out.bth.becn = b[4] >> 6 & 1;
  out.bth.dest_qp = load_be<std::uint32_t>(b + 4) & 0xffffff;
  out.bth.ack_req = b[8] >> 7;
  out.bth.psn = load_be<std::uint32_t>(b + 8) & 0xffffff;
  at += kBth;
  if (out.bth.version != 0) return ParseError::kBadVersion;

  const OpcodeInfo& row = info(out.bth.opcode);
  if (!row.name) return ParseError::kUnknownOpcode;
  if (end - kIcrc - at < row.ext_bytes) return ParseError::kShort;
  parse_extensions(out, row.props, f + at);
  at += row.ext_bytes;

  std::size_t body = end - kIcrc - at;
  if (!has(row.props, Prop::kPayload)) {
    if (out.bth.pad_count) return ParseError::kBadPad;
    if (body) return ParseError::kShort;
  }
  if (body % 4 || out.bth.pad_count > body) return ParseError::kBadPad;
  out.payload = frame.subspan(at, body - out.bth.pad_count);
  return ParseError::kNone;
}

std::uint32_t icrc(std::span<const std::byte> packet, bool ipv6) {
  auto* p = reinterpret_cast<const std::uint8_t*>(packet.data());
  std::uint8_t masked[60 + kUdp + kBth];
  std::size_t ip = ipv6 ? kIp6 : packet.empty() ? kIp4 : static_cast<std::size_t>(p[0] & 15) * 4;
  if (ip < kIp4) ip = kIp4;
  const std::size_t prefix = ip + kUdp + kBth;
  const std::size_t have = copy_prefix(packet, masked, prefix);
  if (ipv6) {
    mask_ip6(masked);
  } else {
    masked[1] = 0xff;
    masked[8] = 0xff;
    masked[10] = masked[11] = 0xff;
  }
  masked[ip + 6] = masked[ip + 7] = 0xff;
  masked[ip + kUdp + 4] = 0xff;
  return crc_of_packet(packet, masked, have);
}

std::uint32_t icrc_v1(std::span<const std::byte> packet) {
  std::uint8_t masked[kGrh + kBth];
  const std::size_t have = copy_prefix(packet, masked, sizeof masked);
  mask_ip6(masked);
  masked[kGrh + 4] = 0xff;
  return crc_of_packet(packet, masked, have);
}

}  // namespace uhca::wire
