// SPDX-License-Identifier: MIT
// What the consumer sends, and the forms of all messages.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernel/cm/ib_cm.h"

namespace uhca::kernel::cm {
namespace {

using prm::set;

Mad new_mad(CmAttr attr, std::uint64_t tid, std::uint32_t attr_mod = 0) {
  Mad m;
  set<prm::mad_hdr::base_version>(m.hdr(), kMgmtBaseVersion);
  set<prm::mad_hdr::mgmt_class>(m.hdr(), kMgmtClassCm);
  set<prm::mad_hdr::class_version>(m.hdr(), kCmClassVersion);
  set<prm::mad_hdr::method>(m.hdr(), kMgmtMethodSend);
  set<prm::mad_hdr::attr_id>(m.hdr(), static_cast<std::uint16_t>(attr));
  set<prm::mad_hdr::tid>(m.hdr(), tid);
  set<prm::mad_hdr::attr_mod>(m.hdr(), attr_mod);
  return m;
}

template <prm::Field F>
void put_bytes(Mad& m, std::span<const std::uint8_t> from) {
  if (!from.empty()) std::memcpy(prm::at<F>(m.body()), from.data(), std::min<std::size_t>(from.size(), F.count));
}

Status check_size(const char* what, std::span<const std::uint8_t> data, std::size_t most) {
  if (data.size() > most) return refuse(EINVAL, "cm: {}: {} bytes of private data; the message carries {}", what, data.size(), most);
  return success();
}

Errno wrong_state(const char* what, const CmId& id) {
  return refuse(EINVAL, "cm: {} in state {} (communication id {:#x})", what, to_string(id.state), id.local_id);
}

constexpr std::uint16_t kLidPermissive = 0xffff;
// The service timeout that an MRA promises: about 69 s (Linux: CM_MRA_SETTING).
constexpr std::uint8_t kMraTimeout = 24;

// Offsets of the alternate transport in extended_transport_type, transport_service_type (IBTA vol. 1, 12.6.5 and annex A14).
constexpr std::uint8_t kTransportRc = 0, kTransportUc = 1, kTransportExtended = 3, kExtendedXrc = 1;

}  // namespace

Status IbCm::send_req(CmId& id, const CmReqParam& p) {
  if (p.qp_type != ib_qp_type::RC && p.qp_type != ib_qp_type::UC && p.qp_type != ib_qp_type::XRC_INI)
    return refuse(EINVAL, "cm: REQ for a QP of type {}", static_cast<int>(p.qp_type));
  UHCA_CHECK(check_size("REQ", p.private_data, kReqPrivateData));
  if (id.state != CmState::IDLE) return wrong_state("REQ", id);
  id.av = UHCA_TRY(av_by_path(p.path, p.sgid_attr));
  id.service_id = p.service_id;
  id.timeout = cm_time(p.path.packet_life_time) * 2 + cm_time(p.remote_cm_response_timeout);
  id.max_cm_retries = p.max_cm_retries;
  id.initiator_depth = p.initiator_depth;
  id.responder_resources = p.responder_resources;
  id.retry_count = p.retry_count;
  id.path_mtu = p.path.mtu;
  id.pkey = p.path.pkey;
  id.qp_type = p.qp_type;
  id.tid = form_tid(id);
  id.local_qpn = p.qp_num & 0xffffff;
  id.rq_psn = p.starting_psn & 0xffffff;

  Mad m = new_mad(CmAttr::REQ, id.tid, p.ece.attr_mod);
  void* b = m.body();
  bool xrc = p.qp_type == ib_qp_type::XRC_INI;
  set<prm::cm_req::local_comm_id>(b, id.local_id);
  set<prm::cm_req::vendor_id>(b, p.ece.vendor_id & 0xffffff);
  set<prm::cm_req::service_id>(b, p.service_id);
  set<prm::cm_req::local_ca_guid>(b, device_.node_guid());
  set<prm::cm_req::local_qpn>(b, id.local_qpn);
  set<prm::cm_req::initiator_depth>(b, p.initiator_depth);
  set<prm::cm_req::remote_cm_response_timeout>(b, p.remote_cm_response_timeout);
  set<prm::cm_req::transport_service_type>(b, xrc ? kTransportExtended : p.qp_type == ib_qp_type::UC ? kTransportUc : kTransportRc);
  if (xrc) set<prm::cm_req::extended_transport_type>(b, kExtendedXrc);
  set<prm::cm_req::end_to_end_flow_control>(b, p.flow_control ? 1 : 0);
  set<prm::cm_req::starting_psn>(b, id.rq_psn);
  set<prm::cm_req::local_cm_response_timeout>(b, p.local_cm_response_timeout);
  set<prm::cm_req::partition_key>(b, p.path.pkey);
  set<prm::cm_req::path_packet_payload_mtu>(b, p.path.mtu);
  set<prm::cm_req::max_cm_retries>(b, p.max_cm_retries);
  if (!xrc) {
    set<prm::cm_req::responder_resources>(b, p.responder_resources);
    set<prm::cm_req::retry_count>(b, p.retry_count);
    set<prm::cm_req::rnr_retry_count>(b, p.rnr_retry_count);
    set<prm::cm_req::srq>(b, p.srq ? 1 : 0);
  }
  std::uint16_t lid = p.path.hop_limit <= 1 ? 0 : kLidPermissive;
  set<prm::cm_req::primary_local_port_lid>(b, lid);
  set<prm::cm_req::primary_remote_port_lid>(b, lid);
  put_bytes<prm::cm_req::primary_local_port_gid>(m, p.path.sgid);
  put_bytes<prm::cm_req::primary_remote_port_gid>(m, p.path.dgid);
  set<prm::cm_req::primary_flow_label>(b, p.path.flow_label);
  set<prm::cm_req::primary_packet_rate>(b, p.path.rate);
  set<prm::cm_req::primary_traffic_class>(b, p.path.traffic_class);
  set<prm::cm_req::primary_hop_limit>(b, p.path.hop_limit);
  set<prm::cm_req::primary_sl>(b, p.path.sl);
  set<prm::cm_req::primary_subnet_local>(b, p.path.hop_limit <= 1 ? 1 : 0);
  set<prm::cm_req::primary_local_ack_timeout>(b, cm_ack_timeout(device_.local_ca_ack_delay(), p.path.packet_life_time));
  put_bytes<prm::cm_req::private_data>(m, p.private_data);

  UHCA_CHECK(post_with_retries(id, m));
  set_state(id, CmState::REQ_SENT);
  return success();
}

Status IbCm::send_rep(CmId& id, const CmRepParam& p) {
  UHCA_CHECK(check_size("REP", p.private_data, kRepPrivateData));
  if (id.state != CmState::REQ_RCVD && id.state != CmState::MRA_REQ_SENT) return wrong_state("REP", id);
  Mad m = new_mad(CmAttr::REP, id.tid, p.ece.attr_mod);
  void* b = m.body();
  set<prm::cm_rep::local_comm_id>(b, id.local_id);
  set<prm::cm_rep::remote_comm_id>(b, id.remote_id);
  set<prm::cm_rep::starting_psn>(b, p.starting_psn & 0xffffff);
  set<prm::cm_rep::responder_resources>(b, p.responder_resources);
  set<prm::cm_rep::target_ack_delay>(b, device_.local_ca_ack_delay());
  set<prm::cm_rep::rnr_retry_count>(b, p.rnr_retry_count);
  set<prm::cm_rep::local_ca_guid>(b, device_.node_guid());
  if (id.qp_type != ib_qp_type::XRC_TGT) {
    set<prm::cm_rep::initiator_depth>(b, p.initiator_depth);
    set<prm::cm_rep::end_to_end_flow_control>(b, p.flow_control ? 1 : 0);
    set<prm::cm_rep::srq>(b, p.srq ? 1 : 0);
    set<prm::cm_rep::local_qpn>(b, p.qp_num & 0xffffff);
  } else {
    set<prm::cm_rep::srq>(b, 1);
    set<prm::cm_rep::local_ee_context_number>(b, p.qp_num & 0xffffff);
  }
  set<prm::cm_rep::vendor_id_l>(b, p.ece.vendor_id & 0xff);
  set<prm::cm_rep::vendor_id_m>(b, p.ece.vendor_id >> 8 & 0xff);
  set<prm::cm_rep::vendor_id_h>(b, p.ece.vendor_id >> 16 & 0xff);
  put_bytes<prm::cm_rep::private_data>(m, p.private_data);
  UHCA_CHECK(post_with_retries(id, m));
  set_state(id, CmState::REP_SENT);
  id.initiator_depth = p.initiator_depth;
  id.responder_resources = p.responder_resources;
  id.rq_psn = p.starting_psn & 0xffffff;
  id.local_qpn = p.qp_num & 0xffffff;
  return success();
}

Mad IbCm::format_rtu(const CmId& id) {
  Mad m = new_mad(CmAttr::RTU, id.tid);
  set<prm::cm_rtu::local_comm_id>(m.body(), id.local_id);
  set<prm::cm_rtu::remote_comm_id>(m.body(), id.remote_id);
  put_bytes<prm::cm_rtu::private_data>(m, id.private_data);
  return m;
}

Status IbCm::send_rtu(CmId& id, std::span<const std::uint8_t> private_data) {
  UHCA_CHECK(check_size("RTU", private_data, kRtuPrivateData));
  if (id.state != CmState::REP_RCVD && id.state != CmState::MRA_REP_SENT) return wrong_state("RTU", id);
  id.private_data.assign(private_data.begin(), private_data.end());
  UHCA_CHECK(post(format_rtu(id), id.av));
  set_state(id, CmState::ESTABLISHED);
  return success();
}

Mad IbCm::format_dreq(const CmId& id, std::span<const std::uint8_t> private_data) {
  Mad m = new_mad(CmAttr::DREQ, form_tid(id));
  set<prm::cm_dreq::local_comm_id>(m.body(), id.local_id);
  set<prm::cm_dreq::remote_comm_id>(m.body(), id.remote_id);
  set<prm::cm_dreq::remote_qpn_eecn>(m.body(), id.remote_qpn);
  put_bytes<prm::cm_dreq::private_data>(m, private_data);
  return m;
}

void IbCm::issue_dreq(CmId& id) {
  if (Status s = post(format_dreq(id, {}), id.av); !s) log::warn("cm: DREQ cannot be sent ({})", s.code());
}

Status IbCm::send_dreq(CmId& id, std::span<const std::uint8_t> private_data) {
  UHCA_CHECK(check_size("DREQ", private_data, kDreqPrivateData));
  // Not a refusal with a reason: rdma_disconnect tries DREQ first and DREP next.
  if (id.state != CmState::ESTABLISHED) return Errno{EINVAL};
  if (Status s = post_with_retries(id, format_dreq(id, private_data)); !s) {
    enter_timewait(id);
    return s.error();
  }
  set_state(id, CmState::DREQ_SENT);
  return success();
}

Mad IbCm::format_drep(const CmId& id) {
  Mad m = new_mad(CmAttr::DREP, id.tid);
  set<prm::cm_drep::local_comm_id>(m.body(), id.local_id);
  set<prm::cm_drep::remote_comm_id>(m.body(), id.remote_id);
  put_bytes<prm::cm_drep::private_data>(m, id.private_data);
  return m;
}

Status IbCm::send_drep(CmId& id, std::span<const std::uint8_t> private_data) {
  UHCA_CHECK(check_size("DREP", private_data, kDrepPrivateData));
  if (id.state != CmState::DREQ_RCVD) return Errno{EINVAL};
  id.private_data.assign(private_data.begin(), private_data.end());
  enter_timewait(id);
  return post(format_drep(id), id.av);
}

Mad IbCm::format_rej(const CmId& id, CmState state, CmRej reason, std::span<const std::uint8_t> ari,
                     std::span<const std::uint8_t> private_data) {
  Mad m = new_mad(CmAttr::REJ, id.tid);
  void* b = m.body();
  CmResponse rejected = CmResponse::OTHER;
  std::uint32_t local = id.local_id;
  switch (state) {
    case CmState::REQ_RCVD:
      local = 0;
      rejected = CmResponse::REQ;
      break;
    case CmState::MRA_REQ_SENT: rejected = CmResponse::REQ; break;
    case CmState::REP_RCVD:
    case CmState::MRA_REP_SENT: rejected = CmResponse::REP; break;
    default: break;
  }
  set<prm::cm_rej::local_comm_id>(b, local);
  set<prm::cm_rej::remote_comm_id>(b, id.remote_id);
  set<prm::cm_rej::message_rejected>(b, static_cast<std::uint8_t>(rejected));
  set<prm::cm_rej::reject_info_length>(b, ari.size());
  set<prm::cm_rej::reason>(b, static_cast<std::uint16_t>(reason));
  put_bytes<prm::cm_rej::ari>(m, ari);
  put_bytes<prm::cm_rej::private_data>(m, private_data);
  return m;
}

Status IbCm::send_rej(CmId& id, CmRej reason, std::span<const std::uint8_t> ari, std::span<const std::uint8_t> private_data) {
  UHCA_CHECK(check_size("REJ", private_data, kRejPrivateData));
  if (ari.size() > kRejAri)
    return refuse(EINVAL, "cm: REJ: {} bytes of additional information; the message carries {}", ari.size(), kRejAri);
  CmState state = id.state;
  switch (state) {
    case CmState::REQ_SENT:
    case CmState::MRA_REQ_RCVD:
    case CmState::REQ_RCVD:
    case CmState::MRA_REQ_SENT:
    case CmState::REP_RCVD:
    case CmState::MRA_REP_SENT:
      cancel_msg(id);
      reset_to_idle(id);
      break;
    case CmState::REP_SENT:
    case CmState::MRA_REP_RCVD:
      cancel_msg(id);
      enter_timewait(id);
      break;
    default: return wrong_state("REJ", id);
  }
  return post(format_rej(id, state, reason, ari, private_data), id.av);
}

Mad IbCm::format_mra(const CmId& id, CmResponse message) {
  Mad m = new_mad(CmAttr::MRA, id.tid);
  set<prm::cm_mra::message_mraed>(m.body(), static_cast<std::uint8_t>(message));
  set<prm::cm_mra::local_comm_id>(m.body(), id.local_id);
  set<prm::cm_mra::remote_comm_id>(m.body(), id.remote_id);
  set<prm::cm_mra::service_timeout>(m.body(), kMraTimeout);
  put_bytes<prm::cm_mra::private_data>(m, id.private_data);
  return m;
}

Status IbCm::prepare_mra(CmId& id) {
  switch (id.state) {
    case CmState::REQ_RCVD: set_state(id, CmState::MRA_REQ_SENT); break;
    case CmState::REP_RCVD: set_state(id, CmState::MRA_REP_SENT); break;
    default: return wrong_state("MRA", id);
  }
  id.private_data.clear();
  return success();
}

Status IbCm::notify(CmId& id, std::uint32_t ib_event) {
  constexpr std::uint32_t kCommEst = 4, kPathMig = 6;  // enum ib_event_type
  if (ib_event == kPathMig) return refuse(EINVAL, "cm notify: path migration needs an alternate path, which Ethernet ports have not");
  if (ib_event != kCommEst) return refuse(EINVAL, "cm notify: event {} is none of COMM_EST and PATH_MIG", ib_event);
  if (id.state == CmState::ESTABLISHED) return refuse(EISCONN, "cm notify: communication id {:#x} is established already", id.local_id);
  if (id.state != CmState::REP_SENT && id.state != CmState::MRA_REP_RCVD) return wrong_state("COMM_EST", id);
  cancel_msg(id);
  set_state(id, CmState::ESTABLISHED);
  CmEvent e;
  e.type = CmEventType::USER_ESTABLISHED;
  deliver(id, e);
  return success();
}

// ---------------------------------------------------------------- service id resolution (UD)

Status IbCm::send_sidr_req(CmId& id, const CmSidrReqParam& p) {
  UHCA_CHECK(check_size("SIDR_REQ", p.private_data, kSidrReqPrivateData));
  if (id.state != CmState::IDLE) return wrong_state("SIDR_REQ", id);
  id.av = UHCA_TRY(av_by_path(p.path, p.sgid_attr));
  id.service_id = p.service_id;
  id.timeout = p.timeout;
  id.max_cm_retries = p.max_cm_retries;
  Mad m = new_mad(CmAttr::SIDR_REQ, form_tid(id));
  set<prm::cm_sidr_req::request_id>(m.body(), id.local_id);
  set<prm::cm_sidr_req::partition_key>(m.body(), p.path.pkey);
  set<prm::cm_sidr_req::service_id>(m.body(), p.service_id);
  put_bytes<prm::cm_sidr_req::private_data>(m, p.private_data);
  UHCA_CHECK(post_with_retries(id, m));
  set_state(id, CmState::SIDR_REQ_SENT);
  return success();
}

Status IbCm::send_sidr_rep(CmId& id, const CmSidrRepParam& p) {
  UHCA_CHECK(check_size("SIDR_REP", p.private_data, kSidrRepPrivateData));
  if (id.state != CmState::SIDR_REQ_RCVD) return wrong_state("SIDR_REP", id);
  Mad m = new_mad(CmAttr::SIDR_REP, id.tid, p.ece.attr_mod);
  void* b = m.body();
  set<prm::cm_sidr_rep::request_id>(b, id.remote_id);
  set<prm::cm_sidr_rep::status>(b, static_cast<std::uint8_t>(p.status));
  set<prm::cm_sidr_rep::qpn>(b, p.qp_num & 0xffffff);
  set<prm::cm_sidr_rep::service_id>(b, id.service_id);
  set<prm::cm_sidr_rep::qkey>(b, p.qkey);
  set<prm::cm_sidr_rep::vendor_id_l>(b, p.ece.vendor_id & 0xff);
  set<prm::cm_sidr_rep::vendor_id_h>(b, p.ece.vendor_id >> 8 & 0xff);
  put_bytes<prm::cm_sidr_rep::private_data>(m, p.private_data);
  UHCA_CHECK(post(m, id.av));
  set_state(id, CmState::IDLE);
  remote_sidrs_.erase({id.av.ah.dgid, id.remote_id});
  return success();
}

// ---------------------------------------------------------------- answers that belong to no id

void IbCm::reply(const Mad& mad, const MadInfo& info) {
  auto av = av_for_response(info);
  if (!av) return;
  if (Status s = post(mad, *av); !s) log::warn("cm: {} cannot be sent ({})", to_string(cm_attr(mad)), s.code());
}

void IbCm::issue_rej(const Mad& got, const MadInfo& info, CmRej reason, CmResponse msg_rejected) {
  Mad m = new_mad(CmAttr::REJ, prm::get<prm::mad_hdr::tid>(got.hdr()));
  set<prm::cm_rej::remote_comm_id>(m.body(), cm_local_comm_id(got));
  // A REQ has no remote communication id; what stands there is another field.
  set<prm::cm_rej::local_comm_id>(m.body(), cm_attr(got) == CmAttr::REQ ? 0 : cm_remote_comm_id(got));
  set<prm::cm_rej::message_rejected>(m.body(), static_cast<std::uint8_t>(msg_rejected));
  set<prm::cm_rej::reason>(m.body(), static_cast<std::uint16_t>(reason));
  reply(m, info);
}

void IbCm::issue_drep(const Mad& got, const MadInfo& info) {
  Mad m = new_mad(CmAttr::DREP, prm::get<prm::mad_hdr::tid>(got.hdr()));
  set<prm::cm_drep::remote_comm_id>(m.body(), cm_local_comm_id(got));
  set<prm::cm_drep::local_comm_id>(m.body(), cm_remote_comm_id(got));
  reply(m, info);
}

}  // namespace uhca::kernel::cm
