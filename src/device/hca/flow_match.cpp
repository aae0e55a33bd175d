// SPDX-License-Identifier: MIT
#include "device/hca/flow_match.h"

#include <cstring>

#include "prm/cmd_flow.h"
#include "wire/roce/roce.h"

namespace uhca::hca {
namespace {

using Outer = prm::fte_match_set_lyr_2_4;
using Misc = prm::fte_match_set_misc;
constexpr std::size_t kMiscAt = prm::fte_match_param::misc_parameters.offset / 8;
static_assert(kMiscAt + Misc::kBytes == kMatchBytes);
constexpr std::size_t kBthBytes = 12;

void put_ip(std::uint8_t* m, const std::uint8_t* ip, L3 kind) {
  auto* src = static_cast<std::uint8_t*>(prm::at<Outer::src_ipv4_src_ipv6>(static_cast<void*>(m)));
  auto* dst = static_cast<std::uint8_t*>(prm::at<Outer::dst_ipv4_dst_ipv6>(static_cast<void*>(m)));
  std::uint8_t tos;
  if (kind == L3::kIpv4) {
    tos = ip[1];
    prm::set<Outer::ip_version>(m, 4);
    prm::set<Outer::ipv4_ihl>(m, ip[0] & 0xf);
    prm::set<Outer::ttl_hoplimit>(m, ip[8]);
    std::memcpy(src + 12, ip + 12, 4);
    std::memcpy(dst + 12, ip + 16, 4);
  } else {
    std::uint32_t first = load_be<std::uint32_t>(ip);
    tos = static_cast<std::uint8_t>(first >> 20);
    prm::set<Outer::ip_version>(m, 6);
    prm::set<Outer::ttl_hoplimit>(m, ip[7]);
    prm::set<Misc::outer_ipv6_flow_label>(m + kMiscAt, first & 0xfffff);
    std::memcpy(src, ip + 8, 16);
    std::memcpy(dst, ip + 24, 16);
  }
  prm::set<Outer::ip_dscp>(m, tos >> 2);
  prm::set<Outer::ip_ecn>(m, tos & 3);
}

void put_l4(std::uint8_t* m, const std::uint8_t* p, const EthHeaders& h) {
  const std::uint8_t* l4 = p + h.l4_at;
  std::uint16_t sport = load_be<std::uint16_t>(l4), dport = load_be<std::uint16_t>(l4 + 2);
  if (h.l4 == L4::kTcp) {
    prm::set<Outer::tcp_sport>(m, sport);
    prm::set<Outer::tcp_dport>(m, dport);
    prm::set<Outer::tcp_flags>(m, load_be<std::uint16_t>(l4 + 12) & 0x1ff);
    return;
  }
  prm::set<Outer::udp_sport>(m, sport);
  prm::set<Outer::udp_dport>(m, dport);
  if (dport != wire::kRoceV2UdpPort || h.payload + kBthBytes > h.l3_end) return;
  prm::set<Misc::bth_opcode>(m + kMiscAt, p[h.payload]);
  prm::set<Misc::bth_dst_qp>(m + kMiscAt, load_be<std::uint32_t>(p + h.payload + 4) & 0xffffff);
}

template <prm::Field Cvlan, prm::Field Svlan, prm::Field Prio, prm::Field Cfi, prm::Field Vid>
void put_tag(void* m, void* flags, const VlanTag& tag) {
  if (tag.type == kEtherCvlan) {
    prm::set<Cvlan>(flags, 1);
  } else {
    prm::set<Svlan>(flags, 1);
  }
  prm::set<Prio>(m, tag.tci >> 13);
  prm::set<Cfi>(m, tag.tci >> 12 & 1);
  prm::set<Vid>(m, tag.tci & 0xfff);
}

// Ones wherever match_words() may write.
MatchWords known_fields() {
  std::uint8_t m[kMatchBytes] = {};
  auto ones = [](std::uint8_t* at, prm::Field f) {
    if (f.width > 64) {
      std::memset(at + f.offset / 8, 0xff, f.width / 8);
    } else {
      prm::set(at, f, ~std::uint64_t{0});
    }
  };
  for (prm::Field f : {Outer::smac_47_16,
                       Outer::smac_15_0,
                       Outer::ethertype,
                       Outer::dmac_47_16,
                       Outer::dmac_15_0,
                       Outer::first_prio,
                       Outer::first_cfi,
                       Outer::first_vid,
                       Outer::ip_protocol,
                       Outer::ip_dscp,
                       Outer::ip_ecn,
                       Outer::cvlan_tag,
                       Outer::svlan_tag,
                       Outer::frag,
                       Outer::ip_version,
                       Outer::tcp_flags,
                       Outer::tcp_sport,
                       Outer::tcp_dport,
                       Outer::ipv4_ihl,
                       Outer::ttl_hoplimit,
                       Outer::udp_sport,
                       Outer::udp_dport,
                       Outer::src_ipv4_src_ipv6,
                       Outer::dst_ipv4_dst_ipv6})
    ones(m, f);
  for (prm::Field f : {Misc::outer_second_prio, Misc::outer_second_cfi, Misc::outer_second_vid, Misc::outer_second_cvlan_tag,
                       Misc::outer_second_svlan_tag, Misc::bth_opcode, Misc::outer_ipv6_flow_label, Misc::bth_dst_qp})
    ones(m + kMiscAt, f);
  MatchWords w;
  std::memcpy(w.data(), m, sizeof m);
  return w;
}

}  // namespace

MatchWords match_words(wire::Frame frame, const EthHeaders& h) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(frame.data());
  std::uint8_t m[kMatchBytes] = {};
  std::uint8_t* misc = m + kMiscAt;
  prm::set<Outer::dmac_47_16>(m, load_be<std::uint32_t>(p));
  prm::set<Outer::dmac_15_0>(m, load_be<std::uint16_t>(p + 4));
  prm::set<Outer::smac_47_16>(m, load_be<std::uint32_t>(p + 6));
  prm::set<Outer::smac_15_0>(m, load_be<std::uint16_t>(p + 10));
  prm::set<Outer::ethertype>(m, h.ethertype);
  if (h.ntags > 0) put_tag<Outer::cvlan_tag, Outer::svlan_tag, Outer::first_prio, Outer::first_cfi, Outer::first_vid>(m, m, h.tags[0]);
  if (h.ntags > 1)
    put_tag<Misc::outer_second_cvlan_tag, Misc::outer_second_svlan_tag, Misc::outer_second_prio, Misc::outer_second_cfi,
            Misc::outer_second_vid>(misc, misc, h.tags[1]);
  if (h.l3 != L3::kNone) {
    put_ip(m, p + h.l3_at, h.l3);
    prm::set<Outer::ip_protocol>(m, h.protocol);
    prm::set<Outer::frag>(m, h.fragment);
  }
  if (h.l4 != L4::kNone) put_l4(m, p, h);
  MatchWords w;
  std::memcpy(w.data(), m, sizeof m);
  return w;
}

MatchWords enabled_words(const void* match, std::uint8_t criteria) {
  MatchWords w{};
  const auto* m = static_cast<const std::uint8_t*>(match);
  auto* out = reinterpret_cast<std::uint8_t*>(w.data());
  if (criteria & kMatchOuter) std::memcpy(out, m, Outer::kBytes);
  if (criteria & kMatchMisc) std::memcpy(out + kMiscAt, m + kMiscAt, Misc::kBytes);
  return w;
}

bool asks_for_more(const void* mask, std::uint8_t criteria) {
  if (criteria & ~(kMatchOuter | kMatchMisc)) return true;
  static const MatchWords known = known_fields();
  MatchWords asked = enabled_words(mask, criteria);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (asked[i] & ~known[i]) return true;
  return false;
}

}  // namespace uhca::hca
