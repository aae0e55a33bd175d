// SPDX-License-Identifier: MIT
// The few fields of a frame that decide where it goes, without checking the rest (parse() does, at the receiver).
#pragma once

#include <cstring>

#include "wire/roce/roce.h"

namespace uhca::wire {

inline constexpr std::size_t kEthernetHeader = 14;
inline constexpr std::size_t kUdpHeader = 8;
inline constexpr std::size_t kBthSize = 12;
inline constexpr std::size_t kDethSize = 8;
inline constexpr std::size_t kIcrcSize = 4;
inline constexpr std::uint32_t kGroupQpn = 0xffffff;  // destination of what goes to a multicast group (IBTA 10.5.1)

struct Route {
  bool roce_v1 = false;
  bool ipv6 = false;
  std::size_t ip = 0;   // offset of the IP header or GRH
  std::size_t udp = 0;  // offset of the UDP header (RoCE v2)
  std::size_t end = 0;  // end of the IP packet, or of what the GRH announces
  Gid sgid{};
  Gid dgid{};
  std::uint32_t dest_qp = 0;
};

// false: not a whole RoCE packet.
inline bool peek_route(Frame f, Route& r) {
  auto* p = reinterpret_cast<const std::uint8_t*>(f.data());
  if (f.size() < 14) return false;
  r.ip = 14;
  auto type = load_be<std::uint16_t>(p + 12);
  if (type == 0x8100) {
    if (f.size() < 18) return false;
    type = load_be<std::uint16_t>(p + 16);
    r.ip = 18;
  }
  const std::uint8_t* h = p + r.ip;
  std::size_t left = f.size() - r.ip;
  std::size_t total;
  if (type == 0x0800) {
    if (left < 20 || h[0] != 0x45 || h[9] != 17) return false;
    r.udp = r.ip + 20;
    total = load_be<std::uint16_t>(h + 2);
    r.sgid = r.dgid = Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    std::memcpy(r.sgid.data() + 12, h + 12, 4);
    std::memcpy(r.dgid.data() + 12, h + 16, 4);
  } else if (type == 0x86dd || type == kRoceV1EtherType) {
    r.roce_v1 = type == kRoceV1EtherType;
    if (left < 40 || h[0] >> 4 != 6 || h[6] != (r.roce_v1 ? kGrhNextBth : 17)) return false;
    r.ipv6 = !r.roce_v1;
    r.udp = r.ip + 40;
    total = 40 + std::size_t{load_be<std::uint16_t>(h + 4)};
    std::memcpy(r.sgid.data(), h + 8, 16);
    std::memcpy(r.dgid.data(), h + 24, 16);
  } else {
    return false;
  }
  const std::size_t bth = r.roce_v1 ? r.udp : r.udp + kUdpHeader;
  if (total > left || r.ip + total < bth + kBthSize + kIcrcSize) return false;
  r.end = r.ip + total;
  if (!r.roce_v1 && load_be<std::uint16_t>(p + r.udp + 2) != kRoceV2UdpPort) return false;
  r.dest_qp = load_be<std::uint32_t>(p + bth + 4) & 0xffffff;
  return true;
}

// The source QPN of a datagram to a group (UD, DETH); 0: none such. `r`: of this frame.
inline std::uint32_t group_source(Frame f, const Route& r) {
  const std::size_t bth = r.roce_v1 ? r.udp : r.udp + kUdpHeader;
  auto* p = reinterpret_cast<const std::uint8_t*>(f.data()) + bth;
  if (r.dest_qp != kGroupQpn || r.end < bth + kBthSize + kDethSize + kIcrcSize || service_of(static_cast<Opcode>(p[0])) != Service::kUD)
    return 0;
  return load_be<std::uint32_t>(p + kBthSize + 4) & 0xffffff;
}

}  // namespace uhca::wire
