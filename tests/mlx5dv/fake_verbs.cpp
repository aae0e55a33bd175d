// SPDX-License-Identifier: MIT
#include "mlx5dv/fake_verbs.h"

namespace fake {
Calls calls;

namespace {
template <class T>
void take(const verbs_udata* u, T* in) {
  std::memset(in, 0, sizeof *in);
  std::memcpy(in, u->in, std::min(u->in_len, sizeof *in));
}
void answer(const verbs_udata* u, std::uint32_t number) {
  if (u && u->out_len >= sizeof number) std::memcpy(u->out, &number, sizeof number);
}
}  // namespace
}  // namespace fake

using fake::calls;

int ibv_dontfork_range(void*, std::size_t) {
  return 0;
}
int ibv_dofork_range(void*, std::size_t) {
  return 0;
}

int ibv_cmd_create_cq_ex(ibv_context* context, const ibv_cq_init_attr_ex* attr, verbs_cq* cq, const verbs_udata* u, std::uint32_t,
                         const ibv_command_buffer*) {
  if (calls.err) return calls.err;
  fake::take(u, &calls.cq_in);
  fake::answer(u, calls.next_number++);
  cq->cq.context = context;
  cq->cq.cqe = static_cast<int>(attr->cqe);
  return 0;
}
// Plays the device as well: marks the switch in the old buffer, as the kernel's RESIZE_CQ does.
int ibv_cmd_resize_cq(ibv_cq* ibcq, int, const verbs_udata*) {
  if (calls.err) return calls.err;
  uhca::mlx5::Cq* cq = uhca::mlx5::to_cq(ibcq);
  std::uint32_t i = cq->cons_index;
  while (cq->sw_owned(i)) ++i;
  cq->cqe64(i)[63] = static_cast<std::uint8_t>(5 << 4 | ((i & cq->ncqe) ? 1 : 0));
  return 0;
}
int ibv_cmd_modify_cq(ibv_cq*, const ibv_modify_cq_attr*) {
  return calls.err;
}
int ibv_cmd_destroy_cq(ibv_cq*) {
  return calls.err;
}
int ibv_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr*, const verbs_udata* u) {
  if (calls.err) return calls.err;
  fake::take(u, &calls.srq_in);
  fake::answer(u, calls.next_number++);
  srq->context = pd->context;
  srq->pd = pd;
  return 0;
}
int ibv_cmd_modify_srq(ibv_srq*, const ibv_srq_attr*, int, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_query_srq(ibv_srq*, ibv_srq_attr*) {
  return calls.err;
}
int ibv_cmd_destroy_srq(ibv_srq*) {
  return calls.err;
}
int ibv_cmd_create_qp_ex(ibv_context* context, verbs_qp* qp, ibv_qp_init_attr_ex* attr, const verbs_udata* u, const ibv_command_buffer*) {
  if (calls.err) return calls.err;
  fake::take(u, &calls.qp_in);
  qp->qp.context = context;
  qp->qp.qp_num = calls.next_number++;
  qp->qp.pd = attr->pd;
  qp->qp.send_cq = attr->send_cq;
  qp->qp.recv_cq = attr->recv_cq;
  qp->qp.srq = attr->srq;
  qp->qp.qp_type = attr->qp_type;
  return 0;
}
int ibv_cmd_query_qp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) {
  return calls.err;
}
int ibv_cmd_modify_qp(ibv_qp*, const ibv_qp_attr*, int) {
  return calls.err;
}
int ibv_cmd_modify_qp_ex(ibv_qp*, const ibv_qp_attr*, int, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_destroy_qp(ibv_qp*) {
  return calls.err;
}
int ibv_cmd_attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
  return calls.err;
}
int ibv_cmd_detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
  return calls.err;
}
