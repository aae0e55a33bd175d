// SPDX-License-Identifier: MIT
// General objects: scheduling elements, address vectors mapped to QPs. Packet pacing rates, and the parts of a QP that refer to all of
// them.
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/dc.h"
#include "device/hca/qos.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"
#include "prm/qos.h"

namespace uhca::hca::cmd {
namespace {

using InHdr = prm::general_obj_in_cmd_hdr;
namespace q = prm::qos;

bool is_av_mapping(Command& c) {
  return c.get<InHdr::obj_type>() == q::kObjAvQpMapping;
}
Status check_kind(Command& c) {
  std::uint32_t type = c.get<InHdr::obj_type>();
  if (type == q::kObjSchedulingElement || type == q::kObjAvQpMapping) return Status::OK;
  return c.refuse(Status::BAD_PARAM, "general objects of type {:#x} are not offered", type);
}

// What is sent to an address is to be paced as the QP is that the mapping names. The engine paces connected QPs only, and each by itself
// (congestion.h): the mapping is a hint that it has no use for.
Status create_av_mapping(Command& c) {
  if (c.in_bytes.size() < q::kAvMapInBytes) return c.refuse(Status::BAD_INP_LEN, "a mapping needs {} bytes", q::kAvMapInBytes);
  std::uint32_t qpn = c.get<q::avmap_qpn>(), index = c.get<q::avmap_src_addr_index>();
  // Anybody's QP: nothing is done to it, nothing of it is told (pyverbs maps an address handle to a QP of another context).
  if (c.objects().qp(qpn) == nullptr) return c.no_such("QP", qpn);
  const auto& table = c.objects().roce_addresses;
  if (index >= table.size() || !table[index].valid) return c.refuse(Status::BAD_PARAM, "RoCE address {} is not set", index);
  auto id = c.st.qos.element_ids.take();
  if (!id) return c.exhausted("address mapping");
  AvMapping m;
  std::memcpy(m.data(), c.in() + q::kGeneralHdrBytes, m.size());
  c.st.qos.av_mappings.emplace(*id, m);
  c.set<prm::general_obj_out_cmd_hdr::obj_id>(*id);
  return Status::OK;
}
Status query_av_mapping(Command& c) {
  auto it = c.st.qos.av_mappings.find(c.get<InHdr::obj_id>());
  if (it == c.st.qos.av_mappings.end()) return c.no_such("address mapping", c.get<InHdr::obj_id>());
  if (c.out_bytes.size() < q::kAvMapInBytes) return c.refuse(Status::BAD_OUTP_LEN, "a mapping needs {} bytes", q::kAvMapInBytes);
  std::memcpy(c.out() + q::kGeneralHdrBytes, it->second.data(), it->second.size());
  return Status::OK;
}
Status destroy_av_mapping(Command& c) {
  std::uint32_t id = c.get<InHdr::obj_id>();
  if (c.st.qos.av_mappings.erase(id) == 0) return c.no_such("address mapping", id);
  c.st.qos.element_ids.give_back(id);
  return Status::OK;
}

Status check_element(Command& c) {
  if (Status s = check_kind(c); s != Status::OK) return s;
  if (c.in_bytes.size() < q::kElemInBytes) return c.refuse(Status::BAD_INP_LEN, "a scheduling element needs {} bytes", q::kElemInBytes);
  std::uint32_t hierarchy = c.get<q::elem_hierarchy>();
  if (hierarchy != q::kHierarchyNic) return c.refuse(Status::BAD_PARAM, "scheduling hierarchy {} is not offered", hierarchy);
  return Status::OK;
}

SchedulingElement* named(Command& c) {
  auto it = c.st.qos.elements.find(c.get<InHdr::obj_id>());
  return it == c.st.qos.elements.end() ? nullptr : &it->second;
}

void take_rates(Command& c, SchedulingElement& e) {
  auto select = c.get<q::elem_select>();
  if (select & q::kSelectShare) e.bw_share = c.get<q::elem_bw_share>();
  if (select & q::kSelectMaxBw) e.max_bw = c.get<q::elem_max_bw>();
}

}  // namespace

Status create_general_object(Command& c) {
  if (is_av_mapping(c)) return create_av_mapping(c);
  if (Status s = check_element(c); s != Status::OK) return s;
  SchedulingElement e;
  e.type = c.get<q::elem_type>();
  e.parent = c.get<q::elem_parent>();
  if (e.type != q::kTypeTsar && e.type != q::kTypeQueueGroup) return c.refuse(Status::BAD_PARAM, "scheduling element of type {}", e.type);
  if (e.type == q::kTypeTsar && c.get<q::elem_tsar_type>() != q::kTsarDwrr)
    return c.refuse(Status::BAD_PARAM, "arbiter of type {}", c.get<q::elem_tsar_type>());
  auto parent = c.st.qos.elements.find(e.parent);
  if (e.parent != 0) {
    if (parent == c.st.qos.elements.end()) return c.no_such("scheduling element", e.parent);
    if (Status s = c.may_use(Kind::kGeneralObject, e.parent); s != Status::OK) return s;
    if (parent->second.type != q::kTypeTsar) return c.refuse(Status::BAD_PARAM, "scheduling element {:#x} is a leaf", e.parent);
  } else if (e.type != q::kTypeTsar) {
    return c.refuse(Status::BAD_PARAM, "a queue group needs an arbiter above it");
  }
  take_rates(c, e);
  auto id = c.st.qos.element_ids.take();
  if (!id) return c.exhausted("scheduling element");
  if (e.parent != 0) ++parent->second.users;
  c.st.qos.elements.emplace(*id, e);
  c.set<prm::general_obj_out_cmd_hdr::obj_id>(*id);
  return Status::OK;
}

Status modify_general_object(Command& c) {
  if (is_av_mapping(c)) return c.refuse(Status::BAD_PARAM, "an address mapping cannot be changed");
  if (Status s = check_element(c); s != Status::OK) return s;
  SchedulingElement* e = named(c);
  if (e == nullptr) return c.no_such("scheduling element", c.get<InHdr::obj_id>());
  take_rates(c, *e);
  return Status::OK;
}

Status query_general_object(Command& c) {
  if (Status s = check_kind(c); s != Status::OK) return s;
  if (is_av_mapping(c)) return query_av_mapping(c);
  const SchedulingElement* e = named(c);
  if (e == nullptr) return c.no_such("general object", c.get<InHdr::obj_id>());
  if (c.out_bytes.size() < q::kElemInBytes) return c.refuse(Status::BAD_OUTP_LEN, "a scheduling element needs {} bytes", q::kElemInBytes);
  c.set<q::elem_hierarchy>(q::kHierarchyNic);
  c.set<q::elem_type>(e->type);
  c.set<q::elem_parent>(e->parent);
  c.set<q::elem_bw_share>(e->bw_share);
  c.set<q::elem_max_bw>(e->max_bw);
  return Status::OK;
}

Status destroy_general_object(Command& c) {
  if (Status s = check_kind(c); s != Status::OK) return s;
  if (is_av_mapping(c)) return destroy_av_mapping(c);
  std::uint32_t id = c.get<InHdr::obj_id>();
  const SchedulingElement* e = named(c);
  if (e == nullptr) return c.no_such("general object", id);
  if (e->users != 0) return c.in_use("scheduling element", id, e->users);
  c.st.qos.drop(e->parent);
  c.st.qos.elements.erase(id);
  c.st.qos.element_ids.give_back(id);
  return Status::OK;
}

// A rate of 0 empties the entry.
Status set_pp_rate_limit(Command& c) {
  std::uint32_t index = c.get<prm::set_pp_rate_limit_in::rate_limit_index>();
  if (index == 0 || index > kRateTableSize) return c.refuse(Status::BAD_PARAM, "rate {} of {}", index, kRateTableSize);
  const std::uint8_t* ctx = c.at<prm::set_pp_rate_limit_in::ctx>();
  using Ctx = prm::set_pp_rate_limit_context;
  RateLimit r{prm::get<Ctx::rate_limit>(ctx), prm::get<Ctx::burst_upper_bound>(ctx),
              static_cast<std::uint16_t>(prm::get<Ctx::typical_packet_size>(ctx))};
  if (r.rate == 0) {
    c.st.qos.rates.erase(index);
    return Status::OK;
  }
  if (r.rate < kMinRate || r.rate > kMaxRate) return c.refuse(Status::BAD_PARAM, "a rate of {} kb/s", r.rate);
  c.st.qos.rates[index] = r;
  return Status::OK;
}

Status check_extended(Command& c, const Qp& qp, std::uint64_t mask) {
  if (mask & ~(q::kOptDciStream | q::kOptQueueGroup | q::kOptUdpSport))
    return c.refuse(Status::BAD_PARAM, "optional parameters {:#x} (95..32)", mask);
  if ((mask & (q::kOptDciStream | q::kOptQueueGroup)) && (!c.get<q::qp_has_ext>() || c.in_bytes.size() < q::kExtendedQpInBytes))
    return c.refuse(Status::BAD_INP_LEN, "parameters {:#x} (95..32) without an extended context", mask);
  if (mask & q::kOptDciStream) {
    auto stream = static_cast<std::uint16_t>(c.get<q::qp_dci_stream>());
    if (!stream_failed(qp, stream)) return c.refuse(Status::BAD_PARAM, "QP {:#x}: stream {} has not failed", qp.qpn, stream);
  }
  if (!(mask & q::kOptQueueGroup)) return Status::OK;
  for (std::uint32_t id : {c.get<q::qp_group_requester>(), c.get<q::qp_group_responder>()}) {
    if (id == 0) continue;
    auto it = c.st.qos.elements.find(id);
    if (it == c.st.qos.elements.end()) return c.no_such("scheduling element", id);
    if (it->second.type != q::kTypeQueueGroup) return c.refuse(Status::BAD_PARAM, "scheduling element {:#x} takes no queues", id);
    if (Status s = c.may_use(Kind::kGeneralObject, id); s != Status::OK) return s;
  }
  return Status::OK;
}

void apply_extended(Command& c, Qp& qp, std::uint64_t mask, const std::uint8_t* qpc) {
  if (mask & q::kOptDciStream) reset_stream(qp, static_cast<std::uint16_t>(c.get<q::qp_dci_stream>()));
  if (mask & q::kOptQueueGroup) {
    leave_queue_groups(c, qp);
    qp.group_requester = c.get<q::qp_group_requester>();
    qp.group_responder = c.get<q::qp_group_responder>();
    for (std::uint32_t id : {qp.group_requester, qp.group_responder})
      if (id != 0) ++c.st.qos.elements.at(id).users;
  }
  if (mask & q::kOptUdpSport) {
    const void* ads = prm::at<prm::qpc::primary_address_path>(static_cast<const void*>(qpc));
    void* own = prm::at<prm::qpc::primary_address_path>(static_cast<void*>(qp.qpc.data()));
    qp.path.udp_sport = static_cast<std::uint16_t>(prm::get<prm::ads::udp_sport>(ads));
    prm::set<prm::ads::udp_sport>(own, qp.path.udp_sport);
  }
}

void leave_queue_groups(Command& c, Qp& qp) {
  c.st.qos.drop(qp.group_requester);
  c.st.qos.drop(qp.group_responder);
  qp.group_requester = qp.group_responder = 0;
}

}  // namespace uhca::hca::cmd
