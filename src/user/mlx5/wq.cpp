// SPDX-License-Identifier: MIT
// Receive work queues, and the tables over which RSS spreads what is received.
#include "base/log.h"
#include "user/mlx5/doorbell.h"
#include "user/mlx5/post.h"

namespace uhca::mlx5 {

namespace {

void free_wq(Context* ctx, Rwq* wq) {
  free_dbr(ctx, wq->parent, wq->db);
  free_buf(ctx, wq->parent, MLX5DV_RES_TYPE_RWQ, &wq->buf);
  delete[] wq->rq.wrid;
  delete wq;
}

int post_wq_recv(ibv_wq* ibwq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Rwq* wq = to_rwq(ibwq);
  WorkQueue& rq = wq->rq;
  LockGuard guard(wq->lock);
  int err = 0;
  std::uint32_t nreq = 0;
  for (; wr; wr = wr->next, ++nreq) {
    if (is_full(rq, ibwq->cq, nreq))
      err = refuse(ENOMEM, "post_wq_recv on WQ {:#x}: the queue of {} WRs is full", ibwq->wq_num, rq.max_post).value;
    if (!err && wr->num_sge > rq.max_gs)
      err = refuse(EINVAL, "post_wq_recv on WQ {:#x}: {} SGEs, at most {}", ibwq->wq_num, wr->num_sge, rq.max_gs).value;
    if (err) {
      *bad_wr = wr;
      break;
    }
    std::uint32_t idx = (rq.head + nreq) & (rq.wqe_cnt - 1);
    put_recv_list(wq->buf.bytes() + (std::size_t{idx} << rq.wqe_shift), wr->sg_list, wr->num_sge, static_cast<unsigned>(rq.max_gs));
    rq.wrid[idx] = wr->wr_id;
  }
  if (nreq) {
    rq.head += nreq;
    to_device_barrier();
    write_dbr(&wq->db[prm::kRcvDbr], rq.head & 0xffff);
  }
  return err;
}

ibv_wq* create_wq(ibv_context* context, ibv_wq_init_attr* attr) {
  Context* ctx = to_ctx(context);
  if (attr->wq_type != IBV_WQT_RQ) return fail(refuse(EINVAL, "create_wq: WQ type {}", static_cast<int>(attr->wq_type)));
  if (!attr->max_wr) return fail(refuse(EINVAL, "create_wq: max_wr is 0"));
  ibv_qp_cap cap = {};
  cap.max_recv_wr = attr->max_wr;
  cap.max_recv_sge = attr->max_sge;
  auto plan = plan_rq(ctx->limits, cap, false);
  if (!plan) return fail(plan.error());
  Rwq* wq = make<Rwq>();
  if (!wq) return nullptr;
  wq->parent = parent_domain(attr->pd);
  wq->lock.enable(needs_lock(ctx, attr->pd));
  wq->rq.wqe_cnt = plan->wqe_cnt;
  wq->rq.wqe_shift = plan->wqe_shift;
  wq->rq.max_post = plan->max_post;
  wq->rq.max_gs = static_cast<int>(plan->max_gs);
  wq->index.wq = wq;
  wq->rq.wrid = new (std::nothrow) std::uint64_t[plan->wqe_cnt]();
  int err = wq->rq.wrid ? 0 : ENOMEM, uidx = -1;
  if (!err && !alloc_buf(ctx, wq->parent, plan->bytes, MLX5DV_RES_TYPE_RWQ, &wq->buf)) err = errno;
  if (!err) {
    wq->db = alloc_dbr(ctx, wq->parent);
    if (!wq->db) err = errno;
  }
  if (!err) {
    uidx = store_uidx(ctx, &wq->index);
    if (uidx < 0) err = refuse(ENOMEM, "create_wq: no free user index").value;
  }
  if (!err) {
    mlx5_ib_create_wq in = {};
    mlx5_ib_create_wq_resp out = {};
    in.buf_addr = reinterpret_cast<std::uintptr_t>(wq->buf.addr);
    in.db_addr = reinterpret_cast<std::uintptr_t>(wq->db);
    in.rq_wqe_count = wq->rq.wqe_cnt;
    in.rq_wqe_shift = wq->rq.wqe_shift;
    in.user_index = static_cast<std::uint32_t>(uidx);
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    err = ibv_cmd_create_wq(context, attr, &wq->wq, &udata);
  }
  if (err) {
    if (uidx >= 0) clear_uidx(ctx, static_cast<std::uint32_t>(uidx));
    free_wq(ctx, wq);
    errno = err;
    return nullptr;
  }
  if (wq->parent) ++wq->parent->refs;
  wq->wq.post_recv = post_wq_recv;
  return &wq->wq;
}

int modify_wq(ibv_wq* ibwq, ibv_wq_attr* attr) {
  Rwq* wq = to_rwq(ibwq);
  if ((attr->attr_mask & IBV_WQ_ATTR_STATE) && attr->wq_state == IBV_WQS_RDY) {
    if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != ibwq->state)
      return refuse(EINVAL, "modify_wq: WQ {:#x} is in state {}", ibwq->wq_num, static_cast<int>(ibwq->state)).value;
    if (ibwq->state == IBV_WQS_RESET) {
      Cq* cq = to_cq(ibwq->cq);
      LockGuard guard(cq->lock);
      clean_cq_locked(cq, wq->index.uidx, nullptr);
      wq->rq.reset();
      wq->db[prm::kRcvDbr] = 0;
      wq->db[prm::kSndDbr] = 0;
    }
  }
  mlx5_ib_modify_wq in = {};
  verbs_udata udata{&in, sizeof in, nullptr, 0};
  return ibv_cmd_modify_wq(ibwq, attr, &udata);
}

int destroy_wq(ibv_wq* ibwq) {
  Rwq* wq = to_rwq(ibwq);
  Context* ctx = to_ctx(ibwq->context);
  if (int err = ibv_cmd_destroy_wq(ibwq)) return err;
  {
    Cq* cq = to_cq(ibwq->cq);
    LockGuard guard(cq->lock);
    clean_cq_locked(cq, wq->index.uidx, nullptr);
    clear_uidx(ctx, wq->index.uidx);
  }
  if (wq->parent) --wq->parent->refs;
  free_wq(ctx, wq);
  return 0;
}

ibv_rwq_ind_table* create_rwq_ind_table(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
  auto* table = make<ibv_rwq_ind_table>();
  if (!table) return nullptr;
  if (int err = ibv_cmd_create_rwq_ind_table(context, attr, table)) {
    delete table;
    errno = err;
    return nullptr;
  }
  return table;
}

int destroy_rwq_ind_table(ibv_rwq_ind_table* table) {
  if (int err = ibv_cmd_destroy_rwq_ind_table(table)) return err;
  delete table;
  return 0;
}

}  // namespace

void fill_wq_ops(verbs_context_ops* ops) {
  ops->create_wq = create_wq;
  ops->modify_wq = modify_wq;
  ops->destroy_wq = destroy_wq;
  ops->create_rwq_ind_table = create_rwq_ind_table;
  ops->destroy_rwq_ind_table = destroy_rwq_ind_table;
}

}  // namespace uhca::mlx5
