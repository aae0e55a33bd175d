// SPDX-License-Identifier: MIT
// The QP attributes of a connection, by state. Linux: ib_cm_init_qp_attr.
#include "base/log.h"
#include "kernel/cm/ib_cm.h"

namespace uhca::kernel::cm {
namespace {

constexpr std::uint32_t kRemoteWrite = 2, kRemoteRead = 4, kRemoteAtomic = 8;  // IB_ACCESS_*

bool request_or_later(CmState s) {
  switch (s) {
    case CmState::REQ_RCVD:
    case CmState::MRA_REQ_SENT:
    case CmState::REP_RCVD:
    case CmState::MRA_REP_SENT:
    case CmState::REP_SENT:
    case CmState::MRA_REP_RCVD:
    case CmState::ESTABLISHED: return true;
    default: return false;
  }
}

}  // namespace

Status IbCm::init_qp_attr(const CmId& id, ib_qp_attr& attr, std::uint32_t& mask) {
  bool ok = request_or_later(id.state);
  switch (attr.qp_state) {
    case ib_qp_state::INIT:
      if (!ok && id.state != CmState::REQ_SENT && id.state != CmState::MRA_REQ_RCVD) break;
      mask = IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT;
      attr.qp_access_flags = kRemoteWrite;
      if (id.responder_resources) attr.qp_access_flags |= kRemoteRead | kRemoteAtomic;
      attr.pkey_index = id.av.pkey_index;
      attr.port_num = id.av.ah.port_num;
      return success();
    case ib_qp_state::RTR:
      if (!ok) break;
      mask = IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
      attr.ah_attr = id.av.ah;
      attr.path_mtu = id.path_mtu;
      attr.dest_qp_num = id.remote_qpn;
      attr.rq_psn = id.rq_psn;
      if (id.qp_type == ib_qp_type::RC || id.qp_type == ib_qp_type::XRC_TGT) {
        mask |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
        attr.max_dest_rd_atomic = id.responder_resources;
        attr.min_rnr_timer = 0;
      }
      return success();
    case ib_qp_state::RTS:
      if (!ok) break;
      mask = IB_QP_STATE | IB_QP_SQ_PSN;
      attr.sq_psn = id.sq_psn;
      if (id.qp_type == ib_qp_type::RC || id.qp_type == ib_qp_type::XRC_INI) {
        mask |= IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
        attr.retry_cnt = id.retry_count;
        attr.rnr_retry = id.rnr_retry_count;
        attr.max_rd_atomic = id.initiator_depth;
      }
      if (id.qp_type != ib_qp_type::UC) {
        mask |= IB_QP_TIMEOUT;
        attr.timeout = id.av.timeout;
      }
      return success();
    default: return refuse(EINVAL, "cm: no attributes for a transition to {}", kernel::to_string(attr.qp_state));
  }
  return refuse(EINVAL, "cm: attributes for {} in state {} (communication id {:#x})", kernel::to_string(attr.qp_state), to_string(id.state),
                id.local_id);
}

}  // namespace uhca::kernel::cm
