// SPDX-License-Identifier: MIT
#include "mlx5dv/fake_verbs.h"

#include <unistd.h>

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
int ibv_cmd_create_srq_ex(ibv_context* context, verbs_srq* srq, ibv_srq_init_attr_ex* attr, const verbs_udata* u) {
  if (calls.err) return calls.err;
  fake::take(u, &calls.srq_in);
  fake::answer(u, calls.next_number++);
  srq->srq.context = context;
  srq->srq.pd = attr->pd;
  srq->cq = attr->cq;
  return 0;
}
int ibv_cmd_open_xrcd(ibv_context* context, verbs_xrcd* xrcd, const ibv_xrcd_init_attr*, const verbs_udata*) {
  if (calls.err) return calls.err;
  xrcd->xrcd.context = context;
  return 0;
}
int ibv_cmd_close_xrcd(verbs_xrcd*) {
  return calls.err;
}
int ibv_cmd_open_qp(ibv_context* context, verbs_qp* qp, const ibv_qp_open_attr* attr, const verbs_udata*) {
  if (calls.err) return calls.err;
  qp->qp.context = context;
  qp->qp.qp_num = attr->qp_num;
  qp->qp.qp_type = attr->qp_type;
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
  if (u) fake::take(u, &calls.qp_in);
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
int ibv_cmd_create_wq(ibv_context*, const ibv_wq_init_attr*, ibv_wq*, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_modify_wq(ibv_wq*, const ibv_wq_attr*, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_destroy_wq(ibv_wq*) {
  return calls.err;
}
int ibv_cmd_create_rwq_ind_table(ibv_context*, const ibv_rwq_ind_table_init_attr*, ibv_rwq_ind_table*) {
  return calls.err;
}
int ibv_cmd_destroy_rwq_ind_table(ibv_rwq_ind_table*) {
  return calls.err;
}
int ibv_cmd_create_flow(ibv_qp*, ibv_flow*, const ibv_flow_attr*, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_destroy_flow(ibv_flow*) {
  return calls.err;
}
int ibv_cmd_create_counters(ibv_context*, const ibv_counters_init_attr*, verbs_counters*, const ibv_command_buffer*) {
  return calls.err;
}
int ibv_cmd_destroy_counters(verbs_counters*) {
  return calls.err;
}
int ibv_cmd_read_counters(verbs_counters*, std::uint64_t*, std::uint32_t, std::uint32_t, const ibv_command_buffer*) {
  return calls.err;
}
int ibv_cmd_attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
  return calls.err;
}
int ibv_cmd_detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t) {
  return calls.err;
}

void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, std::size_t size, std::size_t offset, std::uint32_t) {
  char* p = static_cast<char*>(std::calloc(1, size));
  auto* v = reinterpret_cast<verbs_context_v65*>(p + offset);
  v->v.context.device = device;
  v->v.context.cmd_fd = cmd_fd;
  calls.cmd_fd = cmd_fd;
  ++calls.contexts;
  return p;
}
void verbs_uninit_context(verbs_context_v65* v) {
  close(v->v.context.cmd_fd);
  calls.cmd_fd = -1;
  --calls.contexts;
}
void verbs_set_ops(verbs_context_v65*, const verbs_context_ops* ops) {
  calls.ops = *ops;
}
int ibv_cmd_get_context(verbs_context_v65*, const ibv_fd_arr*, const verbs_udata* u) {
  std::uint32_t flags;
  std::memcpy(&flags, static_cast<const char*>(u->in) + 8, sizeof flags);
  calls.get_contexts.emplace_back(u->in_len, flags);
  if (calls.refuse_get_contexts && calls.refuse_get_contexts--) return EINVAL;
  std::memcpy(u->out, &calls.context_resp, std::min(u->out_len, sizeof calls.context_resp));
  return 0;
}
int ibv_cmd_query_context(ibv_context*, ibv_command_buffer* driver) {
  const ib_uverbs_attr* a = driver->find(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX);
  if (!a) return EINVAL;
  std::memcpy(reinterpret_cast<void*>(a->data), &calls.context_resp, sizeof calls.context_resp);
  return 0;
}
int ibv_cmd_query_device_any(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, std::size_t, std::uint64_t* fw,
                             const verbs_udata*, std::size_t*) {
  attr->orig_attr.atomic_cap = IBV_ATOMIC_HCA;
  *fw = std::uint64_t{28} << 32 | 39 << 16 | 1002;
  return calls.err;
}
int ibv_cmd_query_port(ibv_context*, std::uint8_t, ibv_port_attr_v65* attr) {
  attr->base.link_layer = calls.link_layer;
  return calls.err;
}
int ibv_cmd_query_port_speed(ibv_context*, std::uint32_t, std::uint64_t* speed) {
  *speed = 1000;
  return calls.err;
}
int execute_ioctl(ibv_context*, ibv_command_buffer* cmd) {
  if (calls.ioctl_err) return calls.ioctl_err;
  auto out = [&](std::uint16_t id, auto v) {
    if (const ib_uverbs_attr* a = cmd->find(id)) std::memcpy(reinterpret_cast<void*>(a->data), &v, sizeof v);
  };
  if (cmd->hdr.object_id == MLX5_IB_OBJECT_UAR) {
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, std::uint64_t{0});
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, std::uint32_t{4096});
    out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, std::uint32_t{0x55});
  }
  if (cmd->hdr.object_id == UVERBS_OBJECT_PD) out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, std::uint32_t{0x66});
  return 0;
}
int ibv_cmd_alloc_pd(ibv_context*, ibv_pd*, const verbs_udata* u) {
  if (calls.err) return calls.err;
  fake::answer(u, 0x77);
  ++calls.pds;
  return 0;
}
int ibv_cmd_dealloc_pd(ibv_pd*) {
  if (!calls.err) --calls.pds;
  return calls.err;
}
namespace {
int new_mr(verbs_mr* mr, ibv_pd* pd) {
  if (calls.err) return calls.err;
  ++calls.mrs;
  mr->mr.pd = pd;
  mr->mr.lkey = mr->mr.rkey = calls.next_number++;
  return 0;
}
}  // namespace
int ibv_cmd_reg_mr(ibv_pd* pd, void*, std::size_t, std::uint64_t, int, verbs_mr* mr, const verbs_udata*) {
  return new_mr(mr, pd);
}
int ibv_cmd_reg_mr_ex(ibv_pd* pd, verbs_mr* mr, const ibv_mr_init_attr*) {
  return new_mr(mr, pd);
}
int ibv_cmd_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t, std::size_t, std::uint64_t, int, int, verbs_mr* mr, const ibv_command_buffer*) {
  return new_mr(mr, pd);
}
int ibv_cmd_export_dmabuf_fd(ibv_context*, std::uint64_t) {
  errno = calls.err ? calls.err : EINVAL;
  return -1;
}
int ibv_cmd_query_mr(ibv_pd* pd, verbs_mr* mr, std::uint32_t) {
  return new_mr(mr, pd);
}
int ibv_cmd_dereg_mr(verbs_mr*) {
  if (!calls.err) --calls.mrs;
  return calls.err;
}
int ibv_cmd_rereg_mr(verbs_mr*, std::uint32_t, void*, std::size_t, std::uint64_t, int, ibv_pd*, const verbs_udata*) {
  return calls.err;
}
int ibv_cmd_advise_mr(ibv_pd*, ibv_advise_mr_advice, std::uint32_t, ibv_sge*, std::uint32_t) {
  return calls.err;
}
int ibv_cmd_alloc_dm(ibv_context*, const ibv_alloc_dm_attr*, verbs_dm*, ibv_command_buffer*) {
  return calls.err;
}
int ibv_cmd_free_dm(verbs_dm*) {
  return calls.err;
}
int ibv_cmd_reg_dm_mr(ibv_pd*, verbs_dm*, std::uint64_t, std::size_t, unsigned int, verbs_mr*, const ibv_command_buffer*) {
  return calls.err;
}
int ibv_cmd_alloc_mw(ibv_pd*, ibv_mw_type type, ibv_mw* mw, const verbs_udata*) {
  mw->type = type;
  return calls.err;
}
int ibv_cmd_dealloc_mw(ibv_mw*) {
  return calls.err;
}
int ibv_cmd_create_ah(ibv_pd*, ibv_ah*, const ibv_ah_attr*, const verbs_udata* u) {
  if (calls.err) return calls.err;
  const std::uint8_t mac[6] = {2, 0, 0, 1, 2, 3};
  std::memcpy(static_cast<char*>(u->out) + offsetof(mlx5_ib_create_ah_resp, dmac), mac, 6);
  ++calls.ahs;
  return 0;
}
int ibv_cmd_destroy_ah(ibv_ah*) {
  if (!calls.err) --calls.ahs;
  return calls.err;
}
int ibv_query_gid_type(ibv_context*, std::uint8_t, unsigned, ibv_gid_type_sysfs* type) {
  *type = calls.gid_type;
  return 0;
}
extern "C" int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, std::uint8_t* mac, std::uint16_t*) {
  std::memset(mac, 0x42, 6);
  return 0;
}
