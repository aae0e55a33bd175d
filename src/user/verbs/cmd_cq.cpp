// SPDX-License-Identifier: MIT
// Commands on completion queues.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

int create_cq(ibv_context* context, std::uint32_t cqe, ibv_comp_channel* channel, std::uint32_t comp_vector, std::uint32_t flags,
              ibv_cq* cq, const verbs_udata* udata, std::uint32_t cmd_flags, const ibv_command_buffer* driver) {
  cq->context = context;
  const std::uint64_t user_handle = reinterpret_cast<std::uintptr_t>(cq);
  std::uint32_t resp_cqe = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
  cmd.out_obj(UVERBS_ATTR_CREATE_CQ_HANDLE);
  cmd.out_struct(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &resp_cqe);
  cmd.in_u32(UVERBS_ATTR_CREATE_CQ_CQE, cqe);
  cmd.in_u64(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, user_handle);
  if (channel) cmd.in_fd(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, channel->fd);
  cmd.in_u32(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, comp_vector);
  ib_uverbs_attr* event_fd = cmd.in_fd(UVERBS_ATTR_CREATE_CQ_EVENT_FD, context->async_fd);
  if (get_priv(context)->imported)
    cmd.fallback_ioctl_only = true;
  else
    ibv_command_buffer::optional(event_fd);  // a kernel that does not know the attribute uses the default async file, which is ours
  if (flags) {
    if ((flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION) || !(cmd_flags & CREATE_CQ_CMD_FLAGS_TS_IGNORED_EX))
      cmd.fallback_require_ex = true;
    cmd.in_u32(UVERBS_ATTR_CREATE_CQ_FLAGS, flags);
  }
  cmd.uhw(udata);

  int ret;
  switch (execute_with_fallback(context, Method::kCreateCq, &cmd, driver, &ret)) {
    case Outcome::kSuccess:
      cq->handle = cmd.handle(UVERBS_ATTR_CREATE_CQ_HANDLE);
      cq->cqe = static_cast<int>(resp_cqe);
      return 0;
    case Outcome::kError: return ret;
    case Outcome::kTryWrite: {
      ib_uverbs_create_cq req{};
      ib_uverbs_create_cq_resp resp{};
      req.user_handle = user_handle;
      req.cqe = cqe;
      req.comp_vector = comp_vector;
      req.comp_channel = channel ? channel->fd : -1;
      ret = execute_write(context, IB_USER_VERBS_CMD_CREATE_CQ, &req, &resp, udata);
      if (ret) return ret;
      cq->handle = resp.cq_handle;
      cq->cqe = static_cast<int>(resp.cqe);
      return 0;
    }
    case Outcome::kTryWriteEx: {
      ib_uverbs_ex_create_cq req{};
      ib_uverbs_ex_create_cq_resp resp{};
      req.user_handle = user_handle;
      req.cqe = cqe;
      req.comp_vector = comp_vector;
      req.comp_channel = channel ? channel->fd : -1;
      req.flags = flags;
      ret = execute_write_ex_raw(context, IB_USER_VERBS_EX_CMD_CREATE_CQ, &req, sizeof req, &resp, sizeof resp, udata);
      if (ret) return ret;
      cq->handle = resp.base.cq_handle;
      cq->cqe = static_cast<int>(resp.base.cqe);
      return 0;
    }
  }
  return fail(EINVAL);
}

}  // namespace

UHCA_EXPORT int ibv_cmd_create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector, ibv_cq* cq,
                                  const verbs_udata* udata) {
  return create_cq(context, static_cast<std::uint32_t>(cqe), channel, static_cast<std::uint32_t>(comp_vector), 0, cq, udata, 0, nullptr);
}

UHCA_EXPORT int ibv_cmd_create_cq_ex(ibv_context* context, const ibv_cq_init_attr_ex* attr, verbs_cq* cq, const verbs_udata* udata,
                                     std::uint32_t cmd_flags, const ibv_command_buffer* driver) {
  if (attr->comp_mask & ~std::uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD}) return fail(EOPNOTSUPP);
  std::uint32_t flags = 0;
  if (attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
    flags |= IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN))
    flags |= IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;
  return create_cq(context, attr->cqe, attr->channel, attr->comp_vector, flags, &cq->cq, udata, cmd_flags, driver);
}

UHCA_EXPORT int ibv_cmd_resize_cq(ibv_cq* cq, int cqe, const verbs_udata* udata) {
  ib_uverbs_resize_cq req{};
  ib_uverbs_resize_cq_resp resp{};
  req.cq_handle = cq->handle;
  req.cqe = static_cast<std::uint32_t>(cqe);
  if (int ret = execute_write(cq->context, IB_USER_VERBS_CMD_RESIZE_CQ, &req, &resp, udata)) return ret;
  cq->cqe = static_cast<int>(resp.cqe);
  return 0;
}

UHCA_EXPORT int ibv_cmd_modify_cq(ibv_cq* cq, const ibv_modify_cq_attr* attr) {
  if (attr->attr_mask >= IBV_CQ_ATTR_RESERVED) return fail(EINVAL);
  ib_uverbs_ex_modify_cq req{};
  req.cq_handle = cq->handle;
  req.attr_mask = attr->attr_mask;
  req.attr.cq_count = attr->moderate.cq_count;
  req.attr.cq_period = attr->moderate.cq_period;
  return execute_write_ex_raw(cq->context, IB_USER_VERBS_EX_CMD_MODIFY_CQ, &req, sizeof req, nullptr, 0, nullptr);
}

UHCA_EXPORT int ibv_cmd_destroy_cq(ibv_cq* cq) {
  ib_uverbs_destroy_cq_resp resp{};
  ibv_command_buffer cmd(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
  cmd.out_struct(UVERBS_ATTR_DESTROY_CQ_RESP, &resp);
  cmd.in_obj(UVERBS_ATTR_DESTROY_CQ_HANDLE, cq->handle);
  int ret;
  Outcome o = execute_with_fallback(cq->context, Method::kDestroyCq, &cmd, nullptr, &ret);
  if (o == Outcome::kTryWrite) {
    ib_uverbs_destroy_cq req{};
    req.cq_handle = cq->handle;
    ret = execute_write(cq->context, IB_USER_VERBS_CMD_DESTROY_CQ, &req, &resp);
  }
  if (is_destroy_error(&ret)) return ret;

  pthread_mutex_lock(&cq->mutex);
  while (cq->comp_events_completed != resp.comp_events_reported || cq->async_events_completed != resp.async_events_reported)
    pthread_cond_wait(&cq->cond, &cq->mutex);
  pthread_mutex_unlock(&cq->mutex);
  return 0;
}
