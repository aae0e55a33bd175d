// SPDX-License-Identifier: MIT
// Connecting and disconnecting, on both sides.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernel/cm/rdma_cm.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::uint8_t kCmResponseTimeout = 20, kMaxCmRetries = 15;  // Linux: CMA_CM_RESPONSE_TIMEOUT, CMA_MAX_CM_RETRIES
constexpr std::uint32_t kUdpQkey = 0x01234567;                       // RDMA_UDP_QKEY

// The header that rdma_cm puts in front of the private data of requests (IBTA annex A11): who calls whom.
struct CmaHeader {
  std::uint8_t cma_version = 0;
  std::uint8_t ip_version = 0;  // upper four bits
  std::uint8_t port[2] = {};
  ib_gid src{}, dst{};  // an IPv4 address stands in the last four bytes, the rest is zero
};
static_assert(sizeof(CmaHeader) == 36);

ib_gid cma_ip(const Sockaddr& a) {
  ib_gid g = a.gid();
  if (a.family() == AF_INET) g[10] = g[11] = 0;
  return g;
}

Sockaddr sockaddr_of_cma_ip(int version, const ib_gid& ip, std::uint16_t port) {
  Sockaddr a = Sockaddr::any(version == 4 ? AF_INET : AF_INET6);
  if (version == 4) {
    std::memcpy(&a.in.sin_addr, &ip[12], 4);
  } else {
    std::memcpy(&a.in6.sin6_addr, ip.data(), 16);
  }
  a.set_port(port);
  return a;
}

// false: not a header of this version.
bool parse_header(std::span<const std::uint8_t> data, CmaHeader& h) {
  if (data.size() < sizeof h) return false;
  std::memcpy(&h, data.data(), sizeof h);
  return h.cma_version == 0 && (h.ip_version >> 4 == 4 || h.ip_version >> 4 == 6);
}

}  // namespace

Result<std::vector<std::uint8_t>> RdmaCm::with_header(const RdmaId& id, std::span<const std::uint8_t> data, std::size_t most) {
  std::vector<std::uint8_t> all;
  if (id.src.family() != kAfIb) {
    CmaHeader h;
    h.ip_version = id.src.family() == AF_INET ? 4 << 4 : 6 << 4;
    store_be<std::uint16_t>(h.port, id.src.port());
    h.src = cma_ip(id.src);
    h.dst = cma_ip(id.dst);
    all.resize(sizeof h);
    std::memcpy(all.data(), &h, sizeof h);
  }
  all.insert(all.end(), data.begin(), data.end());
  if (all.size() > most)
    return refuse(EINVAL, "rdma_cm: {} bytes of private data; a request carries {} beside the addresses", data.size(),
                  most - (all.size() - data.size()));
  return all;
}

// ---------------------------------------------------------------- active side

Status RdmaCm::connect(RdmaId& id, const RdmaConnParam& param, const Ece& ece) {
  id.ece = ece;
  if (id.state != RdmaState::ROUTE_RESOLVED) return refuse(EINVAL, "rdma_cm: connect in state {}", to_string(id.state));
  id.qp_num = param.qp_num;
  id.srq = param.srq;
  id.state = RdmaState::CONNECT;
  Status s = id.qp_type == ib_qp_type::UD ? connect_udp(id, param) : connect_ib(id, param);
  if (!s) id.state = RdmaState::ROUTE_RESOLVED;
  return s;
}

Status RdmaCm::connect_ib(RdmaId& id, const RdmaConnParam& param) {
  auto data = UHCA_TRY(with_header(id, param.private_data, kReqPrivateData));
  CmReqParam req;
  req.path = *id.path;
  req.sgid_attr = id.sgid_attr;
  req.service_id = rdma_service_id(id.ps, id.dst);
  req.qp_num = id.qp_num;
  req.qp_type = id.qp_type;
  req.starting_psn = id.seq_num;
  req.private_data = data;
  req.responder_resources = param.responder_resources;
  req.initiator_depth = param.initiator_depth;
  req.flow_control = param.flow_control;
  req.retry_count = std::min<std::uint8_t>(7, param.retry_count);
  req.rnr_retry_count = std::min<std::uint8_t>(7, param.rnr_retry_count);
  req.remote_cm_response_timeout = kCmResponseTimeout;
  req.local_cm_response_timeout = kCmResponseTimeout;
  req.max_cm_retries = kMaxCmRetries;
  req.srq = id.srq ? 1 : 0;
  req.ece = id.ece;
  CmId& cm_id = cm_.create_id(&id);
  if (Status s = cm_.send_req(cm_id, req); !s) {
    cm_.destroy_id(cm_id);
    return s.error();
  }
  id.cm_id = &cm_id;
  return success();
}

Status RdmaCm::connect_udp(RdmaId& id, const RdmaConnParam& param) {
  auto data = UHCA_TRY(with_header(id, param.private_data, kSidrReqPrivateData));
  CmSidrReqParam req;
  req.path = *id.path;
  req.sgid_attr = id.sgid_attr;
  req.service_id = rdma_service_id(id.ps, id.dst);
  req.timeout = cm_time(kCmResponseTimeout);
  req.max_cm_retries = kMaxCmRetries;
  req.private_data = data;
  CmId& cm_id = cm_.create_id(&id);
  if (Status s = cm_.send_sidr_req(cm_id, req); !s) {
    cm_.destroy_id(cm_id);
    return s.error();
  }
  id.cm_id = &cm_id;
  return success();
}

void RdmaCm::set_default_qkey(RdmaId& id) {
  if (id.ps == kPsUdp || id.ps == kPsIb) id.qkey = kUdpQkey;
}

Status RdmaCm::set_qkey(RdmaId& id, std::uint32_t qkey) {
  if (!qkey || (id.qkey && id.qkey != qkey)) return refuse(EINVAL, "rdma_cm: Q_Key {:#x} instead of {:#x}", qkey, id.qkey);
  id.qkey = qkey;
  return success();
}

Status RdmaCm::rep_recv(RdmaId& id) {
  if (!id.cm_id) return refuse(EINVAL, "rdma_cm: accept of a response that did not come");
  Status s = cm_.send_rtu(*id.cm_id, {});
  if (!s) (void)cm_.send_rej(*id.cm_id, CmRej::CONSUMER_DEFINED, {}, {});
  return s;
}

// ---------------------------------------------------------------- events of ib_cm

Status RdmaId::cm_event(CmId& id, const CmEvent& event) {
  (void)id;
  bool sidr = event.type == CmEventType::SIDR_REQ_ERROR || event.type == CmEventType::SIDR_REP_RECEIVED;
  return sidr ? cma.sidr_rep_event(*this, event) : cma.connection_event(*this, event);
}

// Linux: cma_ib_handler.
Status RdmaCm::connection_event(RdmaId& id, const CmEvent& ib) {
  RdmaState expected = ib.type == CmEventType::TIMEWAIT_EXIT ? RdmaState::DISCONNECT : RdmaState::CONNECT;
  if (id.state != expected) return success();
  RdmaEvent e;
  switch (ib.type) {
    case CmEventType::REQ_ERROR:
    case CmEventType::REP_ERROR:
      e.type = RdmaEventType::UNREACHABLE;
      e.status = -ETIMEDOUT;
      break;
    case CmEventType::REP_RECEIVED:
      if (Status s = cm_.prepare_mra(*id.cm_id); !s) return s;
      e.type = RdmaEventType::CONNECT_RESPONSE;
      e.conn.private_data = ib.private_data;
      e.conn.responder_resources = ib.responder_resources;
      e.conn.initiator_depth = ib.initiator_depth;
      e.conn.flow_control = ib.flow_control;
      e.conn.rnr_retry_count = ib.rnr_retry_count;
      e.conn.srq = ib.srq;
      e.conn.qp_num = ib.remote_qpn;
      e.ece = ib.ece;
      break;
    case CmEventType::RTU_RECEIVED:
    case CmEventType::USER_ESTABLISHED: e.type = RdmaEventType::ESTABLISHED; break;
    case CmEventType::DREQ_ERROR: e.status = -ETIMEDOUT; [[fallthrough]];
    case CmEventType::DREQ_RECEIVED:
    case CmEventType::DREP_RECEIVED:
      id.state = RdmaState::DISCONNECT;
      e.type = RdmaEventType::DISCONNECTED;
      break;
    case CmEventType::TIMEWAIT_EXIT: e.type = RdmaEventType::TIMEWAIT_EXIT; break;
    case CmEventType::REJ_RECEIVED:
      e.type = RdmaEventType::REJECTED;
      e.status = ib.rej_reason;
      e.conn.private_data = ib.private_data;
      break;
    default: return success();
  }
  Status s = deliver(id, e);
  if (!s) {
    id.cm_id = nullptr;  // ib_cm destroys it
    destroy_id(id);
  }
  return s;
}

// Linux: cma_sidr_rep_handler.
Status RdmaCm::sidr_rep_event(RdmaId& id, const CmEvent& ib) {
  if (id.state != RdmaState::CONNECT) return success();
  RdmaEvent e;
  if (ib.type == CmEventType::SIDR_REQ_ERROR) {
    e.type = RdmaEventType::UNREACHABLE;
    e.status = -ETIMEDOUT;
  } else {
    e.ud.private_data = ib.private_data;
    if (ib.sidr_status != 0) {
      e.type = RdmaEventType::UNREACHABLE;
      e.status = ib.sidr_status;
    } else if (Status s = set_qkey(id, ib.qkey); !s) {
      e.type = RdmaEventType::ADDR_ERROR;
      e.status = -s.code();
    } else {
      e.type = RdmaEventType::ESTABLISHED;
      e.ud.ah_attr = id.cm_id->av.ah;
      e.ud.qp_num = ib.remote_qpn;
      e.ud.qkey = ib.qkey;
    }
  }
  Status s = deliver(id, e);
  if (!s) {
    id.cm_id = nullptr;
    destroy_id(id);
  }
  return s;
}

// ---------------------------------------------------------------- passive side

// The listening id that the request is for: by port, then by the address that the caller named. Linux: cma_find_listener.
RdmaId* RdmaCm::find_listener(const CmEvent& ib) {
  CmaHeader h;
  bool ip = parse_header(ib.private_data, h);
  int version = h.ip_version >> 4;
  for (RdmaId* l : listening_) {
    if (rdma_service_id(l->ps, l->src) != ib.service_id) continue;
    if (l->src.family() == kAfIb) return l;
    if (!ip) continue;
    bool any = l->src.is_any();
    if (any && !l->afonly) return l;
    if (version != (l->src.family() == AF_INET ? 4 : 6)) continue;
    if (any || cma_ip(l->src) == h.dst) return l;
  }
  return nullptr;
}

// REQ_RECEIVED and SIDR_REQ_RECEIVED. Linux: cma_ib_req_handler.
Status RdmaCm::request(CmId& cm_id, const CmEvent& ib) {
  if (removed_) return refuse(ENODEV, "rdma_cm: a request for service id {:#x} after the device was removed", ib.service_id);
  RdmaId* listener = find_listener(ib);
  if (!listener) return refuse(EINVAL, "rdma_cm: request for service id {:#x} names an address on which nobody listens", ib.service_id);
  bool sidr = ib.type == CmEventType::SIDR_REQ_RECEIVED;
  ib_qp_type type = sidr ? ib_qp_type::UD : ib.qp_type;
  if (listener->qp_type != type) {
    return refuse(EINVAL, "rdma_cm: request of a QP of type {}; the listener at {} has type {}", static_cast<int>(type),
                  listener->src.text(), static_cast<int>(listener->qp_type));
  }
  RdmaId& id = create_id(*listener->handler, listener->ps, type);
  CmaHeader h;
  std::size_t offset = 0;
  auto port = static_cast<std::uint16_t>(ib.service_id);
  if (listener->src.family() == kAfIb) {
    id.src = listener->src;
    std::memcpy(id.src.ib.sib_addr, ib.path.sgid.data(), 16);
    id.dst = Sockaddr::any(kAfIb);
    std::memcpy(id.dst.ib.sib_addr, ib.path.dgid.data(), 16);
  } else if (parse_header(ib.private_data, h)) {
    int version = h.ip_version >> 4;
    id.src = sockaddr_of_cma_ip(version, h.dst, port);
    id.dst = sockaddr_of_cma_ip(version, h.src, load_be<std::uint16_t>(h.port));
    offset = sizeof h;
  } else {
    destroy_id(id);
    return refuse(EINVAL, "rdma_cm: request for service id {:#x} without a header of addresses", ib.service_id);
  }
  id.sgid_attr = ib.sgid_attr;
  id.bound_dev_if = static_cast<int>(ib.sgid_attr.ifindex);
  if (id.dst.is_link_local()) id.dst.in6.sin6_scope_id = ib.sgid_attr.ifindex;
  if (id.src.is_link_local()) id.src.in6.sin6_scope_id = ib.sgid_attr.ifindex;
  id.port_num = env_.device().port_num();
  id.bound = true;
  id.tos = listener->tos;
  id.state = RdmaState::CONNECT;

  RdmaEvent e;
  e.type = RdmaEventType::CONNECT_REQUEST;
  e.listen_id = listener;
  auto data = ib.private_data.subspan(offset);
  if (sidr) {
    e.ud.private_data = data;
  } else {
    id.path = ib.path;
    e.conn.private_data = data;
    e.conn.responder_resources = ib.responder_resources;
    e.conn.initiator_depth = ib.initiator_depth;
    e.conn.flow_control = ib.flow_control;
    e.conn.retry_count = ib.retry_count;
    e.conn.rnr_retry_count = ib.rnr_retry_count;
    e.conn.srq = ib.srq;
    e.conn.qp_num = ib.remote_qpn;
    e.ece = ib.ece;
  }
  id.cm_id = &cm_id;
  cm_id.handler = &id;
  if (Status s = deliver(id, e); !s) {
    id.cm_id = nullptr;
    cm_id.handler = nullptr;
    destroy_id(id);
    return s;
  }
  if (!sidr && id.state == RdmaState::CONNECT) (void)cm_.prepare_mra(cm_id);
  return success();
}

Status RdmaCm::accept(RdmaId& id, const RdmaConnParam* param, const Ece& ece) {
  id.ece = ece;
  if (id.state != RdmaState::CONNECT) return refuse(EINVAL, "rdma_cm: accept in state {}", to_string(id.state));
  if (param) {
    id.qp_num = param->qp_num;
    id.srq = param->srq;
  }
  Status s = [&]() -> Status {
    if (!id.cm_id) return refuse(EINVAL, "rdma_cm: accept of an id without a request");
    if (id.qp_type == ib_qp_type::UD)
      return send_sidr_rep(id, CmSidrStatus::SUCCESS, param ? param->qkey : 0,
                           param ? param->private_data : std::span<const std::uint8_t>{});
    return param ? accept_ib(id, *param) : rep_recv(id);
  }();
  if (!s) (void)reject(id, {}, CmRej::CONSUMER_DEFINED);
  return s;
}

Status RdmaCm::accept_ib(RdmaId& id, const RdmaConnParam& param) {
  CmRepParam rep;
  rep.qp_num = id.qp_num;
  rep.starting_psn = id.seq_num;
  rep.private_data = param.private_data;
  rep.responder_resources = param.responder_resources;
  rep.initiator_depth = param.initiator_depth;
  rep.flow_control = param.flow_control;
  rep.rnr_retry_count = std::min<std::uint8_t>(7, param.rnr_retry_count);
  rep.srq = id.srq ? 1 : 0;
  rep.ece = id.ece;
  return cm_.send_rep(*id.cm_id, rep);
}

Status RdmaCm::send_sidr_rep(RdmaId& id, CmSidrStatus status, std::uint32_t qkey, std::span<const std::uint8_t> private_data) {
  CmSidrRepParam rep;
  rep.status = status;
  if (status == CmSidrStatus::SUCCESS) {
    if (qkey) {
      UHCA_CHECK(set_qkey(id, qkey));
    } else {
      set_default_qkey(id);
    }
    rep.qp_num = id.qp_num;
    rep.qkey = id.qkey;
    rep.ece = id.ece;
  }
  rep.private_data = private_data;
  return cm_.send_sidr_rep(*id.cm_id, rep);
}

// ---------------------------------------------------------------- either side

Status RdmaCm::reject(RdmaId& id, std::span<const std::uint8_t> private_data, CmRej reason) {
  if (!id.cm_id) return refuse(EINVAL, "rdma_cm: reject of an id without a request");
  if (id.qp_type == ib_qp_type::UD) return send_sidr_rep(id, CmSidrStatus::REJECT, 0, private_data);
  return cm_.send_rej(*id.cm_id, reason, {}, private_data);
}

Status RdmaCm::disconnect(RdmaId& id) {
  if (!id.cm_id) return refuse(EINVAL, "rdma_cm: disconnect of an id that never connected");
  // Begins or answers; in any other state there is nothing to say, which is no error.
  if (!cm_.send_dreq(*id.cm_id, {})) (void)cm_.send_drep(*id.cm_id, {});
  return success();
}

Status RdmaCm::notify(RdmaId& id, std::uint32_t ib_event) {
  if (!id.cm_id) return refuse(EINVAL, "rdma_cm: notify of an id that never connected");
  return cm_.notify(*id.cm_id, ib_event);
}

}  // namespace uhca::kernel::cm
