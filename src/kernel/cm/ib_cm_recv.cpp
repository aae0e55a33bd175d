// SPDX-License-Identifier: MIT
// What the peer sends. An unexpected message is dropped, or answered as Linux answers it.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/cm/ib_cm.h"

namespace uhca::kernel::cm {
namespace {

using prm::get;

template <prm::Field F>
std::span<const std::uint8_t> bytes_of(const Mad& m) {
  return {static_cast<const std::uint8_t*>(prm::at<F>(m.body())), F.count};
}

template <prm::Field F>
ib_gid gid_of(const Mad& m) {
  ib_gid g;
  std::memcpy(g.data(), prm::at<F>(m.body()), g.size());
  return g;
}

// As send_req writes it; RESET for one that is none of them.
bool qp_type_of(const Mad& m, ib_qp_type* type) {
  switch (get<prm::cm_req::transport_service_type>(m.body())) {
    case 0: *type = ib_qp_type::RC; return true;
    case 1: *type = ib_qp_type::UC; return true;
    case 3: *type = ib_qp_type::XRC_TGT; return get<prm::cm_req::extended_transport_type>(m.body()) == 1;
    default: return false;
  }
}

PathRec path_of_req(const Mad& m, const MadInfo& info) {
  const void* b = m.body();
  PathRec p;
  p.sgid = gid_of<prm::cm_req::primary_remote_port_gid>(m);
  p.dgid = gid_of<prm::cm_req::primary_local_port_gid>(m);
  p.roce_v2 = info.roce_v2;
  p.flow_label = get<prm::cm_req::primary_flow_label>(b);
  p.pkey = static_cast<std::uint16_t>(get<prm::cm_req::partition_key>(b));
  p.hop_limit = static_cast<std::uint8_t>(get<prm::cm_req::primary_hop_limit>(b));
  p.traffic_class = static_cast<std::uint8_t>(get<prm::cm_req::primary_traffic_class>(b));
  p.sl = static_cast<std::uint8_t>(get<prm::cm_req::primary_sl>(b));
  p.mtu = static_cast<std::uint8_t>(get<prm::cm_req::path_packet_payload_mtu>(b));
  p.rate = static_cast<std::uint8_t>(get<prm::cm_req::primary_packet_rate>(b));
  std::uint32_t ack = get<prm::cm_req::primary_local_ack_timeout>(b);
  p.packet_life_time = static_cast<std::uint8_t>(ack > 0 ? ack - 1 : 0);
  return p;
}

}  // namespace

void IbCm::receive(const Mad& mad, const MadInfo& info) {
  ++counters_.received;
  if (!is_cm_mad(mad)) {
    ++counters_.dropped;
    return;
  }
  if (trace::on())
    trace::Event("mad", "rx")
        .str("attr", to_string(cm_attr(mad)))
        .hex("local_comm_id", cm_local_comm_id(mad))
        .hex("remote_comm_id", cm_remote_comm_id(mad))
        .hex("transaction", get<prm::mad_hdr::tid>(mad.hdr()));
  switch (cm_attr(mad)) {
    case CmAttr::REQ: return req_handler(mad, info);
    case CmAttr::MRA: return mra_handler(mad);
    case CmAttr::REJ: return rej_handler(mad);
    case CmAttr::REP: return rep_handler(mad, info);
    case CmAttr::RTU: return rtu_handler(mad);
    case CmAttr::DREQ: return dreq_handler(mad, info);
    case CmAttr::DREP: return drep_handler(mad);
    case CmAttr::SIDR_REQ: return sidr_req_handler(mad, info);
    case CmAttr::SIDR_REP: return sidr_rep_handler(mad);
    case CmAttr::LAP:
    case CmAttr::APR: break;  // alternate paths do not exist on Ethernet ports: dropped, as Linux drops them
  }
  ++counters_.dropped;
}

// ---------------------------------------------------------------- passive side

void IbCm::req_handler(const Mad& mad, const MadInfo& info) {
  const void* b = mad.body();
  auto av = av_for_response(info);
  if (!av) return;
  CmId& id = create_id(nullptr);
  id.remote_id = get<prm::cm_req::local_comm_id>(b);
  id.service_id = get<prm::cm_req::service_id>(b);
  id.tid = get<prm::mad_hdr::tid>(mad.hdr());
  id.timeout = cm_time(get<prm::cm_req::local_cm_response_timeout>(b));
  id.max_cm_retries = static_cast<std::uint8_t>(get<prm::cm_req::max_cm_retries>(b));
  id.remote_qpn = get<prm::cm_req::local_qpn>(b);
  id.initiator_depth = static_cast<std::uint8_t>(get<prm::cm_req::responder_resources>(b));
  id.responder_resources = static_cast<std::uint8_t>(get<prm::cm_req::initiator_depth>(b));
  id.path_mtu = static_cast<std::uint8_t>(get<prm::cm_req::path_packet_payload_mtu>(b));
  id.pkey = static_cast<std::uint16_t>(get<prm::cm_req::partition_key>(b));
  id.sq_psn = get<prm::cm_req::starting_psn>(b);
  id.retry_count = static_cast<std::uint8_t>(get<prm::cm_req::retry_count>(b));
  id.rnr_retry_count = static_cast<std::uint8_t>(get<prm::cm_req::rnr_retry_count>(b));
  id.remote_ca_guid = get<prm::cm_req::local_ca_guid>(b);
  id.av = std::move(*av);
  id.state = CmState::IDLE;

  if (!qp_type_of(mad, &id.qp_type)) {
    (void)refuse(EINVAL, "cm: REQ with a transport service type that is none of RC, UC and XRC");
    return destroy_id(id);
  }
  if (CmId* present = insert_remote_id(id)) {
    dup_req_handler(*present, mad, info);
    return destroy_id(id);
  }
  if (CmId* stale = insert_remote_qpn(id)) {
    remove_remote(id);
    issue_rej(mad, info, CmRej::STALE_CONN, CmResponse::REQ);
    (void)refuse(ECONNREFUSED, "cm: REQ from QPN {:#x}, which is connected already (communication id {:#x}): stale connection",
                 id.remote_qpn, stale->local_id);
    (void)send_dreq(*stale, {});
    return destroy_id(id);
  }
  auto listener = listens_.find(id.service_id);
  if (listener == listens_.end()) {
    issue_rej(mad, info, CmRej::INVALID_SERVICE_ID, CmResponse::REQ);
    (void)refuse(ECONNREFUSED, "cm: REQ for service id {:#x}, on which nobody listens", id.service_id);
    return destroy_id(id);
  }
  id.state = CmState::REQ_RCVD;

  CmEvent e;
  e.type = CmEventType::REQ_RECEIVED;
  e.path = path_of_req(mad, info);
  e.path.hop_limit = id.av.ah.hop_limit;
  auto by_path = av_by_path(e.path, id.av.ah.sgid_attr.gid == e.path.sgid ? id.av.ah.sgid_attr : ib_gid_attr{});
  if (!by_path) {
    (void)send_rej(id, CmRej::INVALID_GID, id.av.ah.sgid_attr.gid, {});
    return destroy_id(id);
  }
  id.av = std::move(*by_path);
  e.service_id = id.service_id;
  e.sgid_attr = id.av.ah.sgid_attr;
  e.remote_qpn = id.remote_qpn;
  e.starting_psn = id.sq_psn;
  e.qp_type = id.qp_type;
  e.responder_resources = id.responder_resources;
  e.initiator_depth = id.initiator_depth;
  e.flow_control = static_cast<std::uint8_t>(get<prm::cm_req::end_to_end_flow_control>(b));
  e.retry_count = id.retry_count;
  e.rnr_retry_count = id.rnr_retry_count;
  e.srq = static_cast<std::uint8_t>(get<prm::cm_req::srq>(b));
  e.ece = {get<prm::cm_req::vendor_id>(b), get<prm::mad_hdr::attr_mod>(mad.hdr())};
  e.private_data = bytes_of<prm::cm_req::private_data>(mad);
  id.handler = listener->second->handler;
  deliver(id, e);
}

void IbCm::dup_req_handler(CmId& id, const Mad&, const MadInfo& info) {
  ++counters_.duplicates;
  if (id.state == CmState::MRA_REQ_SENT) reply(format_mra(id, CmResponse::REQ), info);
  if (id.state == CmState::TIMEWAIT) reply(format_rej(id, CmState::TIMEWAIT, CmRej::STALE_CONN, {}, {}), info);
}

void IbCm::rtu_handler(const Mad& mad) {
  CmId* id = acquire(cm_remote_comm_id(mad), cm_local_comm_id(mad));
  if (!id) return;
  if (id->state != CmState::REP_SENT && id->state != CmState::MRA_REP_RCVD) {
    ++counters_.duplicates;
    return;
  }
  cancel_msg(*id);
  set_state(*id, CmState::ESTABLISHED);
  CmEvent e;
  e.type = CmEventType::RTU_RECEIVED;
  e.private_data = bytes_of<prm::cm_rtu::private_data>(mad);
  deliver(*id, e);
}

// ---------------------------------------------------------------- active side

void IbCm::rep_handler(const Mad& mad, const MadInfo& info) {
  const void* b = mad.body();
  CmId* id = acquire(cm_remote_comm_id(mad), 0);
  if (!id) return dup_rep_handler(mad, info);
  if (id->state != CmState::REQ_SENT && id->state != CmState::MRA_REQ_RCVD) return;

  std::uint32_t remote_id = cm_local_comm_id(mad);
  std::uint32_t remote_qpn =
      id->qp_type == ib_qp_type::XRC_INI ? get<prm::cm_rep::local_ee_context_number>(b) : get<prm::cm_rep::local_qpn>(b);
  id->remote_id = remote_id;
  id->remote_ca_guid = get<prm::cm_rep::local_ca_guid>(b);
  id->remote_qpn = remote_qpn;
  if (insert_remote_id(*id)) {
    id->remote_id = 0;
    ++counters_.duplicates;
    return;
  }
  if (CmId* stale = insert_remote_qpn(*id)) {
    remove_remote(*id);
    id->remote_id = 0;
    issue_rej(mad, info, CmRej::STALE_CONN, CmResponse::REP);
    (void)refuse(ECONNREFUSED, "cm: REP from QPN {:#x}, which is connected already (communication id {:#x}): stale connection", remote_qpn,
                 stale->local_id);
    (void)send_dreq(*stale, {});
    return;
  }
  cancel_msg(*id);
  set_state(*id, CmState::REP_RCVD);
  id->initiator_depth = static_cast<std::uint8_t>(get<prm::cm_rep::responder_resources>(b));
  id->responder_resources = static_cast<std::uint8_t>(get<prm::cm_rep::initiator_depth>(b));
  id->sq_psn = get<prm::cm_rep::starting_psn>(b);
  id->rnr_retry_count = static_cast<std::uint8_t>(get<prm::cm_rep::rnr_retry_count>(b));
  id->target_ack_delay = static_cast<std::uint8_t>(get<prm::cm_rep::target_ack_delay>(b));
  id->av.timeout = cm_ack_timeout(id->target_ack_delay, static_cast<std::uint8_t>(id->av.timeout - 1));

  CmEvent e;
  e.type = CmEventType::REP_RECEIVED;
  e.remote_qpn = remote_qpn;
  e.starting_psn = id->sq_psn;
  e.responder_resources = id->responder_resources;
  e.initiator_depth = id->initiator_depth;
  e.flow_control = static_cast<std::uint8_t>(get<prm::cm_rep::end_to_end_flow_control>(b));
  e.rnr_retry_count = id->rnr_retry_count;
  e.srq = static_cast<std::uint8_t>(get<prm::cm_rep::srq>(b));
  e.ece = {get<prm::cm_rep::vendor_id_h>(b) << 16 | get<prm::cm_rep::vendor_id_m>(b) << 8 | get<prm::cm_rep::vendor_id_l>(b),
           get<prm::mad_hdr::attr_mod>(mad.hdr())};
  e.private_data = bytes_of<prm::cm_rep::private_data>(mad);
  deliver(*id, e);
}

void IbCm::dup_rep_handler(const Mad& mad, const MadInfo& info) {
  CmId* id = acquire(cm_remote_comm_id(mad), cm_local_comm_id(mad));
  if (!id) return;
  ++counters_.duplicates;
  if (id->state == CmState::ESTABLISHED) reply(format_rtu(*id), info);
  if (id->state == CmState::MRA_REP_SENT) reply(format_mra(*id, CmResponse::REP), info);
}

// ---------------------------------------------------------------- either side

void IbCm::mra_handler(const Mad& mad) {
  const void* b = mad.body();
  auto of = static_cast<CmResponse>(get<prm::cm_mra::message_mraed>(b));
  CmId* id = acquire(cm_remote_comm_id(mad), of == CmResponse::REQ ? 0 : cm_local_comm_id(mad));
  if (!id) return;
  if (id->state == CmState::REQ_SENT && of == CmResponse::REQ) {
    set_state(*id, CmState::MRA_REQ_RCVD);
  } else if (id->state == CmState::REP_SENT && of == CmResponse::REP) {
    set_state(*id, CmState::MRA_REP_RCVD);
  } else {
    ++counters_.duplicates;
    return;
  }
  // The next try waits for as long as the peer asks.
  msg_timers_.erase({id->msg_deadline, id->local_id});
  id->msg_timeout = cm_time(get<prm::cm_mra::service_timeout>(b)) + cm_time(id->av.timeout);
  id->msg_deadline = now_ + id->msg_timeout;
  msg_timers_.emplace(id->msg_deadline, id->local_id);
  CmEvent e;
  e.type = CmEventType::MRA_RECEIVED;
  e.private_data = bytes_of<prm::cm_mra::private_data>(mad);
  deliver(*id, e);
}

void IbCm::rej_handler(const Mad& mad) {
  const void* b = mad.body();
  auto reason = static_cast<CmRej>(get<prm::cm_rej::reason>(b));
  auto rejected = static_cast<CmResponse>(get<prm::cm_rej::message_rejected>(b));
  CmId* id = nullptr;
  if (reason == CmRej::TIMEOUT) {
    // The sender may not know our id; it names its CA instead.
    auto it = remote_ids_.find({load_be<std::uint64_t>(prm::at<prm::cm_rej::ari>(b)), cm_local_comm_id(mad)});
    if (it != remote_ids_.end()) id = it->second;
  } else {
    id = acquire(cm_remote_comm_id(mad), rejected == CmResponse::REQ ? 0 : cm_local_comm_id(mad));
  }
  if (!id) return;
  switch (id->state) {
    case CmState::REQ_SENT:
    case CmState::MRA_REQ_RCVD:
    case CmState::REP_SENT:
    case CmState::MRA_REP_RCVD:
    case CmState::REQ_RCVD:
    case CmState::MRA_REQ_SENT:
      cancel_msg(*id);
      if (reason == CmRej::STALE_CONN) {
        enter_timewait(*id);
      } else {
        reset_to_idle(*id);
      }
      break;
    case CmState::DREQ_SENT:
    case CmState::REP_RCVD:
    case CmState::MRA_REP_SENT:
    case CmState::ESTABLISHED:
      cancel_msg(*id);
      enter_timewait(*id);
      break;
    default: return;
  }
  CmEvent e;
  e.type = CmEventType::REJ_RECEIVED;
  e.rej_reason = static_cast<std::uint16_t>(reason);
  e.private_data = bytes_of<prm::cm_rej::private_data>(mad);
  deliver(*id, e);
}

void IbCm::dreq_handler(const Mad& mad, const MadInfo& info) {
  CmId* id = acquire(cm_remote_comm_id(mad), cm_local_comm_id(mad));
  if (!id) {
    // Gone already: the peer may finish.
    ++counters_.duplicates;
    return issue_drep(mad, info);
  }
  if (id->local_qpn != get<prm::cm_dreq::remote_qpn_eecn>(mad.body())) return;
  switch (id->state) {
    case CmState::REP_SENT:
    case CmState::DREQ_SENT:
    case CmState::MRA_REP_RCVD: cancel_msg(*id); break;
    case CmState::ESTABLISHED: break;
    case CmState::TIMEWAIT: ++counters_.duplicates; return reply(format_drep(*id), info);
    default: ++counters_.duplicates; return;
  }
  set_state(*id, CmState::DREQ_RCVD);
  id->tid = get<prm::mad_hdr::tid>(mad.hdr());
  CmEvent e;
  e.type = CmEventType::DREQ_RECEIVED;
  e.private_data = bytes_of<prm::cm_dreq::private_data>(mad);
  deliver(*id, e);
}

void IbCm::drep_handler(const Mad& mad) {
  CmId* id = acquire(cm_remote_comm_id(mad), cm_local_comm_id(mad));
  if (!id || (id->state != CmState::DREQ_SENT && id->state != CmState::DREQ_RCVD)) return;
  cancel_msg(*id);
  enter_timewait(*id);
  CmEvent e;
  e.type = CmEventType::DREP_RECEIVED;
  e.private_data = bytes_of<prm::cm_drep::private_data>(mad);
  deliver(*id, e);
}

// ---------------------------------------------------------------- service id resolution (UD)

void IbCm::sidr_req_handler(const Mad& mad, const MadInfo& info) {
  const void* b = mad.body();
  auto av = av_for_response(info);
  if (!av) return;
  std::uint32_t request = get<prm::cm_sidr_req::request_id>(b);
  if (remote_sidrs_.count({info.sgid, request})) {
    ++counters_.duplicates;
    return;
  }
  CmId& id = create_id(nullptr);
  id.remote_id = request;
  id.service_id = get<prm::cm_sidr_req::service_id>(b);
  id.tid = get<prm::mad_hdr::tid>(mad.hdr());
  id.av = std::move(*av);
  id.state = CmState::SIDR_REQ_RCVD;
  auto listener = listens_.find(id.service_id);
  if (listener == listens_.end()) {
    (void)refuse(ECONNREFUSED, "cm: SIDR_REQ for service id {:#x}, on which nobody listens", id.service_id);
    (void)send_sidr_rep(id, {.status = CmSidrStatus::UNSUPPORTED});
    return destroy_id(id);
  }
  remote_sidrs_.emplace(std::pair{info.sgid, request}, &id);
  id.handler = listener->second->handler;
  CmEvent e;
  e.type = CmEventType::SIDR_REQ_RECEIVED;
  e.service_id = id.service_id;
  e.path.sgid = info.dgid;
  e.path.dgid = info.sgid;
  e.path.roce_v2 = info.roce_v2;
  e.path.pkey = static_cast<std::uint16_t>(get<prm::cm_sidr_req::partition_key>(b));
  e.sgid_attr = id.av.ah.sgid_attr;
  e.private_data = bytes_of<prm::cm_sidr_req::private_data>(mad);
  deliver(id, e);
}

void IbCm::sidr_rep_handler(const Mad& mad) {
  const void* b = mad.body();
  CmId* id = acquire(get<prm::cm_sidr_rep::request_id>(b), 0);
  if (!id || id->state != CmState::SIDR_REQ_SENT) return;
  cancel_msg(*id);
  set_state(*id, CmState::IDLE);
  CmEvent e;
  e.type = CmEventType::SIDR_REP_RECEIVED;
  e.sidr_status = static_cast<std::uint8_t>(get<prm::cm_sidr_rep::status>(b));
  e.qkey = get<prm::cm_sidr_rep::qkey>(b);
  e.remote_qpn = get<prm::cm_sidr_rep::qpn>(b);
  e.private_data = bytes_of<prm::cm_sidr_rep::private_data>(mad);
  deliver(*id, e);
}

// ---------------------------------------------------------------- functions that died

void IbCm::last_words(std::uint32_t function) {
  std::vector<std::uint32_t> bereaved;
  for (auto& [n, id] : ids_)
    if (id->in_remote_id_table && id->remote_id >> kIdBits == function && on_this_host(*id)) bereaved.push_back(n);
  for (std::uint32_t n : bereaved) {
    auto it = ids_.find(n);
    if (it == ids_.end()) continue;
    const CmAv& av = it->second->av;
    MadInfo info;
    info.sgid = av.ah.dgid;
    info.dgid = av.ah.sgid_attr.gid;
    info.roce_v2 = av.ah.sgid_attr.roce_v2;
    receive(last_word(*it->second), info);
  }
}

// As destroy_id does it, seen from the other end of `id`.
Mad IbCm::last_word(const CmId& id) {
  CmId peer;
  peer.local_id = id.remote_id;
  peer.remote_id = id.local_id;
  peer.remote_qpn = id.local_qpn;
  switch (id.state) {
    case CmState::REQ_RCVD:
    case CmState::MRA_REQ_SENT: {
      std::uint8_t guid[8];
      store_be<std::uint64_t>(guid, id.remote_ca_guid);
      peer.remote_id = 0;
      return format_rej(peer, CmState::REQ_SENT, CmRej::TIMEOUT, guid, {});
    }
    // A peer that had sent its RTU would have been heard: it is handed on before the program goes on.
    case CmState::REP_SENT:
    case CmState::MRA_REP_RCVD: return format_rej(peer, CmState::REP_RCVD, CmRej::CONSUMER_DEFINED, {}, {});
    case CmState::REP_RCVD:
    case CmState::MRA_REP_SENT: return format_rej(peer, CmState::REP_SENT, CmRej::CONSUMER_DEFINED, {}, {});
    case CmState::DREQ_SENT: return format_drep(peer);
    default: return format_dreq(peer, {});
  }
}

}  // namespace uhca::kernel::cm
