// SPDX-License-Identifier: MIT
// Verbs on completion channels, CQs, SRQs and QPs.
#include <unistd.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

UHCA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  auto* channel = static_cast<ibv_comp_channel*>(std::malloc(sizeof(ibv_comp_channel)));
  if (!channel) return fail_null<ibv_comp_channel>(ENOMEM);
  ib_uverbs_create_comp_channel req{};
  ib_uverbs_create_comp_channel_resp resp{};
  if (execute_write(context, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &req, &resp)) {
    std::free(channel);
    return nullptr;
  }
  channel->context = context;
  channel->fd = static_cast<int>(resp.fd);
  channel->refcnt = 0;
  return channel;
}

UHCA_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  ibv_context* context = channel->context;
  pthread_mutex_lock(&context->mutex);
  const bool busy = channel->refcnt != 0;
  if (!busy) {
    close(channel->fd);
    std::free(channel);
  }
  pthread_mutex_unlock(&context->mutex);
  return busy ? EBUSY : 0;
}

UHCA_EXPORT void verbs_init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* cq_context) {
  cq->context = context;
  cq->channel = channel;
  if (channel) {
    pthread_mutex_lock(&context->mutex);
    ++channel->refcnt;
    pthread_mutex_unlock(&context->mutex);
  }
  cq->cq_context = cq_context;
  cq->comp_events_completed = 0;
  cq->async_events_completed = 0;
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
}

UHCA_EXPORT ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel, int comp_vector) {
  ibv_cq* cq = get_ops(context)->create_cq(context, cqe, channel, comp_vector);
  if (cq) verbs_init_cq(cq, context, channel, cq_context);
  return cq;
}

UHCA_EXPORT int ibv_resize_cq(ibv_cq* cq, int cqe) {
  return get_ops(cq->context)->resize_cq(cq, cqe);
}

UHCA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  ibv_comp_channel* channel = cq->channel;
  int ret = get_ops(cq->context)->destroy_cq(cq);
  if (channel && !ret) {
    pthread_mutex_lock(&channel->context->mutex);
    --channel->refcnt;
    pthread_mutex_unlock(&channel->context->mutex);
  }
  return ret;
}

UHCA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq* srq = get_ops(pd->context)->create_srq(pd, attr);
  if (srq) {
    srq->context = pd->context;
    srq->srq_context = attr->srq_context;
    srq->pd = pd;
    srq->events_completed = 0;
    pthread_mutex_init(&srq->mutex, nullptr);
    pthread_cond_init(&srq->cond, nullptr);
  }
  return srq;
}

UHCA_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int attr_mask) {
  return get_ops(srq->context)->modify_srq(srq, attr, attr_mask);
}
UHCA_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return get_ops(srq->context)->query_srq(srq, attr);
}
UHCA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return get_ops(srq->context)->destroy_srq(srq);
}

UHCA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  return get_ops(pd->context)->create_qp(pd, attr);
}

UHCA_EXPORT ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  auto* vqp = reinterpret_cast<verbs_qp*>(qp);
  return vqp->comp_mask & VERBS_QP_EX ? &vqp->qp_ex.base : nullptr;
}

UHCA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr) {
  if (int ret = get_ops(qp->context)->query_qp(qp, attr, attr_mask, init_attr)) return ret;
  if (attr_mask & IBV_QP_STATE) qp->state = attr->qp_state;
  return 0;
}

UHCA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask) {
  if (int ret = get_ops(qp->context)->modify_qp(qp, attr, attr_mask)) return ret;
  if (attr_mask & IBV_QP_STATE) qp->state = attr->qp_state;
  return 0;
}

UHCA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  return get_ops(qp->context)->destroy_qp(qp);
}

UHCA_EXPORT int ibv_query_qp_data_in_order(ibv_qp* qp, enum ibv_wr_opcode op, std::uint32_t flags) {
  constexpr std::uint32_t kKnown = IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS_V65 | IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY_V65;
  if (flags & ~kKnown) return 0;
#if !defined(__x86_64__) && !defined(__i386__)
  // Whether the host's memory system keeps the order is known for x86 only.
  if (!(flags & IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY_V65)) return 0;
#endif
  int caps = get_ops(qp->context)->query_qp_data_in_order(qp, op, flags);
  if (caps & IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG_V65) caps |= IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES_V65;
  if (flags & IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS_V65) return caps;
  return (caps & IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG_V65) != 0;
}

UHCA_EXPORT int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  if (!ece->vendor_id) return fail(EOPNOTSUPP);
  return get_ops(qp->context)->set_ece(qp, ece);
}
UHCA_EXPORT int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  return get_ops(qp->context)->query_ece(qp, ece);
}

UHCA_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return get_ops(qp->context)->attach_mcast(qp, gid, lid);
}
UHCA_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return get_ops(qp->context)->detach_mcast(qp, gid, lid);
}
