// SPDX-License-Identifier: MIT
#include "device/hca/eth_headers.h"

#include <algorithm>

#include "base/types.h"
#include "device/hca/inet_sum.h"

namespace uhca::hca {
namespace {

constexpr std::uint8_t kHopByHop = 0, kRouting = 43, kFragmentHeader = 44, kDestinationOptions = 60;

void parse_ipv4(const std::uint8_t* p, std::size_t size, EthHeaders& h) {
  const std::uint8_t* ip = p + h.l3_at;
  std::size_t left = size - h.l3_at;
  if (left < 20 || ip[0] >> 4 != 4) return;
  std::size_t header = std::size_t{ip[0] & 0xfu} * 4;
  std::size_t total = load_be<std::uint16_t>(ip + 2);
  if (header < 20 || header > left || total < header) return;
  h.l3 = L3::kIpv4;
  h.cut = total > left;
  h.l3_end = h.l3_at + std::min(total, left);
  h.protocol = ip[9];
  h.fragment = (load_be<std::uint16_t>(ip + 6) & 0x3fff) != 0;  // more fragments, or an offset
  h.l4_at = h.l3_at + header;
}

void parse_ipv6(const std::uint8_t* p, std::size_t size, EthHeaders& h) {
  const std::uint8_t* ip = p + h.l3_at;
  std::size_t left = size - h.l3_at;
  if (left < 40 || ip[0] >> 4 != 6) return;
  std::size_t total = 40 + std::size_t{load_be<std::uint16_t>(ip + 4)};
  h.l3 = L3::kIpv6;
  h.cut = total > left;
  h.l3_end = h.l3_at + std::min(total, left);
  h.protocol = ip[6];
  h.l4_at = h.l3_at + 40;
  // Every extension header has at least 8 bytes, so this ends.
  while (h.l4_at + 8 <= h.l3_end) {
    const std::uint8_t* ext = p + h.l4_at;
    std::size_t len = 8;
    if (h.protocol == kHopByHop || h.protocol == kRouting || h.protocol == kDestinationOptions) {
      len += std::size_t{ext[1]} * 8;
    } else if (h.protocol == kFragmentHeader) {
      h.fragment = true;
    } else {
      return;
    }
    if (h.l4_at + len > h.l3_end) return;
    bool last = h.protocol == kFragmentHeader;
    h.protocol = ext[0];
    h.l4_at += len;
    if (last) return;  // what follows may be the middle of anything
  }
}

void parse_l4(const std::uint8_t* p, EthHeaders& h) {
  if (h.l3 == L3::kNone || h.fragment) return;
  std::size_t left = h.l3_end - h.l4_at;
  const std::uint8_t* l4 = p + h.l4_at;
  if (h.protocol == kProtoUdp && left >= 8) {
    h.l4 = L4::kUdp;
    h.payload = h.l4_at + 8;
  } else if (h.protocol == kProtoTcp && left >= 20) {
    std::size_t header = std::size_t{static_cast<unsigned>(l4[12] >> 4)} * 4;
    if (header < 20 || header > left) return;
    h.l4 = L4::kTcp;
    h.payload = h.l4_at + header;
  }
}

}  // namespace

EthHeaders parse_ethernet(wire::Frame frame) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(frame.data());
  EthHeaders h;
  h.ethertype = load_be<std::uint16_t>(p + 12);
  h.l3_at = kMacHeader;
  while (h.ntags < h.tags.size() && (h.ethertype == kEtherCvlan || h.ethertype == kEtherSvlan) && frame.size() >= h.l3_at + kVlanTag) {
    h.tags[h.ntags++] = {h.ethertype, load_be<std::uint16_t>(p + h.l3_at)};
    h.ethertype = load_be<std::uint16_t>(p + h.l3_at + 2);
    h.l3_at += kVlanTag;
  }
  h.l3_end = frame.size();
  if (h.ethertype == kEtherIpv4) parse_ipv4(p, frame.size(), h);
  if (h.ethertype == kEtherIpv6) parse_ipv6(p, frame.size(), h);
  parse_l4(p, h);
  return h;
}

std::uint16_t l4_sum(wire::Frame frame, const EthHeaders& h, std::size_t end) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(frame.data());
  InetSum s;
  if (h.l3 == L3::kIpv4) {
    s.add(p + h.l3_at + 12, 8);
  } else {
    s.add(p + h.l3_at + 8, 32);
  }
  s.add_word(static_cast<std::uint32_t>(end - h.l4_at)).add_word(h.protocol);
  return s.add(p + h.l4_at, end - h.l4_at).value();
}

}  // namespace uhca::hca
