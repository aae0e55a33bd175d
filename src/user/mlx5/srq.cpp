// SPDX-License-Identifier: MIT
// Shared receive queues: WQEs linked through their first segment. The program takes from head, completions give back behind tail; one WQE
// always stays unposted, because the device follows the link of the last one.
#include "base/log.h"
#include "user/mlx5/doorbell.h"

namespace uhca::mlx5 {

namespace {
void set_next(Srq* srq, std::uint32_t i, std::uint32_t next) {
  prm::set<prm::wqe_srq_next_seg::next_wqe_index>(srq->wqe(i), next);
}
std::uint32_t get_next(Srq* srq, std::uint32_t i) {
  return prm::get<prm::wqe_srq_next_seg::next_wqe_index>(srq->wqe(i));
}

// The queue and its bookkeeping, before the kernel knows of it.
Srq* new_srq(Context* ctx, ibv_pd* pd, const SrqPlan& plan) {
  Srq* srq = make<Srq>();
  if (!srq) return nullptr;
  Pd* parent = parent_domain(pd);
  srq->lock.enable(needs_lock(ctx, pd));
  srq->wqe_shift = plan.wqe_shift;
  srq->max_gs = plan.max_gs;
  srq->max = plan.max;
  srq->tail = plan.tail;
  srq->dbr_owner = parent;
  srq->wrid = new (std::nothrow) std::uint64_t[srq->max]();
  if (srq->wrid && alloc_buf(ctx, parent, std::size_t{srq->max} << srq->wqe_shift, MLX5DV_RES_TYPE_SRQ, &srq->buf)) {
    for (std::uint32_t i = 0; i < srq->max; ++i) set_next(srq, i, i + 1);
    srq->db = alloc_dbr(ctx, parent);
    if (srq->db) return srq;
  } else {
    errno = ENOMEM;
  }
  int err = errno;
  free_buf(ctx, parent, MLX5DV_RES_TYPE_SRQ, &srq->buf);
  delete[] srq->wrid;
  delete srq;
  errno = err;
  return nullptr;
}

void free_srq(Context* ctx, Srq* srq) {
  free_dbr(ctx, srq->dbr_owner, srq->db);
  free_buf(ctx, srq->dbr_owner, MLX5DV_RES_TYPE_SRQ, &srq->buf);
  delete[] srq->wrid;
  delete srq;
}

mlx5_ib_create_srq request_of(const Srq* srq) {
  mlx5_ib_create_srq in = {};
  in.buf_addr = reinterpret_cast<std::uintptr_t>(srq->buf.addr);
  in.db_addr = reinterpret_cast<std::uintptr_t>(srq->db);
  return in;
}

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  Context* ctx = to_ctx(pd->context);
  auto plan = plan_srq(ctx->limits, attr->attr.max_wr, attr->attr.max_sge);
  if (!plan) return fail(plan.error());
  Srq* srq = new_srq(ctx, pd, *plan);
  if (!srq) return nullptr;
  mlx5_ib_create_srq in = request_of(srq);
  mlx5_ib_create_srq_resp out = {};
  verbs_udata udata{&in, sizeof in, &out, sizeof out};
  // The kernel is told the whole buffer; the program gets back what it can post.
  attr->attr.max_sge = srq->max_gs;
  attr->attr.max_wr = srq->max - 1;
  if (int err = ibv_cmd_create_srq(pd, &srq->v.srq, attr, &udata)) {
    free_srq(ctx, srq);
    errno = err;
    return nullptr;
  }
  srq->srqn = srq->v.srq_num = out.srqn;
  attr->attr.max_wr = plan->tail;
  if (srq->dbr_owner) ++srq->dbr_owner->refs;
  return &srq->v.srq;
}

ibv_srq* create_xrc_srq(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  Context* ctx = to_ctx(context);
  constexpr std::uint32_t need = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  if ((attr->comp_mask & need) != need) return fail(refuse(EINVAL, "create_srq_ex: an XRC SRQ needs a PD, an XRC domain and a CQ"));
  auto plan = plan_srq(ctx->limits, attr->attr.max_wr, attr->attr.max_sge);
  if (!plan) return fail(plan.error());
  Srq* srq = new_srq(ctx, attr->pd, *plan);
  if (!srq) return nullptr;
  srq->index.srq = srq;
  int uidx = store_uidx(ctx, &srq->index);
  int err = uidx < 0 ? refuse(ENOMEM, "create_srq_ex: no free user index").value : 0;
  if (!err) {
    mlx5_ib_create_srq in = request_of(srq);
    mlx5_ib_create_srq_resp out = {};
    in.uidx = srq->index.uidx;
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    attr->attr.max_sge = srq->max_gs;
    attr->attr.max_wr = srq->max - 1;
    err = ibv_cmd_create_srq_ex(context, &srq->v, attr, &udata);
    srq->srqn = out.srqn;
  }
  if (err) {
    if (uidx >= 0) clear_uidx(ctx, srq->index.uidx);
    free_srq(ctx, srq);
    errno = err;
    return nullptr;
  }
  attr->attr.max_wr = plan->tail;
  if (srq->dbr_owner) ++srq->dbr_owner->refs;
  return &srq->v.srq;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return ibv_cmd_modify_srq(srq, attr, mask, nullptr);
}
int query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return ibv_cmd_query_srq(srq, attr);
}

int get_srq_num(ibv_srq* srq, std::uint32_t* num) {
  *num = to_srq(srq)->srqn;
  return 0;
}

int destroy_srq(ibv_srq* ibsrq) {
  Srq* srq = to_srq(ibsrq);
  Context* ctx = to_ctx(ibsrq->context);
  Pd* parent = srq->dbr_owner;
  if (int err = ibv_cmd_destroy_srq(ibsrq)) return err;
  if (srq->index.srq) {
    // Completions name an XRC SRQ by its index: none may stay behind that would be taken for a later owner's.
    Cq* cq = to_cq(srq->v.cq);
    LockGuard guard(cq->lock);
    clean_cq_locked(cq, srq->index.uidx, nullptr);
    clear_uidx(ctx, srq->index.uidx);
  }
  free_srq(ctx, srq);
  if (parent) --parent->refs;
  return 0;
}

// ibv_create_srq_ex reaches the provider for other than basic SRQs only.
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attr) {
  if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) || attr->srq_type == IBV_SRQT_BASIC) {
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || attr->pd->context != context)
      return fail(refuse(EINVAL, "create_srq_ex: a basic SRQ needs a PD of the same context"));
    return create_srq(attr->pd, reinterpret_cast<ibv_srq_init_attr*>(attr));
  }
  if (attr->srq_type == IBV_SRQT_XRC) return create_xrc_srq(context, attr);
  return fail(refuse(EOPNOTSUPP, "create_srq_ex: SRQ type {} is not supported", static_cast<int>(attr->srq_type)));
}
}  // namespace

void srq_free_wqe(Srq* srq, std::uint32_t index) {
  if (index >= srq->max) return;  // no such WQE: a CQE that the device spoiled
  LockGuard guard(srq->lock);
  set_next(srq, srq->tail, index);
  srq->tail = index;
}

int srq_post_recv(ibv_srq* ibsrq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Srq* srq = to_srq(ibsrq);
  LockGuard guard(srq->lock);
  int err = 0;
  std::uint32_t nreq = 0;
  for (; wr; wr = wr->next, ++nreq) {
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > srq->max_gs) {
      err = refuse(EINVAL, "post_srq_recv on SRQ {:#x}: {} SGEs, at most {}", srq->srqn, wr->num_sge, srq->max_gs).value;
      *bad_wr = wr;
      break;
    }
    if (srq->head == srq->tail) {
      err = refuse(ENOMEM, "post_srq_recv on SRQ {:#x}: it is full", srq->srqn).value;
      *bad_wr = wr;
      break;
    }
    std::uint8_t* wqe = srq->wqe(srq->head);
    srq->wrid[srq->head] = wr->wr_id;
    srq->head = get_next(srq, srq->head);
    std::uint8_t* seg = wqe + prm::wqe_srq_next_seg::kBytes;
    std::uint32_t i = 0;
    for (; i < static_cast<std::uint32_t>(wr->num_sge); ++i)
      put_data(seg + 16 * i, wr->sg_list[i].length, wr->sg_list[i].lkey, wr->sg_list[i].addr);
    if (i < srq->max_gs) put_data_end(seg + 16 * i);
  }
  if (nreq) {
    srq->counter += nreq;
    to_device_barrier();
    write_dbr(&srq->db[prm::kRcvDbr], srq->counter);
  }
  return err;
}

void fill_srq_ops(verbs_context_ops* ops) {
  ops->create_srq = create_srq;
  ops->create_srq_ex = create_srq_ex;
  ops->modify_srq = modify_srq;
  ops->query_srq = query_srq;
  ops->destroy_srq = destroy_srq;
  ops->get_srq_num = get_srq_num;
  ops->post_srq_recv = srq_post_recv;
}

}  // namespace uhca::mlx5
