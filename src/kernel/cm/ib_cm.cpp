// SPDX-License-Identifier: MIT
// Identifiers, tables, retries and timewait.
#include "kernel/cm/ib_cm.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"

namespace uhca::kernel::cm {

const char* to_string(CmState s) {
  static constexpr const char* kNames[] = {"IDLE",      "LISTEN",   "REQ_SENT",      "REQ_RCVD",     "MRA_REQ_SENT", "MRA_REQ_RCVD",
                                           "REP_SENT",  "REP_RCVD", "MRA_REP_SENT",  "MRA_REP_RCVD", "ESTABLISHED",  "DREQ_SENT",
                                           "DREQ_RCVD", "TIMEWAIT", "SIDR_REQ_SENT", "SIDR_REQ_RCVD"};
  auto i = static_cast<std::size_t>(s);
  return i < std::size(kNames) ? kNames[i] : "?";
}

const char* to_string(CmAttr a) {
  static constexpr const char* kNames[] = {"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"};
  auto i = static_cast<std::size_t>(a) - static_cast<std::size_t>(CmAttr::REQ);
  return i < std::size(kNames) ? kNames[i] : "?";
}

bool is_cm_mad(const Mad& m) {
  const void* h = m.hdr();
  return prm::get<prm::mad_hdr::base_version>(h) == kMgmtBaseVersion && prm::get<prm::mad_hdr::mgmt_class>(h) == kMgmtClassCm &&
         prm::get<prm::mad_hdr::class_version>(h) == kCmClassVersion && prm::get<prm::mad_hdr::method>(h) == kMgmtMethodSend;
}

Nanos cm_time(unsigned iba_time) {
  return (Nanos{1} << (iba_time > 8 ? iba_time - 8 : 0)) * 1'000'000;
}

std::uint8_t cm_ack_timeout(std::uint8_t ca_ack_delay, std::uint8_t packet_life_time) {
  int t = packet_life_time + 1;
  if (t >= ca_ack_delay) {
    t += ca_ack_delay >= t - 1;
  } else {
    t = ca_ack_delay + (t >= ca_ack_delay - 1);
  }
  return static_cast<std::uint8_t>(std::min(31, t));
}

IbCm::IbCm(CmDevice& device, std::uint32_t id_prefix, std::uint32_t seed)
    : device_(device), id_prefix_(id_prefix << kIdBits), next_id_(seed) {}

IbCm::~IbCm() = default;

void IbCm::set_state(CmId& id, CmState s) {
  if (trace::on() && id.state != s)
    trace::Event("state", "cm")
        .hex("comm_id", id.local_id)
        .hex("remote_comm_id", id.remote_id)
        .str("from", to_string(id.state))
        .str("to", to_string(s));
  id.state = s;
}

CmId& IbCm::new_id() {
  constexpr std::uint32_t mask = (1u << kIdBits) - 1;
  // Counting up: a number comes back only after all others, so late duplicates of old connections find nobody.
  do {
    next_id_ = (next_id_ + 1) & mask;
  } while (ids_.count(id_prefix_ | next_id_) != 0 || (id_prefix_ | next_id_) == 0);
  auto id = std::make_unique<CmId>();
  id->local_id = id_prefix_ | next_id_;
  CmId& ref = *id;
  ids_.emplace(ref.local_id, std::move(id));
  return ref;
}

CmId& IbCm::create_id(CmHandler* handler) {
  CmId& id = new_id();
  id.handler = handler;
  return id;
}

CmId* IbCm::acquire(std::uint32_t local_id, std::uint32_t remote_id) {
  auto it = ids_.find(local_id);
  if (it == ids_.end()) return nullptr;
  CmId* id = it->second.get();
  return id->remote_id == remote_id ? id : nullptr;
}

Result<CmId*> IbCm::insert_listen(CmHandler& handler, std::uint64_t service_id) {
  auto it = listens_.find(service_id);
  if (it != listens_.end()) {
    if (it->second->handler != &handler) return refuse(EINVAL, "cm listen: service id {:#x} has another listener", service_id);
    ++it->second->listen_sharecount;
    return it->second;
  }
  CmId& id = create_id(&handler);
  id.service_id = service_id;
  id.listen_sharecount = 1;
  set_state(id, CmState::LISTEN);
  listens_.emplace(service_id, &id);
  return &id;
}

void IbCm::destroy_id(CmId& id, bool quiet) {
  for (bool again = true; again;) {
    again = false;
    switch (id.state) {
      case CmState::LISTEN:
        if (--id.listen_sharecount > 0) return;
        listens_.erase(id.service_id);
        break;
      case CmState::SIDR_REQ_SENT: cancel_msg(id); break;
      case CmState::SIDR_REQ_RCVD: (void)send_sidr_rep(id, {.status = CmSidrStatus::REJECT}); break;
      case CmState::REQ_SENT:
      case CmState::MRA_REQ_RCVD: {
        cancel_msg(id);
        std::uint8_t guid[8];
        store_be<std::uint64_t>(guid, device_.node_guid());
        (void)send_rej(id, CmRej::TIMEOUT, guid, {});
        break;
      }
      case CmState::REQ_RCVD:
        if (quiet) {
          reset_to_idle(id);
        } else {
          (void)send_rej(id, CmRej::CONSUMER_DEFINED, {}, {});
        }
        break;
      case CmState::REP_SENT:
      case CmState::MRA_REP_RCVD:
        cancel_msg(id);
        (void)send_rej(id, CmRej::CONSUMER_DEFINED, {}, {});
        again = true;
        break;
      case CmState::MRA_REQ_SENT:
      case CmState::REP_RCVD:
      case CmState::MRA_REP_SENT: (void)send_rej(id, CmRej::CONSUMER_DEFINED, {}, {}); break;
      case CmState::ESTABLISHED:
        if (id.qp_type == ib_qp_type::XRC_TGT) break;
        issue_dreq(id);
        enter_timewait(id);
        again = true;
        break;
      case CmState::DREQ_SENT:
        cancel_msg(id);
        enter_timewait(id);
        again = true;
        break;
      case CmState::DREQ_RCVD:
        (void)send_drep(id, {});
        again = true;
        break;
      case CmState::TIMEWAIT:
      case CmState::IDLE: break;
    }
  }
  cancel_msg(id);
  remove_remote(id);
  for (auto it = remote_sidrs_.begin(); it != remote_sidrs_.end();) it = it->second == &id ? remote_sidrs_.erase(it) : std::next(it);
  set_state(id, CmState::IDLE);
  ids_.erase(id.local_id);
}

// ---------------------------------------------------------------- remote tables

void IbCm::remove_remote(CmId& id) {
  if (std::exchange(id.in_remote_id_table, false)) remote_ids_.erase({id.remote_ca_guid, id.remote_id});
  if (std::exchange(id.in_remote_qp_table, false)) remote_qpns_.erase({id.remote_ca_guid, id.remote_qpn});
}

bool IbCm::on_this_host(const CmId& id) {
  return device_.find_gid(id.av.ah.dgid, id.av.ah.sgid_attr.roce_v2).ok();
}

CmId* IbCm::insert_remote_id(CmId& id) {
  auto [it, inserted] = remote_ids_.emplace(RemoteKey{id.remote_ca_guid, id.remote_id}, &id);
  if (!inserted) return it->second;
  id.in_remote_id_table = true;
  if (on_this_host(id)) device_.met(id.remote_id >> kIdBits);
  return nullptr;
}

CmId* IbCm::insert_remote_qpn(CmId& id) {
  auto [it, inserted] = remote_qpns_.emplace(RemoteKey{id.remote_ca_guid, id.remote_qpn}, &id);
  if (!inserted) return it->second;
  id.in_remote_qp_table = true;
  return nullptr;
}

void IbCm::enter_timewait(CmId& id) {
  remove_remote(id);
  set_state(id, CmState::TIMEWAIT);
  timewaits_.emplace(now_ + cm_time(id.av.timeout), Timewait{id.local_id, id.remote_id, id.remote_qpn});
}

void IbCm::reset_to_idle(CmId& id) {
  set_state(id, CmState::IDLE);
  remove_remote(id);
}

// ---------------------------------------------------------------- sending with retries

Status IbCm::post(const Mad& mad, const CmAv& av) {
  ++counters_.sent;
  if (trace::on())
    trace::Event("mad", "tx")
        .str("attr", to_string(cm_attr(mad)))
        .hex("local_comm_id", cm_local_comm_id(mad))
        .hex("remote_comm_id", cm_remote_comm_id(mad))
        .hex("transaction", prm::get<prm::mad_hdr::tid>(mad.hdr()));
  return device_.transport().send(mad, av.ah);
}

Status IbCm::post_with_retries(CmId& id, const Mad& mad) {
  UHCA_CHECK(post(mad, id.av));
  cancel_msg(id);
  id.msg = std::make_unique<Mad>(mad);
  id.retries_left = id.max_cm_retries;
  id.msg_timeout = id.timeout;
  id.msg_deadline = now_ + id.msg_timeout;
  msg_timers_.emplace(id.msg_deadline, id.local_id);
  return success();
}

void IbCm::cancel_msg(CmId& id) {
  if (!id.msg) return;
  msg_timers_.erase({id.msg_deadline, id.local_id});
  id.msg.reset();
}

void IbCm::send_failed(CmId& id) {
  cancel_msg(id);
  CmEvent e;
  switch (id.state) {
    case CmState::REQ_SENT:
    case CmState::MRA_REQ_RCVD:
      reset_to_idle(id);
      e.type = CmEventType::REQ_ERROR;
      break;
    case CmState::REP_SENT:
    case CmState::MRA_REP_RCVD:
      reset_to_idle(id);
      e.type = CmEventType::REP_ERROR;
      break;
    case CmState::DREQ_SENT:
      enter_timewait(id);
      e.type = CmEventType::DREQ_ERROR;
      break;
    case CmState::SIDR_REQ_SENT:
      set_state(id, CmState::IDLE);
      e.type = CmEventType::SIDR_REQ_ERROR;
      break;
    default: return;
  }
  deliver(id, e);
}

void IbCm::run_timers() {
  while (!msg_timers_.empty() && msg_timers_.begin()->first <= now_) {
    std::uint32_t local_id = msg_timers_.begin()->second;
    auto it = ids_.find(local_id);
    if (it == ids_.end() || !it->second->msg) {
      msg_timers_.erase(msg_timers_.begin());
      continue;
    }
    CmId& id = *it->second;
    if (id.retries_left == 0) {
      send_failed(id);
      continue;
    }
    --id.retries_left;
    ++counters_.retried;
    msg_timers_.erase(msg_timers_.begin());
    id.msg_deadline = now_ + id.msg_timeout;
    msg_timers_.emplace(id.msg_deadline, id.local_id);
    if (Status s = post(*id.msg, id.av); !s) log::warn("cm: retry of {} cannot be sent ({})", to_string(cm_attr(*id.msg)), s.code());
  }
  while (!timewaits_.empty() && timewaits_.begin()->first <= now_) {
    Timewait t = timewaits_.begin()->second;
    timewaits_.erase(timewaits_.begin());
    CmId* id = acquire(t.local_id, t.remote_id);
    // The id may be gone, or belong to a new connection.
    if (!id || id->state != CmState::TIMEWAIT || id->remote_qpn != t.remote_qpn) continue;
    set_state(*id, CmState::IDLE);
    CmEvent e;
    e.type = CmEventType::TIMEWAIT_EXIT;
    deliver(*id, e);
  }
}

Nanos IbCm::next_deadline() const {
  Nanos t = kNever;
  if (!msg_timers_.empty()) t = std::min(t, msg_timers_.begin()->first);
  if (!timewaits_.empty()) t = std::min(t, timewaits_.begin()->first);
  return t;
}

void IbCm::deliver(CmId& id, const CmEvent& event) {
  if (!id.handler) return;
  if (Status s = id.handler->cm_event(id, event); !s) destroy_id(id, s.code() == ENOMEM);
}

// ---------------------------------------------------------------- address vectors

Result<CmAv> IbCm::av_by_path(const PathRec& path, const ib_gid_attr& sgid_attr) {
  CmAv av;
  av.ah.sgid_attr = sgid_attr.valid ? sgid_attr : UHCA_TRY(device_.find_gid(path.sgid, path.roce_v2));
  av.pkey_index = UHCA_TRY(device_.find_pkey(path.pkey));
  av.ah.is_global = true;
  av.ah.dgid = path.dgid;
  av.ah.flow_label = path.flow_label;
  av.ah.sgid_index = static_cast<std::uint8_t>(av.ah.sgid_attr.index);
  av.ah.hop_limit = path.hop_limit;
  av.ah.traffic_class = path.traffic_class;
  av.ah.sl = path.sl;
  av.ah.port_num = device_.port_num();
  av.timeout = static_cast<std::uint8_t>(path.packet_life_time + 1);
  return av;
}

Result<CmAv> IbCm::av_for_response(const MadInfo& info) {
  CmAv av;
  av.ah.sgid_attr = UHCA_TRY(device_.find_gid(info.dgid, info.roce_v2));
  av.ah.is_global = true;
  av.ah.dgid = info.sgid;
  av.ah.flow_label = info.flow_label;
  av.ah.sgid_index = static_cast<std::uint8_t>(av.ah.sgid_attr.index);
  av.ah.hop_limit = 0xff;  // Linux: ib_init_ah_attr_from_wc
  av.ah.traffic_class = info.traffic_class;
  av.ah.sl = info.sl;
  av.ah.port_num = device_.port_num();
  return av;
}

}  // namespace uhca::kernel::cm
