// SPDX-License-Identifier: MIT
#include "device/hca/recv_queue.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"
#include "device/hca/segments.h"
#include "device/hca/srq.h"

namespace uhca::hca {

TakeWqe take_recv_wqe(Lane& lane, Qp& qp, Srq* srq) {
  Responder& r = qp.transport->resp;
  if (srq != nullptr) {
    TakeWqe t = take_srq_wqe(lane, *srq, qp, r.recv_wqe);
    r.wqe_held = t == TakeWqe::kTaken;
    return t;
  }
  if (!qp.has_rq) return TakeWqe::kNone;
  if (r.rq_ci == r.rq_posted) refresh_recv_posted(lane, qp);
  if (r.rq_ci == r.rq_posted) return TakeWqe::kNone;
  const char* why = nullptr;
  WqeFault fault = fetch_recv_wqe(lane.bus, qp, r.rq_ci, r.recv_wqe, &why);
  ++r.rq_ci;
  r.wqe_held = true;
  if (trace::on()) {
    trace::Event("wqe", "RECV_QUEUE")
        .hex("qpn", qp.qpn)
        .num("wqe", r.recv_wqe.index)
        .num("segs", r.recv_wqe.nsegs)
        .unum("len", r.recv_wqe.length);
  }
  if (fault == WqeFault::kNone) return TakeWqe::kTaken;
  static_cast<void>(refuse(EFAULT, "QP {:#x}: receive WQE {}: {}", qp.qpn, r.recv_wqe.index, why));
  return TakeWqe::kUnreadable;
}

Srq* xrc_srq(const Lane& lane, const Qp& qp, const wire::Packet& p) {
  Srq* srq = lane.objects.srq(p.xrc_srq);
  return srq != nullptr && srq->kind == Srq::Kind::kXrcSrq && srq->xrcd == qp.xrcd ? srq : nullptr;
}

namespace {

// RMPs have no protection domain.
KeyUser srq_key_user(const Qp& qp, const Srq* srq) {
  if (srq == nullptr || srq->pd == 0) return qp;
  return {srq->pd, qp.qpn, srq->rlky};
}

}  // namespace

KeyUser remote_key_user(const Lane& lane, const Qp& qp, const wire::Packet& p) {
  KeyUser user = srq_key_user(qp, qp.type == QpType::kXrc ? xrc_srq(lane, qp, p) : nullptr);
  user.rlky = false;  // a peer has no reserved key
  return user;
}

KeyUser recv_key_user(const Qp& qp) {
  return srq_key_user(qp, qp.transport->resp.recv_wqe.srq);
}

bool scatter_recv(Lane& lane, Qp& qp, std::uint64_t off, const std::byte* src, std::size_t len, bool last) {
  const RecvWqe& w = qp.transport->resp.recv_wqe;
  return scatter(lane, recv_key_user(qp), "receive scatter", {w.segs.data(), w.nsegs}, off, src, len, last);
}

Cq* recv_cq_of(const Qp& qp, const Srq* srq) {
  return srq != nullptr && srq->cq != nullptr ? srq->cq : qp.recv_cq;
}

void complete_recv(Lane& lane, Qp& qp, Cqe c) {
  Responder& r = qp.transport->resp;
  r.wqe_held = false;
  c.wqe_counter = r.recv_wqe.index;
  const Srq* srq = r.recv_wqe.srq;
  if (srq != nullptr && srq->cq != nullptr) c.user_index = srq->user_index;
  write_cqe(lane, recv_cq_of(qp, srq), qp, c);
}

std::size_t recv_inline_limit(const Qp& qp) {
  const Cq* cq = recv_cq_of(qp, qp.transport->resp.recv_wqe.srq);
  return cq == nullptr ? 0 : inline_scatter_limit(*cq, qp.scatter_to_cqe_res);
}

}  // namespace uhca::hca
