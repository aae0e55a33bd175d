// SPDX-License-Identifier: MIT
#include "device/hca/qp_error.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/dc.h"
#include "device/hca/doorbell_record.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/raw_queue.h"
#include "device/hca/recv_queue.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

constexpr Nanos kFirstErrorCheck = 1'000'000;  // 1 ms

[[gnu::cold, gnu::noinline]] bool report_producer(const Qp& qp, const char* queue, unsigned index, unsigned consumer, unsigned size) {
  static_cast<void>(refuse(EINVAL, "QP {:#x}: the {} doorbell record says {}, but the queue of {} entries was last read up to {}: ignored",
                           qp.qpn, queue, index, size, consumer));
  return false;
}

// A 16-bit producer index; false when it lies more than `size` ahead of `consumer`.
bool load_producer(Lane& lane, const Qp& qp, std::size_t word, std::uint16_t consumer, std::uint32_t size, std::uint16_t* out,
                   const char* queue) {
  std::uint32_t v;
  if (!load_record(lane.bus, qp.dbr_window, qp.dbr, word, &v)) return false;
  auto index = static_cast<std::uint16_t>(v);
  if (static_cast<std::uint16_t>(index - consumer) > size) return report_producer(qp, queue, index, consumer, size);
  *out = index;
  return true;
}

void send_error_cqe(Lane& lane, Qp& qp, std::uint16_t wqe, std::uint8_t opcode, const WcError& error) {
  count<Qc::req_cqe_error>(lane, qp);
  if (error.syndrome == kFlush.syndrome) count<Qc::req_cqe_flush_error>(lane, qp);
  Cqe c;
  c.opcode = prm::CqeOpcode::REQ_ERR;
  c.wqe_opcode = opcode;
  c.wqe_counter = wqe;
  c.error = error;
  write_cqe(lane, qp.send_cq, qp, c);
}

void recv_error_cqe(Lane& lane, Qp& qp, const Srq* srq, std::uint16_t wqe, const WcError& error) {
  count<Qc::resp_cqe_error>(lane, qp);
  if (error.syndrome == kFlush.syndrome) count<Qc::resp_cqe_flush_error>(lane, qp);
  Cqe c;
  c.opcode = prm::CqeOpcode::RESP_ERR;
  c.wqe_counter = wqe;
  c.error = error;
  if (srq != nullptr && srq->cq != nullptr) c.user_index = srq->user_index;
  write_cqe(lane, recv_cq_of(qp, srq), qp, c);
}

bool flush_send(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (!qp.has_sq) return false;
  refresh_send_posted(lane, qp);
  bool any = false;
  while (r.done != r.posted) {
    std::uint8_t opcode;
    unsigned bbs;
    if (r.done != r.fetched) {
      const SendMessage& m = r.messages[r.done & (r.messages.size() - 1)];
      opcode = m.opcode;
      bbs = m.bbs;
    } else {
      bbs = std::min<unsigned>(send_wqe_blocks(lane.bus, ring_of(qp), r.done, &opcode), static_cast<std::uint16_t>(r.posted - r.done));
      r.fetched = static_cast<std::uint16_t>(r.fetched + bbs);
    }
    send_error_cqe(lane, qp, r.done, opcode, kFlush);
    r.done = static_cast<std::uint16_t>(r.done + bbs);
    any = true;
  }
  r.cursor = r.fetched;
  r.packet = 0;
  return any;
}

bool flush_recv(Lane& lane, Qp& qp) {
  Responder& p = qp.transport->resp;
  bool any = false;
  if (p.wqe_held) {
    fail_held_recv(lane, qp, kFlush);
    any = true;
  }
  if (!qp.has_rq) return any;
  refresh_recv_posted(lane, qp);
  for (; p.rq_ci != p.rq_posted; ++p.rq_ci) {
    recv_error_cqe(lane, qp, nullptr, p.rq_ci, kFlush);
    any = true;
  }
  return any;
}

// Receive posts ring no doorbell: what comes after the flush is found by looking.
void watch_posts(Lane& lane, Qp& qp) {
  QpTransport& t = *qp.transport;
  if (!t.in_error_list) {
    t.in_error_list = true;
    lane.error_qps.push_back(&qp);
  }
  lane.error_interval = kFirstErrorCheck;
  lane.error_check = lane.now + lane.error_interval;
}

}  // namespace

bool refresh_send_posted(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  return qp.has_sq && load_producer(lane, qp, prm::kSndDbr, r.done, 1u << qp.log_sq_size, &r.posted, "send");
}

bool refresh_recv_posted(Lane& lane, Qp& qp) {
  Responder& p = qp.transport->resp;
  return qp.has_rq && load_producer(lane, qp, prm::kRcvDbr, p.rq_ci, 1u << qp.log_rq_size, &p.rq_posted, "receive");
}

void fail_oldest_send(Lane& lane, Qp& qp, const WcError& error) {
  Requester& r = qp.transport->req;
  if (r.done != r.fetched) {
    const SendMessage& m = r.messages[r.done & (r.messages.size() - 1)];
    send_error_cqe(lane, qp, m.wqe, m.opcode, error);
    r.done = static_cast<std::uint16_t>(r.done + m.bbs);
    if (fail_stream(lane, qp, m.stream, error)) return;
  }
  // Unreliable services lose their send queue only (IBTA 10.3.1: SQE state).
  if (is_reliable(qp.type) || qp.type == QpType::kRegUmr) {
    enter_error(lane, qp);
  } else {
    enter_send_error(lane, qp);
  }
}

void fail_held_recv(Lane& lane, Qp& qp, const WcError& error) {
  Responder& p = qp.transport->resp;
  if (!p.wqe_held) return;
  p.wqe_held = false;
  recv_error_cqe(lane, qp, p.recv_wqe.srq, p.recv_wqe.index, error);
}

void enter_error(Lane& lane, Qp& qp) {
  QpTransport& t = *qp.transport;
  if (trace::on()) trace::Event("state", "QP").hex("qpn", qp.qpn).str("to", "ERR").num("from", static_cast<int>(qp.state));
  qp.state = QpState::kErr;
  load_progress(lane, qp);
  lane.publisher.withdraw_qp(qp);  // nobody writes to or reads from a QP in error
  lane.timers.stop(qp);
  t.req.rnr_wait = false;
  t.resp.njobs = 0;
  if (t.resp.answer != Responder::Answer::kNak) t.resp.answer = Responder::Answer::kNone;
  t.resp.message = Responder::Message::kNone;
  flush_posts(lane, qp);
  // A session ends quietly: its DCT lives on.
  if (qp.type == QpType::kDctSession) return;
  // Nothing of the shared receive queue will be consumed for this QP any more (IBTA 11.6.3.2). XRC's SRQs belong to no QP.
  if (qp.srq != nullptr && qp.type != QpType::kXrc && qp.type != QpType::kDci) qp_event(lane, EventType::kLastWqe, qp);
  watch_posts(lane, qp);
}

void enter_send_error(Lane& lane, Qp& qp) {
  if (trace::on()) trace::Event("state", "QP").hex("qpn", qp.qpn).str("to", "SQER").num("from", static_cast<int>(qp.state));
  qp.state = QpState::kSqErr;
  lane.timers.stop(qp);
  flush_posts(lane, qp);
  watch_posts(lane, qp);
}

bool flush_posts(Lane& lane, Qp& qp) {
  bool sends = flush_send(lane, qp);
  if (qp.state == QpState::kSqErr) return sends;
  bool recvs = flush_recv(lane, qp);
  return sends || recvs;
}

void fail_users_of_bad_cqs(Lane& lane) {
  for (auto& [qpn, qp] : lane.objects.qps) {
    bool bad = (qp->send_cq != nullptr && qp->send_cq->error) || (qp->recv_cq != nullptr && qp->recv_cq->error);
    if (!bad || qp->transport == nullptr || qp->state == QpState::kReset || qp->state == QpState::kErr) continue;
    qp_event(lane, EventType::kWqCatastrophic, *qp);
    enter_error(lane, *qp);
  }
  fail_raw_queues_of_bad_cqs(lane);
}

}  // namespace uhca::hca
