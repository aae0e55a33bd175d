// SPDX-License-Identifier: MIT
// What the command interface's state changes mean for the engine.
#include "device/hca/qp_states.h"

#include <algorithm>

#include "device/hca/doorbell.h"
#include "device/hca/qp_error.h"
#include "device/hca/qp_transport.h"

namespace uhca::hca {
namespace {

constexpr unsigned kMaxReads = 128;  // 3 bits of log in the QP context

// As after creation: queues empty, nothing expected.
void reset_transport(Qp& qp) {
  QpTransport& t = *qp.transport;
  std::vector<SendMessage> messages = std::move(t.req.messages);
  std::vector<ResponseJob> jobs = std::move(t.resp.jobs);
  std::vector<AtomicResult> atomics = std::move(t.resp.atomics);
  RecvWqe wqe = std::move(t.resp.recv_wqe);
  t.req = Requester{};
  t.resp = Responder{};
  t.req.messages = std::move(messages);
  t.resp.jobs = std::move(jobs);
  t.resp.atomics = std::move(atomics);
  t.resp.recv_wqe = std::move(wqe);
  for (AtomicResult& a : t.resp.atomics) a.valid = false;
}

}  // namespace

const char* qp_state_name(QpState s) {
  switch (s) {
    case QpState::kReset: return "RESET";
    case QpState::kInit: return "INIT";
    case QpState::kRtr: return "RTR";
    case QpState::kRts: return "RTS";
    case QpState::kSqErr: return "SQERR";
    case QpState::kErr: return "ERR";
    case QpState::kSqDrain: return "SQ_DRAINING";
    case QpState::kSqDrained: return "SQ_DRAINED";
  }
  return "?";
}

void qp_created(Lane& lane, Qp& qp) {
  qp.transport = std::make_unique<QpTransport>();
  if (qp.has_sq) qp.transport->req.messages.resize(std::size_t{1} << qp.log_sq_size);
  qp.transport->resp.recv_wqe.prepare(qp);
  lane.timers.reserve(lane.objects.qps.size() + 1);
  lane.paced.reserve(lane.objects.qps.size() + 1);
  lane.error_qps.reserve(lane.objects.qps.size() + 1);
}

void qp_state_changed(Lane& lane, Qp& qp, QpState from) {
  QpTransport& t = *qp.transport;
  switch (qp.state) {
    case QpState::kReset:
      lane.forget(qp);
      reset_transport(qp);
      break;
    case QpState::kRtr: {
      if (from != QpState::kInit) break;
      t.resp.epsn = qp.next_rcv_psn & wire::kPsnMask;
      std::size_t reads = std::clamp(qp.max_dest_rd_atomic, 1u, kMaxReads);
      // Twice as many: duplicates are answered beside the originals.
      t.resp.jobs.resize(2 * reads);
      t.resp.atomics.resize(reads);
      break;
    }
    case QpState::kRts:
      if (from == QpState::kSqErr) {
        t.req.fatal = false;
        lane.leave_error_list(qp);
      }
      if (from == QpState::kRtr) {
        Requester& r = t.req;
        r.next_psn = r.una_psn = r.max_psn = qp.next_send_psn & wire::kPsnMask;
        r.retries_left = qp.retry_count;
        r.rnr_left = qp.rnr_retry;
      }
      look_at_send_queue(lane, qp);
      break;
    case QpState::kSqDrain: look_at_send_queue(lane, qp); break;
    case QpState::kErr:
      if (from != QpState::kErr) enter_error(lane, qp);
      break;
    default: break;
  }
  lane.settle();
}

void fill_qpc(const Qp& qp, void* qpc) {
  const Requester& r = qp.transport->req;
  const Responder& p = qp.transport->resp;
  prm::set<prm::qpc::state>(qpc, static_cast<unsigned>(qp.state));
  prm::set<prm::qpc::next_send_psn>(qpc, r.next_psn);
  prm::set<prm::qpc::last_acked_psn>(qpc, wire::psn_add(r.una_psn, wire::kPsnMask));
  prm::set<prm::qpc::cur_retry_count>(qpc, r.retries_left);
  prm::set<prm::qpc::cur_rnr_retry>(qpc, r.rnr_left);
  prm::set<prm::qpc::hw_sq_wqebb_counter>(qpc, r.done);
  prm::set<prm::qpc::sw_sq_wqebb_counter>(qpc, r.posted);
  prm::set<prm::qpc::next_rcv_psn>(qpc, p.epsn);
  prm::set<prm::qpc::rmsn>(qpc, p.msn);
  prm::set<prm::qpc::hw_rq_counter>(qpc, p.rq_ci);
  prm::set<prm::qpc::sw_rq_counter>(qpc, p.rq_posted);
}

}  // namespace uhca::hca
