// SPDX-License-Identifier: MIT
#include "device/hca/rc_responder.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/rcu.h"
#include "base/trace.h"
#include "base/types.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/host_packet.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"
#include "device/hca/rc_answer.h"
#include "device/hca/recv_queue.h"

namespace uhca::hca {
namespace {

using wire::has;
using wire::NakCode;
using wire::Prop;
using wire::psn_add;
using wire::psn_diff;

constexpr std::uint32_t kMaxRdma = 1u << 31;  // IBTA 9.4.3: longest RDMA

struct Inbound {
  Lane& lane;
  Qp& qp;
  const wire::Packet& p;
  Prop props;
  Responder& r;
  const HostBody* host;  // of a host packet; nullptr: a frame's packet
  std::size_t len() const { return host != nullptr ? host->length : p.payload.size(); }
  std::uint32_t packets() const { return host != nullptr ? host->packets : 1; }  // of the path MTU
  bool to_fetch() const { return host != nullptr && host->fetch; }
  bool is(Prop x) const { return has(props, x); }
  // Takes a receive WQE with this packet: SEND at its begin, WRITE with immediate at its end.
  bool needs_wqe() const { return is(Prop::kConsumesRecv); }
  bool reliable() const { return is_reliable(qp.type); }
  // Every request to an XRC target names an SRQ of its domain.
  bool names_queue() const { return qp.type != QpType::kXrc || xrc_srq(lane, qp, p) != nullptr; }
  KeyUser user() const { return remote_key_user(lane, qp, p); }
};

enum class Stage : std::uint8_t { kPsn, kOpSequence, kOpValid, kResources, kLength, kRkey, kExecute, kComplete, kAcknowledge, kDone };

// ---- refusals

void trace_refusal(const Inbound& in, const char* stage) {
  if (trace::on()) {
    trace::Event("state", "responder")
        .hex("qpn", in.qp.qpn)
        .str("stage", stage)
        .str("opcode", wire::info(in.p.bth.opcode).name)
        .unum("psn", in.p.bth.psn)
        .unum("epsn", in.r.epsn);
  }
}

EventType event_of(NakCode code) {
  switch (code) {
    case NakCode::kRemoteAccess: return EventType::kWqAccess;
    case NakCode::kRemoteOperational: return EventType::kWqCatastrophic;
    default: return EventType::kWqInvalidRequest;
  }
}

// NAK, error completion of the held receive WQE or asynchronous event, error state (IBTA 9.9.3: affiliated errors of the responder).
// An unreliable service drops the rest of the message and says nothing; only what its own receive queue did wrong is an error (9.8.2.2).
Stage refuse_request(Inbound& in, NakCode code, const WcError& recv_error, const char* stage) {
  trace_refusal(in, stage);
  bool own_fault = recv_error.syndrome == kLocalLength.syndrome || recv_error.syndrome == kLocalProtScatter.syndrome;
  if (!in.reliable() && !own_fault) {
    in.r.message = Responder::Message::kNone;
    return Stage::kDone;
  }
  if (code == NakCode::kInvalidRequest) count<Qc::resp_remote_invalid_request>(in.lane, in.qp);
  if (code == NakCode::kRemoteAccess) count<Qc::resp_remote_access_errors>(in.lane, in.qp);
  if (in.reliable()) queue_nak(in.qp, wire::kAethNak | static_cast<std::uint8_t>(code), in.p.bth.psn);
  if (in.r.wqe_held) {
    fail_held_recv(in.lane, in.qp, recv_error);
  } else {
    qp_event(in.lane, event_of(code), in.qp);
  }
  enter_error(in.lane, in.qp);
  in.lane.schedule(in.qp);
  return Stage::kDone;
}

Stage invalid_request(Inbound& in, const char* stage, const char* why) {
  static_cast<void>(refuse(EINVAL, "QP {:#x}: request {} with PSN {} and {} bytes: {}: NAK invalid request", in.qp.qpn,
                           wire::info(in.p.bth.opcode).name, in.p.bth.psn, in.len(), why));
  return refuse_request(in, NakCode::kInvalidRequest, kRemoteInvalidRequest, stage);
}

Stage access_error(Inbound& in, const char* stage) {
  return refuse_request(in, NakCode::kRemoteAccess, kRemoteAccess, stage);
}

// Overrun takes down the QPs that name the CQ (fail_users_of_bad_cqs). A DCT's sessions and the targets of an XRC SRQ are told here: a
// peer must not be told that a message arrived when its completion has nowhere to go.
bool completion_is_lost(const Inbound& in, const Srq* srq) {
  const Cq* cq = recv_cq_of(in.qp, srq);
  return cq != nullptr && cq->error && (in.qp.type == QpType::kDctSession || cq != in.qp.recv_cq);
}

Stage lost_completion(Inbound& in, const char* stage, const Srq* srq) {
  static_cast<void>(refuse(EOVERFLOW, "QP {:#x}: request with PSN {}: CQ {:#x}, where it would complete, has failed: NAK operational error",
                           in.qp.qpn, in.p.bth.psn, recv_cq_of(in.qp, srq)->cqn));
  return refuse_request(in, NakCode::kRemoteOperational, kRemoteOperation, stage);
}

// ---- stages

// Packets that have been executed before (IBTA 9.7.5.1.4 and 9.7.5.1.3).
void duplicate(Inbound& in) {
  count<Qc::duplicate_request>(in.lane, in.qp);
  if (in.p.net.udp_sport != in.r.peer_sport) ++in.qp.transport->detours;
  trace_refusal(in, "duplicate");
  if (in.is(Prop::kRead)) {
    std::uint32_t n = packets_of(in.qp, in.p.reth.length);
    bool known = in.names_queue() && in.p.reth.length <= kMaxRdma && in.qp.rre && psn_diff(psn_add(in.p.bth.psn, n), in.r.epsn) <= 0;
    if (known && in.p.reth.length != 0) {
      known = check_key(in.lane.objects, in.user(), in.p.reth.rkey, in.p.reth.va, in.p.reth.length, KeyAccess::kRemoteRead).ok();
    }
    if (known) queue_duplicate_read(in.qp, in.user(), in.p, n);
  } else if (in.is(Prop::kAtomic)) {
    queue_duplicate_atomic(in.qp, in.p.bth.psn);
  } else {
    queue_ack(in.qp);
  }
  in.lane.schedule(in.qp);
}

void established(Inbound& in) {
  if (in.r.comm_est) return;
  in.r.comm_est = true;
  if (in.qp.state == QpState::kRtr) qp_event(in.lane, EventType::kCommEst, in.qp);
}

// Unreliable connection (IBTA 9.8.2.2.1): a packet that begins a message is taken at any PSN, what was unfinished is lost, and its receive
// WQE serves the new message. In the middle a gap loses the rest.
Stage check_uc_psn(Inbound& in) {
  bool gap = in.p.bth.psn != in.r.epsn;
  if (gap) count<Qc::out_of_sequence>(in.lane, in.qp);
  if (in.is(Prop::kFirst)) {
    in.r.message = Responder::Message::kNone;
    in.r.epsn = in.p.bth.psn;
  } else if (gap || in.r.message == Responder::Message::kNone) {
    trace_refusal(in, "psn");
    in.r.message = Responder::Message::kNone;
    return Stage::kDone;
  }
  established(in);
  return Stage::kOpSequence;
}

Stage check_psn(Inbound& in) {
  if (!in.reliable()) return check_uc_psn(in);
  std::int32_t d = psn_diff(in.p.bth.psn, in.r.epsn);
  if (d < 0) {
    duplicate(in);
    return Stage::kDone;
  }
  if (d > 0) {
    count<Qc::out_of_sequence>(in.lane, in.qp);
    trace_refusal(in, "psn");
    // One NAK per gap, and none while an RNR NAK is out (IBTA 9.7.5.2.8).
    if (in.r.held == Responder::Held::kNo || psn_diff(in.p.bth.psn, in.r.dropped_psn) > 0) in.r.dropped_psn = in.p.bth.psn;
    if (in.r.held != Responder::Held::kNo) return Stage::kDone;
    in.r.held = Responder::Held::kSequence;
    queue_nak(in.qp, wire::kAethNak | static_cast<std::uint8_t>(NakCode::kPsnSequence), in.r.epsn);
    in.lane.schedule(in.qp);
    return Stage::kDone;
  }
  // It comes before the NAK that asks for it has left. What had come before it was dropped: the NAK asks for that instead.
  bool more_missing = in.r.held == Responder::Held::kSequence && psn_diff(in.r.dropped_psn, in.r.epsn) > 0;
  if (!more_missing || !nak_waits(in.qp)) {
    in.r.held = Responder::Held::kNo;
    withdraw_nak(in.qp);
  }
  established(in);
  return Stage::kOpSequence;
}

Stage check_op_sequence(Inbound& in) {
  using Message = Responder::Message;
  Message m = in.r.message;
  if (in.is(Prop::kSend) || in.is(Prop::kWrite)) {
    if (in.is(Prop::kFirst)) {
      if (m != Message::kNone) return invalid_request(in, "op_sequence", "begins a message inside of another one");
    } else if (m != (in.is(Prop::kSend) ? Message::kSend : Message::kWrite)) {
      return invalid_request(in, "op_sequence", "continues a message that has not begun");
    }
  } else if (m != Message::kNone) {
    return invalid_request(in, "op_sequence", "READ or atomic inside of a message");
  }
  return Stage::kOpValid;
}

Stage check_op_valid(Inbound& in) {
  // What the QP does not allow is an invalid request, not an access error: the key is not even looked at.
  if (in.is(Prop::kRead) && !in.qp.rre) return invalid_request(in, "op_valid", "the QP does not allow remote reads");
  if (in.is(Prop::kWrite) && !in.qp.rwe) return invalid_request(in, "op_valid", "the QP does not allow remote writes");
  if (in.is(Prop::kAtomic)) {
    if (!in.qp.rae) return invalid_request(in, "op_valid", "the QP does not allow remote atomics");
    if (in.p.atomic_eth.va % 8 != 0) return invalid_request(in, "op_valid", "atomic at an address that is no multiple of 8");
  }
  return Stage::kResources;
}

Stage check_resources(Inbound& in) {
  if (!in.names_queue()) return invalid_request(in, "resources", "the SRQ is none of the QP's XRC domain");
  if (in.is(Prop::kRead) || in.is(Prop::kAtomic)) {
    auto open = std::count_if(in.r.jobs.begin(), in.r.jobs.begin() + in.r.njobs, [](const ResponseJob& j) { return !j.repeat; });
    if (open >= std::max<std::ptrdiff_t>(1, in.qp.max_dest_rd_atomic) || in.r.njobs == in.r.jobs.size()) {
      return invalid_request(in, "resources", "more READs and atomics at a time than max_dest_rd_atomic");
    }
    return Stage::kLength;
  }
  if (!in.needs_wqe() || in.r.wqe_held) return Stage::kLength;  // held: left over from a message that UC lost
  Srq* srq = in.qp.type == QpType::kXrc ? xrc_srq(in.lane, in.qp, in.p) : in.qp.srq;
  if (completion_is_lost(in, srq)) return lost_completion(in, "resources", srq);
  switch (take_recv_wqe(in.lane, in.qp, srq)) {
    case TakeWqe::kTaken: return Stage::kLength;
    case TakeWqe::kUnreadable:
      // The WQE is consumed by its error completion.
      return refuse_request(in, NakCode::kRemoteOperational, kLocalProtScatter, "resources");
    case TakeWqe::kNone: break;
  }
  count<Qc::out_of_buffer>(in.lane, in.qp);
  trace_refusal(in, "rnr");
  if (!in.reliable()) {
    in.r.message = Responder::Message::kNone;
    return Stage::kDone;
  }
  in.r.held = Responder::Held::kRnr;
  queue_nak(in.qp, static_cast<std::uint8_t>(wire::kAethRnrNak | (in.qp.min_rnr_nak & 0x1f)), in.p.bth.psn);
  in.lane.schedule(in.qp);
  return Stage::kDone;
}

Stage check_length(Inbound& in) {
  Responder& r = in.r;
  std::size_t mtu = in.qp.mtu_bytes;
  bool last = in.is(Prop::kLast), first = in.is(Prop::kFirst);
  if (in.is(Prop::kRead)) {
    return in.p.reth.length > kMaxRdma ? invalid_request(in, "length", "READ of more than 2^31 bytes") : Stage::kRkey;
  }
  if (in.is(Prop::kAtomic)) return Stage::kRkey;
  std::size_t most = mtu * in.packets();
  if (!last && in.len() != most) return invalid_request(in, "length", "FIRST or MIDDLE packet that is not as long as the path MTU");
  if (in.packets() > 1 && in.len() <= most - mtu) return invalid_request(in, "length", "shorter than its packets of the path MTU");
  if (in.len() > most) return invalid_request(in, "length", "longer than the path MTU");
  if (last && !first && in.len() == 0) return invalid_request(in, "length", "LAST packet without data");
  if (first) r.received = 0;
  if (in.is(Prop::kSend)) {
    std::uint64_t total = r.received + in.len();
    if (total > max_message(in.qp)) return invalid_request(in, "length", "message is too long");
    if (total > r.recv_wqe.length) {
      count<Qc::resp_local_length_error>(in.lane, in.qp);
      static_cast<void>(refuse(EMSGSIZE, "QP {:#x}: message of {} bytes or more for receive WQE {} with room for {}", in.qp.qpn, total,
                               r.recv_wqe.index, r.recv_wqe.length));
      return refuse_request(in, NakCode::kInvalidRequest, kLocalLength, "length");
    }
    return Stage::kExecute;
  }
  if (first) {
    r.write_va = in.p.reth.va;
    r.write_rkey = in.p.reth.rkey;
    r.write_length = in.p.reth.length;
    if (r.write_length > kMaxRdma) return invalid_request(in, "length", "WRITE of more than 2^31 bytes");
  }
  std::uint64_t end = r.received + in.len();
  if (last ? end != r.write_length : end >= r.write_length) {
    return invalid_request(in, "length", "the packets do not add up to the RETH's DMA length");
  }
  return Stage::kRkey;
}

Stage check_rkey(Inbound& in) {
  std::uint32_t key = in.r.write_rkey;
  std::uint64_t va = in.r.write_va + in.r.received, len = in.len();
  KeyAccess need = KeyAccess::kRemoteWrite;
  if (in.is(Prop::kRead)) {
    key = in.p.reth.rkey, va = in.p.reth.va, len = in.p.reth.length, need = KeyAccess::kRemoteRead;
  } else if (in.is(Prop::kAtomic)) {
    key = in.p.atomic_eth.rkey, va = in.p.atomic_eth.va, len = 8, need = KeyAccess::kRemoteAtomic;
  } else if (in.is(Prop::kFirst)) {
    len = in.r.write_length;  // the whole WRITE, before anything is written
  }
  if (len == 0) return Stage::kExecute;  // IBTA 9.4.3: no key check for zero bytes
  KeyUser user = in.user();
  KeyView v = check_key(in.lane.objects, user, key, va, len, need);
  if (v.ok()) return Stage::kExecute;
  report_key_fault(in.lane.bus, user, "request of the peer", key, va, len, need, v);
  return access_error(in, "rkey");
}

// The sender's memory is not there any more, or not the message's: nothing of this packet has happened. It is asked for again, and then
// comes by value.
Stage not_fetched(Inbound& in) {
  trace_refusal(in, "not_fetched");
  in.r.held = Responder::Held::kSequence;
  in.r.dropped_psn = in.r.epsn;
  queue_nak(in.qp, wire::kAethNak | static_cast<std::uint8_t>(NakCode::kPsnSequence), in.r.epsn);
  in.lane.schedule(in.qp);
  return Stage::kDone;
}

Stage fetch_send(Inbound& in) {
  rcu::ReadSection section;
  Pieces pieces;
  const RecvWqe& w = in.r.recv_wqe;
  bool taken =
      pieces.add(in.lane, recv_key_user(in.qp), {w.segs.data(), w.nsegs}, nullptr, in.r.received, in.len(), pci::DmaDir::kFromDevice);
  if (!taken || !fetch_payload(in.lane, in.qp, *in.host, pieces)) return not_fetched(in);
  return Stage::kComplete;
}

Stage fetch_write(Inbound& in, const KeyView& v, std::uint64_t va) {
  rcu::ReadSection section;
  Pieces pieces;
  if (!pieces.add(in.lane.bus, v, va, in.len(), pci::DmaDir::kFromDevice) || !fetch_payload(in.lane, in.qp, *in.host, pieces))
    return not_fetched(in);
  return Stage::kComplete;
}

// A short message of one packet goes into the CQE (complete() puts it there); never with the wrong length.
bool goes_into_cqe(const Inbound& in) {
  return in.is(Prop::kSend) && in.is(Prop::kFirst) && in.is(Prop::kLast) && !in.to_fetch() && in.len() <= recv_inline_limit(in.qp);
}

Stage execute_send(Inbound& in) {
  if (in.to_fetch()) {
    if (Stage s = fetch_send(in); s != Stage::kComplete) return s;
  }
  if (in.is(Prop::kIeth) && !invalidate_key(in.lane, in.user(), in.p.ieth)) return access_error(in, "rkey");
  if (!goes_into_cqe(in) && !in.to_fetch() &&
      !scatter_recv(in.lane, in.qp, in.r.received, in.p.payload.data(), in.len(), in.is(Prop::kLast))) {
    count<Qc::resp_local_protection>(in.lane, in.qp);
    return refuse_request(in, NakCode::kRemoteOperational, kLocalProtScatter, "execute");
  }
  in.r.received += in.len();
  in.r.message = Responder::Message::kSend;
  return Stage::kComplete;
}

Stage execute_write(Inbound& in) {
  std::uint64_t va = in.r.write_va + in.r.received;
  if (in.len() > 0) {
    KeyUser user = in.user();
    KeyView v = check_key(in.lane.objects, user, in.r.write_rkey, va, in.len(), KeyAccess::kRemoteWrite);
    if (v.ok() && in.to_fetch()) {
      if (Stage s = fetch_write(in, v, va); s != Stage::kComplete) return s;
    } else if (v.ok() && !write_memory(in.lane.bus, v, va, in.p.payload.data(), in.len(), in.is(Prop::kLast)))
      v.fault = KeyFault::kUnmapped;
    if (!v.ok()) {
      report_key_fault(in.lane.bus, user, "WRITE of the peer", in.r.write_rkey, va, in.len(), KeyAccess::kRemoteWrite, v);
      return access_error(in, "execute");
    }
  }
  if (in.is(Prop::kFirst)) count<Qc::rx_write_requests>(in.lane, in.qp);
  in.r.received += in.len();
  in.r.message = Responder::Message::kWrite;
  return Stage::kComplete;
}

Stage execute(Inbound& in) {
  if (in.is(Prop::kSend)) return execute_send(in);
  if (in.is(Prop::kWrite)) return execute_write(in);
  if (in.is(Prop::kRead)) {
    count<Qc::rx_read_requests>(in.lane, in.qp);
    std::uint32_t n = packets_of(in.qp, in.p.reth.length);
    in.r.msn = psn_add(in.r.msn, 1);
    queue_read(in.qp, in.user(), in.p, n);
    in.r.epsn = psn_add(in.r.epsn, n);
    in.lane.schedule(in.qp);
    return Stage::kDone;
  }
  count<Qc::rx_atomic_requests>(in.lane, in.qp);
  std::uint64_t found;
  if (!execute_atomic(in.lane, in.user(), in.p, &found)) return access_error(in, "execute");
  in.r.msn = psn_add(in.r.msn, 1);
  queue_atomic(in.qp, in.p.bth.psn, found);
  in.r.epsn = psn_add(in.r.epsn, 1);
  in.lane.schedule(in.qp);
  return Stage::kDone;
}

prm::CqeOpcode recv_opcode(const Inbound& in) {
  if (in.is(Prop::kWrite)) return prm::CqeOpcode::RESP_WR_IMM;
  if (in.is(Prop::kImm)) return prm::CqeOpcode::RESP_SEND_IMM;
  return in.is(Prop::kIeth) ? prm::CqeOpcode::RESP_SEND_INV : prm::CqeOpcode::RESP_SEND;
}

Stage complete(Inbound& in) {
  in.r.epsn = psn_add(in.r.epsn, in.packets());
  if (!in.is(Prop::kLast)) return Stage::kAcknowledge;
  in.r.message = Responder::Message::kNone;
  in.r.msn = psn_add(in.r.msn, 1);
  if (in.r.wqe_held) {
    Cqe c;
    c.opcode = recv_opcode(in);
    c.byte_cnt = static_cast<std::uint32_t>(in.r.received);
    c.imm = in.is(Prop::kIeth) ? in.p.ieth : in.p.imm;
    c.solicited = in.p.bth.solicited;
    if (goes_into_cqe(in)) c.data = in.p.payload;
    complete_recv(in.lane, in.qp, c);
    const Srq* srq = in.r.recv_wqe.srq;
    if (completion_is_lost(in, srq)) return lost_completion(in, "complete", srq);
  }
  return Stage::kAcknowledge;
}

Stage acknowledge(Inbound& in) {
  if (in.p.bth.ack_req && in.reliable()) {
    queue_ack(in.qp);
    in.lane.schedule(in.qp);
  }
  return Stage::kDone;
}

// Indexed by Stage.
constexpr std::array kStages{check_psn,  check_op_sequence, check_op_valid, check_resources, check_length,
                             check_rkey, execute,           complete,       acknowledge};

}  // namespace

void respond(Lane& lane, Qp& qp, const wire::Packet& p, const HostBody* host) {
  Inbound in{lane, qp, p, wire::info(p.bth.opcode).props, qp.transport->resp, host};
  for (Stage s = Stage::kPsn; s != Stage::kDone;) s = kStages[static_cast<std::size_t>(s)](in);
  in.r.peer_sport = p.net.udp_sport;
}

}  // namespace uhca::hca
