// SPDX-License-Identifier: MIT
// ibv_post_send, ibv_post_recv, ibv_bind_mw. Answers are positive errnos; *bad_wr names the first WR that was not posted, those before it
// are.
#include "user/mlx5/post.h"

#include "base/log.h"

namespace uhca::mlx5 {

namespace {

std::uint32_t ctrl_imm(const ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_RDMA_WRITE_WITH_IMM: return __builtin_bswap32(wr.imm_data);
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_LOCAL_INV: return wr.invalidate_rkey;
    case IBV_WR_BIND_MW: return wr.bind_mw.mw->rkey;
    default: return 0;
  }
}

// Copies the payload into the WQE. The sum is checked before the first byte moves, so that neighbours stay intact.
int put_inline(Qp* qp, WqeCursor& w, const ibv_sge* list, int n, const ListPlace& from) {
  std::uint64_t total = 0;
  for (int i = static_cast<int>(from.index); i < n; ++i) total += list[i].length;
  total -= from.offset;
  if (total > qp->max_inline)
    return refuse(ENOMEM, "post_send on QP {:#x}: {} bytes of inline data, at most {}", qp->v.qp.qp_num, total, qp->max_inline).value;
  if (!total) return 0;
  std::uint8_t* header = w.take_inline_header();
  std::size_t skip = from.offset;
  for (int i = static_cast<int>(from.index); i < n; ++i, skip = 0)
    w.copy(reinterpret_cast<const void*>(list[i].addr + skip), list[i].length - skip);
  put_inline_header(header, static_cast<std::uint32_t>(total));
  w.add_inline_ds(total);
  return 0;
}

// The check of one WR before anything is written; 0 or an errno.
int check_send(Qp* qp, const ibv_send_wr& wr, std::uint32_t nreq) {
  unsigned op = static_cast<unsigned>(wr.opcode);
  if (op >= sizeof kOpBytes) return refuse(EINVAL, "post_send on QP {:#x}: opcode {} is not for this QP", qp->v.qp.qp_num, op).value;
  if (sq_full(qp, nreq))
    return refuse(ENOMEM,
                  "post_send on QP {:#x}: the send queue of {} WRs is full (places come back when a later signaled WR completes and its "
                  "CQE is "
                  "polled)",
                  qp->v.qp.qp_num, qp->sq.max_post)
        .value;
  if (wr.num_sge > qp->sq.state_max_gs)
    return refuse(ENOMEM, "post_send on QP {:#x}: {} SGEs, at most {} (in RTS)", qp->v.qp.qp_num, wr.num_sge, qp->sq.max_gs).value;
  if (kOpBytes[op] + qp->transport > qp->sq_overhead)
    return refuse(EINVAL, "post_send on QP {:#x}: its WQEs were not sized for opcode {}", qp->v.qp.qp_num, op).value;
  if (qp->v.qp.qp_type == IBV_QPT_RC || qp->v.qp.qp_type == IBV_QPT_XRC_SEND) {
    if ((wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) && !qp->atomics)
      return refuse(EOPNOTSUPP, "post_send on QP {:#x}: the device has no atomics", qp->v.qp.qp_num).value;
  }
  if (wr.opcode == IBV_WR_TSO && qp->v.qp.qp_type != IBV_QPT_RAW_PACKET)
    return refuse(EINVAL, "post_send on QP {:#x}: opcode {} is not for this QP", qp->v.qp.qp_num, op).value;
  if (qp->dc_type) return refuse(EINVAL, "post_send on QP {:#x}: DC requests name their target by ibv_wr_*", qp->v.qp.qp_num).value;
  if (wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.bind_info.length > kMaxBindLength)
    return refuse(EOPNOTSUPP, "bind_mw: {} bytes, at most 2 GB", wr.bind_mw.bind_info.length).value;
  return 0;
}

// The Ethernet segment; *from: the data that is not inlined begins there. 0 or EINVAL.
int put_frame(Qp* qp, WqeCursor& w, const ibv_send_wr& wr, ListPlace* from) {
  if ((wr.send_flags & IBV_SEND_IP_CSUM) && !qp->csum)
    return refuse(EINVAL, "post_send on QP {:#x}: the device fills in no checksums", qp->v.qp.qp_num).value;
  if (wr.opcode == IBV_WR_TSO) {
    if (int err = check_tso(qp, wr.tso.hdr_sz)) return err;
    std::uint64_t total = 0;
    for (int i = 0; i < wr.num_sge; ++i) total += wr.sg_list[i].length;
    if (total > qp->max_tso)
      return refuse(EINVAL, "post_send on QP {:#x}: {} bytes of TSO, at most {}", qp->v.qp.qp_num, total, qp->max_tso).value;
    put_ethernet(w, eth_checksums(wr.send_flags), wr.tso.mss, static_cast<const std::uint8_t*>(wr.tso.hdr), wr.tso.hdr_sz);
    return 0;
  }
  if (wr.num_sge < 1) return refuse(EINVAL, "post_send on QP {:#x}: a frame without data", qp->v.qp.qp_num).value;
  std::uint8_t headers[kMaxMinInline];
  std::size_t n = qp->ctx->eth_min_inline;
  auto at = [&wr](std::size_t i) {
    return std::pair(reinterpret_cast<const void*>(wr.sg_list[i].addr), std::size_t{wr.sg_list[i].length});
  };
  if (!copy_headers(static_cast<std::size_t>(wr.num_sge), at, headers, n, from))
    return refuse(EINVAL, "post_send on QP {:#x}: a frame of less than {} bytes", qp->v.qp.qp_num, n).value;
  put_ethernet(w, eth_checksums(wr.send_flags), 0, headers, n);
  return 0;
}

void put_connected(Qp* qp, WqeCursor& w, const ibv_send_wr& wr) {
  bool rc = qp->v.qp.qp_type != IBV_QPT_UC;
  switch (wr.opcode) {
    case IBV_WR_RDMA_READ:
      if (!rc) break;
      [[fallthrough]];
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM: put_raddr(w.take(prm::wqe_raddr_seg::kBytes), wr.wr.rdma.remote_addr, wr.wr.rdma.rkey); break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: {
      if (!rc) break;
      bool cas = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
      put_raddr(w.take(prm::wqe_raddr_seg::kBytes), wr.wr.atomic.remote_addr, wr.wr.atomic.rkey);
      put_atomic(w.take(prm::wqe_atomic_seg::kBytes), cas ? wr.wr.atomic.swap : wr.wr.atomic.compare_add,
                 cas ? wr.wr.atomic.compare_add : 0);
      break;
    }
    case IBV_WR_BIND_MW:
      put_umr_bind(w, bind_of(wr.bind_mw.mw->type == IBV_MW_TYPE_2, wr.bind_mw.rkey, qp->v.qp.qp_num, wr.bind_mw.bind_info));
      break;
    case IBV_WR_LOCAL_INV: put_umr_bind(w, UmrBind{}); break;
    default: break;
  }
}

std::uint8_t umr_wc_opcode(const ibv_send_wr& wr) {
  if (wr.opcode == IBV_WR_BIND_MW) return IBV_WC_BIND_MW;
  if (wr.opcode == IBV_WR_LOCAL_INV) return IBV_WC_LOCAL_INV;
  return 0;
}

}  // namespace

int qp_post_send(ibv_qp* ibqp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Qp* qp = to_qp(ibqp);
  Doorbell ring;
  int err = 0;
  {
    LockGuard guard(qp->sq_lock);
    std::uint32_t nreq = 0;
    for (; wr; wr = wr->next) {
      err = check_send(qp, *wr, nreq);
      if (__builtin_expect(err, 0)) {
        *bad_wr = wr;
        break;
      }
      std::uint8_t fence = qp->next_fence;
      OpenWqe w = open_wqe(qp, kWqeOpcode[wr->opcode], wr->wr_id, wr->send_flags, nreq, umr_wc_opcode(*wr));
      w.ctrl.imm = ctrl_imm(*wr);
      ListPlace from;
      switch (ibqp->qp_type) {
        case IBV_QPT_XRC_SEND:
          if (wr->opcode != IBV_WR_BIND_MW && wr->opcode != IBV_WR_LOCAL_INV)
            put_xrc(w.cursor.take(prm::wqe_xrc_seg::kBytes), wr->qp_type.xrc.remote_srqn);
          [[fallthrough]];
        case IBV_QPT_RC:
        case IBV_QPT_UC: put_connected(qp, w.cursor, *wr); break;
        case IBV_QPT_UD:
          put_datagram(w.cursor.take(prm::wqe_av::kBytes), to_ah(wr->wr.ud.ah)->av, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
          break;
        case IBV_QPT_RAW_PACKET: err = put_frame(qp, w.cursor, *wr, &from); break;
        default: break;
      }
      if (__builtin_expect(err, 0)) {
        qp->next_fence = fence;
        *bad_wr = wr;
        break;
      }
      if (wr->send_flags & IBV_SEND_INLINE) {
        err = put_inline(qp, w.cursor, wr->sg_list, wr->num_sge, from);
        if (__builtin_expect(err, 0)) {
          qp->next_fence = fence;
          *bad_wr = wr;
          break;
        }
      } else {
        bool atomic = wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
        auto skip = static_cast<std::uint32_t>(from.offset);
        for (int i = static_cast<int>(from.index); i < wr->num_sge; ++i, skip = 0) {
          const ibv_sge& s = wr->sg_list[i];
          if (!s.length) continue;
          put_data(w.cursor.take(prm::wqe_data_seg::kBytes), atomic ? 8 : s.length - skip, s.lkey, s.addr + skip);
        }
      }
      close_wqe(qp, &w.ctrl, w.ctrl_seg, w.cursor.ds());
      ++nreq;
    }
    if (nreq) ring = ring_sq(qp, nreq, qp->last_ctrl);
  }
  call_hook(qp->ctx, ring);
  return err;
}

int qp_post_recv(ibv_qp* ibqp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Qp* qp = to_qp(ibqp);
  WorkQueue& rq = qp->rq;
  LockGuard guard(qp->rq_lock);
  int err = 0;
  std::uint32_t nreq = 0;
  for (; wr; wr = wr->next, ++nreq) {
    if (is_full(rq, ibqp->recv_cq, nreq)) {
      err = refuse(ENOMEM, "post_recv on QP {:#x}: the receive queue of {} WRs is full", ibqp->qp_num, rq.max_post).value;
      *bad_wr = wr;
      break;
    }
    if (wr->num_sge > rq.state_max_gs) {
      err = refuse(EINVAL, "post_recv on QP {:#x}: {} SGEs, at most {} (and not in RESET)", ibqp->qp_num, wr->num_sge, rq.max_gs).value;
      *bad_wr = wr;
      break;
    }
    std::uint32_t idx = (rq.head + nreq) & (rq.wqe_cnt - 1);
    std::uint8_t* wqe = qp->buf.bytes() + rq.offset + (std::size_t{idx} << rq.wqe_shift);
    put_recv_list(wqe, wr->sg_list, wr->num_sge, static_cast<unsigned>(rq.max_gs));
    rq.wrid[idx] = wr->wr_id;
  }
  if (nreq) {
    rq.head += nreq;
    to_device_barrier();
    // The RQ of a raw packet QP is ready from INIT on, and the QP must not receive before RTR: it learns then what was posted.
    if (ibqp->qp_type != IBV_QPT_RAW_PACKET || ibqp->state >= IBV_QPS_RTR) write_dbr(&qp->db[prm::kRcvDbr], rq.head & 0xffff);
  }
  return err;
}

int check_tso(const Qp* qp, std::size_t header_bytes) {
  constexpr std::size_t least = 14;
  if (header_bytes >= least && header_bytes <= qp->max_tso_header) return 0;
  return refuse(EINVAL, "TSO on QP {:#x}: headers of {} bytes, {} to {} are possible", qp->v.qp.qp_num, header_bytes, least,
                qp->max_tso_header)
      .value;
}

// A type 1 window, bound through the QP's send queue (ibv_bind_mw). The new key takes effect in program order.
int qp_bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const ibv_mw_bind_info& info = bind->bind_info;
  if (info.mw_access_flags & IBV_ACCESS_ZERO_BASED) return fail_int(refuse(EINVAL, "bind_mw: type 1 windows cannot be zero based"));
  if (info.mr) {
    verbs_mr* mr = verbs_get_mr(info.mr);
    if (mr->mr_type != IBV_MR_TYPE_MR) return fail_int(refuse(ENOTSUP, "bind_mw: the MR is not ordinary memory"));
    if (mr->access & IBV_ACCESS_ZERO_BASED) return fail_int(refuse(EINVAL, "bind_mw: the MR is zero based"));
  }
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.wr_id = bind->wr_id;
  wr.send_flags = bind->send_flags;
  wr.bind_mw.bind_info = info;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  if (int err = qp_post_send(qp, &wr, &bad)) return err;
  mw->rkey = wr.bind_mw.rkey;
  return 0;
}

}  // namespace uhca::mlx5
