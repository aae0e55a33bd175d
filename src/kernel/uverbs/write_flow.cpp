// SPDX-License-Identifier: MIT
// Write commands of flow rules. Linux: uverbs_cmd.c.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/types.h"
#include "kernel/uverbs/capable.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel::write_cmd {
namespace {

using Header = ::ib_uverbs_flow_spec_hdr;
constexpr std::size_t kMaxSpec = sizeof(::ib_uverbs_flow_spec_ipv6);  // the largest (Linux: union in struct ib_uverbs_flow_spec)

// Bytes of the filter that the core knows (Linux: struct ib_flow_*_filter); 0: no such match.
std::size_t filter_bytes(std::uint32_t type) {
  switch (type) {
    case IB_FLOW_SPEC_ETH: return sizeof(::ib_uverbs_flow_eth_filter);
    case IB_FLOW_SPEC_IPV4: return sizeof(::ib_uverbs_flow_ipv4_filter);
    case IB_FLOW_SPEC_IPV6: return sizeof(::ib_uverbs_flow_ipv6_filter);
    case IB_FLOW_SPEC_TCP:
    case IB_FLOW_SPEC_UDP: return sizeof(::ib_uverbs_flow_tcp_udp_filter);
    case IB_FLOW_SPEC_VXLAN_TUNNEL: return sizeof(::ib_uverbs_flow_tunnel_filter);
    case IB_FLOW_SPEC_ESP: return sizeof(::ib_uverbs_flow_spec_esp_filter);
    case IB_FLOW_SPEC_GRE: return sizeof(::ib_uverbs_flow_gre_filter);
    case IB_FLOW_SPEC_MPLS: return sizeof(::ib_uverbs_flow_mpls_filter);
    default: return 0;
  }
}

bool has_bits_from(std::span<const std::uint8_t> filter, std::size_t offset, unsigned bits) {
  return load_be<std::uint32_t>(filter.data() + offset) >> bits != 0;
}

// Linux: kern_spec_to_ib_spec_filter. `body`: value, then mask, behind the header.
Status parse_filter(std::uint32_t type, std::span<const std::uint8_t> body, ib_flow_spec& out) {
  std::size_t each = body.size() / 2;
  if (each % 4) return refuse(EINVAL, "create_flow: match {:#x} of {} bytes", type, each);
  std::size_t known = type == (IB_FLOW_SPEC_INNER | IB_FLOW_SPEC_VXLAN_TUNNEL) ? 0 : filter_bytes(type & ~IB_FLOW_SPEC_INNER);
  if (known == 0) return refuse(EINVAL, "create_flow: match {:#x}", type);
  for (std::size_t i = known; i < each; ++i)
    if (body[each + i]) return refuse(EINVAL, "create_flow: match {:#x} with fields that are not known", type);
  std::size_t n = std::min(each, known);
  if (n == 0) return refuse(EINVAL, "create_flow: match {:#x} is empty", type);
  static_assert(sizeof(::ib_uverbs_flow_ipv6_filter) <= sizeof out.val);
  std::memcpy(out.val.data(), body.data(), n);
  std::memcpy(out.mask.data(), body.data() + each, n);
  std::uint32_t plain = type & ~IB_FLOW_SPEC_INNER;
  std::size_t label = offsetof(::ib_uverbs_flow_ipv6_filter, flow_label);
  if (plain == IB_FLOW_SPEC_IPV6 && (has_bits_from(out.mask, label, 20) || has_bits_from(out.val, label, 20)))
    return refuse(EINVAL, "create_flow: a flow label has 20 bits");
  if (plain == IB_FLOW_SPEC_VXLAN_TUNNEL && (has_bits_from(out.mask, 0, 24) || has_bits_from(out.val, 0, 24)))
    return refuse(EINVAL, "create_flow: a tunnel id has 24 bits");
  return success();
}

// Linux: kern_spec_to_ib_spec_action.
Status parse_action(uverbs_attr_bundle& b, const Header& h, std::span<const std::uint8_t> body, ib_flow_spec& out, UflowObject& u) {
  std::uint32_t word = 0;
  if (body.size() >= sizeof word) std::memcpy(&word, body.data(), sizeof word);
  switch (h.type) {
    case IB_FLOW_SPEC_ACTION_TAG:
      if (h.size != sizeof(::ib_uverbs_flow_spec_action_tag)) return refuse(EINVAL, "create_flow: a tag of {} bytes", h.size);
      out.tag_id = word;
      return success();
    case IB_FLOW_SPEC_ACTION_DROP:
      if (h.size != sizeof(::ib_uverbs_flow_spec_action_drop)) return refuse(EINVAL, "create_flow: a drop of {} bytes", h.size);
      return success();
    case IB_FLOW_SPEC_ACTION_HANDLE: {
      if (h.size != sizeof(::ib_uverbs_flow_spec_action_handle)) return refuse(EOPNOTSUPP, "create_flow: an action of {} bytes", h.size);
      UHCA_TRY(read_object(b, UVERBS_OBJECT_FLOW_ACTION, word));
      return success();
    }
    case IB_FLOW_SPEC_ACTION_COUNT: {
      if (h.size != sizeof(::ib_uverbs_flow_spec_action_count)) return refuse(EINVAL, "create_flow: a count of {} bytes", h.size);
      UobjRef ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_COUNTERS, word));
      out.counters = ref.obj<ib_counters>();
      out.counters->usecnt.fetch_add(1);
      u.counters.push_back(out.counters);
      return success();
    }
    default: return refuse(EINVAL, "create_flow: action {:#x}", h.type);
  }
}

Status parse_specs(uverbs_attr_bundle& b, std::span<const std::uint8_t> specs, unsigned n, ib_flow_attr& attr, UflowObject& u) {
  unsigned i = 0;
  for (; i < n; ++i) {
    Header h;
    if (specs.size() < sizeof h) break;
    std::memcpy(&h, specs.data(), sizeof h);
    if (specs.size() < h.size) break;
    if (h.reserved) return refuse(EINVAL, "create_flow: reserved field of match {:#x} is not zero", h.type);
    if (h.size < sizeof h) return refuse(EINVAL, "create_flow: match {:#x} of {} bytes", h.type, h.size);
    ib_flow_spec& out = attr.specs.emplace_back();
    out.type = h.type;
    std::span<const std::uint8_t> body = specs.subspan(sizeof h, h.size - sizeof h);
    UHCA_CHECK(h.type >= IB_FLOW_SPEC_ACTION_TAG ? parse_action(b, h, body, out, u) : parse_filter(h.type, body, out));
    specs = specs.subspan(h.size);
  }
  if (i != n || !specs.empty()) return refuse(EINVAL, "create_flow: {} of {} matches read, {} bytes left", i, n, specs.size());
  return success();
}

}  // namespace

Status ex_create_flow(uverbs_attr_bundle& b) {
  RequestReader in(b);
  ::ib_uverbs_create_flow cmd;
  UHCA_CHECK(in.next(&cmd, sizeof cmd));
  const ::ib_uverbs_flow_attr& f = cmd.flow_attr;
  if (cmd.comp_mask) return refuse(EINVAL, "create_flow: comp_mask {:#x}", cmd.comp_mask);
  if (!rdma_uattrs_has_raw_cap()) return refuse(EPERM, "create_flow: flow rules need CAP_NET_RAW");
  if (f.flags >= IB_FLOW_ATTR_FLAGS_RESERVED) return refuse(EINVAL, "create_flow: flags {:#x}", f.flags);
  bool leftovers = f.type == static_cast<std::uint32_t>(ib_flow_attr_type::ALL_DEFAULT) ||
                   f.type == static_cast<std::uint32_t>(ib_flow_attr_type::MC_DEFAULT);
  if ((f.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP) && leftovers) return refuse(EINVAL, "create_flow: DONT_TRAP is not for default rules");
  if (f.num_of_specs > IB_FLOW_SPEC_SUPPORT_LAYERS) return refuse(EINVAL, "create_flow: {} matches", f.num_of_specs);
  if (f.size > f.num_of_specs * kMaxSpec) return refuse(EINVAL, "create_flow: {} bytes of matches", f.size);
  if (f.reserved[0] || f.reserved[1]) return refuse(EINVAL, "create_flow: reserved fields are not zero");
  std::vector<std::uint8_t> specs(f.num_of_specs ? f.size : 0);
  UHCA_CHECK(in.next(specs.data(), specs.size()));
  UHCA_CHECK(in.finish());

  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_FLOW));
  auto& uflow = u.as<UflowObject>();
  if (f.port < 1 || f.port > b.device->num_ports) return refuse(EINVAL, "create_flow: {} has no port {}", b.device->name, f.port);
  UobjRef qp_ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_QP, cmd.qp_handle));
  ib_qp& qp = *qp_ref.obj<ib_qp>();
  if (qp.qp_type != ib_qp_type::UD && qp.qp_type != ib_qp_type::RAW_PACKET)
    return refuse(EINVAL, "create_flow: QP {:#x} is neither UD nor RAW_PACKET", qp.qp_num);
  ib_flow_attr attr;
  attr.type = static_cast<ib_flow_attr_type>(std::min<std::uint32_t>(f.type, 0xff));
  attr.priority = f.priority;
  attr.flags = f.flags;
  attr.port = f.port;
  Status s = parse_specs(b, specs, f.num_of_specs, attr, uflow);
  if (s.ok()) {
    auto flow = ib_create_flow(qp, attr, &b.driver_udata);
    if (flow.ok()) {
      u.set(flow->release());
    } else {
      s = flow.error();
    }
  }
  if (!s.ok()) {
    uflow.drop();
    return s;
  }
  ::ib_uverbs_create_flow_resp resp{};
  resp.flow_handle = u->id;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status ex_destroy_flow(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_flow cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EINVAL, "EX_DESTROY_FLOW: comp_mask {:#x}", cmd.comp_mask);
  return perform_destroy(b, UVERBS_OBJECT_FLOW, cmd.flow_handle);
}

}  // namespace uhca::kernel::write_cmd
