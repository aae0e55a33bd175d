// SPDX-License-Identifier: MIT
#include "device/hca/rc_answer.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/direct.h"
#include "device/hca/qp_error.h"
#include "device/hca/rc_packet.h"
#include "device/hca/rc_responder.h"

namespace uhca::hca {
namespace {

using wire::Op;
using wire::psn_add;
using wire::psn_diff;

constexpr std::uint8_t kNoCredits = 0x1f;  // IBTA 9.7.7.2.1: end-to-end credits are not given
// READ responses per turn, so that one QP does not keep the others waiting.
constexpr unsigned kResponsesPerTurn = 64;

// Keeps the jobs in PSN order; no room: the peer will ask again.
void insert_job(Responder& r, const ResponseJob& job) {
  if (r.njobs == r.jobs.size()) return;
  unsigned i = r.njobs++;
  for (; i > 0 && psn_diff(r.jobs[i - 1].psn, job.psn) > 0; --i) r.jobs[i] = r.jobs[i - 1];
  r.jobs[i] = job;
}

ResponseJob read_job(const Qp& qp, const KeyUser& user, const wire::Packet& p, std::uint32_t packets) {
  ResponseJob j;
  j.kind = ResponseJob::Kind::kRead;
  j.psn = p.bth.psn;
  j.left = packets;
  j.msn = qp.transport->resp.msn;
  j.pd = user.pd;
  j.rkey = p.reth.rkey;
  j.va = p.reth.va;
  j.bytes = p.reth.length;
  return j;
}

Tx send_read_response(Lane& lane, Qp& qp, const ResponseJob& j) {
  std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(j.bytes, qp.mtu_bytes));
  bool last = j.left == 1;
  Op op = j.first ? (last ? Op::kReadResponseOnly : Op::kReadResponseFirst) : (last ? Op::kReadResponseLast : Op::kReadResponseMiddle);
  wire::Packet p;
  p.aeth = {static_cast<std::uint8_t>(wire::kAethAck | kNoCredits), j.msn};
  std::byte* data = begin_packet(lane, qp, direct_peer(lane, qp), p, op, j.psn, n);
  if (data == nullptr) return Tx::kBusy;
  if (n > 0) {
    KeyUser user{j.pd, qp.qpn, false};
    KeyView v = check_key(lane.objects, user, j.rkey, j.va, n, KeyAccess::kRemoteRead);
    if (v.ok() && !read_memory(lane.bus, v, j.va, data, n)) v.fault = KeyFault::kUnmapped;
    if (!v.ok()) {
      report_key_fault(lane.bus, user, "READ response", j.rkey, j.va, n, KeyAccess::kRemoteRead, v);
      return Tx::kFault;
    }
  }
  return finish_packet(lane, qp, p);
}

Tx send_job(Lane& lane, Qp& qp, ResponseJob& j) {
  if (j.kind == ResponseJob::Kind::kRead) {
    if (j.bytes > 0 && must_wait(lane, qp)) return Tx::kLater;
    Tx tx = send_read_response(lane, qp, j);
    std::uint64_t n = std::min<std::uint64_t>(j.bytes, qp.mtu_bytes);
    if (tx == Tx::kSent) charge(lane, qp, n), j.va += n, j.bytes -= n, j.first = false;
    return tx;
  }
  wire::Packet p;
  p.aeth = {static_cast<std::uint8_t>(wire::kAethAck | kNoCredits), j.msn};
  p.atomic_ack = j.value;
  if (begin_packet(lane, qp, direct_peer(lane, qp), p, Op::kAtomicAcknowledge, j.psn, 0) == nullptr) return Tx::kBusy;
  return finish_packet(lane, qp, p);
}

Tx send_acknowledge(Lane& lane, Qp& qp) {
  Responder& r = qp.transport->resp;
  bool nak = r.answer == Responder::Answer::kNak;
  wire::Packet p;
  p.aeth = {nak ? r.nak_syndrome : static_cast<std::uint8_t>(wire::kAethAck | kNoCredits), r.msn};
  bool gap = nak && r.nak_syndrome == (wire::kAethNak | static_cast<std::uint8_t>(wire::NakCode::kPsnSequence));
  std::uint32_t psn = gap ? r.epsn : nak ? r.nak_psn : psn_add(r.epsn, wire::kPsnMask);
  if (begin_packet(lane, qp, direct_peer(lane, qp), p, Op::kAcknowledge, psn, 0) == nullptr) return Tx::kBusy;
  return finish_packet(lane, qp, p);
}

}  // namespace

void queue_ack(Qp& qp) {
  Responder& r = qp.transport->resp;
  if (r.answer == Responder::Answer::kNone) r.answer = Responder::Answer::kAck;
}

void queue_nak(Qp& qp, std::uint8_t syndrome, std::uint32_t psn) {
  Responder& r = qp.transport->resp;
  r.answer = Responder::Answer::kNak;
  r.nak_syndrome = syndrome;
  r.nak_psn = psn;
}

void withdraw_nak(Qp& qp) {
  Responder& r = qp.transport->resp;
  if (r.answer == Responder::Answer::kNak) r.answer = Responder::Answer::kAck;
}

bool nak_waits(const Qp& qp) {
  return qp.transport->resp.answer == Responder::Answer::kNak;
}

void queue_read(Qp& qp, const KeyUser& user, const wire::Packet& p, std::uint32_t packets) {
  insert_job(qp.transport->resp, read_job(qp, user, p, packets));
}

void queue_duplicate_read(Qp& qp, const KeyUser& user, const wire::Packet& p, std::uint32_t packets) {
  Responder& r = qp.transport->resp;
  std::uint32_t end = psn_add(p.bth.psn, packets);
  for (unsigned i = 0; i < r.njobs; ++i) {
    ResponseJob& j = r.jobs[i];
    if (j.kind != ResponseJob::Kind::kRead || psn_add(j.psn, j.left) != end) continue;
    bool repeat = j.repeat;
    if (psn_diff(j.psn, p.bth.psn) > 0) j = read_job(qp, user, p, packets);  // some of it got lost
    j.repeat = repeat;
    return;
  }
  ResponseJob again = read_job(qp, user, p, packets);
  again.repeat = true;
  insert_job(r, again);
}

bool execute_atomic(Lane& lane, const KeyUser& user, const wire::Packet& p, std::uint64_t* found) {
  const wire::AtomicEth& a = p.atomic_eth;
  KeyView v = check_key(lane.objects, user, a.rkey, a.va, 8, KeyAccess::kRemoteAtomic);
  bool cs = wire::op_of(p.bth.opcode) == Op::kCompareSwap;
  if (v.ok()) {
    // A fetch-and-add is a compare-and-swap that is tried until nobody came between.
    std::uint64_t seen = cs ? a.compare : 0;
    bool mapped = true;
    for (bool done = false; mapped && !done;) {
      std::uint64_t expected = seen;
      mapped = compare_and_swap(lane.bus, v, a.va, &expected, cs ? a.swap_add : seen + a.swap_add);
      done = cs || expected == seen;
      seen = expected;
    }
    *found = seen;
    if (!mapped) v.fault = KeyFault::kUnmapped;
  }
  if (!v.ok()) report_key_fault(lane.bus, user, "atomic of the peer", a.rkey, a.va, 8, KeyAccess::kRemoteAtomic, v);
  return v.ok();
}

void queue_atomic(Qp& qp, std::uint32_t psn, std::uint64_t found) {
  Responder& r = qp.transport->resp;
  AtomicResult& slot = r.atomics[r.next_atomic];
  r.next_atomic = (r.next_atomic + 1) % static_cast<unsigned>(r.atomics.size());
  slot = {true, psn, r.msn, found};
  ResponseJob j;
  j.kind = ResponseJob::Kind::kAtomic;
  j.psn = psn;
  j.left = 1;
  j.msn = r.msn;
  j.value = found;
  insert_job(r, j);
}

void queue_duplicate_atomic(Qp& qp, std::uint32_t psn) {
  Responder& r = qp.transport->resp;
  for (unsigned i = 0; i < r.njobs; ++i) {
    if (r.jobs[i].kind == ResponseJob::Kind::kAtomic && r.jobs[i].psn == psn) return;
  }
  for (const AtomicResult& a : r.atomics) {
    if (!a.valid || a.psn != psn) continue;
    ResponseJob j;
    j.kind = ResponseJob::Kind::kAtomic;
    j.psn = psn;
    j.left = 1;
    j.msn = a.msn;
    j.value = a.value;
    j.repeat = true;
    insert_job(r, j);
    return;
  }
}

bool invalidate_key(Lane& lane, const KeyUser& user, std::uint32_t rkey) {
  Mkey* m = lane.objects.mkey(rkey);
  const char* why = nullptr;
  if (m == nullptr || m->key != rkey) {
    why = "no such key";
  } else if (m->free) {
    why = "it is invalid already";
  } else if (m->pd != user.pd) {
    why = "it belongs to another PD";
  } else if (prm::get<prm::mkc::en_rinval>(m->mkc.data()) == 0) {
    why = "it does not allow remote invalidation (mkc.en_rinval)";
  } else if (m->qpn != 0xffffff && m->qpn != user.qpn) {
    why = "it is bound to another QP";
  }
  if (why != nullptr) {
    static_cast<void>(refuse(EACCES, "QP {:#x}: the peer's SEND wants to invalidate mkey {:#x}: {}", user.qpn, rkey, why));
    return false;
  }
  m->free = true;
  lane.publisher.withdraw_mkey(m->key);
  return true;
}

bool send_answers(Lane& lane, Qp& qp) {
  Responder& r = qp.transport->resp;
  bool did = false;
  unsigned turn = 0;
  while (r.njobs > 0) {
    ResponseJob& j = r.jobs[0];
    Tx tx = turn++ == kResponsesPerTurn ? Tx::kBusy : send_job(lane, qp, j);
    if (tx == Tx::kLater) return did;
    if (tx == Tx::kBusy) {
      lane.schedule(qp);
      return did;
    }
    if (tx == Tx::kFault) {
      queue_nak(qp, wire::kAethNak | static_cast<std::uint8_t>(wire::NakCode::kRemoteAccess), j.psn);
      enter_error(lane, qp);
      break;
    }
    did = true;
    j.psn = psn_add(j.psn, 1);
    if (--j.left == 0) {
      std::move(r.jobs.begin() + 1, r.jobs.begin() + r.njobs, r.jobs.begin());
      --r.njobs;
    }
  }
  if (r.answer == Responder::Answer::kNone) return did;
  if (send_acknowledge(lane, qp) == Tx::kBusy) {
    lane.schedule(qp);
    return did;
  }
  r.answer = Responder::Answer::kNone;
  return true;
}

}  // namespace uhca::hca
