// SPDX-License-Identifier: MIT
// Packets with random fields, and frames made of them.
#pragma once

#include <random>
#include <vector>

#include "wire/roce/roce.h"

namespace uhca::wire::test {

inline std::vector<Opcode> all_opcodes() {
  std::vector<Opcode> all;
  for (unsigned o = 0; o < 256; ++o) {
    if (kOpcodeTable[o].name) all.push_back(static_cast<Opcode>(o));
  }
  return all;
}

inline Gid gid4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}

// Fields that the opcode does not carry stay 0, so that parse(emit(p)) == p.
inline Packet random_packet(Opcode op, std::span<const std::byte> payload, std::mt19937& g) {
  auto r = [&g] { return static_cast<std::uint32_t>(g()); };
  auto r64 = [&] { return std::uint64_t{r()} << 32 | r(); };
  Packet p;
  for (auto& b : p.net.dmac) b = static_cast<std::uint8_t>(r());
  for (auto& b : p.net.smac) b = static_cast<std::uint8_t>(r());
  p.net.dmac[0] &= 0xfe;
  p.net.smac[0] &= 0xfe;
  if (r() % 4 == 0) p.net.vlan = static_cast<std::uint16_t>(r() & 0xeffe);
  p.net.roce_v1 = r() % 3 == 0;
  p.net.ipv6 = !p.net.roce_v1 && r() % 2;
  if (p.net.roce_v1) {
    for (auto& b : p.net.sgid) b = static_cast<std::uint8_t>(r());
    for (auto& b : p.net.dgid) b = static_cast<std::uint8_t>(r());
    p.net.flow_label = r() & 0xfffff;
  } else if (p.net.ipv6) {
    for (auto& b : p.net.sgid) b = static_cast<std::uint8_t>(r());
    for (auto& b : p.net.dgid) b = static_cast<std::uint8_t>(r());
    p.net.sgid[0] = p.net.dgid[0] = 0x20;
    p.net.flow_label = r() & 0xfffff;
  } else {
    p.net.sgid = gid4(10, static_cast<std::uint8_t>(r()), static_cast<std::uint8_t>(r()), static_cast<std::uint8_t>(r()));
    p.net.dgid = gid4(10, static_cast<std::uint8_t>(r()), static_cast<std::uint8_t>(r()), static_cast<std::uint8_t>(r()));
    p.net.identification = static_cast<std::uint16_t>(r());
  }
  p.net.traffic_class = static_cast<std::uint8_t>(r());
  p.net.hop_limit = static_cast<std::uint8_t>(1 + r() % 255);
  if (!p.net.roce_v1) p.net.udp_sport = static_cast<std::uint16_t>(0xc000 | r());
  p.bth.opcode = op;
  p.bth.solicited = r() % 2;
  p.bth.mig_req = r() % 2;
  p.bth.pkey = static_cast<std::uint16_t>(r());
  p.bth.fecn = r() % 2;
  p.bth.becn = r() % 2;
  p.bth.dest_qp = r() & 0xffffff;
  p.bth.ack_req = r() % 2;
  p.bth.psn = r() & 0xffffff;
  Prop props = info(op).props;
  if (has(props, Prop::kXrcEth)) p.xrc_srq = r() & 0xffffff;
  if (has(props, Prop::kReth)) p.reth = {r64(), r(), r()};
  if (has(props, Prop::kAeth)) p.aeth = {static_cast<std::uint8_t>(r()), r() & 0xffffff};
  if (has(props, Prop::kDeth)) p.deth = {r(), r() & 0xffffff};
  if (has(props, Prop::kAtomicEth)) p.atomic_eth = {r64(), r(), r64(), r64()};
  if (has(props, Prop::kAtomicAckEth)) p.atomic_ack = r64();
  if (has(props, Prop::kImm)) p.imm = r();
  if (has(props, Prop::kIeth)) p.ieth = r();
  if (has(props, Prop::kPayload)) p.payload = payload;
  p.bth.pad_count = static_cast<std::uint8_t>(-p.payload.size() & 3);
  return p;
}

inline std::vector<std::byte> frame_of(const Packet& p) {
  std::vector<std::byte> f(frame_size(p));
  f.resize(emit(p, f));
  return f;
}

inline std::vector<std::byte> counting(std::size_t n) {
  std::vector<std::byte> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::byte>(i * 7 + i / 256);
  return v;
}

// An RC SEND_ONLY between two addresses.
inline std::vector<std::byte> send_frame(const Gid& from, const Gid& to, std::uint32_t qpn, std::uint32_t psn, std::size_t payload,
                                         bool ipv6 = false, bool roce_v1 = false) {
  Packet p;
  auto body = counting(payload);
  p.net.ipv6 = ipv6;
  p.net.roce_v1 = roce_v1;
  p.net.sgid = from;
  p.net.dgid = to;
  p.bth.opcode = make_opcode(Service::kRC, Op::kSendOnly);
  p.bth.dest_qp = qpn;
  p.bth.psn = psn;
  p.payload = body;
  return frame_of(p);
}

}  // namespace uhca::wire::test
