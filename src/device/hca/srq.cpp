// SPDX-License-Identifier: MIT
#include "device/hca/srq.h"

#include "base/log.h"
#include "base/trace.h"
#include "base/types.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/qp_error.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

std::uint16_t available(const Srq& srq) {
  return static_cast<std::uint16_t>(srq.sw_counter - srq.hw_counter);
}

// The producer counter from the doorbell record; one that no ring of this size can have is ignored.
void refresh_posted(Lane& lane, Srq& srq) {
  std::uint32_t v;
  if (!lane.bus.dma_load32(srq.dbr + prm::kRcvDbr * 4, &v)) return;
  auto posted = static_cast<std::uint16_t>(byteswap(v));
  if (static_cast<std::uint16_t>(posted - srq.hw_counter) > 1u << srq.log_size) {
    static_cast<void>(refuse(EINVAL, "SRQ {:#x}: the doorbell record says {}, but {} of {} WQEs were taken: ignored", srq.srqn, posted,
                             srq.hw_counter, 1u << srq.log_size));
    return;
  }
  srq.sw_counter = posted;
}

void check_limit(Lane& lane, Srq& srq) {
  if (srq.lwm == 0 || available(srq) >= srq.lwm) return;
  refresh_posted(lane, srq);
  if (available(srq) >= srq.lwm) return;
  srq.lwm = 0;  // once per arm
  srq_event(lane, EventType::kSrqLimit, srq);
}

void fail_srq(Lane& lane, Srq& srq, std::uint16_t index, const char* why) {
  static_cast<void>(refuse(EFAULT, "SRQ {:#x}: WQE {}: {}: the SRQ has failed", srq.srqn, index, why));
  srq.error = true;
  srq_event(lane, EventType::kSrqCatastrophic, srq);
}

}  // namespace

TakeWqe take_srq_wqe(Lane& lane, Srq& srq, const Qp& qp, RecvWqe& w) {
  if (srq.error) return TakeWqe::kUnreadable;
  if (available(srq) == 0) refresh_posted(lane, srq);
  if (available(srq) == 0) return TakeWqe::kNone;
  const char* why = nullptr;
  std::uint16_t next = 0;
  if (fetch_srq_wqe(lane.bus, srq, srq.head, w, &next, &why) != WqeFault::kNone) {
    fail_srq(lane, srq, srq.head, why);
    return TakeWqe::kUnreadable;
  }
  w.srq = &srq;
  srq.head = next;
  ++srq.hw_counter;
  if (trace::on()) {
    trace::Event("wqe", "SRQ").hex("srqn", srq.srqn).hex("qpn", qp.qpn).num("wqe", w.index).num("segs", w.nsegs).unum("len", w.length);
  }
  check_limit(lane, srq);
  return TakeWqe::kTaken;
}

void srq_armed(Lane& lane, Srq& srq) {
  refresh_posted(lane, srq);
  check_limit(lane, srq);
}

void srq_destroyed(Lane& lane, Srq& srq) {
  for (auto& [qpn, qp] : lane.objects.qps) {
    if (qp->transport == nullptr) continue;
    Responder& r = qp->transport->resp;
    if (r.recv_wqe.srq != &srq) continue;
    r.recv_wqe.srq = nullptr;
    if (!r.wqe_held) continue;
    r.wqe_held = false;
    static_cast<void>(refuse(EPIPE, "QP {:#x}: SRQ {:#x} was destroyed in the middle of a message", qpn, srq.srqn));
    qp_event(lane, EventType::kWqCatastrophic, *qp);
    enter_error(lane, *qp);
  }
}

}  // namespace uhca::hca
