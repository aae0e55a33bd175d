// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/flow.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/raw_packet.h"

namespace uhca::kernel::mlx5 {
namespace {

using Outer = prm::fte_match_set_lyr_2_4;
using Misc = prm::fte_match_set_misc;
using Eth = ::ib_uverbs_flow_eth_filter;
using Ipv4 = ::ib_uverbs_flow_ipv4_filter;
using Ipv6 = ::ib_uverbs_flow_ipv6_filter;
using Ports = ::ib_uverbs_flow_tcp_udp_filter;

constexpr std::uint8_t kTcp = 6, kUdp = 17, kGre = 47;
constexpr std::uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd, kEtherMplsUc = 0x8847, kEtherMplsMc = 0x8848;
constexpr std::uint32_t kMaxTag = 1 << 24;

template <class Filter>
Filter filter_of(const std::array<std::uint8_t, 40>& bytes) {
  Filter f;
  std::memcpy(&f, bytes.data(), sizeof f);
  return f;
}

// A rule while its matches are read.
struct Draft {
  FlowSpec spec;
  FlowAct act;
  mlx5_ib_counters* counters = nullptr;

  // Mask and value of a field of the inner or the outer headers.
  template <prm::Field F>
  void put(bool inner, std::uint32_t mask, std::uint32_t value) {
    prm::set<F>(headers(spec.criteria, inner), mask);
    prm::set<F>(headers(spec.value, inner), value);
  }
  template <prm::Field F>
  void put_bytes(bool inner, const void* mask, const void* value, std::size_t n) {
    // IPv4 addresses are the last four bytes of the field.
    constexpr std::size_t size = F.width / 8;
    std::memcpy(headers(spec.criteria, inner) + F.offset / 8 + size - n, mask, n);
    std::memcpy(headers(spec.value, inner) + F.offset / 8 + size - n, value, n);
  }
  static std::uint8_t* headers(FlowSpec::Param& p, bool inner) {
    return p.data() + (inner ? prm::fte_match_param::inner_headers.offset : prm::fte_match_param::outer_headers.offset) / 8;
  }
  static std::uint8_t* misc(FlowSpec::Param& p) { return p.data() + prm::fte_match_param::misc_parameters.offset / 8; }

  Status protocol(bool inner, std::uint8_t mask, std::uint8_t value) {
    if (mask == 0) return success();
    auto had_mask = prm::get<Outer::ip_protocol>(headers(spec.criteria, inner)),
         had = prm::get<Outer::ip_protocol>(headers(spec.value, inner));
    if (had_mask != 0 && (had_mask != mask || had != value)) return refuse(EINVAL, "create_flow: two matches want different IP protocols");
    put<Outer::ip_protocol>(inner, mask, value);
    return success();
  }
  void tos(bool inner, std::uint8_t mask, std::uint8_t value) {
    put<Outer::ip_ecn>(inner, mask & 3u, value & 3u);
    put<Outer::ip_dscp>(inner, mask >> 2, value >> 2);
  }
  void ip_version(const mlx5_core_dev& m, bool inner, std::uint32_t version, std::uint16_t ethertype) {
    const void* fields = m.flow_rx_fields();
    using field = prm::flow_table_fields_supported;
    bool has = inner ? prm::get<field::inner_ip_version>(fields) : prm::get<field::outer_ip_version>(fields);
    if (has) {
      put<Outer::ip_version>(inner, 0xf, version);
    } else {
      put<Outer::ethertype>(inner, 0xffff, ethertype);
    }
  }
};

Status parse_eth(Draft& d, bool inner, const ib_flow_spec& s) {
  auto mask = filter_of<Eth>(s.mask), val = filter_of<Eth>(s.val);
  std::memcpy(Draft::headers(d.spec.criteria, inner) + Outer::dmac_47_16.offset / 8, mask.dst_mac, 6);
  std::memcpy(Draft::headers(d.spec.value, inner) + Outer::dmac_47_16.offset / 8, val.dst_mac, 6);
  std::memcpy(Draft::headers(d.spec.criteria, inner) + Outer::smac_47_16.offset / 8, mask.src_mac, 6);
  std::memcpy(Draft::headers(d.spec.value, inner) + Outer::smac_47_16.offset / 8, val.src_mac, 6);
  if (mask.vlan_tag) {
    std::uint32_t m = byteswap(mask.vlan_tag), v = byteswap(val.vlan_tag);
    d.put<Outer::cvlan_tag>(inner, 1, 1);
    d.put<Outer::first_vid>(inner, m & 0xfff, v & 0xfff);
    d.put<Outer::first_cfi>(inner, m >> 12 & 1, v >> 12 & 1);
    d.put<Outer::first_prio>(inner, m >> 13, v >> 13);
  }
  d.put<Outer::ethertype>(inner, byteswap(mask.ether_type), byteswap(val.ether_type));
  return success();
}

Status parse_ipv4(const mlx5_core_dev& m, Draft& d, bool inner, const ib_flow_spec& s) {
  auto mask = filter_of<Ipv4>(s.mask), val = filter_of<Ipv4>(s.val);
  if (mask.ttl || mask.flags) return refuse(EOPNOTSUPP, "create_flow: TTL and flags of IPv4 are not matched");
  d.ip_version(m, inner, 4, kEtherIpv4);
  d.put_bytes<Outer::src_ipv4_src_ipv6>(inner, &mask.src_ip, &val.src_ip, 4);
  d.put_bytes<Outer::dst_ipv4_dst_ipv6>(inner, &mask.dst_ip, &val.dst_ip, 4);
  d.tos(inner, mask.tos, val.tos);
  return d.protocol(inner, mask.proto, val.proto);
}

Status parse_ipv6(const mlx5_core_dev& m, Draft& d, bool inner, const ib_flow_spec& s) {
  auto mask = filter_of<Ipv6>(s.mask), val = filter_of<Ipv6>(s.val);
  if (mask.hop_limit || mask.reserved) return refuse(EOPNOTSUPP, "create_flow: the hop limit of IPv6 is not matched");
  d.ip_version(m, inner, 6, kEtherIpv6);
  d.put_bytes<Outer::src_ipv4_src_ipv6>(inner, mask.src_ip, val.src_ip, 16);
  d.put_bytes<Outer::dst_ipv4_dst_ipv6>(inner, mask.dst_ip, val.dst_ip, 16);
  d.tos(inner, mask.traffic_class, val.traffic_class);
  UHCA_CHECK(d.protocol(inner, mask.next_hdr, val.next_hdr));
  if (inner) {
    prm::set<Misc::inner_ipv6_flow_label>(Draft::misc(d.spec.criteria), byteswap(mask.flow_label));
    prm::set<Misc::inner_ipv6_flow_label>(Draft::misc(d.spec.value), byteswap(val.flow_label));
  } else {
    prm::set<Misc::outer_ipv6_flow_label>(Draft::misc(d.spec.criteria), byteswap(mask.flow_label));
    prm::set<Misc::outer_ipv6_flow_label>(Draft::misc(d.spec.value), byteswap(val.flow_label));
  }
  return success();
}

template <prm::Field Sport, prm::Field Dport>
Status parse_ports(Draft& d, bool inner, const ib_flow_spec& s, std::uint8_t protocol) {
  auto mask = filter_of<Ports>(s.mask), val = filter_of<Ports>(s.val);
  UHCA_CHECK(d.protocol(inner, 0xff, protocol));
  d.put<Sport>(inner, byteswap(mask.src_port), byteswap(val.src_port));
  d.put<Dport>(inner, byteswap(mask.dst_port), byteswap(val.dst_port));
  return success();
}

Status parse_gre(Draft& d, bool inner, const ib_flow_spec& s) {
  auto mask = filter_of<::ib_uverbs_flow_gre_filter>(s.mask), val = filter_of<::ib_uverbs_flow_gre_filter>(s.val);
  if (mask.c_ks_res0_ver) return refuse(EOPNOTSUPP, "create_flow: flags and version of GRE are not matched");
  UHCA_CHECK(d.protocol(inner, 0xff, kGre));
  prm::set<Misc::gre_protocol>(Draft::misc(d.spec.criteria), byteswap(mask.protocol));
  prm::set<Misc::gre_protocol>(Draft::misc(d.spec.value), byteswap(val.protocol));
  prm::set<Misc::gre_key>(Draft::misc(d.spec.criteria), byteswap(mask.key));
  prm::set<Misc::gre_key>(Draft::misc(d.spec.value), byteswap(val.key));
  return success();
}

// Linux: parse_flow_attr.
Status parse_spec(const mlx5_core_dev& m, Draft& d, const ib_flow_spec& s) {
  bool inner = s.type & IB_FLOW_SPEC_INNER;
  switch (s.type & ~IB_FLOW_SPEC_INNER) {
    case IB_FLOW_SPEC_ETH: return parse_eth(d, inner, s);
    case IB_FLOW_SPEC_IPV4: return parse_ipv4(m, d, inner, s);
    case IB_FLOW_SPEC_IPV6: return parse_ipv6(m, d, inner, s);
    case IB_FLOW_SPEC_TCP: return parse_ports<Outer::tcp_sport, Outer::tcp_dport>(d, inner, s, kTcp);
    case IB_FLOW_SPEC_UDP: return parse_ports<Outer::udp_sport, Outer::udp_dport>(d, inner, s, kUdp);
    case IB_FLOW_SPEC_GRE: return parse_gre(d, inner, s);
    case IB_FLOW_SPEC_ESP: return refuse(EOPNOTSUPP, "create_flow: ESP is not matched");
    case IB_FLOW_SPEC_MPLS: {
      // Which labels the device can match depends on what carries them: it says "none".
      auto mask = filter_of<::ib_uverbs_flow_mpls_filter>(s.mask);
      return mask.label ? Status(refuse(EOPNOTSUPP, "create_flow: MPLS is not matched by the device")) : success();
    }
    case IB_FLOW_SPEC_VXLAN_TUNNEL: {
      auto mask = filter_of<::ib_uverbs_flow_tunnel_filter>(s.mask), val = filter_of<::ib_uverbs_flow_tunnel_filter>(s.val);
      prm::set<Misc::vxlan_vni>(Draft::misc(d.spec.criteria), byteswap(mask.tunnel_id));
      prm::set<Misc::vxlan_vni>(Draft::misc(d.spec.value), byteswap(val.tunnel_id));
      return success();
    }
    case IB_FLOW_SPEC_ACTION_TAG:
      if (s.tag_id >= kMaxTag) return refuse(EINVAL, "create_flow: tag {:#x} has more than 24 bits", s.tag_id);
      d.spec.tag = s.tag_id;
      d.spec.has_tag = true;
      return success();
    case IB_FLOW_SPEC_ACTION_DROP: d.act.drop = true; return success();
    case IB_FLOW_SPEC_ACTION_COUNT:
      if (d.counters) return refuse(EINVAL, "create_flow: one rule counts in one set of counters");
      d.counters = static_cast<mlx5_ib_counters*>(s.counters);
      return success();
    case IB_FLOW_SPEC_ACTION_HANDLE: return refuse(EOPNOTSUPP, "create_flow: the device has no such action");
    default: return refuse(EINVAL, "create_flow: match {:#x}", s.type);
  }
}

// A rule that can match unicast and multicast does not belong into the multicast table. Linux: flow_is_multicast_only.
bool multicast_only(const ib_flow_attr& attr) {
  if (attr.type != ib_flow_attr_type::NORMAL || attr.specs.empty()) return false;
  const ib_flow_spec& s = attr.specs.front();
  if (s.type == IB_FLOW_SPEC_IPV4) return (s.val[offsetof(Ipv4, dst_ip)] & 0xf0) == 0xe0;
  if (s.type == IB_FLOW_SPEC_ETH) return (s.mask[0] & 1) && (s.val[0] & 1);
  return false;
}

// Linux: is_valid_ethertype.
bool ethertype_fits(const ib_flow_attr& attr, std::uint32_t inner_bit, bool matches_version) {
  bool has_type = false, whole_mask = true;
  std::uint16_t type = 0;
  std::uint32_t ip = 0;
  for (const ib_flow_spec& s : attr.specs) {
    auto mask = filter_of<Eth>(s.mask), val = filter_of<Eth>(s.val);
    if (s.type == (IB_FLOW_SPEC_ETH | inner_bit) && mask.ether_type) {
      whole_mask = mask.ether_type == 0xffff;
      has_type = true;
      type = byteswap(val.ether_type);
    } else if (s.type == (IB_FLOW_SPEC_IPV4 | inner_bit) || s.type == (IB_FLOW_SPEC_IPV6 | inner_bit)) {
      ip = s.type & ~inner_bit;
    }
  }
  if (!has_type || ip == 0) return true;
  if (!whole_mask) return false;
  return (type == kEtherIpv4 && ip == IB_FLOW_SPEC_IPV4) || (type == kEtherIpv6 && ip == IB_FLOW_SPEC_IPV6) ||
         ((type == kEtherMplsUc || type == kEtherMplsMc) && matches_version);
}

// Linux: _create_flow_rule.
Status add_rule(mlx5_ib_dev& dev, unsigned priority, const ib_flow_attr& attr, std::uint32_t tirn, const ::mlx5_ib_flow_counters_data* data,
                mlx5_ib_flow& flow) {
  auto& m = *dev.mdev;
  using field = prm::flow_table_fields_supported;
  if (!ethertype_fits(attr, 0, prm::get<field::outer_ip_version>(m.flow_rx_fields())) ||
      !ethertype_fits(attr, IB_FLOW_SPEC_INNER, prm::get<field::inner_ip_version>(m.flow_rx_fields())))
    return refuse(EINVAL, "create_flow: the ethertype is not that of the IP match");
  Draft d;
  for (const ib_flow_spec& s : attr.specs) UHCA_CHECK(parse_spec(m, d, s));
  d.spec.enable = match_criteria_of(d.spec.criteria);
  if (d.counters) {
    UHCA_CHECK(counters_set_data(*d.counters, data));
    d.act.counter = d.counters->id;
  }
  auto add = [&]() -> Status {
    if (!d.act.drop) {
      d.act.tirn = tirn;
      d.act.next = attr.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
    }
    bool leftovers = attr.type == ib_flow_attr_type::ALL_DEFAULT || attr.type == ib_flow_attr_type::MC_DEFAULT;
    if (d.spec.has_tag && leftovers) return refuse(EINVAL, "create_flow: default rules have no tag");
    flow.rules.push_back(UHCA_TRY(dev.flows->add(priority, d.spec, d.act)));
    return success();
  };
  Status s = add();
  if (s.ok()) flow.counters = d.counters;
  if (!s.ok() && d.counters) counters_clear_description(*d.counters);
  return s;
}

// Default rules match the group bit of the address only. Linux: create_leftovers_rule.
Status add_leftovers(mlx5_ib_dev& dev, const ib_flow_attr& attr, std::uint32_t tirn, mlx5_ib_flow& flow) {
  for (std::uint8_t group : {std::uint8_t{1}, std::uint8_t{0}}) {
    if (group == 0 && attr.type != ib_flow_attr_type::ALL_DEFAULT) break;
    ib_flow_attr only;
    ib_flow_spec& s = only.specs.emplace_back();
    s.type = IB_FLOW_SPEC_ETH;
    s.mask[0] = 1;
    s.val[0] = group;
    UHCA_CHECK(add_rule(dev, kFlowLeftovers, only, tirn, nullptr, flow));
  }
  return success();
}

// The driver's request, with at most one set of counters.
struct Request {
  std::uint32_t ncounters_data = 0, reserved = 0;
  ::mlx5_ib_flow_counters_data data{};
};
static_assert(offsetof(Request, data) == offsetof(::mlx5_ib_create_flow, data));

Status read_request(const Udata* udata, Request& r) {
  if (udata == nullptr || udata->inlen == 0) return success();
  constexpr std::size_t least = offsetof(Request, data);
  if (udata->inlen < least) return refuse(EOPNOTSUPP, "create_flow: driver data of {} bytes", udata->inlen);
  UHCA_CHECK(udata->copy_in(&r, least));
  if (r.ncounters_data > 1) return refuse(EINVAL, "create_flow: {} sets of counters", r.ncounters_data);
  std::size_t needed = least + r.ncounters_data * sizeof r.data;
  UHCA_CHECK(udata->check_in_tail(needed));
  if (r.ncounters_data == 0) return success();
  if (udata->inlen < needed) return refuse(EFAULT, "create_flow: driver data of {} bytes, {} announced", udata->inlen, needed);
  return copy_from_user(&r.data, udata->inbuf + least, sizeof r.data);
}

Status remove_rules(mlx5_ib_dev& dev, mlx5_ib_flow& flow) {
  while (!flow.rules.empty()) {
    UHCA_CHECK(dev.flows->remove(flow.rules.back()));
    flow.rules.pop_back();
  }
  return success();
}

}  // namespace

Result<std::unique_ptr<ib_flow>> create_flow(ib_qp& ibqp, const ib_flow_attr& attr, Udata* udata) {
  auto& dev = to_mdev(*ibqp.device);
  Request request;
  UHCA_CHECK(read_request(udata, request));
  if (attr.priority >= kFlowPriorities) return refuse(ENOMEM, "create_flow: priority {} of {}", attr.priority, kFlowPriorities);
  if (attr.flags & ~(IB_FLOW_ATTR_FLAGS_DONT_TRAP | IB_FLOW_ATTR_FLAGS_EGRESS))
    return refuse(EINVAL, "create_flow: flags {:#x}", attr.flags);
  bool egress = attr.flags & IB_FLOW_ATTR_FLAGS_EGRESS;
  bool leftovers = attr.type == ib_flow_attr_type::ALL_DEFAULT || attr.type == ib_flow_attr_type::MC_DEFAULT;
  if (egress && leftovers) return refuse(EINVAL, "create_flow: default rules are for what is received");
  if (attr.type == ib_flow_attr_type::SNIFFER) return refuse(EOPNOTSUPP, "create_flow: the device has no sniffer tables");
  if (attr.type > ib_flow_attr_type::SNIFFER) return refuse(EOPNOTSUPP, "create_flow: type {}", static_cast<int>(attr.type));
  if (!dev.flows || egress) return refuse(EOPNOTSUPP, "create_flow: the device has no {} flow tables", egress ? "transmit" : "receive");
  auto& qp = to_mqp(ibqp);
  if (!qp.raw || !qp.raw->has_tir) return refuse(EINVAL, "create_flow: QP {:#x} has no receive queue that a rule could lead to", qp.qp_num);

  auto flow = std::make_unique<mlx5_ib_flow>();
  Status s;
  if (leftovers) {
    s = add_leftovers(dev, attr, qp.raw->tirn, *flow);
  } else {
    bool dont_trap = attr.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP;
    unsigned priority = multicast_only(attr) && !dont_trap ? kFlowMulticast : 2u * attr.priority + (dont_trap ? 0 : 1);
    s = add_rule(dev, priority, attr, qp.raw->tirn, request.ncounters_data ? &request.data : nullptr, *flow);
  }
  if (s.ok()) return std::unique_ptr<ib_flow>(std::move(flow));
  if (Status f = remove_rules(dev, *flow); !f) log::error("a flow rule could not be undone");
  return s.error();
}

Status destroy_flow(ib_flow& ib) {
  auto& flow = static_cast<mlx5_ib_flow&>(ib);
  UHCA_CHECK(remove_rules(to_mdev(*flow.device), flow));
  if (flow.counters) counters_clear_description(*flow.counters);
  if (flow.matcher) flow.matcher->usecnt.fetch_sub(1);
  return success();
}

}  // namespace uhca::kernel::mlx5
