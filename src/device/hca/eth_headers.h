// SPDX-License-Identifier: MIT
// The headers of an Ethernet frame as the NIC's parser sees them: where each begins, and what they are.
// Sources: IEEE 802.3 and 802.1Q; RFC 791, 8200, 9293, 768.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "wire/net/port.h"

namespace uhca::hca {

inline constexpr std::size_t kMacHeader = 14;
inline constexpr std::size_t kVlanTag = 4;
inline constexpr std::uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherCvlan = 0x8100, kEtherSvlan = 0x88a8;
inline constexpr std::uint8_t kProtoTcp = 6, kProtoUdp = 17;

enum class L3 : std::uint8_t { kNone, kIpv4, kIpv6 };
enum class L4 : std::uint8_t { kNone, kTcp, kUdp };

struct VlanTag {
  std::uint16_t type = 0;  // ethertype of the tag
  std::uint16_t tci = 0;   // priority, CFI, VLAN id
};

struct EthHeaders {
  unsigned ntags = 0;
  std::array<VlanTag, 2> tags;  // outermost first
  std::uint16_t ethertype = 0;  // behind the tags
  L3 l3 = L3::kNone;            // kNone too when the IP header itself does not fit its frame
  bool cut = false;             // the IP packet says that it is longer than its frame: its fields are matched, its sums cannot be right
  std::size_t l3_at = 0;        // behind the Ethernet header and its tags
  std::size_t l3_end = 0;       // end of the IP packet; without IP, of the frame
  std::uint8_t protocol = 0;    // behind IPv6 extension headers
  bool fragment = false;
  L4 l4 = L4::kNone;        // kNone for fragments
  std::size_t l4_at = 0;    // end of the IP header with options or extensions
  std::size_t payload = 0;  // with L4: end of its header
};

// Of at least kMacHeader bytes.
EthHeaders parse_ethernet(wire::Frame frame);

// Sum of the pseudo header (RFC 9293 3.1, RFC 8200 8.1) and of the bytes from l4_at to `end`. 0xffff: the checksum in it is right.
std::uint16_t l4_sum(wire::Frame frame, const EthHeaders& h, std::size_t end);

inline bool is_group_address(wire::Frame f) {
  return (std::to_integer<unsigned>(f[0]) & 1) != 0;
}

}  // namespace uhca::hca
