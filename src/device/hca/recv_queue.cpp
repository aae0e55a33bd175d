// SPDX-License-Identifier: MIT
#include "device/hca/recv_queue.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"

namespace uhca::hca {

TakeWqe take_recv_wqe(Lane& lane, Qp& qp) {
  Responder& r = qp.transport->resp;
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

bool scatter_recv(Lane& lane, Qp& qp, std::uint64_t off, const std::byte* src, std::size_t len, bool last) {
  const RecvWqe& w = qp.transport->resp.recv_wqe;
  for (unsigned i = 0; i < w.nsegs && len > 0; ++i) {
    const DataSeg& s = w.segs[i];
    if (off >= s.len) {
      off -= s.len;
      continue;
    }
    std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(len, s.len - off));
    KeyView v = check_key(lane.objects, qp, s.lkey, s.addr + off, n, KeyAccess::kLocalWrite);
    if (v.ok() && !write_memory(lane.bus, v, s.addr + off, src, n, last && n == len)) v.fault = KeyFault::kUnmapped;
    if (!v.ok()) {
      report_key_fault(lane.bus, qp, "receive scatter", s.lkey, s.addr + off, n, KeyAccess::kLocalWrite, v);
      return false;
    }
    src += n;
    len -= n;
    off = 0;
  }
  return len == 0;
}

void complete_recv(Lane& lane, Qp& qp, Cqe c) {
  Responder& r = qp.transport->resp;
  r.wqe_held = false;
  c.wqe_counter = r.recv_wqe.index;
  write_cqe(lane, qp.recv_cq, qp, c);
}

}  // namespace uhca::hca
