// SPDX-License-Identifier: MIT
// What posting shares between ibv_post_send and the ibv_wr_* calls: opening and closing one WQE in the send queue.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "user/mlx5/doorbell.h"

namespace uhca::mlx5 {

// Bytes before the gather list that an operation needs, by ibv_wr_opcode, without the transport segment; 0: no such operation here.
inline constexpr std::uint8_t kOpBytes[] = {
    /* RDMA_WRITE */ 32, /* RDMA_WRITE_WITH_IMM */ 32, /* SEND */ 16,      /* SEND_WITH_IMM */ 16,
    /* RDMA_READ */ 32,  /* CMP_AND_SWP */ 48,         /* FETCH_ADD */ 48, /* LOCAL_INV */ 192,
    /* BIND_MW */ 192,   /* SEND_WITH_INV */ 16,       /* TSO */ 16,
};
inline constexpr WqeOpcode kWqeOpcode[] = {
    WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_WRITE_IMM, WqeOpcode::SEND,      WqeOpcode::SEND_IMM,
    WqeOpcode::RDMA_READ,  WqeOpcode::ATOMIC_CS,      WqeOpcode::ATOMIC_FA, WqeOpcode::UMR,
    WqeOpcode::UMR,        WqeOpcode::SEND_INVAL,     WqeOpcode::TSO,
};
static_assert(IBV_WR_TSO == 10 && sizeof kOpBytes == 11 && sizeof kWqeOpcode == 11);

// Whether one more WR than head + nreq fits; looks again under the CQ's lock, since another thread may be completing WRs now.
inline bool is_full(const WorkQueue& q, ibv_cq* cq, std::uint32_t nreq) {
  if (!q.overflow(nreq)) return false;
  if (!cq) return true;
  LockGuard guard(to_cq(cq)->lock);
  return q.overflow(nreq);
}
inline bool sq_full(Qp* qp, std::uint32_t nreq) {
  return is_full(qp->sq, qp->v.qp.send_cq, nreq);
}

inline Qp* of_dv(mlx5dv_qp_ex* dv) {
  return reinterpret_cast<Qp*>(reinterpret_cast<std::uint8_t*>(dv) - offsetof(Qp, dv));
}

struct OpenWqe {
  CtrlSeg ctrl;
  std::uint8_t* ctrl_seg = nullptr;
  WqeCursor cursor;
};

// Starts the WQE at cur_post. The control segment is written by close_wqe, when its size is known.
inline OpenWqe open_wqe(Qp* qp, WqeOpcode opcode, std::uint64_t wr_id, unsigned send_flags, std::uint32_t nreq,
                        std::uint8_t umr_wc_opcode) {
  OpenWqe w;
  std::uint32_t idx = qp->cur_post & (qp->sq.wqe_cnt - 1);
  qp->sq.wrid[idx] = wr_id;
  qp->sq.wqe_head[idx] = qp->sq.head + nreq;
  qp->sq.wr_data[idx] = umr_wc_opcode;
  w.ctrl.opcode = opcode;
  w.ctrl.index = static_cast<std::uint16_t>(qp->cur_post);
  w.ctrl.qpn = qp->v.qp.qp_num;
  w.ctrl.fm_ce_se = static_cast<std::uint8_t>(qp->sq_signal_bits | ((send_flags & IBV_SEND_FENCE) ? prm::kWqeCtrlFence : qp->next_fence) |
                                              ((send_flags & IBV_SEND_SIGNALED) ? prm::kWqeCtrlCqUpdate : 0) |
                                              ((send_flags & IBV_SEND_SOLICITED) ? prm::kWqeCtrlSolicited : 0));
  // The key that an UMR changes must not be used by WRs behind it before that is done.
  qp->next_fence = opcode == WqeOpcode::UMR ? prm::kWqeCtrlInitiatorSmallFence : 0;
  w.ctrl_seg = qp->ring.block(idx);
  w.cursor = WqeCursor(qp->ring, w.ctrl_seg);
  w.cursor.take(prm::wqe_ctrl_seg::kBytes);
  return w;
}

inline void close_wqe(Qp* qp, CtrlSeg* ctrl, std::uint8_t* ctrl_seg, unsigned ds) {
  ctrl->ds = ds;
  put_ctrl(ctrl_seg, *ctrl);
  qp->cur_post += (ds * 16 + prm::kSendWqeBb - 1) / prm::kSendWqeBb;
  qp->last_ctrl = ctrl_seg;
}

// A place in a list of buffers, behind what has been inlined.
struct ListPlace {
  std::size_t index = 0;
  std::size_t offset = 0;
};

// Copies the first `n` bytes of the list's buffers. False: there are not that many. at(i): address and length of buffer i.
template <class At>
bool copy_headers(std::size_t count, At at, std::uint8_t* out, std::size_t n, ListPlace* behind) {
  for (std::size_t i = 0; i < count && n; ++i) {
    auto [addr, length] = at(i);
    std::size_t part = std::min<std::size_t>(n, length);
    std::memcpy(out, addr, part);
    out += part;
    n -= part;
    *behind = part == length ? ListPlace{i + 1, 0} : ListPlace{i, part};
  }
  return n == 0;
}

inline std::uint8_t eth_checksums(unsigned send_flags) {
  return send_flags & IBV_SEND_IP_CSUM ? prm::kEthWqeL3Csum | prm::kEthWqeL4Csum : 0;
}
// What has to be inlined at most by Context::eth_min_inline.
inline constexpr std::size_t kMaxMinInline = 18;
// Headers of a TSO request, of which the first 14 bytes are the Ethernet header. 0 or EINVAL.
int check_tso(const Qp* qp, std::size_t header_bytes);

inline UmrBind bind_of(bool type2, std::uint32_t new_key, std::uint32_t qpn, const ibv_mw_bind_info& info) {
  UmrBind u;
  u.type2 = type2;
  u.new_key = new_key;
  u.qpn = qpn;
  u.addr = info.addr;
  u.length = info.length;
  u.lkey = info.mr && info.length ? info.mr->lkey : 0;
  u.zero_based = info.mw_access_flags & IBV_ACCESS_ZERO_BASED;
  u.local_write = info.mw_access_flags & IBV_ACCESS_LOCAL_WRITE;
  u.remote_write = info.mw_access_flags & IBV_ACCESS_REMOTE_WRITE;
  u.remote_read = info.mw_access_flags & IBV_ACCESS_REMOTE_READ;
  u.remote_atomic = info.mw_access_flags & IBV_ACCESS_REMOTE_ATOMIC;
  return u;
}

}  // namespace uhca::mlx5
