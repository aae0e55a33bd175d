// SPDX-License-Identifier: MIT
#include "device/hca/dc.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/address_vector.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/qp_error.h"
#include "device/hca/qp_states.h"
#include "device/hca/rc_packet.h"
#include "device/hca/rc_requester.h"
#include "device/hca/rc_responder.h"
#include "prm/event.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

constexpr std::size_t kMaxSessions = 4096;         // per target
constexpr Nanos kIdleSession = 1'000'000'000;      // may be forgotten, or be taken over by any other number
constexpr std::uint8_t kEventKeyViolation = 0x1d;  // Linux device.h: MLX5_EVENT_TYPE_DCT_KEY_VIOLATION

// Where answers to a packet go.
wire::NetHeader answer_path(const wire::NetHeader& n) {
  wire::NetHeader r = n;
  std::swap(r.dmac, r.smac);
  std::swap(r.dgid, r.sgid);
  r.hop_limit = 64;
  return r;
}

// The initiator learns at once that there is no way in (case E11: status 9 with vendor_err 0x8a at its side).
void reject(Lane& lane, const wire::Packet& p) {
  wire::Packet nak;
  nak.net = answer_path(p.net);
  nak.bth.opcode = wire::make_opcode(wire::Service::kDC, wire::Op::kAcknowledge);
  nak.bth.dest_qp = p.dc_eth.src_qp;
  nak.bth.psn = p.bth.psn;
  nak.aeth = {wire::kAethNak | static_cast<std::uint8_t>(wire::NakCode::kInvalidRequest), 0};
  begin_headers(lane, nak, 0);
  finish_packet(lane, p.bth.dest_qp, nak);  // lost or no room: the initiator asks again
}

void key_violation(Lane& lane, Dct& dct, const wire::Packet& p) {
  ++dct.key_violations;
  static_cast<void>(refuse(EACCES, "DCT {:#x}: wrong access key {:#x} from QPN {:#x}", dct.dctn, p.dc_eth.access_key, p.dc_eth.src_qp));
  std::uint8_t d[prm::dct_events::kBytes] = {};
  prm::set<prm::dct_events::dct_number>(d, dct.dctn);
  async_event(lane, kEventKeyViolation, 0, d, sizeof d);
}

void erase_session(Lane& lane, Dct& dct, std::map<DcInitiator, std::unique_ptr<Qp>>::iterator it) {
  lane.forget(*it->second);
  dct.sessions.erase(it);
}

// False: full of initiators that are busy.
bool make_room(Lane& lane, Dct& dct) {
  if (dct.sessions.size() < kMaxSessions) return true;
  auto idle = std::find_if(dct.sessions.begin(), dct.sessions.end(),
                           [&](const auto& s) { return lane.now - s.second->dc_last_use > kIdleSession; });
  if (idle == dct.sessions.end()) return false;
  erase_session(lane, dct, idle);
  return true;
}

std::unique_ptr<Qp> open_session(Lane& lane, Dct& dct, const wire::Packet& p) {
  const std::uint8_t* c = dct.context.data();
  auto qp = std::make_unique<Qp>();
  qp->qpn = dct.dctn;
  qp->type = QpType::kDctSession;
  qp->pd = dct.pd;
  qp->user_index = prm::get<prm::dctc::user_index>(c);
  qp->recv_cq = dct.cq;
  qp->srq = dct.srq;
  qp->srqn = dct.srq->srqn;
  qp->counter_set = static_cast<std::uint8_t>(prm::get<prm::dctc::counter_set_id>(c));
  qp->has_rq = qp->has_sq = false;
  qp->rlky = prm::get<prm::dctc::rlky>(c);
  qp->remote_qpn = p.dc_eth.src_qp;
  qp->mtu_bytes = 128u << prm::get<prm::dctc::mtu>(c);
  qp->rre = prm::get<prm::dctc::rre>(c);
  qp->rwe = prm::get<prm::dctc::rwe>(c);
  qp->rae = prm::get<prm::dctc::rae>(c);
  qp->min_rnr_nak = prm::get<prm::dctc::min_rnr_nak>(c);
  qp->max_dest_rd_atomic = 16;
  qp->next_rcv_psn = p.dc_eth.start_psn;
  qp->path = answer_path(p.net);
  qp->path.traffic_class = static_cast<std::uint8_t>(prm::get<prm::dctc::tclass>(c));
  if (unsigned hops = prm::get<prm::dctc::hop_limit>(c); hops != 0) qp->path.hop_limit = static_cast<std::uint8_t>(hops);
  qp->dc_session = p.dc_eth.session;
  qp_created(lane, *qp);
  qp->state = QpState::kRtr;
  qp_state_changed(lane, *qp, QpState::kInit);
  qp->transport->resp.comm_est = true;  // nobody is told about a session
  if (trace::on()) {
    trace::Event("state", "dc_session").hex("dctn", dct.dctn).hex("initiator", p.dc_eth.src_qp).unum("session", p.dc_eth.session);
  }
  return qp;
}

// The session that the packet belongs to; nullptr: it is late, or there is no room.
Qp* session_of(Lane& lane, Dct& dct, const wire::Packet& p) {
  DcInitiator who{p.net.sgid, p.dc_eth.src_qp};
  auto it = dct.sessions.find(who);
  if (it != dct.sessions.end()) {
    Qp& qp = *it->second;
    if (qp.dc_session == p.dc_eth.session) return &qp;
    bool newer = static_cast<std::int16_t>(p.dc_eth.session - qp.dc_session) > 0;
    if (!newer && lane.now - qp.dc_last_use <= kIdleSession) return nullptr;
    erase_session(lane, dct, it);
  }
  if (!make_room(lane, dct)) return nullptr;
  return dct.sessions.emplace(who, open_session(lane, dct, p)).first->second.get();
}

}  // namespace

DcTarget turn_to_target(Lane& lane, Qp& dci, const SendMessage& m, const SendWqe& w) {
  Requester& r = dci.transport->req;
  const std::uint8_t* av = av_of(w);
  // Nothing is out; local operations in front of the message are of no target.
  bool idle = wire::psn_diff(m.first_psn, r.una_psn) <= 0;
  std::uint32_t dctn = prm::get<prm::wqe_av::dqp_dct>(av);
  std::uint64_t key = prm::get<prm::wqe_av::qkey_or_dc_key>(av);
  wire::NetHeader path;
  if (!resolve_path(lane, dci, w, path)) return DcTarget::kInvalid;
  bool same =
      m.stream == r.stream && dctn == dci.remote_qpn && key == dci.dc_key && path.dgid == dci.path.dgid && path.sgid == dci.path.sgid;
  bool again = wire::psn_diff(r.max_psn, m.first_psn) > 0;  // after a loss: the session goes on
  if (same && (!idle || again)) return DcTarget::kReady;
  if (!idle) return DcTarget::kWait;
  dci.path = path;
  dci.remote_qpn = dctn;
  dci.dc_key = key;
  r.stream = m.stream;
  dci.dc_start_psn = m.first_psn;
  ++dci.dc_session;
  return DcTarget::kReady;
}

void receive_dc_request(Lane& lane, const wire::Packet& p) {
  if ((p.bth.pkey & 0x7fff) != 0x7fff || !own_address(lane, p.net.dgid)) {
    ++lane.counters.rx_wrong_path;
    static_cast<void>(refuse(EADDRNOTAVAIL, "DC request for DCT {:#x} dropped: its address is none of this port", p.bth.dest_qp));
    return;
  }
  Dct* dct = lane.objects.dct(p.bth.dest_qp);
  if (dct == nullptr || dct->drained) {
    ++lane.counters.rx_no_qp;
    static_cast<void>(refuse(ENOENT, "DC request from QPN {:#x} for DCT {:#x}: no such DCT", p.dc_eth.src_qp, p.bth.dest_qp));
    reject(lane, p);
    return;
  }
  if (p.dc_eth.access_key != prm::get<prm::dctc::dc_access_key>(dct->context.data())) {
    key_violation(lane, *dct, p);
    reject(lane, p);
    return;
  }
  Qp* qp = session_of(lane, *dct, p);
  if (qp == nullptr || !takes_frames(qp->state)) return;
  qp->dc_last_use = lane.now;
  note_mark(lane, *qp, p);
  respond(lane, *qp, p, nullptr);
}

void end_sessions(Lane& lane, Dct& dct) {
  while (!dct.sessions.empty()) erase_session(lane, dct, dct.sessions.begin());
}

bool has_streams(const Qp& dci) {
  return prm::get<prm::qpc::log_num_dci_stream_channels>(dci.qpc.data()) != 0;
}

bool stream_failed(const Qp& qp, std::uint16_t stream) {
  const auto& failed = qp.transport->req.failed_streams;
  return std::find(failed.begin(), failed.end(), stream) != failed.end();
}

bool fail_stream(Lane& lane, Qp& dci, std::uint16_t stream, const WcError& error) {
  // A WQE that cannot be understood names no stream.
  if (dci.type != QpType::kDci || !has_streams(dci) || error.syndrome == kLocalQpOp.syndrome) return false;
  Requester& r = dci.transport->req;
  if (!stream_failed(dci, stream)) {
    r.failed_streams.push_back(stream);
    if (r.failed_streams.size() >= std::size_t{1} << prm::get<prm::qpc::log_num_dci_errored_streams>(dci.qpc.data())) return false;
    if (trace::on()) trace::Event("state", "dci_stream").hex("qpn", dci.qpn).unum("stream", stream).str("to", "ERR");
  }
  // Whatever was read behind it is read again: requests of this stream to be flushed, others to go out in a session of their own.
  if (static_cast<std::int16_t>(r.fetched - r.again_until) > 0) r.again_until = r.fetched;
  r.fetched = r.cursor = r.done;
  r.packet = 0;
  r.reads = 0;
  r.fatal = r.rnr_wait = false;
  r.una_psn = r.max_psn = r.next_psn;
  note_progress(dci);
  lane.timers.stop(dci);
  lane.schedule(dci);
  return true;
}

void reset_stream(Qp& dci, std::uint16_t stream) {
  std::erase(dci.transport->req.failed_streams, stream);
}

}  // namespace uhca::hca
