// SPDX-License-Identifier: MIT
// The ibv_wr_* calls (ibv_qp_ex): a batch of WQEs built in place between wr_start, which takes the SQ's lock, and wr_complete or wr_abort,
// which release it. An error in any call makes the rest of the batch void and wr_complete answer it.
#include <algorithm>

#include "base/log.h"
#include "user/mlx5/post.h"

namespace uhca::mlx5 {

namespace {

void wr_start(ibv_qp_ex* q) {
  Qp* qp = to_qp(q);
  qp->sq_lock.lock();
  qp->wr.rollback_cur_post = qp->cur_post;
  qp->wr.rollback_fence = qp->next_fence;
  qp->wr.err = 0;
  qp->wr.nreq = 0;
  qp->wr.open = false;
}

void roll_back(Qp* qp) {
  qp->cur_post = qp->wr.rollback_cur_post;
  qp->next_fence = qp->wr.rollback_fence;
}

int wr_complete(ibv_qp_ex* q) {
  Qp* qp = to_qp(q);
  Doorbell ring;
  int err = qp->wr.err;
  if (err)
    roll_back(qp);
  else if (qp->wr.nreq)
    ring = ring_sq(qp, qp->wr.nreq, qp->last_ctrl);
  qp->sq_lock.unlock();
  call_hook(qp->ctx, ring);
  return err;
}

// Installed while the QP is not (or no longer) allowed to send.
int wr_complete_wrong_state(ibv_qp_ex* q) {
  Qp* qp = to_qp(q);
  roll_back(qp);
  qp->sq_lock.unlock();
  return refuse(EINVAL, "wr_complete on QP {:#x}: it has not been brought to RTS", q->qp_base.qp_num).value;
}

void wr_abort(ibv_qp_ex* q) {
  Qp* qp = to_qp(q);
  roll_back(qp);
  qp->sq_lock.unlock();
}

void set_err(Qp* qp, Errno e) {
  if (!qp->wr.err) qp->wr.err = e.value;
}

// Opens the WQE of one request: checks, control segment, transport segment. False: the batch is void.
bool begin(ibv_qp_ex* q, ibv_wr_opcode op, std::uint32_t imm, std::uint8_t umr_wc_opcode = 0) {
  Qp* qp = to_qp(q);
  WrBuild& b = qp->wr;
  if (b.err) return false;
  if (sq_full(qp, b.nreq)) {
    set_err(qp, refuse(ENOMEM, "wr on QP {:#x}: the send queue of {} WRs is full", q->qp_base.qp_num, qp->sq.max_post));
    return false;
  }
  if (kOpBytes[op] + qp->transport > qp->sq_overhead) {
    set_err(qp, refuse(EINVAL, "wr on QP {:#x}: send_ops_flags made no room for opcode {}", q->qp_base.qp_num, static_cast<int>(op)));
    return false;
  }
  OpenWqe w = open_wqe(qp, kWqeOpcode[op], q->wr_id, q->wr_flags, b.nreq, umr_wc_opcode);
  w.ctrl.imm = imm;
  b.ctrl = w.ctrl;
  b.ctrl_seg = w.ctrl_seg;
  b.cursor = w.cursor;
  // Memory windows are bound here; nothing of that goes to a peer.
  bool ethernet = q->qp_base.qp_type == IBV_QPT_RAW_PACKET;
  bool addressed = qp->transport && !ethernet && op != IBV_WR_BIND_MW && op != IBV_WR_LOCAL_INV;
  b.address = addressed ? b.cursor.take(qp->transport) : nullptr;
  b.setters_left = addressed ? 2 : 1;
  b.mkey = nullptr;  // of a request before this one that was given up
  b.eth_pending = false;
  b.open = true;
  ++b.nreq;
  return true;
}

// One of the setters that complete a request is done; after the last one the WQE is closed.
void setter_done(Qp* qp) {
  WrBuild& b = qp->wr;
  if (!b.open || --b.setters_left) return;
  b.open = false;
  close_wqe(qp, &b.ctrl, b.ctrl_seg, b.cursor.ds());
}

bool can_set(Qp* qp) {
  return !qp->wr.err && qp->wr.open;
}

bool can_checksum(Qp* qp) {
  if (!(qp->v.qp_ex.base.wr_flags & IBV_SEND_IP_CSUM) || qp->csum) return true;
  set_err(qp, refuse(EINVAL, "wr on QP {:#x}: the device fills in no checksums", qp->v.qp.qp_num));
  return false;
}
void wr_send_eth(ibv_qp_ex* q) {
  Qp* qp = to_qp(q);
  if (!begin(q, IBV_WR_SEND, 0) || !can_checksum(qp)) return;
  std::uint8_t flags = eth_checksums(q->wr_flags);
  if (qp->ctx->eth_min_inline == 0) return put_ethernet(qp->wr.cursor, flags, 0, nullptr, 0);
  qp->wr.eth_pending = true;
  qp->wr.eth_flags = flags;
}
void wr_send_tso(ibv_qp_ex* q, void* hdr, std::uint16_t hdr_sz, std::uint16_t mss) {
  Qp* qp = to_qp(q);
  if (!begin(q, IBV_WR_TSO, 0) || !can_checksum(qp)) return;
  if (int err = check_tso(qp, hdr_sz)) return set_err(qp, Errno{err});
  put_ethernet(qp->wr.cursor, eth_checksums(q->wr_flags), mss, static_cast<const std::uint8_t*>(hdr), hdr_sz);
}
// Inlines the headers that a frame has to have in its WQE; *from: the data behind them. False: the batch is void.
template <class At>
bool finish_eth(Qp* qp, std::size_t count, At at, ListPlace* from) {
  if (!qp->wr.eth_pending) return true;
  std::uint8_t headers[kMaxMinInline];
  std::size_t n = qp->ctx->eth_min_inline;
  if (!copy_headers(count, at, headers, n, from)) {
    set_err(qp, refuse(EINVAL, "wr on QP {:#x}: a frame of less than {} bytes", qp->v.qp.qp_num, n));
    return false;
  }
  put_ethernet(qp->wr.cursor, qp->wr.eth_flags, 0, headers, n);
  return true;
}

void wr_send(ibv_qp_ex* q) {
  begin(q, IBV_WR_SEND, 0);
}
void wr_send_imm(ibv_qp_ex* q, __be32 imm) {
  begin(q, IBV_WR_SEND_WITH_IMM, __builtin_bswap32(imm));
}
void wr_send_inv(ibv_qp_ex* q, std::uint32_t rkey) {
  begin(q, IBV_WR_SEND_WITH_INV, rkey);
}

void rdma(ibv_qp_ex* q, ibv_wr_opcode op, std::uint32_t rkey, std::uint64_t addr, std::uint32_t imm) {
  if (begin(q, op, imm)) put_raddr(to_qp(q)->wr.cursor.take(prm::wqe_raddr_seg::kBytes), addr, rkey);
}
void wr_rdma_write(ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t addr) {
  rdma(q, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}
void wr_rdma_write_imm(ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t addr, __be32 imm) {
  rdma(q, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, __builtin_bswap32(imm));
}
void wr_rdma_read(ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t addr) {
  rdma(q, IBV_WR_RDMA_READ, rkey, addr, 0);
}

void atomic(ibv_qp_ex* q, ibv_wr_opcode op, std::uint32_t rkey, std::uint64_t addr, std::uint64_t swap_add, std::uint64_t compare) {
  if (!begin(q, op, 0)) return;
  WqeCursor& w = to_qp(q)->wr.cursor;
  put_raddr(w.take(prm::wqe_raddr_seg::kBytes), addr, rkey);
  put_atomic(w.take(prm::wqe_atomic_seg::kBytes), swap_add, compare);
}
void wr_atomic_cmp_swp(ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t addr, std::uint64_t compare, std::uint64_t swap) {
  atomic(q, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, swap, compare);
}
void wr_atomic_fetch_add(ibv_qp_ex* q, std::uint32_t rkey, std::uint64_t addr, std::uint64_t add) {
  atomic(q, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

// Bind and invalidate carry no data: they are complete at once.
void umr(ibv_qp_ex* q, ibv_wr_opcode op, std::uint32_t key, std::uint8_t wc_opcode, const UmrBind& u) {
  Qp* qp = to_qp(q);
  if (u.length > kMaxBindLength) return set_err(qp, refuse(EOPNOTSUPP, "bind_mw: {} bytes, at most 2 GB", u.length));
  if (!begin(q, op, key, wc_opcode)) return;
  put_umr_bind(qp->wr.cursor, u);
  qp->wr.setters_left = 1;
  setter_done(qp);
}
void wr_bind_mw(ibv_qp_ex* q, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  umr(q, IBV_WR_BIND_MW, mw->rkey, IBV_WC_BIND_MW, bind_of(true, rkey, q->qp_base.qp_num, *info));
}
void wr_local_inv(ibv_qp_ex* q, std::uint32_t rkey) {
  umr(q, IBV_WR_LOCAL_INV, rkey, IBV_WC_LOCAL_INV, UmrBind{});
}

void wr_set_sge_list(ibv_qp_ex* q, std::size_t n, const ibv_sge* list) {
  Qp* qp = to_qp(q);
  if (!can_set(qp)) return;
  if (n > static_cast<std::size_t>(qp->sq.max_gs))
    return set_err(qp, refuse(ENOMEM, "wr_set_sge_list on QP {:#x}: {} SGEs, at most {}", q->qp_base.qp_num, n, qp->sq.max_gs));
  ListPlace from;
  auto at = [list](std::size_t i) { return std::pair(reinterpret_cast<const void*>(list[i].addr), std::size_t{list[i].length}); };
  if (!finish_eth(qp, n, at, &from)) return;
  auto skip = static_cast<std::uint32_t>(from.offset);
  for (std::size_t i = from.index; i < n; ++i, skip = 0)
    if (list[i].length) put_data(qp->wr.cursor.take(prm::wqe_data_seg::kBytes), list[i].length - skip, list[i].lkey, list[i].addr + skip);
  setter_done(qp);
}

void wr_set_sge(ibv_qp_ex* q, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  ibv_sge one{addr, length, lkey};
  wr_set_sge_list(q, length ? 1 : 0, &one);
}

void wr_set_inline_data_list(ibv_qp_ex* q, std::size_t n, const ibv_data_buf* list) {
  Qp* qp = to_qp(q);
  if (!can_set(qp)) return;
  std::size_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (list[i].length > qp->max_inline - total)
      return set_err(qp, refuse(ENOMEM, "inline data on QP {:#x}: more than {} bytes", q->qp_base.qp_num, qp->max_inline));
    total += list[i].length;
  }
  ListPlace from;
  auto at = [list](std::size_t i) { return std::pair(static_cast<const void*>(list[i].addr), list[i].length); };
  if (!finish_eth(qp, n, at, &from)) return;
  if (qp->wr.eth_pending) total -= qp->ctx->eth_min_inline;
  if (total) {
    WqeCursor& w = qp->wr.cursor;
    std::uint8_t* header = w.take_inline_header();
    std::size_t skip = from.offset;
    for (std::size_t i = from.index; i < n; ++i, skip = 0)
      w.copy(static_cast<const std::uint8_t*>(list[i].addr) + skip, list[i].length - skip);
    put_inline_header(header, static_cast<std::uint32_t>(total));
    w.add_inline_ds(total);
  }
  setter_done(qp);
}

void wr_set_inline_data(ibv_qp_ex* q, void* addr, std::size_t length) {
  ibv_data_buf one{addr, length};
  wr_set_inline_data_list(q, 1, &one);
}

void wr_set_ud_addr(ibv_qp_ex* q, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t qkey) {
  Qp* qp = to_qp(q);
  if (!can_set(qp)) return;
  put_datagram(qp->wr.address, to_ah(ah)->av, remote_qpn, qkey);
  setter_done(qp);
}

void wr_set_xrc_srqn(ibv_qp_ex* q, std::uint32_t remote_srqn) {
  Qp* qp = to_qp(q);
  if (!can_set(qp)) return;
  put_xrc(qp->wr.address, remote_srqn);
  setter_done(qp);
}

void wr_set_dc_addr(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t remote_dctn, std::uint64_t dc_key) {
  Qp* qp = of_dv(dv);
  if (!can_set(qp)) return;
  put_address(qp->wr.address, to_ah(ah)->av, remote_dctn, dc_key);
  setter_done(qp);
}
void wr_set_dc_addr_stream(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t remote_dctn, std::uint64_t dc_key, std::uint16_t stream) {
  of_dv(dv)->wr.ctrl.stream = stream;
  wr_set_dc_addr(dv, ah, remote_dctn, dc_key);
}

// A WQE that the program built: its size, data and flags are the program's own; only its place in the queue is put in.
void wr_raw_wqe(mlx5dv_qp_ex* dv, const void* raw) {
  Qp* qp = of_dv(dv);
  WrBuild& b = qp->wr;
  if (b.err) return;
  const auto* wqe = static_cast<const std::uint8_t*>(raw);
  std::size_t bytes = std::size_t{prm::get<prm::wqe_ctrl_seg::ds>(wqe)} * prm::kWqeDsUnit;
  if (sq_full(qp, b.nreq)) return set_err(qp, refuse(ENOMEM, "raw WQE on QP {:#x}: the send queue is full", qp->v.qp.qp_num));
  if (!bytes) return set_err(qp, refuse(EINVAL, "raw WQE on QP {:#x}: its size is 0", qp->v.qp.qp_num));
  std::uint32_t idx = qp->cur_post & (qp->sq.wqe_cnt - 1);
  qp->sq.wrid[idx] = qp->v.qp_ex.base.wr_id;
  qp->sq.wqe_head[idx] = qp->sq.head + b.nreq;
  qp->sq.wr_data[idx] = IBV_WC_DRIVER2;
  qp->next_fence = 0;
  std::uint8_t* ctrl = qp->ring.block(idx);
  auto before_end = static_cast<std::size_t>(qp->ring.end - ctrl);
  std::memcpy(ctrl, wqe, std::min(bytes, before_end));
  if (bytes > before_end) std::memcpy(qp->ring.start, wqe + before_end, bytes - before_end);
  prm::set<prm::wqe_ctrl_seg::wqe_index>(ctrl, qp->cur_post & 0xffff);
  qp->cur_post += static_cast<std::uint32_t>((bytes + prm::kSendWqeBb - 1) / prm::kSendWqeBb);
  qp->last_ctrl = ctrl;
  b.open = false;
  ++b.nreq;
}

constexpr std::uint64_t kOpsEth = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
constexpr std::uint64_t kOpsUd = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t kOpsUc = kOpsUd | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                 IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t kOpsRc =
    kOpsUc | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
constexpr std::uint64_t kOpsAtomic = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

}  // namespace

int fill_wr_builders(Qp* qp, ibv_qp_type type, std::uint64_t ops, std::uint64_t dv_ops) {
  ibv_qp_ex& q = qp->v.qp_ex.base;
  bool reliable = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND || type == IBV_QPT_DRIVER;
  std::uint64_t supported = reliable                     ? kOpsRc
                            : type == IBV_QPT_UC         ? kOpsUc
                            : type == IBV_QPT_UD         ? kOpsUd
                            : type == IBV_QPT_RAW_PACKET ? kOpsEth
                                                         : 0;
  if (!supported || (ops & ~supported))
    return refuse(EOPNOTSUPP, "create_qp: send_ops_flags {:#x} for QP type {} (supported {:#x})", ops, static_cast<int>(type), supported)
        .value;
  if (!qp->atomics && (ops & kOpsAtomic)) return refuse(EOPNOTSUPP, "create_qp: the device has no atomics").value;

  if ((dv_ops & kMkeyOps) && type != IBV_QPT_RC) return refuse(EOPNOTSUPP, "create_qp: only RC QPs configure keys").value;
  if (dv_ops & MLX5DV_QP_EX_WITH_RAW_WQE) qp->dv.wr_raw_wqe = wr_raw_wqe;
  fill_mkey_builders(qp, dv_ops);
  q.wr_start = wr_start;
  q.wr_complete = wr_complete_wrong_state;
  q.wr_abort = wr_abort;
  q.wr_send = wr_send;
  q.wr_send_imm = wr_send_imm;
  q.wr_set_sge = wr_set_sge;
  q.wr_set_sge_list = wr_set_sge_list;
  q.wr_set_inline_data = wr_set_inline_data;
  q.wr_set_inline_data_list = wr_set_inline_data_list;
  if (type == IBV_QPT_RAW_PACKET) {
    q.wr_send = wr_send_eth;
    q.wr_send_tso = wr_send_tso;
    q.wr_send_imm = nullptr;
    return 0;
  }
  if (type == IBV_QPT_UD) {
    q.wr_set_ud_addr = wr_set_ud_addr;
    return 0;
  }
  q.wr_send_inv = wr_send_inv;
  q.wr_rdma_write = wr_rdma_write;
  q.wr_rdma_write_imm = wr_rdma_write_imm;
  q.wr_bind_mw = wr_bind_mw;
  q.wr_local_inv = wr_local_inv;
  if (type == IBV_QPT_XRC_SEND) q.wr_set_xrc_srqn = wr_set_xrc_srqn;
  if (type == IBV_QPT_DRIVER) {
    qp->dv.wr_set_dc_addr = wr_set_dc_addr;
    qp->dv.wr_set_dc_addr_stream = wr_set_dc_addr_stream;
  }
  if (reliable) {
    q.wr_rdma_read = wr_rdma_read;
    q.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    q.wr_atomic_fetch_add = wr_atomic_fetch_add;
  }
  return 0;
}

void set_wr_complete(Qp* qp, bool can_post) {
  ibv_qp_ex& q = qp->v.qp_ex.base;
  if (q.wr_complete) q.wr_complete = can_post ? wr_complete : wr_complete_wrong_state;
}

}  // namespace uhca::mlx5
