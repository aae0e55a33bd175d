// SPDX-License-Identifier: MIT
#include "device/hca/rc_completer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/trace.h"
#include "base/types.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/hca.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"
#include "device/hca/rc_requester.h"
#include "device/hca/segments.h"
#include "device/hca/wqe_fetch.h"

namespace uhca::hca {
namespace {

using wire::has;
using wire::NakCode;
using wire::Prop;
using wire::psn_add;
using wire::psn_diff;

void trace_stage(const Qp& qp, const char* stage, std::uint32_t psn) {
  if (trace::on())
    trace::Event("state", "completer").hex("qpn", qp.qpn).str("stage", stage).unum("psn", psn).unum("una", qp.transport->req.una_psn);
}

// Everything before `end` is acknowledged, except that a READ or atomic is only acknowledged by its own response: una_psn stops there.
// True: it stopped at one, i.e. its response is missing.
bool acknowledge_before(Lane& lane, Qp& qp, std::uint32_t end) {
  Requester& r = qp.transport->req;
  std::uint32_t una = r.una_psn;
  bool missing = false;
  for (std::uint16_t i = r.done; i != r.fetched;) {
    const SendMessage& m = message_at(r, i);
    if (psn_diff(end, m.first_psn) <= 0 || m.error) break;
    if (m.psns != 0 && is_read_or_atomic(m) && m.got < m.psns) {
      una = psn_add(m.first_psn, m.got);
      missing = psn_diff(end, una) > 0;
      break;
    }
    std::uint32_t m_end = psn_add(m.first_psn, m.psns);
    una = psn_diff(end, m_end) >= 0 ? m_end : end;
    i = static_cast<std::uint16_t>(i + m.bbs);
  }
  if (psn_diff(una, r.una_psn) > 0) {
    r.una_psn = una;
    note_progress(qp);
    restart_ack_timer(lane, qp);
  }
  return missing;
}

// A retry for one of the reasons that retry_cnt counts (IBTA 9.7.6.1). False: none was left, the QP has failed.
bool use_retry(Lane& lane, Qp& qp, const char* why) {
  Requester& r = qp.transport->req;
  if (r.retries_left == 0) {
    count<Qc::req_transport_retries_exceeded>(lane, qp);
    static_cast<void>(refuse(ETIMEDOUT, "QP {:#x}: retry_cnt {} exhausted at PSN {} ({}) towards QPN {:#x}", qp.qpn, qp.retry_count,
                             r.una_psn, why, qp.remote_qpn));
    fail_oldest_send(lane, qp, kRetryExceeded);
    return false;
  }
  --r.retries_left;
  trace_stage(qp, why, r.una_psn);
  go_back(qp);
  restart_ack_timer(lane, qp);
  lane.schedule(qp);
  return true;
}

void implied_nak(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (r.gap_reported) return;  // gone back already: what arrives belongs to the old requests
  r.gap_reported = true;
  count<Qc::implied_nak_seq_err>(lane, qp);
  use_retry(lane, qp, "implied_nak");
}

void rnr_nak(Lane& lane, Qp& qp, unsigned code) {
  Requester& r = qp.transport->req;
  count<Qc::rnr_nak_retry_err>(lane, qp);
  if (qp.rnr_retry != 7) {
    if (r.rnr_left == 0) {
      static_cast<void>(refuse(ENOBUFS, "QP {:#x}: QPN {:#x} has no receive WQE for PSN {}; rnr_retry {} exhausted", qp.qpn, qp.remote_qpn,
                               r.una_psn, qp.rnr_retry));
      fail_oldest_send(lane, qp, kRnrRetryExceeded);
      return;
    }
    --r.rnr_left;
  }
  trace_stage(qp, "rnr_wait", r.una_psn);
  go_back(qp);
  r.rnr_wait = true;
  lane.timers.stop(qp);
  lane.timers.start(qp, lane.now + rnr_wait(code));
}

void nak(Lane& lane, Qp& qp, const wire::Packet& p) {
  Requester& r = qp.transport->req;
  unsigned code = p.aeth.syndrome & 0x1f;
  WcError error = kRemoteOperation;
  switch (static_cast<NakCode>(code)) {
    case NakCode::kPsnSequence:
      count<Qc::packet_seq_err>(lane, qp);
      if (r.done != r.fetched && std::exchange(message_at(r, r.done).by_reference, false)) {
        // What was to be fetched was not there for the receiver: nothing that a peer on a wire would see, so it costs no retry.
        trace_stage(qp, "not_fetched", r.una_psn);
        go_back(qp);
        restart_ack_timer(lane, qp);
        lane.schedule(qp);
        return;
      }
      use_retry(lane, qp, "nak_sequence");
      return;
    case NakCode::kInvalidRequest:
    case NakCode::kInvalidRdRequest:
      count<Qc::req_remote_invalid_request>(lane, qp);
      error = kRemoteInvalidRequest;
      break;
    case NakCode::kRemoteAccess:
      count<Qc::req_remote_access_errors>(lane, qp);
      error = kRemoteAccess;
      break;
    case NakCode::kRemoteOperational: count<Qc::req_remote_operation_errors>(lane, qp); break;
    default: trace_stage(qp, "nak_reserved", p.bth.psn); return;
  }
  static_cast<void>(refuse(EREMOTEIO, "QP {:#x}: QPN {:#x} refused PSN {} (NAK code {})", qp.qpn, qp.remote_qpn, r.una_psn, code));
  fail_oldest_send(lane, qp, error);
}

void ack(Lane& lane, Qp& qp, const wire::Packet& p) {
  Requester& r = qp.transport->req;
  unsigned type = p.aeth.syndrome & 0x60;
  bool positive = type == wire::kAethAck;
  bool missing = acknowledge_before(lane, qp, positive ? psn_add(p.bth.psn, 1) : p.bth.psn);
  complete_messages(lane, qp);
  if (qp.state == QpState::kErr) return;
  if (missing) return implied_nak(lane, qp);
  if (r.rnr_wait && !positive) return;  // answers to what was sent before the RNR NAK came
  if (type == wire::kAethRnrNak) return rnr_nak(lane, qp, p.aeth.syndrome & 0x1f);
  if (type == wire::kAethNak) return nak(lane, qp, p);
  if (positive && r.rnr_wait && r.done == r.fetched) r.rnr_wait = false;
}

// The decoded WQE of the oldest message, or nullptr when it has changed since.
SendWqe* reload(Lane& lane, Qp& qp, const SendMessage& m) {
  SendWqe& w = lane.rx_wqe;
  if (m.got != 0 && w.valid && w.qpn == qp.qpn && w.index == m.wqe) return &w;
  const char* why = "the WQE has changed since it was posted";
  if (fetch_send_wqe(lane.bus, qp, m.wqe, m.bbs, w, &why) == WqeFault::kNone && w.opcode == m.opcode && w.length == m.length) return &w;
  static_cast<void>(refuse(EINVAL, "QP {:#x}: send WQE {} cannot take its response: {}", qp.qpn, m.wqe, why));
  w.valid = false;
  return nullptr;
}

void fail(Lane& lane, Qp& qp, const WcError& error, const wire::Packet& p, const char* why) {
  static_cast<void>(refuse(EPROTO, "QP {:#x}: response {} with PSN {} and {} bytes: {}", qp.qpn, wire::info(p.bth.opcode).name, p.bth.psn,
                           p.payload.size(), why));
  fail_oldest_send(lane, qp, error);
}

// Length and position of a READ response within its message; nullptr: right.
const char* check_read_response(const Qp& qp, const SendMessage& m, const wire::Packet& p, WcError* error) {
  Prop props = wire::info(p.bth.opcode).props;
  *error = kBadResponse;
  if (static_cast<prm::WqeOpcode>(m.opcode) != prm::WqeOpcode::RDMA_READ) return "an atomic was expected";
  bool last = m.got + 1 == m.psns;
  std::uint64_t left = m.length - std::uint64_t{m.got} * qp.mtu_bytes;
  std::size_t want = last ? static_cast<std::size_t>(left) : qp.mtu_bytes;
  if (p.payload.size() > want) {
    *error = kLocalLength;
    return "longer than asked for, or than the path MTU";
  }
  if (p.payload.size() < want) return "shorter than the path MTU or than what was left";
  if (has(props, Prop::kLast) != last) return last ? "the last one was expected" : "it ends the READ too early";
  return nullptr;
}

void read_response(Lane& lane, Qp& qp, const wire::Packet& p) {
  Requester& r = qp.transport->req;
  bool missing = acknowledge_before(lane, qp, p.bth.psn);
  complete_messages(lane, qp);
  if (qp.state == QpState::kErr) return;
  if (missing) return implied_nak(lane, qp);
  if (r.done == r.fetched || r.una_psn != p.bth.psn) return trace_stage(qp, "read_unexpected", p.bth.psn);
  SendMessage& m = message_at(r, r.done);
  if (m.error || !is_read_or_atomic(m)) {
    return fail(lane, qp, kBadResponse, p, "no READ or atomic is at this PSN");
  }
  bool atomic = has(wire::info(p.bth.opcode).props, Prop::kAtomicAckEth);
  std::uint64_t value = p.atomic_ack;
  const std::byte* data = p.payload.data();
  std::size_t len = p.payload.size();
  if (atomic) {
    if (static_cast<prm::WqeOpcode>(m.opcode) == prm::WqeOpcode::RDMA_READ) return fail(lane, qp, kBadResponse, p, "a READ was expected");
    if (!lane.hca.atomics_in_host_order()) value = byteswap(value);
    data = reinterpret_cast<const std::byte*>(&value);
    len = sizeof value;
  } else {
    WcError error;
    if (const char* why = check_read_response(qp, m, p, &error)) return fail(lane, qp, error, p, why);
  }
  SendWqe* w = reload(lane, qp, m);
  if (w == nullptr) return fail_oldest_send(lane, qp, kLocalQpOp);
  if (answers_in_cqe(qp, m)) {
    // The whole answer in one packet: software copies it from the CQE (libmlx5: mlx5_copy_to_send_wqe).
    std::memcpy(r.in_cqe.data(), data, len);
  } else if (!scatter(lane, qp, "response scatter", {w->segs.data(), w->nsegs}, std::uint64_t{m.got} * qp.mtu_bytes, data, len, true)) {
    return fail_oldest_send(lane, qp, kLocalProtScatter);
  }
  ++m.got;
  r.una_psn = psn_add(r.una_psn, 1);
  note_progress(qp);
  complete_messages(lane, qp);
  if (qp.state != QpState::kErr) restart_ack_timer(lane, qp);
}

}  // namespace

Nanos rnr_wait(unsigned code) {
  // In units of 10 us; code 0 is the longest.
  static constexpr std::array<std::uint32_t, 32> kTenMicros{65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                                            48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                                            2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return Nanos{kTenMicros[code & 31]} * 10'000;
}

void complete_response(Lane& lane, Qp& qp, const wire::Packet& p) {
  Requester& r = qp.transport->req;
  if (qp.state != QpState::kRts && qp.state != QpState::kSqDrain && qp.state != QpState::kSqDrained)
    return trace_stage(qp, "state", p.bth.psn);
  // Stage psn: only what is outstanding can be answered; older ones are duplicates (IBTA 9.7.5.1.5, "ghost" acknowledges).
  if (psn_diff(p.bth.psn, r.una_psn) < 0) return trace_stage(qp, "duplicate", p.bth.psn);
  if (psn_diff(p.bth.psn, r.max_psn) >= 0) return trace_stage(qp, "psn_not_sent", p.bth.psn);
  Prop props = wire::info(p.bth.opcode).props;
  if (has(props, Prop::kReadResponse) || has(props, Prop::kAtomicAckEth)) {
    read_response(lane, qp, p);
  } else {
    ack(lane, qp, p);
  }
  // Room in the window, a fence that opened, a READ that may follow.
  if (qp.state != QpState::kErr && (r.cursor != r.fetched || r.fetched != r.posted)) lane.schedule(qp);
}

void requester_timer(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (qp.state != QpState::kRts && qp.state != QpState::kSqDrain) return;
  if (r.rnr_wait) {
    r.rnr_wait = false;
    trace_stage(qp, "rnr_over", r.una_psn);
    lane.schedule(qp);
    return;
  }
  if (psn_diff(r.max_psn, r.una_psn) <= 0) return;
  if (qp.transport->flow.paced) return restart_ack_timer(lane, qp);
  count<Qc::local_ack_timeout_err>(lane, qp);
  ++qp.transport->detours;
  r.gap_reported = false;
  use_retry(lane, qp, "timeout");
}

}  // namespace uhca::hca
