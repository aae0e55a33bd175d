// SPDX-License-Identifier: MIT
// Commands on shared receive queues.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

verbs_xrcd* to_verbs_xrcd(ibv_xrcd* xrcd) {
  return reinterpret_cast<verbs_xrcd*>(xrcd);
}

void init_srq(ibv_pd* pd, ibv_srq* srq) {
  srq->pd = pd;
  srq->context = pd->context;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
}

// vsrq is null for the basic call.
int create_srq(ibv_pd* pd, verbs_srq* vsrq, ibv_srq* srq, ibv_srq_init_attr_ex* attr, const verbs_udata* udata) {
  const ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : IBV_SRQT_BASIC;
  const std::uint64_t user_handle = reinterpret_cast<std::uintptr_t>(srq);
  std::uint32_t max_wr = 0, max_sge = 0, srq_num = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE);
  init_srq(pd, srq);

  if (type == IBV_SRQT_XRC) {
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ)) return fail(EINVAL);
    cmd.in_obj(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, to_verbs_xrcd(attr->xrcd)->handle);
    cmd.in_obj(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, attr->cq->handle);
    cmd.out_struct(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &srq_num);
  } else if (type == IBV_SRQT_TM) {
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !(attr->comp_mask & IBV_SRQ_INIT_ATTR_TM) || !attr->tm_cap.max_num_tags)
      return fail(EINVAL);
    cmd.in_obj(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, attr->cq->handle);
    cmd.in_u32(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, attr->tm_cap.max_num_tags);
  }
  cmd.out_obj(UVERBS_ATTR_CREATE_SRQ_HANDLE);
  cmd.const_in(UVERBS_ATTR_CREATE_SRQ_TYPE, type);
  cmd.in_u64(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, user_handle);
  cmd.in_obj(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd->handle);
  cmd.in_u32(UVERBS_ATTR_CREATE_SRQ_MAX_WR, attr->attr.max_wr);
  cmd.in_u32(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, attr->attr.max_sge);
  cmd.in_u32(UVERBS_ATTR_CREATE_SRQ_LIMIT, attr->attr.srq_limit);
  cmd.in_fd(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, pd->context->async_fd);
  cmd.out_struct(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr);
  cmd.out_struct(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge);
  cmd.uhw(udata);
  if (get_priv(pd->context)->imported) cmd.fallback_ioctl_only = true;

  int ret;
  switch (execute_with_fallback(pd->context, Method::kCreateSrq, &cmd, nullptr, &ret)) {
    case Outcome::kSuccess: srq->handle = cmd.handle(UVERBS_ATTR_CREATE_SRQ_HANDLE); break;
    case Outcome::kError: return ret;
    default: {
      ib_uverbs_create_srq_resp resp{};
      if (type == IBV_SRQT_BASIC) {
        ib_uverbs_create_srq req{};
        req.user_handle = user_handle;
        req.pd_handle = pd->handle;
        req.max_wr = attr->attr.max_wr;
        req.max_sge = attr->attr.max_sge;
        req.srq_limit = attr->attr.srq_limit;
        ret = execute_write(pd->context, IB_USER_VERBS_CMD_CREATE_SRQ, &req, &resp, udata);
      } else {
        ib_uverbs_create_xsrq req{};
        req.user_handle = user_handle;
        req.srq_type = type;
        req.pd_handle = pd->handle;
        req.max_wr = attr->attr.max_wr;
        req.max_sge = attr->attr.max_sge;
        req.srq_limit = attr->attr.srq_limit;
        req.cq_handle = attr->cq->handle;
        if (type == IBV_SRQT_TM)
          req.max_num_tags = attr->tm_cap.max_num_tags;
        else
          req.xrcd_handle = to_verbs_xrcd(attr->xrcd)->handle;
        ret = execute_write(pd->context, IB_USER_VERBS_CMD_CREATE_XSRQ, &req, &resp, udata);
      }
      if (ret) return ret;
      srq->handle = resp.srq_handle;
      max_wr = resp.max_wr;
      max_sge = resp.max_sge;
      srq_num = resp.srqn;
    }
  }
  attr->attr.max_wr = max_wr;
  attr->attr.max_sge = max_sge;
  if (vsrq) {
    vsrq->srq_type = type;
    if (type == IBV_SRQT_XRC) {
      vsrq->srq_num = srq_num;
      vsrq->xrcd = to_verbs_xrcd(attr->xrcd);
    }
    if (attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) vsrq->cq = attr->cq;
  }
  return 0;
}

}  // namespace

UHCA_EXPORT int ibv_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr* attr, const verbs_udata* udata) {
  ibv_srq_init_attr_ex attr_ex{};
  attr_ex.srq_context = attr->srq_context;
  attr_ex.attr = attr->attr;
  if (int ret = create_srq(pd, nullptr, srq, &attr_ex, udata)) return ret;
  attr->attr.max_wr = attr_ex.attr.max_wr;
  attr->attr.max_sge = attr_ex.attr.max_sge;
  return 0;
}

UHCA_EXPORT int ibv_cmd_create_srq_ex(ibv_context*, verbs_srq* srq, ibv_srq_init_attr_ex* attr, const verbs_udata* udata) {
  if (attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED) return fail(EOPNOTSUPP);
  if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) return fail(EINVAL);
  return create_srq(attr->pd, srq, &srq->srq, attr, udata);
}

UHCA_EXPORT int ibv_cmd_modify_srq(ibv_srq* srq, const ibv_srq_attr* attr, int attr_mask, const verbs_udata* udata) {
  ib_uverbs_modify_srq req{};
  req.srq_handle = srq->handle;
  req.attr_mask = static_cast<std::uint32_t>(attr_mask);
  req.max_wr = attr->max_wr;
  req.srq_limit = attr->srq_limit;
  return execute_write_req(srq->context, IB_USER_VERBS_CMD_MODIFY_SRQ, &req, udata);
}

UHCA_EXPORT int ibv_cmd_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  ib_uverbs_query_srq req{};
  ib_uverbs_query_srq_resp resp{};
  req.srq_handle = srq->handle;
  if (int ret = execute_write(srq->context, IB_USER_VERBS_CMD_QUERY_SRQ, &req, &resp)) return ret;
  attr->max_wr = resp.max_wr;
  attr->max_sge = resp.max_sge;
  attr->srq_limit = resp.srq_limit;
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_srq(ibv_srq* srq) {
  ib_uverbs_destroy_srq_resp resp{};
  ibv_command_buffer cmd(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY);
  cmd.out_struct(UVERBS_ATTR_DESTROY_SRQ_RESP, &resp);
  cmd.in_obj(UVERBS_ATTR_DESTROY_SRQ_HANDLE, srq->handle);
  int ret;
  if (execute_with_fallback(srq->context, Method::kDestroySrq, &cmd, nullptr, &ret) == Outcome::kTryWrite) {
    ib_uverbs_destroy_srq req{};
    req.srq_handle = srq->handle;
    ret = execute_write(srq->context, IB_USER_VERBS_CMD_DESTROY_SRQ, &req, &resp);
  }
  if (is_destroy_error(&ret)) return ret;
  pthread_mutex_lock(&srq->mutex);
  while (srq->events_completed != resp.events_reported) pthread_cond_wait(&srq->cond, &srq->mutex);
  pthread_mutex_unlock(&srq->mutex);
  return 0;
}
