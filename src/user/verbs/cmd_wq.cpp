// SPDX-License-Identifier: MIT
// Commands on receive work queues and their indirection tables (RSS).
#include "user/verbs/internal.h"

using namespace uhca::verbs;

UHCA_EXPORT int ibv_cmd_create_wq(ibv_context* context, const ibv_wq_init_attr* attr, ibv_wq* wq, const verbs_udata* udata) {
  if (attr->comp_mask >= IBV_WQ_INIT_ATTR_RESERVED) return fail(EINVAL);
  std::uint32_t create_flags = 0;
  if (attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS) {
    if (attr->create_flags & ~std::uint32_t{IBV_WQ_FLAGS_RESERVED - 1}) return fail(EOPNOTSUPP);
    create_flags = attr->create_flags;
  }
  wq->context = context;
  wq->cq = attr->cq;
  wq->pd = attr->pd;
  wq->wq_type = attr->wq_type;
  wq->state = IBV_WQS_RESET;
  wq->events_completed = 0;
  pthread_mutex_init(&wq->mutex, nullptr);
  pthread_cond_init(&wq->cond, nullptr);

  const std::uint64_t user_handle = reinterpret_cast<std::uintptr_t>(wq);
  std::uint32_t max_wr = 0, max_sge = 0, wq_num = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE);
  cmd.out_obj(UVERBS_ATTR_CREATE_WQ_HANDLE);
  cmd.in_u64(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, user_handle);
  cmd.in_obj(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, attr->pd->handle);
  cmd.in_obj(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, attr->cq->handle);
  cmd.const_in(UVERBS_ATTR_CREATE_WQ_TYPE, attr->wq_type);
  cmd.in_u32(UVERBS_ATTR_CREATE_WQ_MAX_WR, attr->max_wr);
  cmd.in_u32(UVERBS_ATTR_CREATE_WQ_MAX_SGE, attr->max_sge);
  cmd.in_fd(UVERBS_ATTR_CREATE_WQ_EVENT_FD, context->async_fd);
  cmd.in_u32(UVERBS_ATTR_CREATE_WQ_FLAGS, create_flags);
  cmd.out_struct(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, &max_wr);
  cmd.out_struct(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, &max_sge);
  cmd.out_struct(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &wq_num);
  cmd.uhw(udata);
  if (get_priv(context)->imported) cmd.fallback_ioctl_only = true;
  cmd.fallback_require_ex = true;

  int ret;
  switch (execute_with_fallback(context, Method::kCreateWq, &cmd, nullptr, &ret)) {
    case Outcome::kSuccess:
      wq->handle = cmd.handle(UVERBS_ATTR_CREATE_WQ_HANDLE);
      wq->wq_num = wq_num;
      return 0;
    case Outcome::kTryWriteEx: {
      ib_uverbs_ex_create_wq req{};
      ib_uverbs_ex_create_wq_resp resp{};
      req.user_handle = user_handle;
      req.pd_handle = attr->pd->handle;
      req.cq_handle = attr->cq->handle;
      req.max_wr = attr->max_wr;
      req.max_sge = attr->max_sge;
      req.wq_type = attr->wq_type;
      req.create_flags = create_flags;
      ret = execute_write_ex_raw(context, IB_USER_VERBS_EX_CMD_CREATE_WQ, &req, sizeof req, &resp, sizeof resp, udata);
      if (ret) return ret;
      wq->handle = resp.wq_handle;
      wq->wq_num = resp.wqn;
      return 0;
    }
    default: return ret;
  }
}

UHCA_EXPORT int ibv_cmd_modify_wq(ibv_wq* wq, const ibv_wq_attr* attr, const verbs_udata* udata) {
  if (attr->attr_mask >= IBV_WQ_ATTR_RESERVED) return fail(EINVAL);
  ib_uverbs_ex_modify_wq req{};
  req.attr_mask = attr->attr_mask;
  req.wq_handle = wq->handle;
  req.wq_state = attr->wq_state;
  req.curr_wq_state = attr->curr_wq_state;
  if (attr->attr_mask & IBV_WQ_ATTR_FLAGS) {
    if (attr->flags_mask & ~std::uint32_t{IBV_WQ_FLAGS_RESERVED - 1}) return fail(EOPNOTSUPP);
    req.flags = attr->flags;
    req.flags_mask = attr->flags_mask;
  }
  if (int ret = execute_write_ex_raw(wq->context, IB_USER_VERBS_EX_CMD_MODIFY_WQ, &req, sizeof req, nullptr, 0, udata)) return ret;
  if (attr->attr_mask & IBV_WQ_ATTR_STATE) wq->state = attr->wq_state;
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_wq(ibv_wq* wq) {
  std::uint32_t events_reported = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY);
  cmd.out_struct(UVERBS_ATTR_DESTROY_WQ_RESP, &events_reported);
  cmd.in_obj(UVERBS_ATTR_DESTROY_WQ_HANDLE, wq->handle);
  int ret;
  if (execute_with_fallback(wq->context, Method::kDestroyWq, &cmd, nullptr, &ret) == Outcome::kTryWrite) {
    ib_uverbs_ex_destroy_wq req{};
    ib_uverbs_ex_destroy_wq_resp resp{};
    req.wq_handle = wq->handle;
    ret = execute_write_ex_raw(wq->context, IB_USER_VERBS_EX_CMD_DESTROY_WQ, &req, sizeof req, &resp, sizeof resp, nullptr);
    events_reported = resp.events_reported;
  }
  if (is_destroy_error(&ret)) return ret;
  pthread_mutex_lock(&wq->mutex);
  while (wq->events_completed != events_reported) pthread_cond_wait(&wq->cond, &wq->mutex);
  pthread_mutex_unlock(&wq->mutex);
  return 0;
}

UHCA_EXPORT int ibv_cmd_create_rwq_ind_table(ibv_context* context, const ibv_rwq_ind_table_init_attr* attr, ibv_rwq_ind_table* table) {
  if (attr->comp_mask >= IBV_CREATE_IND_TABLE_RESERVED) return fail(EINVAL);
  if (attr->log_ind_tbl_size > IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE) return fail(EINVAL);
  const std::size_t n = std::size_t{1} << attr->log_ind_tbl_size;
  const std::size_t len = (sizeof(ib_uverbs_ex_create_rwq_ind_table) + n * sizeof(std::uint32_t) + 7) / 8 * 8;
  auto* req = static_cast<ib_uverbs_ex_create_rwq_ind_table*>(std::calloc(1, len));
  if (!req) return fail(ENOMEM);
  req->log_ind_tbl_size = attr->log_ind_tbl_size;
  for (std::size_t i = 0; i < n; ++i) req->wq_handles[i] = attr->ind_tbl[i]->handle;
  ib_uverbs_ex_create_rwq_ind_table_resp resp{};
  int ret = execute_write_ex_raw(context, IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL, req, len, &resp, sizeof resp, nullptr);
  std::free(req);
  if (ret) return ret;
  if (resp.response_length < sizeof resp) return fail(EINVAL);
  table->context = context;
  table->ind_tbl_handle = static_cast<int>(resp.ind_tbl_handle);
  table->ind_tbl_num = static_cast<int>(resp.ind_tbl_num);
  return 0;
}

UHCA_EXPORT int ibv_cmd_destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  ibv_command_buffer cmd(UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY);
  cmd.in_obj(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, static_cast<std::uint32_t>(table->ind_tbl_handle));
  int ret;
  if (execute_with_fallback(table->context, Method::kDestroyRwqIndTable, &cmd, nullptr, &ret) == Outcome::kTryWrite) {
    ib_uverbs_ex_destroy_rwq_ind_table req{};
    req.ind_tbl_handle = static_cast<std::uint32_t>(table->ind_tbl_handle);
    ret = execute_write_ex_raw(table->context, IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL, &req, sizeof req, nullptr, 0, nullptr);
  }
  return is_destroy_error(&ret) ? ret : 0;
}
