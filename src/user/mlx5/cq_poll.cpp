// SPDX-License-Identifier: MIT
// Polling: ibv_poll_cq and the start/next/end interface of ibv_cq_ex, on one parser.
#include "base/log.h"
#include "user/mlx5/doorbell.h"

namespace uhca::mlx5 {

namespace {

constexpr int kOk = 0;
constexpr int kEmpty = -1;
constexpr int kPollError = -2;  // what libmlx5's poll_cq answers for a CQE that it cannot attribute

// What a CQE means beyond its own bytes.
struct Parsed {
  std::uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint8_t umr_opcode = 0;
  bool csum = false;
};

bool take_cqe(Cq* cq, CqeView* out) {
  if (!cq->sw_owned(cq->cons_index)) return false;
  *out = CqeView(cq->cqe64(cq->cons_index));
  ++cq->cons_index;
  return true;
}

void update_ci(Cq* cq) {
  write_dbr(&cq->db[prm::kCqSetCi], cq->cons_index & 0xffffff);
}

Indexed* lookup(Cq* cq, Indexed** cache, std::uint32_t uidx) {
  if (!*cache || (*cache)->uidx != uidx) *cache = find_uidx(to_ctx(cq->v.cq.context), uidx);
  return *cache;
}

std::uint32_t null_lkey(Cq* cq) {
  return to_ctx(cq->v.cq.context)->dump_fill_mkey;
}

// READ and atomic results that came inside the CQE, to the gather list of the send WQE (which may wrap).
ibv_wc_status copy_to_send_wqe(Cq* cq, Qp* qp, CqeView cqe, std::uint32_t size) {
  const std::uint8_t* ctrl = qp->ring.block(cqe.wqe_counter() & (qp->sq.wqe_cnt - 1));
  auto op = static_cast<WqeOpcode>(prm::get<prm::wqe_ctrl_seg::opcode>(ctrl));
  std::size_t skip = 32;
  if (op == WqeOpcode::ATOMIC_CS || op == WqeOpcode::ATOMIC_FA)
    skip = 48;
  else if (op != WqeOpcode::RDMA_READ || qp->v.qp.qp_type != IBV_QPT_RC)
    return IBV_WC_REM_INV_REQ_ERR;
  unsigned ds = prm::get<prm::wqe_ctrl_seg::ds>(ctrl);
  unsigned segs = ds - static_cast<unsigned>(skip / 16);
  if (ds < skip / 16) return IBV_WC_GENERAL_ERR;
  const std::uint8_t* seg = ctrl + skip;
  const std::uint8_t* src = cqe.inline_data();
  auto before_end = static_cast<unsigned>((qp->ring.end - seg) / 16);
  if (segs > before_end) {
    if (scatter_from_cqe(seg, before_end, src, size, null_lkey(cq))) return IBV_WC_SUCCESS;
    segs -= before_end;
    seg = qp->ring.start;
  }
  return scatter_from_cqe(seg, segs, src, size, null_lkey(cq)) ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

ibv_wc_status copy_to_list(Cq* cq, const std::uint8_t* seg, unsigned segs, CqeView cqe) {
  const std::uint8_t* src = cqe.inline_data();
  std::uint32_t size = cqe.byte_cnt();
  return scatter_from_cqe(seg, segs, src, size, null_lkey(cq)) ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

void finish_send(Qp* qp, std::uint32_t idx) {
  qp->sq.tail.store(qp->sq.wqe_head[idx] + 1, std::memory_order_release);
}

// Accounts for a receive completion, success or error, and finds its wr_id; for a success with data in the CQE, places that.
int finish_recv(Cq* cq, CqeView cqe, const Indexed& index, bool success, Parsed* out) {
  if (Rwq* wq = index.wq) {
    out->wr_id = wq->rq.wrid[cqe.wqe_counter() & (wq->rq.wqe_cnt - 1)];
    wq->rq.tail.fetch_add(1, std::memory_order_release);
    return kOk;
  }
  Qp* qp = index.qp;
  Srq* srq = index.srq ? index.srq : qp->v.qp.srq ? to_srq(qp->v.qp.srq) : nullptr;
  if (srq) {
    std::uint32_t idx = cqe.wqe_counter();
    if (idx >= srq->max) return kPollError;
    out->wr_id = srq->wrid[idx];
    if (success && cqe.has_inline_data()) out->status = copy_to_list(cq, srq->wqe(idx) + prm::wqe_srq_next_seg::kBytes, srq->max_gs, cqe);
    srq_free_wqe(srq, idx);
    return kOk;
  }
  WorkQueue& rq = qp->rq;
  if (!rq.wqe_cnt) return kPollError;
  out->csum = qp->csum;
  std::uint32_t idx = cqe.wqe_counter() & (rq.wqe_cnt - 1);
  out->wr_id = rq.wrid[idx];
  if (success && cqe.has_inline_data())
    out->status = copy_to_list(cq, qp->buf.bytes() + rq.offset + (std::size_t{idx} << rq.wqe_shift), static_cast<unsigned>(rq.max_gs), cqe);
  rq.tail.fetch_add(1, std::memory_order_release);
  return kOk;
}

int parse(Cq* cq, CqeView cqe, Indexed** cache, Parsed* out) {
  Indexed* index = lookup(cq, cache, cqe.uidx());
  bool request = cqe.opcode() == CqeOpcode::REQ || cqe.opcode() == CqeOpcode::REQ_ERR;
  if (!index || (request && !index->qp)) {
    log::warn("CQ {:#x}: CQE for the unknown user index {:#x} (QP {:#x})", cq->cqn, cqe.uidx(), cqe.qpn());
    return kPollError;
  }
  Qp* qp = index->qp;
  switch (cqe.opcode()) {
    case CqeOpcode::REQ: {
      std::uint32_t idx = cqe.wqe_counter() & (qp->sq.wqe_cnt - 1);
      if (!qp->sq.wqe_cnt) return kPollError;
      out->wr_id = qp->sq.wrid[idx];
      out->umr_opcode = qp->sq.wr_data[idx];
      if (__builtin_expect(cqe.has_inline_data(), 0)) {
        bool read = cqe.wqe_opcode() == static_cast<std::uint8_t>(WqeOpcode::RDMA_READ);
        out->status = copy_to_send_wqe(cq, qp, cqe, read ? cqe.byte_cnt() : 8);
      }
      finish_send(qp, idx);
      return kOk;
    }
    case CqeOpcode::RESP_WR_IMM:
    case CqeOpcode::RESP_SEND:
    case CqeOpcode::RESP_SEND_IMM:
    case CqeOpcode::RESP_SEND_INV: return finish_recv(cq, cqe, *index, true, out);
    case CqeOpcode::REQ_ERR: {
      std::uint32_t idx = cqe.wqe_counter() & (qp->sq.wqe_cnt - 1);
      if (!qp->sq.wqe_cnt) return kPollError;
      out->status = wc_status(cqe.syndrome());
      out->wr_id = qp->sq.wrid[idx];
      out->umr_opcode = qp->sq.wr_data[idx];
      finish_send(qp, idx);
      break;
    }
    case CqeOpcode::RESP_ERR:
      out->status = wc_status(cqe.syndrome());
      if (int err = finish_recv(cq, cqe, *index, false, out)) return err;
      break;
    default: log::warn("CQ {:#x}: unexpected CQE opcode {}", cq->cqn, static_cast<unsigned>(cqe.opcode())); return kPollError;
  }
  if (cqe.syndrome() != static_cast<std::uint8_t>(prm::CqeSyndrome::WR_FLUSH))
    log::info("QP {:#x}: completion with error, WQE {:#x}, syndrome {:#x}, vendor_err {:#x}", cqe.qpn(), cqe.wqe_counter(), cqe.syndrome(),
              cqe.vendor_err());
  return kOk;
}

void fill_wc(CqeView cqe, const Parsed& p, ibv_wc* wc) {
  wc->wr_id = p.wr_id;
  wc->status = p.status;
  wc->qp_num = cqe.qpn();
  wc->wc_flags = 0;
  switch (cqe.opcode()) {
    case CqeOpcode::REQ:
      wc->opcode = wc_opcode_request(cqe.wqe_opcode(), p.umr_opcode);
      if (wc->opcode == IBV_WC_RDMA_READ)
        wc->byte_len = cqe.byte_cnt();
      else if (wc->opcode == IBV_WC_COMP_SWAP || wc->opcode == IBV_WC_FETCH_ADD)
        wc->byte_len = 8;
      if (cqe.wqe_opcode() == static_cast<std::uint8_t>(WqeOpcode::SEND_IMM) ||
          cqe.wqe_opcode() == static_cast<std::uint8_t>(WqeOpcode::RDMA_WRITE_IMM))
        wc->wc_flags |= IBV_WC_WITH_IMM;
      break;
    case CqeOpcode::REQ_ERR:
    case CqeOpcode::RESP_ERR: wc->vendor_err = cqe.vendor_err(); break;
    default:
      wc->byte_len = cqe.byte_cnt();
      if (p.status != IBV_WC_SUCCESS) break;
      wc->opcode = wc_opcode_response(cqe.opcode());
      wc->wc_flags = wc_flags_response(cqe.opcode());
      if (wc->wc_flags & IBV_WC_WITH_INV)
        wc->invalidated_rkey = cqe.imm_inval();
      else if (wc->wc_flags & IBV_WC_WITH_IMM)
        wc->imm_data = cqe.imm_be();
      wc->slid = cqe.slid();
      wc->sl = cqe.sl();
      wc->src_qp = cqe.src_qp();
      wc->dlid_path_bits = cqe.dlid_path_bits();
      if (cqe.grh()) wc->wc_flags |= IBV_WC_GRH;
      if (p.csum && cqe.checksums_ok()) wc->wc_flags |= IBV_WC_IP_CSUM_OK;
      wc->pkey_index = static_cast<std::uint16_t>(cqe.imm_inval() & 0xffff);
      break;
  }
}

__attribute__((noinline)) int poll_locked(Cq* cq, int n, ibv_wc* wc) {
  Indexed* cache = nullptr;
  int got = 0;
  int err = kOk;
  for (; got < n; ++got) {
    CqeView cqe;
    if (!take_cqe(cq, &cqe)) {
      err = kEmpty;
      break;
    }
    Parsed p;
    err = parse(cq, cqe, &cache, &p);
    if (err) break;
    fill_wc(cqe, p, wc + got);
  }
  if (got || err == kPollError) update_ci(cq);
  return err == kPollError ? err : got;
}

// Lets an in-process device work on this thread. True when it is worth looking again.
bool run_device(Cq* cq) {
  Context* ctx = to_ctx(cq->v.cq.context);
  if (!ctx->poll_hook) return false;
  return ctx->poll_hook(cq->cqn) != 0;
}

// ---- ibv_cq_ex

int parse_current(Cq* cq) {
  Parsed p;
  if (int err = parse(cq, cq->cur, &cq->cur_index, &p)) return err;
  cq->v.cq_ex.wr_id = p.wr_id;
  cq->v.cq_ex.status = p.status;
  cq->cur_umr_opcode = p.umr_opcode;
  cq->cur_csum = p.csum;
  return kOk;
}

int start_poll_common(ibv_cq_ex* q, ibv_poll_cq_attr* attr, bool with_clock) {
  Cq* cq = to_cq(q);
  if (attr->comp_mask) return refuse(EINVAL, "start_poll: comp_mask {:#x}", attr->comp_mask).value;
  cq->lock.lock();
  cq->cur_index = nullptr;
  if (!take_cqe(cq, &cq->cur)) {
    cq->lock.unlock();
    if (!run_device(cq)) return ENOENT;
    cq->lock.lock();
    cq->cur_index = nullptr;
    if (!take_cqe(cq, &cq->cur)) {
      cq->lock.unlock();
      return ENOENT;
    }
  }
  int err = 0;
  if (with_clock) {
    err = read_clock_info(to_ctx(cq->v.cq.context), &cq->clock);
    if (err) --cq->cons_index;
  }
  if (!err) err = parse_current(cq);
  if (err) cq->lock.unlock();
  return err;
}

int start_poll(ibv_cq_ex* q, ibv_poll_cq_attr* attr) {
  return start_poll_common(q, attr, false);
}
int start_poll_clock(ibv_cq_ex* q, ibv_poll_cq_attr* attr) {
  return start_poll_common(q, attr, true);
}

int next_poll(ibv_cq_ex* q) {
  Cq* cq = to_cq(q);
  if (!take_cqe(cq, &cq->cur)) {
    if (!run_device(cq) || !take_cqe(cq, &cq->cur)) return ENOENT;
  }
  return parse_current(cq);
}

void end_poll(ibv_cq_ex* q) {
  Cq* cq = to_cq(q);
  update_ci(cq);
  cq->lock.unlock();
}

CqeView cur(ibv_cq_ex* q) {
  return to_cq(q)->cur;
}

ibv_wc_opcode read_opcode(ibv_cq_ex* q) {
  CqeView c = cur(q);
  if (c.opcode() == CqeOpcode::REQ) return wc_opcode_request(c.wqe_opcode(), to_cq(q)->cur_umr_opcode);
  // On errors the opcode is undefined (ibv_poll_cq(3)); libmlx5 answers 0.
  if (c.opcode() == CqeOpcode::REQ_ERR || c.opcode() == CqeOpcode::RESP_ERR) return IBV_WC_SEND;
  return wc_opcode_response(c.opcode());
}
std::uint32_t read_vendor_err(ibv_cq_ex* q) {
  return cur(q).vendor_err();
}
unsigned read_wc_flags(ibv_cq_ex* q) {
  CqeView c = cur(q);
  bool csum = to_cq(q)->cur_csum && c.checksums_ok();
  return wc_flags_response(c.opcode()) | (c.grh() ? unsigned{IBV_WC_GRH} : 0u) | (csum ? unsigned{IBV_WC_IP_CSUM_OK} : 0u);
}
std::uint32_t read_byte_len(ibv_cq_ex* q) {
  return cur(q).byte_cnt();
}
// ibv_wc_read_invalidated_rkey goes through the same pointer and expects host order.
__be32 read_imm_data(ibv_cq_ex* q) {
  CqeView c = cur(q);
  return c.opcode() == CqeOpcode::RESP_SEND_INV ? c.imm_inval() : c.imm_be();
}
std::uint32_t read_qp_num(ibv_cq_ex* q) {
  return cur(q).qpn();
}
std::uint32_t read_src_qp(ibv_cq_ex* q) {
  return cur(q).src_qp();
}
std::uint32_t read_slid(ibv_cq_ex* q) {
  return cur(q).slid();
}
std::uint8_t read_sl(ibv_cq_ex* q) {
  return cur(q).sl();
}
std::uint8_t read_dlid_path_bits(ibv_cq_ex* q) {
  return cur(q).dlid_path_bits();
}
std::uint64_t read_completion_ts(ibv_cq_ex* q) {
  return cur(q).timestamp();
}
std::uint64_t read_wallclock(ibv_cq_ex* q) {
  return mlx5dv_ts_to_ns(&to_cq(q)->clock, cur(q).timestamp());
}
std::uint16_t read_cvlan(ibv_cq_ex* q) {
  return cur(q).cvlan();
}
std::uint32_t read_flow_tag(ibv_cq_ex* q) {
  return cur(q).flow_tag();
}
// Tag matching SRQs cannot be created here, so no CQE carries a tag: the words are read as they are.
void read_tm_info(ibv_cq_ex* q, ibv_wc_tm_info* info) {
  info->tag = load_be<std::uint64_t>(cur(q).bytes() + 8);
  info->priv = load_be<std::uint32_t>(cur(q).bytes() + 4);
}

}  // namespace

int cq_poll(ibv_cq* ibcq, int n, ibv_wc* wc) {
  Cq* cq = to_cq(ibcq);
  cq->lock.lock();
  if (!cq->sw_owned(cq->cons_index)) {  // most polls end here
    cq->lock.unlock();
    if (n <= 0 || !run_device(cq)) return 0;
    cq->lock.lock();
  }
  int got = poll_locked(cq, n, wc);
  cq->lock.unlock();
  return got;
}

int fill_cq_readers(Cq* cq, const ibv_cq_init_attr_ex* attr) {
  Context* ctx = to_ctx(cq->v.cq.context);
  ibv_cq_ex& q = cq->v.cq_ex;
  std::uint64_t f = attr->wc_flags;
  bool wallclock = f & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  q.start_poll = start_poll;
  q.next_poll = next_poll;
  q.end_poll = end_poll;
  q.read_opcode = read_opcode;
  q.read_vendor_err = read_vendor_err;
  q.read_wc_flags = read_wc_flags;
  if (f & IBV_WC_EX_WITH_BYTE_LEN) q.read_byte_len = read_byte_len;
  if (f & IBV_WC_EX_WITH_IMM) q.read_imm_data = read_imm_data;
  if (f & IBV_WC_EX_WITH_QP_NUM) q.read_qp_num = read_qp_num;
  if (f & IBV_WC_EX_WITH_SRC_QP) q.read_src_qp = read_src_qp;
  if (f & IBV_WC_EX_WITH_SLID) q.read_slid = read_slid;
  if (f & IBV_WC_EX_WITH_SL) q.read_sl = read_sl;
  if (f & IBV_WC_EX_WITH_DLID_PATH_BITS) q.read_dlid_path_bits = read_dlid_path_bits;
  if (f & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) q.read_completion_ts = read_completion_ts;
  if (f & IBV_WC_EX_WITH_CVLAN) q.read_cvlan = read_cvlan;
  if (f & IBV_WC_EX_WITH_FLOW_TAG) q.read_flow_tag = read_flow_tag;
  if (f & IBV_WC_EX_WITH_TM_INFO) q.read_tm_info = read_tm_info;
  if (wallclock) {
    if (ctx->real_time_ts && !(f & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) {
      q.read_completion_wallclock_ns = read_completion_ts;
    } else {
      if (!ctx->clock_info) return refuse(EOPNOTSUPP, "create_cq_ex: the kernel offers no clock page for wall clock timestamps").value;
      q.read_completion_wallclock_ns = read_wallclock;
      q.start_poll = start_poll_clock;
    }
  }
  return 0;
}

}  // namespace uhca::mlx5
