// SPDX-License-Identifier: MIT
// Identifiers, options, listening.
#include "kernel/cm/rdma_cm.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"

namespace uhca::kernel::cm {

const char* to_string(RdmaState s) {
  static constexpr const char* kNames[] = {"IDLE",    "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_QUERY", "ROUTE_RESOLVED",
                                           "CONNECT", "DISCONNECT", "ADDR_BOUND",    "LISTEN"};
  auto i = static_cast<std::size_t>(s);
  return i < std::size(kNames) ? kNames[i] : "?";
}

const char* to_string(RdmaEventType t) {
  static constexpr const char* kNames[] = {"ADDR_RESOLVED",     "ADDR_ERROR",       "ROUTE_RESOLVED", "ROUTE_ERROR",
                                           "CONNECT_REQUEST",   "CONNECT_RESPONSE", "CONNECT_ERROR",  "UNREACHABLE",
                                           "REJECTED",          "ESTABLISHED",      "DISCONNECTED",   "DEVICE_REMOVAL",
                                           "MULTICAST_JOIN",    "MULTICAST_ERROR",  "ADDR_CHANGE",    "TIMEWAIT_EXIT",
                                           "ADDRINFO_RESOLVED", "ADDRINFO_ERROR",   "USER",           "INTERNAL"};
  auto i = static_cast<std::size_t>(t);
  return i < std::size(kNames) ? kNames[i] : "?";
}

std::uint64_t rdma_service_id(std::uint16_t ps, const Sockaddr& addr) {
  if (addr.family() == kAfIb) return byteswap(addr.ib.sib_sid);
  return std::uint64_t{ps} << 16 | addr.port();
}

RdmaCm::RdmaCm(RdmaCmEnvironment& env, IbCm& cm, PortSpace& ports) : env_(env), cm_(cm), ports_(ports) {}

RdmaCm::~RdmaCm() {
  while (!ids_.empty()) destroy_id(*ids_.begin()->first);
}

RdmaId& RdmaCm::create_id(RdmaEventHandler& handler, std::uint16_t ps, ib_qp_type type) {
  auto id = std::make_unique<RdmaId>(*this);
  id->handler = &handler;
  id->ps = ps;
  id->qp_type = type;
  id->seq_num = env_.random() & 0xffffff;
  RdmaId& ref = *id;
  ids_.emplace(&ref, std::move(id));
  return ref;
}

void RdmaCm::destroy_id(RdmaId& id) {
  cancel_query(id);
  if (id.state == RdmaState::LISTEN) listening_.remove(&id);
  if (id.cm_id) cm_.destroy_id(*std::exchange(id.cm_id, nullptr));
  id.multicasts.clear();
  ports_.unbind(id.port);
  ids_.erase(&id);
}

Status RdmaCm::deliver(RdmaId& id, const RdmaEvent& event) {
  if (trace::on())
    trace::Event("cm", to_string(event.type)).str("src", id.src.text()).str("dst", id.dst.text()).num("status", event.status);
  return id.handler->rdma_event(id, event);
}

void RdmaCm::remove_device() {
  removed_ = true;
  for (;;) {
    auto it = std::find_if(ids_.begin(), ids_.end(), [](auto& x) { return x.second->bound; });
    if (it == ids_.end()) return;
    RdmaId& id = *it->second;
    id.bound = false;
    cancel_query(id);
    RdmaEvent e;
    e.type = RdmaEventType::DEVICE_REMOVAL;
    deliver_or_destroy(id, e);
  }
}

void RdmaCm::deliver_or_destroy(RdmaId& id, const RdmaEvent& event) {
  if (!deliver(id, event)) destroy_id(id);
}

Status RdmaCm::listen(RdmaId& id) {
  if (id.state != RdmaState::ADDR_BOUND) {
    // Linux binds an id that is not bound to 0.0.0.0.
    UHCA_CHECK(bind_addr_dst(id, Sockaddr::any(AF_INET), id.dst));
  }
  UHCA_CHECK(ports_.listen(id.port));
  id.reuseaddr = false;
  auto cm_id = cm_.insert_listen(listener_, rdma_service_id(id.ps, id.src));
  if (!cm_id) return cm_id.error();
  id.cm_id = *cm_id;
  id.state = RdmaState::LISTEN;
  listening_.push_back(&id);
  return success();
}

Status RdmaCm::set_reuseaddr(RdmaId& id, bool on) {
  if (!((on && id.state != RdmaState::LISTEN) || id.state == RdmaState::IDLE))
    return refuse(EINVAL, "rdma_cm: REUSEADDR in state {}", to_string(id.state));
  id.reuseaddr = id.port.reuseaddr = on;
  return success();
}

Status RdmaCm::set_afonly(RdmaId& id, bool on) {
  if (id.state != RdmaState::IDLE && id.state != RdmaState::ADDR_BOUND)
    return refuse(EINVAL, "rdma_cm: AFONLY in state {}", to_string(id.state));
  id.afonly_set = true;
  id.afonly = on;
  return success();
}

Status RdmaCm::set_ack_timeout(RdmaId& id, std::uint8_t timeout) {
  if (id.qp_type != ib_qp_type::RC && id.qp_type != ib_qp_type::XRC_INI)
    return refuse(EINVAL, "rdma_cm: ACK_TIMEOUT needs an RC or XRC_INI QP, this id has type {}", static_cast<int>(id.qp_type));
  id.ack_timeout = timeout;
  id.ack_timeout_set = true;
  return success();
}

Status RdmaCm::init_qp_attr(RdmaId& id, ib_qp_attr& attr, std::uint32_t& mask) {
  if (!id.cm_id || id.qp_type == ib_qp_type::UD) {
    attr.pkey_index = UHCA_TRY(env_.device().find_pkey(0xffff));
    attr.port_num = id.port_num;
    mask = IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT;
    if (id.qp_type == ib_qp_type::UD) {
      set_default_qkey(id);
      attr.qkey = id.qkey;
      mask |= IB_QP_QKEY;
    } else {
      attr.qp_access_flags = 0;
      mask |= IB_QP_ACCESS_FLAGS;
    }
  } else {
    UHCA_CHECK(cm_.init_qp_attr(*id.cm_id, attr, mask));
  }
  if (attr.qp_state == ib_qp_state::RTR) attr.rq_psn = id.seq_num;
  if ((mask & IB_QP_TIMEOUT) && id.ack_timeout_set) attr.timeout = id.ack_timeout;
  return success();
}

}  // namespace uhca::kernel::cm
