// SPDX-License-Identifier: MIT
// Commands on queue pairs.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

constexpr std::uint32_t kKnownCreateFlags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB | IBV_QP_CREATE_SCATTER_FCS | IBV_QP_CREATE_CVLAN_STRIPPING |
                                            IBV_QP_CREATE_SOURCE_QPN | IBV_QP_CREATE_PCI_WRITE_END_PADDING;

static_assert(sizeof(ibv_qp_cap) == sizeof(ib_uverbs_qp_cap) &&
              offsetof(ibv_qp_cap, max_send_wr) == offsetof(ib_uverbs_qp_cap, max_send_wr) &&
              offsetof(ibv_qp_cap, max_inline_data) == offsetof(ib_uverbs_qp_cap, max_inline_data));

// The request members that the plain and the extended write command have in common.
template <class Req>
void fill_request(Req* req, const ibv_qp_init_attr_ex* attr, std::uint32_t pd_handle, std::uint32_t send_cq, std::uint32_t recv_cq,
                  std::uint64_t user_handle) {
  req->user_handle = user_handle;
  req->pd_handle = pd_handle;
  req->send_cq_handle = send_cq;
  req->recv_cq_handle = recv_cq;
  req->srq_handle = attr->srq ? attr->srq->handle : 0;
  req->max_send_wr = attr->cap.max_send_wr;
  req->max_recv_wr = attr->cap.max_recv_wr;
  req->max_send_sge = attr->cap.max_send_sge;
  req->max_recv_sge = attr->cap.max_recv_sge;
  req->max_inline_data = attr->cap.max_inline_data;
  req->sq_sig_all = static_cast<std::uint8_t>(attr->sq_sig_all);
  req->qp_type = static_cast<std::uint8_t>(attr->qp_type);
  req->is_srq = attr->srq != nullptr;
}

void take_response(ibv_qp* qp, ibv_qp_init_attr_ex* attr, const ib_uverbs_create_qp_resp& resp) {
  qp->handle = resp.qp_handle;
  qp->qp_num = resp.qpn;
  attr->cap.max_recv_sge = resp.max_recv_sge;
  attr->cap.max_send_sge = resp.max_send_sge;
  attr->cap.max_recv_wr = resp.max_recv_wr;
  attr->cap.max_send_wr = resp.max_send_wr;
  attr->cap.max_inline_data = resp.max_inline_data;
}

void set_qp(ibv_qp* qp, verbs_qp* vqp, const ibv_qp_init_attr_ex* attr, verbs_xrcd* xrcd) {
  qp->qp_context = attr->qp_context;
  qp->pd = attr->pd;
  qp->send_cq = attr->send_cq;
  qp->recv_cq = attr->recv_cq;
  qp->srq = attr->srq;
  qp->qp_type = attr->qp_type;
  qp->state = IBV_QPS_RESET;
  qp->events_completed = 0;
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  if (vqp) {
    vqp->comp_mask = 0;
    if (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) {
      vqp->comp_mask |= VERBS_QP_XRCD;
      vqp->xrcd = xrcd;
    }
  }
}

// vqp is null for the basic call.
int create_qp(ibv_context* context, verbs_qp* vqp, ibv_qp* qp, ibv_qp_init_attr_ex* attr, const verbs_udata* udata,
              const ibv_command_buffer* driver) {
  const std::uint64_t user_handle = reinterpret_cast<std::uintptr_t>(qp);
  std::uint32_t pd_handle = 0, send_cq = 0, recv_cq = 0, qp_num = 0, create_flags = 0;
  verbs_xrcd* xrcd = nullptr;
  ibv_command_buffer cmd(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE);
  qp->context = context;

  switch (attr->qp_type) {
    case IBV_QPT_XRC_RECV:
      if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)) return fail(EINVAL);
      xrcd = reinterpret_cast<verbs_xrcd*>(attr->xrcd);
      pd_handle = xrcd->handle;
      cmd.in_obj(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, xrcd->handle);
      break;
    case IBV_QPT_RC:
    case IBV_QPT_UD:
    case IBV_QPT_UC:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_DRIVER:
      if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD)) return fail(EINVAL);
      pd_handle = attr->pd->handle;
      cmd.in_obj(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd_handle);
      if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) {
        if (attr->cap.max_recv_wr || attr->cap.max_recv_sge || attr->recv_cq || attr->srq) return fail(EINVAL);
        cmd.fallback_require_ex = true;
        cmd.in_obj(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, attr->rwq_ind_tbl->ind_tbl_handle);
        if (attr->cap.max_send_wr) {
          send_cq = attr->send_cq->handle;
          cmd.in_obj(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, send_cq);
        }
      } else {
        if (!attr->send_cq || (!attr->recv_cq && attr->qp_type != IBV_QPT_XRC_SEND)) return fail(EINVAL);
        send_cq = attr->send_cq->handle;
        cmd.in_obj(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, send_cq);
        if (attr->qp_type != IBV_QPT_XRC_SEND) {
          recv_cq = attr->recv_cq->handle;
          cmd.in_obj(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, recv_cq);
        }
      }
      if (attr->qp_type == IBV_QPT_XRC_SEND) attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
      break;
    default: return fail(EINVAL);
  }

  cmd.out_obj(UVERBS_ATTR_CREATE_QP_HANDLE);
  cmd.const_in(UVERBS_ATTR_CREATE_QP_TYPE, attr->qp_type);
  cmd.in_u64(UVERBS_ATTR_CREATE_QP_USER_HANDLE, user_handle);
  cmd.in_struct(UVERBS_ATTR_CREATE_QP_CAP, &attr->cap);
  cmd.in_fd(UVERBS_ATTR_CREATE_QP_EVENT_FD, context->async_fd);
  if (get_priv(context)->imported) cmd.fallback_ioctl_only = true;
  if (attr->sq_sig_all) create_flags |= IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) {
    if (attr->create_flags & ~kKnownCreateFlags) return fail(EINVAL);
    cmd.fallback_require_ex = true;
    create_flags |= attr->create_flags;
    if (attr->create_flags & IBV_QP_CREATE_SOURCE_QPN) {
      // An attribute of its own in the ioctl; the bit exists in the write command only.
      cmd.in_u32(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, attr->source_qpn);
      create_flags &= ~std::uint32_t{IBV_QP_CREATE_SOURCE_QPN};
    }
  }
  cmd.flags_in(UVERBS_ATTR_CREATE_QP_FLAGS, create_flags);
  if (attr->srq) cmd.in_obj(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, attr->srq->handle);
  ibv_qp_cap granted = attr->cap;
  cmd.out_struct(UVERBS_ATTR_CREATE_QP_RESP_CAP, &granted);
  cmd.out_struct(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &qp_num);
  cmd.uhw(udata);

  int ret;
  switch (execute_with_fallback(context, Method::kCreateQp, &cmd, driver, &ret)) {
    case Outcome::kSuccess:
      qp->handle = cmd.handle(UVERBS_ATTR_CREATE_QP_HANDLE);
      qp->qp_num = qp_num;
      attr->cap = granted;
      break;
    case Outcome::kError: return ret;
    case Outcome::kTryWrite: {
      ib_uverbs_create_qp req{};
      ib_uverbs_create_qp_resp resp{};
      fill_request(&req, attr, pd_handle, send_cq, recv_cq, user_handle);
      ret = execute_write(context, IB_USER_VERBS_CMD_CREATE_QP, &req, &resp, udata);
      if (ret) return ret;
      take_response(qp, attr, resp);
      break;
    }
    case Outcome::kTryWriteEx: {
      ib_uverbs_ex_create_qp req{};
      ib_uverbs_ex_create_qp_resp resp{};
      fill_request(&req, attr, pd_handle, send_cq, recv_cq, user_handle);
      if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) {
        req.create_flags = attr->create_flags;
        if (attr->create_flags & IBV_QP_CREATE_SOURCE_QPN) req.source_qpn = attr->source_qpn;
      }
      if (attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE) {
        req.rwq_ind_tbl_handle = attr->rwq_ind_tbl->ind_tbl_handle;
        req.comp_mask = IB_UVERBS_CREATE_QP_MASK_IND_TABLE;
      }
      ret = execute_write_ex_raw(context, IB_USER_VERBS_EX_CMD_CREATE_QP, &req, sizeof req, &resp, sizeof resp, udata);
      if (ret) return ret;
      take_response(qp, attr, resp.base);
      break;
    }
  }
  set_qp(qp, vqp, attr, xrcd);
  return 0;
}

void put_destination(ib_uverbs_qp_dest* d, const ibv_ah_attr& a) {
  std::memcpy(d->dgid, a.grh.dgid.raw, 16);
  d->flow_label = a.grh.flow_label;
  d->dlid = a.dlid;
  d->sgid_index = a.grh.sgid_index;
  d->hop_limit = a.grh.hop_limit;
  d->traffic_class = a.grh.traffic_class;
  d->sl = a.sl;
  d->src_path_bits = a.src_path_bits;
  d->static_rate = a.static_rate;
  d->is_global = a.is_global;
  d->port_num = a.port_num;
}

void get_destination(ibv_ah_attr* a, const ib_uverbs_qp_dest& d) {
  std::memcpy(a->grh.dgid.raw, d.dgid, 16);
  a->grh.flow_label = d.flow_label;
  a->dlid = d.dlid;
  a->grh.sgid_index = d.sgid_index;
  a->grh.hop_limit = d.hop_limit;
  a->grh.traffic_class = d.traffic_class;
  a->sl = d.sl;
  a->src_path_bits = d.src_path_bits;
  a->static_rate = d.static_rate;
  a->is_global = d.is_global;
  a->port_num = d.port_num;
}

// Only members whose mask bit is set are sent: the rest of a program's ibv_qp_attr is often uninitialised.
void fill_modify(ib_uverbs_modify_qp* req, const ibv_qp* qp, const ibv_qp_attr* attr, int mask) {
  req->qp_handle = qp->handle;
  req->attr_mask = static_cast<std::uint32_t>(mask);
  if (mask & IBV_QP_STATE) req->qp_state = static_cast<std::uint8_t>(attr->qp_state);
  if (mask & IBV_QP_CUR_STATE) req->cur_qp_state = static_cast<std::uint8_t>(attr->cur_qp_state);
  if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) req->en_sqd_async_notify = attr->en_sqd_async_notify;
  if (mask & IBV_QP_ACCESS_FLAGS) req->qp_access_flags = attr->qp_access_flags;
  if (mask & IBV_QP_PKEY_INDEX) req->pkey_index = attr->pkey_index;
  if (mask & IBV_QP_PORT) req->port_num = attr->port_num;
  if (mask & IBV_QP_QKEY) req->qkey = attr->qkey;
  if (mask & IBV_QP_AV) put_destination(&req->dest, attr->ah_attr);
  if (mask & IBV_QP_PATH_MTU) req->path_mtu = static_cast<std::uint8_t>(attr->path_mtu);
  if (mask & IBV_QP_TIMEOUT) req->timeout = attr->timeout;
  if (mask & IBV_QP_RETRY_CNT) req->retry_cnt = attr->retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) req->rnr_retry = attr->rnr_retry;
  if (mask & IBV_QP_RQ_PSN) req->rq_psn = attr->rq_psn;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) req->max_rd_atomic = attr->max_rd_atomic;
  if (mask & IBV_QP_ALT_PATH) {
    req->alt_pkey_index = attr->alt_pkey_index;
    req->alt_port_num = attr->alt_port_num;
    req->alt_timeout = attr->alt_timeout;
    put_destination(&req->alt_dest, attr->alt_ah_attr);
  }
  if (mask & IBV_QP_MIN_RNR_TIMER) req->min_rnr_timer = attr->min_rnr_timer;
  if (mask & IBV_QP_SQ_PSN) req->sq_psn = attr->sq_psn;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) req->max_dest_rd_atomic = attr->max_dest_rd_atomic;
  if (mask & IBV_QP_PATH_MIG_STATE) req->path_mig_state = static_cast<std::uint8_t>(attr->path_mig_state);
  if (mask & IBV_QP_DEST_QPN) req->dest_qp_num = attr->dest_qp_num;
}

// From IBV_QP_RATE_LIMIT on, attributes travel in the extended command only.
bool needs_extended(int mask) {
  return (mask & ~(IBV_QP_RATE_LIMIT - 1)) != 0;
}

}  // namespace

UHCA_EXPORT int ibv_cmd_create_qp(ibv_pd* pd, ibv_qp* qp, ibv_qp_init_attr* attr, const verbs_udata* udata) {
  ibv_qp_init_attr_ex ex{};
  ex.qp_context = attr->qp_context;
  ex.send_cq = attr->send_cq;
  ex.recv_cq = attr->recv_cq;
  ex.srq = attr->srq;
  ex.cap = attr->cap;
  ex.qp_type = attr->qp_type;
  ex.sq_sig_all = attr->sq_sig_all;
  ex.comp_mask = IBV_QP_INIT_ATTR_PD;
  ex.pd = pd;
  if (int ret = create_qp(pd->context, nullptr, qp, &ex, udata, nullptr)) return ret;
  attr->cap = ex.cap;
  return 0;
}

UHCA_EXPORT int ibv_cmd_create_qp_ex(ibv_context* context, verbs_qp* qp, ibv_qp_init_attr_ex* attr, const verbs_udata* udata,
                                     const ibv_command_buffer* driver) {
  constexpr std::uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                   IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
                                   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr->comp_mask & ~kKnown) return fail(EINVAL);
  return create_qp(context, qp, &qp->qp, attr, udata, driver);
}

UHCA_EXPORT int ibv_cmd_open_qp(ibv_context* context, verbs_qp* vqp, const ibv_qp_open_attr* attr, const verbs_udata* udata) {
  if (attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED) return fail(EOPNOTSUPP);
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_TYPE;
  if ((attr->comp_mask & kNeeded) != kNeeded) return fail(EINVAL);
  auto* xrcd = reinterpret_cast<verbs_xrcd*>(attr->xrcd);
  ib_uverbs_open_qp req{};
  ib_uverbs_create_qp_resp resp{};
  req.user_handle = reinterpret_cast<std::uintptr_t>(vqp);
  req.pd_handle = xrcd->handle;
  req.qpn = attr->qp_num;
  req.qp_type = static_cast<std::uint8_t>(attr->qp_type);
  if (int ret = execute_write(context, IB_USER_VERBS_CMD_OPEN_QP, &req, &resp, udata)) return ret;

  ibv_qp_init_attr_ex shared{};  // nothing of the QP is known here except its number and type
  shared.qp_context = attr->qp_context;
  shared.qp_type = attr->qp_type;
  set_qp(&vqp->qp, vqp, &shared, nullptr);
  vqp->qp.handle = resp.qp_handle;
  vqp->qp.context = context;
  vqp->qp.qp_num = attr->qp_num;
  vqp->qp.state = IBV_QPS_UNKNOWN;
  vqp->comp_mask = VERBS_QP_XRCD;
  vqp->xrcd = xrcd;
  return 0;
}

UHCA_EXPORT int ibv_cmd_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr) {
  if (needs_extended(attr_mask)) return fail(EOPNOTSUPP);
  ib_uverbs_query_qp req{};
  ib_uverbs_query_qp_resp resp{};
  req.qp_handle = qp->handle;
  req.attr_mask = static_cast<std::uint32_t>(attr_mask);
  if (int ret = execute_write(qp->context, IB_USER_VERBS_CMD_QUERY_QP, &req, &resp)) return ret;

  attr->qkey = resp.qkey;
  attr->rq_psn = resp.rq_psn;
  attr->sq_psn = resp.sq_psn;
  attr->dest_qp_num = resp.dest_qp_num;
  attr->qp_access_flags = resp.qp_access_flags;
  attr->pkey_index = resp.pkey_index;
  attr->alt_pkey_index = resp.alt_pkey_index;
  attr->qp_state = static_cast<ibv_qp_state>(resp.qp_state);
  attr->cur_qp_state = static_cast<ibv_qp_state>(resp.cur_qp_state);
  attr->path_mtu = static_cast<ibv_mtu>(resp.path_mtu);
  attr->path_mig_state = static_cast<ibv_mig_state>(resp.path_mig_state);
  attr->sq_draining = resp.sq_draining;
  attr->max_rd_atomic = resp.max_rd_atomic;
  attr->max_dest_rd_atomic = resp.max_dest_rd_atomic;
  attr->min_rnr_timer = resp.min_rnr_timer;
  attr->port_num = resp.port_num;
  attr->timeout = resp.timeout;
  attr->retry_cnt = resp.retry_cnt;
  attr->rnr_retry = resp.rnr_retry;
  attr->alt_port_num = resp.alt_port_num;
  attr->alt_timeout = resp.alt_timeout;
  attr->cap.max_send_wr = resp.max_send_wr;
  attr->cap.max_recv_wr = resp.max_recv_wr;
  attr->cap.max_send_sge = resp.max_send_sge;
  attr->cap.max_recv_sge = resp.max_recv_sge;
  attr->cap.max_inline_data = resp.max_inline_data;
  get_destination(&attr->ah_attr, resp.dest);
  get_destination(&attr->alt_ah_attr, resp.alt_dest);

  init_attr->qp_context = qp->qp_context;
  init_attr->send_cq = qp->send_cq;
  init_attr->recv_cq = qp->recv_cq;
  init_attr->srq = qp->srq;
  init_attr->qp_type = qp->qp_type;
  init_attr->cap = attr->cap;
  init_attr->sq_sig_all = resp.sq_sig_all;
  return 0;
}

UHCA_EXPORT int ibv_cmd_modify_qp(ibv_qp* qp, const ibv_qp_attr* attr, int attr_mask) {
  if (needs_extended(attr_mask)) return fail(EOPNOTSUPP);
  ib_uverbs_modify_qp req{};
  fill_modify(&req, qp, attr, attr_mask);
  return execute_write_raw(qp->context, IB_USER_VERBS_CMD_MODIFY_QP, &req, sizeof req, nullptr, 0, nullptr);
}

UHCA_EXPORT int ibv_cmd_modify_qp_ex(ibv_qp* qp, const ibv_qp_attr* attr, int attr_mask, const verbs_udata* udata) {
  ib_uverbs_ex_modify_qp req{};
  ib_uverbs_ex_modify_qp_resp resp{};
  fill_modify(&req.base, qp, attr, attr_mask);
  if (attr_mask & IBV_QP_RATE_LIMIT) req.rate_limit = attr->rate_limit;
  return execute_write_ex_raw(qp->context, IB_USER_VERBS_EX_CMD_MODIFY_QP, &req, sizeof req, &resp, sizeof resp, udata);
}

UHCA_EXPORT int ibv_cmd_destroy_qp(ibv_qp* qp) {
  ib_uverbs_destroy_qp_resp resp{};
  ibv_command_buffer cmd(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
  cmd.out_struct(UVERBS_ATTR_DESTROY_QP_RESP, &resp);
  cmd.in_obj(UVERBS_ATTR_DESTROY_QP_HANDLE, qp->handle);
  int ret;
  if (execute_with_fallback(qp->context, Method::kDestroyQp, &cmd, nullptr, &ret) == Outcome::kTryWrite) {
    ib_uverbs_destroy_qp req{};
    req.qp_handle = qp->handle;
    ret = execute_write(qp->context, IB_USER_VERBS_CMD_DESTROY_QP, &req, &resp);
  }
  if (is_destroy_error(&ret)) return ret;
  pthread_mutex_lock(&qp->mutex);
  while (qp->events_completed != resp.events_reported) pthread_cond_wait(&qp->cond, &qp->mutex);
  pthread_mutex_unlock(&qp->mutex);
  return 0;
}

UHCA_EXPORT int ibv_cmd_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  ib_uverbs_attach_mcast req{};
  std::memcpy(req.gid, gid->raw, sizeof req.gid);
  req.qp_handle = qp->handle;
  req.mlid = lid;
  return execute_write_req(qp->context, IB_USER_VERBS_CMD_ATTACH_MCAST, &req);
}

UHCA_EXPORT int ibv_cmd_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  ib_uverbs_detach_mcast req{};
  std::memcpy(req.gid, gid->raw, sizeof req.gid);
  req.qp_handle = qp->handle;
  req.mlid = lid;
  int ret = execute_write_req(qp->context, IB_USER_VERBS_CMD_DETACH_MCAST, &req);
  return is_destroy_error(&ret) ? ret : 0;
}
