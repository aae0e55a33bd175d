// SPDX-License-Identifier: MIT
// Queue pairs: creation (sizes, one buffer with the RQ first and the SQ behind it, doorbell record), state changes, destruction.
#include <cstdlib>
#include <iterator>

#include "base/log.h"
#include "user/mlx5/post.h"

namespace uhca::mlx5 {

namespace {

constexpr std::uint32_t kMellanoxVendorId = 0x15b3;

bool scatter_to_cqe_wanted() {
  const char* env = getenv("MLX5_SCATTER_TO_CQE");
  return !(env && env[0] == '0' && !env[1]);
}

std::uint64_t dv_ops(const mlx5dv_qp_init_attr* dv) {
  return dv && (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS) ? dv->send_ops_flags : 0;
}

// Creation flags of mlx5dv_create_qp, as the kernel's.
Result<std::uint32_t> dv_flags(const mlx5dv_qp_init_attr* dv) {
  std::uint32_t flags = scatter_to_cqe_wanted() ? std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE} : 0;
  if (!dv) return flags;
  if (dv->comp_mask & ~std::uint64_t{MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC |
                                     MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS})
    return refuse(EINVAL, "mlx5dv_create_qp: comp_mask {:#x}", dv->comp_mask);
  if (dv_ops(dv) & ~std::uint64_t{MLX5DV_QP_EX_WITH_RAW_WQE | kMkeyOps})
    return refuse(EOPNOTSUPP, "mlx5dv_create_qp: send_ops_flags {:#x}", dv->send_ops_flags);
  if (!(dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)) return flags;
  std::uint32_t f = dv->create_flags;
  if (f & MLX5DV_QP_CREATE_SIG_PIPELINING) return refuse(EOPNOTSUPP, "mlx5dv_create_qp: no signature pipelining");
  constexpr std::uint32_t known = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS | MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
                                  MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC | MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                                  MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE | MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
  if (f & ~known) return refuse(EINVAL, "mlx5dv_create_qp: create_flags {:#x}", f);
  if ((f & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) && (f & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE))
    return refuse(EINVAL, "mlx5dv_create_qp: scatter to CQE both allowed and disabled");
  if (f & MLX5DV_QP_CREATE_TUNNEL_OFFLOADS) flags |= MLX5_QP_FLAG_TUNNEL_OFFLOADS;
  if (f & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC) flags |= MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC;
  if (f & MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC) flags |= MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_MC;
  if (f & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE) flags &= ~std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE};
  if (f & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE) flags |= MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_SCATTER_CQE;
  if (f & MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE) flags |= MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE;
  return flags;
}

int check_create(const ibv_qp_init_attr_ex* attr) {
  constexpr std::uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                                  IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH |
                                  IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attr->comp_mask & ~known) return refuse(EINVAL, "create_qp: comp_mask {:#x}", attr->comp_mask).value;
  if (attr->qp_type != IBV_QPT_RC && attr->qp_type != IBV_QPT_UC && attr->qp_type != IBV_QPT_UD && attr->qp_type != IBV_QPT_XRC_SEND &&
      attr->qp_type != IBV_QPT_DRIVER && attr->qp_type != IBV_QPT_RAW_PACKET)
    return refuse(EOPNOTSUPP, "create_qp: QP type {} is not supported", static_cast<int>(attr->qp_type)).value;
  constexpr std::uint32_t ethernet = IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) && (attr->comp_mask & IBV_QP_INIT_ATTR_RX_HASH))
    return refuse(EINVAL, "create_qp: an RSS QP sends nothing").value;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || ((attr->comp_mask & ethernet) && attr->qp_type != IBV_QPT_RAW_PACKET))
    return refuse(EINVAL, "create_qp: comp_mask {:#x} is not for QP type {}", attr->comp_mask, static_cast<int>(attr->qp_type)).value;
  if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) return refuse(EINVAL, "create_qp: no PD").value;
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && (attr->create_flags & IBV_QP_CREATE_SOURCE_QPN))
    return refuse(EOPNOTSUPP, "create_qp: no underlay QPs").value;
  return 0;
}

bool alloc_queues(Context* ctx, Pd* parent, Qp* qp, std::size_t bytes) {
  if (qp->sq.wqe_cnt) {
    qp->sq.wrid = new (std::nothrow) std::uint64_t[qp->sq.wqe_cnt]();
    qp->sq.wqe_head = new (std::nothrow) std::uint32_t[qp->sq.wqe_cnt]();
    qp->sq.wr_data = new (std::nothrow) std::uint8_t[qp->sq.wqe_cnt]();
    if (!qp->sq.wrid || !qp->sq.wqe_head || !qp->sq.wr_data) {
      errno = ENOMEM;
      return false;
    }
  }
  if (qp->rq.wqe_cnt) {
    qp->rq.wrid = new (std::nothrow) std::uint64_t[qp->rq.wqe_cnt]();
    if (!qp->rq.wrid) {
      errno = ENOMEM;
      return false;
    }
  }
  if (!alloc_buf(ctx, parent, bytes, MLX5DV_RES_TYPE_QP, &qp->buf)) return false;
  qp->db = alloc_dbr(ctx, parent);
  return qp->db;
}

void free_queues(Context* ctx, Pd* parent, Qp* qp) {
  free_dbr(ctx, parent, qp->db);
  free_buf(ctx, parent, MLX5DV_RES_TYPE_QP, &qp->buf);
  delete[] qp->sq.wrid;
  delete[] qp->sq.wqe_head;
  delete[] qp->sq.wr_data;
  delete[] qp->rq.wrid;
}

// Which posts the state allows: receives from INIT on, sends from RTS on; RESET forbids both. Other states change nothing, so that WRs
// posted in ERR are flushed (IBTA 10.3.1).
void follow_state(Qp* qp, ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      qp->sq.state_max_gs = -1;
      qp->rq.state_max_gs = -1;
      set_wr_complete(qp, false);
      break;
    case IBV_QPS_INIT: qp->rq.state_max_gs = qp->rq.max_gs; break;
    case IBV_QPS_RTS:
      qp->sq.state_max_gs = qp->sq.max_gs;
      set_wr_complete(qp, true);
      break;
    default: break;
  }
}

// Both CQs' locks in the order of their numbers.
class CqPairLock {
 public:
  CqPairLock(Cq* a, Cq* b) : first_(a), second_(b == a ? nullptr : b) {
    if (!first_ || (second_ && second_->cqn < first_->cqn)) std::swap(first_, second_);
    if (first_) first_->lock.lock();
    if (second_) second_->lock.lock();
  }
  ~CqPairLock() {
    if (second_) second_->lock.unlock();
    if (first_) first_->lock.unlock();
  }
  CqPairLock(const CqPairLock&) = delete;
  CqPairLock& operator=(const CqPairLock&) = delete;

 private:
  Cq* first_;
  Cq* second_;
};

Cq* cq_of(ibv_cq* cq) {
  return cq ? to_cq(cq) : nullptr;
}

void clean_cqs_locked(Qp* qp) {
  ibv_qp& q = qp->v.qp;
  clean_cq_locked(cq_of(q.recv_cq), qp->uidx, q.srq ? to_srq(q.srq) : nullptr);
  if (q.send_cq != q.recv_cq) clean_cq_locked(cq_of(q.send_cq), qp->uidx, nullptr);
}

ibv_qp* create_qp_op(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex ex = {};
  std::memcpy(&ex, attr, sizeof *attr);
  ex.comp_mask = IBV_QP_INIT_ATTR_PD;
  ex.pd = pd;
  ibv_qp* qp = create_qp(pd->context, &ex, nullptr);
  if (qp) std::memcpy(attr, &ex, sizeof *attr);
  return qp;
}

// Of the segment between the control segment and the operation's own.
std::uint32_t transport_bytes(ibv_qp_type type) {
  if (type == IBV_QPT_RAW_PACKET) return 32;  // the Ethernet segment, with headers inlined
  if (type == IBV_QPT_UD || type == IBV_QPT_DRIVER) return static_cast<std::uint32_t>(prm::wqe_av::kBytes);
  if (type == IBV_QPT_XRC_SEND) return static_cast<std::uint32_t>(prm::wqe_xrc_seg::kBytes);
  return 0;
}

ibv_qp* create_qp_ex_op(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  return create_qp(context, attr, nullptr);
}

int destroy_qp(ibv_qp* ibqp) {
  Qp* qp = to_qp(ibqp);
  if (is_xrc_target(qp)) return destroy_xrc_target(qp);
  Context* ctx = qp->ctx;
  Pd* parent = parent_domain(ibqp->pd);
  if (int err = ibv_cmd_destroy_qp(ibqp)) return err;
  if (qp->rss) {
    delete qp;
    return 0;
  }
  {
    CqPairLock locks(cq_of(ibqp->send_cq), cq_of(ibqp->recv_cq));
    clean_cqs_locked(qp);
    clear_uidx(ctx, qp->uidx);
  }
  if (!is_dct(qp)) {
    free_queues(ctx, parent, qp);
    if (parent) --parent->refs;
  }
  delete qp;
  return 0;
}

int query_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  Qp* qp = to_qp(ibqp);
  if (qp->rss) return refuse(EOPNOTSUPP, "query_qp: an RSS QP has no states").value;
  if (int err = ibv_cmd_query_qp(ibqp, attr, mask, init)) return err;
  if (is_xrc_target(qp)) return 0;
  init->cap.max_send_wr = qp->sq.max_post;
  init->cap.max_send_sge = static_cast<std::uint32_t>(qp->sq.max_gs);
  init->cap.max_inline_data = qp->max_inline;
  attr->cap = init->cap;
  return 0;
}

// What the port that a raw packet QP is on does for it.
void learn_port(Qp* qp, unsigned port) {
  const Context* ctx = qp->ctx;
  if (port < 1 || port > std::size(ctx->link_layer) || ctx->link_layer[port - 1] != IBV_LINK_LAYER_ETHERNET) return;
  qp->csum = ctx->raw_csum;
  if (ctx->caps.tso_caps.supported_qpts & (1u << IBV_QPT_RAW_PACKET)) qp->max_tso = ctx->caps.tso_caps.max_tso;
}

int modify_qp(ibv_qp* ibqp, ibv_qp_attr* attr, int mask) {
  Qp* qp = to_qp(ibqp);
  if (is_dct(qp)) return modify_dct(qp, attr, mask);
  if (qp->rss) return refuse(EOPNOTSUPP, "modify_qp: an RSS QP has no states").value;
  if ((mask & IBV_QP_PORT) && ibqp->qp_type == IBV_QPT_RAW_PACKET) learn_port(qp, attr->port_num);
  int err;
  if ((mask & IBV_QP_RATE_LIMIT) || qp->set_ece) {
    mlx5_ib_modify_qp in = {};
    mlx5_ib_modify_qp_resp out = {};
    in.ece_options = qp->set_ece;
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    err = ibv_cmd_modify_qp_ex(ibqp, attr, mask, &udata);
    if (!err && qp->set_ece) {
      qp->set_ece = 0;
      qp->get_ece = out.ece_options;
    }
  } else {
    err = ibv_cmd_modify_qp(ibqp, attr, mask);
  }
  if (err || !(mask & IBV_QP_STATE) || is_xrc_target(qp)) return err;
  if (attr->qp_state == IBV_QPS_RESET) {
    CqPairLock locks(cq_of(ibqp->send_cq), cq_of(ibqp->recv_cq));
    clean_cqs_locked(qp);
    qp->sq.reset();
    qp->rq.reset();
    qp->cur_post = 0;
    qp->next_fence = 0;
    qp->db[prm::kRcvDbr] = 0;
    qp->db[prm::kSndDbr] = 0;
  }
  if (attr->qp_state == IBV_QPS_RTR && ibqp->qp_type == IBV_QPT_RAW_PACKET) {
    LockGuard guard(qp->rq_lock);
    to_device_barrier();
    write_dbr(&qp->db[prm::kRcvDbr], qp->rq.head & 0xffff);
  }
  follow_state(qp, attr->qp_state);
  return 0;
}

int modify_qp_rate_limit(ibv_qp* ibqp, ibv_qp_rate_limit_attr* attr) {
  Qp* qp = to_qp(ibqp);
  const mlx5_packet_pacing_caps& caps = qp->ctx->caps.packet_pacing_caps;
  if (attr->comp_mask) return refuse(EINVAL, "modify_qp_rate_limit: comp_mask {:#x}", attr->comp_mask).value;
  bool burst = attr->max_burst_sz || attr->typical_pkt_sz;
  if (burst && (!attr->rate_limit || !(caps.cap_flags & MLX5_IB_PP_SUPPORT_BURST)))
    return refuse(EINVAL, "modify_qp_rate_limit: the device has no burst control").value;
  if (!(caps.supported_qpts & (1u << ibqp->qp_type)))
    return refuse(EOPNOTSUPP, "modify_qp_rate_limit: no packet pacing for QP type {}", static_cast<int>(ibqp->qp_type)).value;
  ibv_qp_attr qp_attr = {};
  qp_attr.rate_limit = attr->rate_limit;
  mlx5_ib_modify_qp in = {};
  in.burst_info.max_burst_sz = attr->max_burst_sz;
  in.burst_info.typical_pkt_sz = attr->typical_pkt_sz;
  verbs_udata udata{&in, sizeof in, nullptr, 0};
  return ibv_cmd_modify_qp_ex(ibqp, &qp_attr, IBV_QP_RATE_LIMIT, &udata);
}

int set_ece(ibv_qp* ibqp, ibv_ece* ece) {
  Qp* qp = to_qp(ibqp);
  if (ece->comp_mask) return fail_int(refuse(EINVAL, "set_ece: comp_mask {:#x}", ece->comp_mask));
  if (ece->vendor_id != kMellanoxVendorId) return fail_int(refuse(EINVAL, "set_ece: vendor {:#x}", ece->vendor_id));
  if (!qp->ctx->ece) return fail_int(refuse(EOPNOTSUPP, "set_ece: the kernel does not carry ECE"));
  qp->set_ece = ece->options;
  qp->get_ece = 0;
  return 0;
}

int query_ece(ibv_qp* ibqp, ibv_ece* ece) {
  ece->vendor_id = kMellanoxVendorId;
  ece->options = to_qp(ibqp)->get_ece;
  ece->comp_mask = 0;
  return 0;
}

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return ibv_cmd_attach_mcast(qp, gid, lid);
}
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return ibv_cmd_detach_mcast(qp, gid, lid);
}

// The device does not promise data in order for any operation: 0, which is no error.
int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
  return 0;
}

// A TIR over an indirection table: nothing of it is in the program.
ibv_qp* create_rss_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, std::uint32_t flags) {
  const ibv_rx_hash_conf& hash = attr->rx_hash_conf;
  mlx5_ib_create_qp_rss in = {};
  mlx5_ib_create_qp_resp out = {};
  if (hash.rx_hash_key_len > sizeof in.rx_hash_key) return fail(refuse(EINVAL, "create_qp: an RSS key of {} bytes", hash.rx_hash_key_len));
  in.rx_hash_fields_mask = hash.rx_hash_fields_mask;
  in.rx_hash_function = hash.rx_hash_function;
  in.rx_key_len = hash.rx_hash_key_len;
  in.flags = flags & ~std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE};
  std::memcpy(in.rx_hash_key, hash.rx_hash_key, hash.rx_hash_key_len);
  Qp* qp = make<Qp>();
  if (!qp) return nullptr;
  qp->ctx = to_ctx(context);
  qp->rss = true;
  verbs_udata udata{&in, sizeof in, &out, sizeof out};
  if (int err = ibv_cmd_create_qp_ex(context, &qp->v, attr, &udata, nullptr)) {
    delete qp;
    errno = err;
    return nullptr;
  }
  return &qp->v.qp;
}

}  // namespace

ibv_qp* create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr* dv) {
  Context* ctx = to_ctx(context);
  if (attr->qp_type == IBV_QPT_XRC_RECV) return create_xrc_target(context, attr);
  if (int err = check_create(attr)) return fail(Errno{err});
  auto dc = dc_type_of(attr, dv);
  if (!dc) return fail(dc.error());
  auto flags = dv_flags(dv);
  if (!flags) return fail(flags.error());
  if (*dc == MLX5DV_DCTYPE_DCT) return create_dct(context, attr, *dv, *flags);
  mlx5_ib_create_qp_dci_streams streams = {};
  if (*dc == MLX5DV_DCTYPE_DCI) {
    *flags |= MLX5_QP_FLAG_TYPE_DCI;
    if (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS) {
      auto wanted = dci_streams_of(ctx, *dv);
      if (!wanted) return fail(wanted.error());
      *flags |= MLX5_QP_FLAG_DCI_STREAM;
      streams = *wanted;
    }
  }
  if (attr->comp_mask & IBV_QP_INIT_ATTR_RX_HASH) return create_rss_qp(context, attr, *flags);
  bool raw = attr->qp_type == IBV_QPT_RAW_PACKET;
  std::uint32_t headers = attr->comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER ? attr->max_tso_header : 0;
  bool with_ops = attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  std::uint64_t ops = with_ops ? attr->send_ops_flags : 0;
  if (!with_ops && dv_ops(dv)) {
    with_ops = true;
  } else if (!with_ops) {
    auto all = default_send_ops(attr->qp_type);
    if (!all) return fail(all.error());
    ops = *all;
  }
  // Data that comes inside the CQE is placed by the parser, which knows no DC WQEs (nor does rdma-core's).
  if (*dc && with_ops) *flags &= ~std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE};
  // Room for a key's configuration is that for a window's.
  const std::uint64_t sized = ops | (dv_ops(dv) & kMkeyOps ? std::uint64_t{IBV_QP_EX_WITH_BIND_MW} : 0);
  auto sq = plan_sq(ctx->limits, attr->qp_type, sized, attr->cap, headers);
  if (!sq) return fail(sq.error());
  auto rq = plan_rq(ctx->limits, attr->cap, attr->srq || attr->qp_type == IBV_QPT_XRC_SEND);
  if (!rq) return fail(rq.error());
  auto overhead = sq_overhead(attr->qp_type, sized);
  if (!overhead) return fail(overhead.error());

  Qp* qp = make<Qp>();
  if (!qp) return nullptr;
  Pd* parent = parent_domain(attr->pd);
  qp->ctx = ctx;
  qp->atomics = ctx->atomic_cap != IBV_ATOMIC_NONE;
  qp->uar = &ctx->nc_uar;
  qp->sq_lock.enable(needs_lock(ctx, attr->pd));
  qp->rq_lock.enable(needs_lock(ctx, attr->pd));
  qp->sq.wqe_cnt = sq->wqe_cnt;
  qp->sq.wqe_shift = log2_up(prm::kSendWqeBb);
  qp->sq.max_post = sq->max_post;
  qp->sq.max_gs = sq->wqe_cnt ? static_cast<int>(attr->cap.max_send_sge) : 0;
  // The two queues of a raw packet QP are two objects, each with a buffer that begins on a page.
  const std::uint64_t rq_bytes = raw ? align_up(rq->bytes, prm::kUarPageSize) : rq->bytes;
  qp->sq.offset = rq_bytes;
  qp->max_tso_header = headers;
  qp->rq.wqe_cnt = rq->wqe_cnt;
  qp->rq.wqe_shift = rq->wqe_shift;
  qp->rq.max_post = rq->max_post;
  qp->rq.max_gs = static_cast<int>(rq->max_gs);
  qp->max_inline = sq->max_inline;
  qp->sq_overhead = *overhead;
  qp->transport = transport_bytes(attr->qp_type);
  qp->dc_type = *dc;

  int err = with_ops ? fill_wr_builders(qp, attr->qp_type, ops, dv_ops(dv)) : 0;
  if (!err && !alloc_queues(ctx, parent, qp, rq_bytes + sq->bytes)) err = errno;
  int uidx = -1;
  if (!err) {
    qp->ring = SqRing{qp->buf.bytes() + rq_bytes, qp->buf.bytes() + rq_bytes + sq->bytes};
    qp->index.qp = qp;
    uidx = store_uidx(ctx, &qp->index);
    if (uidx < 0) err = refuse(ENOMEM, "create_qp: no free user index").value;
  }
  if (!err) {
    qp->uidx = static_cast<std::uint32_t>(uidx);
    mlx5_ib_create_qp in = {};
    mlx5_ib_create_qp_resp out = {};
    in.buf_addr = reinterpret_cast<std::uintptr_t>(qp->buf.addr);
    in.db_addr = reinterpret_cast<std::uintptr_t>(qp->db);
    if (raw) in.sq_buf_addr = reinterpret_cast<std::uintptr_t>(qp->ring.start);
    in.sq_wqe_count = qp->sq.wqe_cnt;
    in.rq_wqe_count = qp->rq.wqe_cnt;
    in.rq_wqe_shift = qp->rq.wqe_shift;
    in.flags = *flags | MLX5_QP_FLAG_UAR_PAGE_INDEX;
    in.uidx = qp->uidx;
    in.bfreg_index = qp->uar->page_id;
    in.ece_options = ctx->ece ? kEceFirstVersion : 0;
    in.dci_streams = streams;
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    if (attr->srq) attr->cap.max_recv_wr = attr->cap.max_recv_sge = 0;
    err = ibv_cmd_create_qp_ex(context, &qp->v, attr, &udata, nullptr);
    qp->get_ece = out.ece_options;
  }
  if (err) {
    if (uidx >= 0) clear_uidx(ctx, static_cast<std::uint32_t>(uidx));
    free_queues(ctx, parent, qp);
    delete qp;
    errno = err;
    return nullptr;
  }
  qp->sq_signal_bits = attr->sq_sig_all ? prm::kWqeCtrlCqUpdate : 0;
  attr->cap.max_send_wr = qp->sq.max_post;
  attr->cap.max_send_sge = static_cast<std::uint32_t>(qp->sq.max_gs);
  attr->cap.max_inline_data = qp->max_inline;
  attr->cap.max_recv_wr = qp->rq.max_post;
  attr->cap.max_recv_sge = static_cast<std::uint32_t>(qp->rq.max_gs);
  if (with_ops) qp->v.comp_mask |= VERBS_QP_EX;
  if (parent) ++parent->refs;
  follow_state(qp, IBV_QPS_RESET);
  return &qp->v.qp;
}

void fill_qp_ops(verbs_context_ops* ops) {
  ops->create_qp = create_qp_op;
  ops->create_qp_ex = create_qp_ex_op;
  ops->destroy_qp = destroy_qp;
  ops->query_qp = query_qp;
  ops->modify_qp = modify_qp;
  ops->modify_qp_rate_limit = modify_qp_rate_limit;
  ops->set_ece = set_ece;
  ops->query_ece = query_ece;
  ops->attach_mcast = attach_mcast;
  ops->detach_mcast = detach_mcast;
  ops->query_qp_data_in_order = query_qp_data_in_order;
  ops->post_send = qp_post_send;
  ops->post_recv = qp_post_recv;
  ops->bind_mw = qp_bind_mw;
}

}  // namespace uhca::mlx5
