// SPDX-License-Identifier: MIT
#include "device/hca/rc_requester.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/rcu.h"
#include "base/trace.h"
#include "device/hca/cqe_writer.h"
#include "device/hca/dc.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/fast_path.h"
#include "device/hca/host_packet.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"
#include "device/hca/rc_packet.h"
#include "device/hca/segments.h"
#include "device/hca/ud.h"
#include "device/hca/umr.h"
#include "device/hca/wqe_fetch.h"

namespace uhca::hca {
namespace {

using prm::WqeOpcode;
using wire::Op;
using wire::psn_add;
using wire::psn_diff;

// Timeouts shorter than this cannot be kept by software that shares its processors (hardware has a floor as well).
constexpr Nanos kMinAckTimeout = 2'000'000;

WqeOpcode opcode_of(const SendMessage& m) {
  return static_cast<WqeOpcode>(m.opcode);
}

// Executed here, without packets.
bool is_local(WqeOpcode o) {
  return o == WqeOpcode::NOP || o == WqeOpcode::UMR;
}

bool is_write(WqeOpcode o) {
  return o == WqeOpcode::RDMA_WRITE || o == WqeOpcode::RDMA_WRITE_IMM;
}

// Whether all PSNs that are out, and `more`, still can be told apart (IBTA 9.7.2: half of the PSN space).
bool psn_room(const Requester& r, std::uint32_t more) {
  return ((r.next_psn - r.una_psn) & wire::kPsnMask) + more < 0x800000;
}

// Running number of the oldest request packet that may not have arrived.
std::uint32_t oldest_seq(Requester& r) {
  if (r.done == r.fetched) return r.next_seq;
  SendMessage& m = message_at(r, r.done);
  if (m.error || is_read_or_atomic(m)) return m.first_seq;
  std::int32_t acked = psn_diff(r.una_psn, m.first_psn);
  return m.first_seq + static_cast<std::uint32_t>(std::clamp<std::int32_t>(acked, 0, static_cast<std::int32_t>(m.packets)));
}

// Every data segment of the WQE must be usable before its first packet leaves.
bool check_segments(Lane& lane, const Qp& qp, const SendWqe& w, KeyAccess need) {
  for (unsigned i = 0; i < w.nsegs; ++i) {
    const DataSeg& s = w.segs[i];
    if (s.inline_at != 0) continue;
    KeyView v = check_key(lane.objects, qp, s.lkey, s.addr, s.len, need);
    if (v.ok()) continue;
    report_key_fault(lane.bus, qp, "send WQE", s.lkey, s.addr, s.len, need, v);
    return false;
  }
  return true;
}

WcError check_wqe(Lane& lane, const Qp& qp, const SendWqe& w) {
  auto op = static_cast<WqeOpcode>(w.opcode);
  if (is_datagram(qp.type)) {
    WcError e = check_datagram(lane, qp, w);
    if (e) return e;
  }
  const std::uint64_t limit = max_message(qp);
  if (w.length > limit && (op == WqeOpcode::RDMA_READ || check_segments(lane, qp, w, KeyAccess::kLocalRead))) {
    static_cast<void>(refuse(EMSGSIZE, "QP {:#x}: message of {} bytes, at most {} (qpc.log_msg_max)", qp.qpn, w.length, limit));
    return kLocalLength;
  }
  switch (op) {
    case WqeOpcode::RDMA_READ:
      for (unsigned i = 0; i < w.nsegs; ++i) {
        if (w.segs[i].inline_at != 0) return kLocalQpOp;
      }
      return check_segments(lane, qp, w, KeyAccess::kLocalWrite) ? WcError{} : kLocalProtScatter;
    case WqeOpcode::ATOMIC_CS:
    case WqeOpcode::ATOMIC_FA:
      if (w.length != 8 || w.nsegs != 1 || w.segs[0].inline_at != 0) {
        static_cast<void>(
            refuse(EINVAL, "QP {:#x}: atomic WQE with {} bytes in {} segments, must be 8 bytes in one", qp.qpn, w.length, w.nsegs));
        return kLocalQpOp;
      }
      return check_segments(lane, qp, w, KeyAccess::kLocalWrite) ? WcError{} : kLocalProtScatter;
    case WqeOpcode::UMR: return WcError{};  // checked when it is executed
    default: return check_segments(lane, qp, w, KeyAccess::kLocalRead) ? WcError{} : kLocalProtSend;
  }
}

void trace_wqe(const Qp& qp, const SendWqe& w, const SendMessage& m) {
  trace::Event e("wqe", "SEND_QUEUE");
  e.hex("qpn", qp.qpn)
      .num("wqe", m.wqe)
      .hex("opcode", m.opcode)
      .unum("len", w.length)
      .num("segs", w.nsegs)
      .unum("psn", m.first_psn)
      .unum("psns", m.psns);
  if (w.nsegs > 0 && w.segs[0].inline_at == 0) e.hex("mkey", w.segs[0].lkey).hex("addr", w.segs[0].addr);
  if (m.error) e.hex("syndrome", m.error.syndrome);
}

// Stage fetch: the next WQE becomes a message with PSNs. False: it has to wait for PSN space.
bool begin_message(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  SendWqe& w = lane.tx_wqe;
  const char* why = nullptr;
  WqeFault fault = fetch_send_wqe(lane.bus, qp, r.fetched, static_cast<std::uint16_t>(r.posted - r.fetched), w, &why);
  SendMessage m;
  m.wqe = r.fetched;
  m.opcode = w.opcode;
  m.fm_ce_se = w.fm_ce_se;
  m.bbs = w.bbs;
  m.psns = m.packets = 0;
  if (fault != WqeFault::kNone) {
    static_cast<void>(refuse(EINVAL, "QP {:#x}: send WQE {} (opcode {:#x}): {}", qp.qpn, m.wqe, m.opcode, why));
    m.error = kLocalQpOp;
  } else {
    m.length = static_cast<std::uint32_t>(w.length);
    if (qp.type == QpType::kDci && has_streams(qp))
      m.stream = static_cast<std::uint16_t>(prm::get<prm::wqe_ctrl_seg::dci_stream_channel_id>(w.raw.data()));
    m.error = stream_failed(qp, m.stream) ? kFlush : check_wqe(lane, qp, w);
  }
  if (!m.error && !is_local(opcode_of(m))) {
    m.psns = packets_of(qp, w.length);
    m.packets = is_read_or_atomic(m) ? 1 : m.psns;
    if (opcode_of(m) == WqeOpcode::ATOMIC_CS || opcode_of(m) == WqeOpcode::ATOMIC_FA) m.psns = 1;
    if (!psn_room(r, m.psns)) {
      w.valid = false;
      return false;
    }
  }
  m.first_psn = r.next_psn;
  m.first_seq = r.next_seq;
  r.next_psn = psn_add(r.next_psn, m.psns);
  r.next_seq += m.packets;
  if (m.error) {
    r.fatal = true;
    w.valid = false;
  }
  if (trace::on()) trace_wqe(qp, w, m);
  SendMessage& slot = message_at(r, r.fetched);
  const auto next = static_cast<std::uint16_t>(r.fetched + m.bbs);
  if (qp.type == QpType::kDci) {
    const bool again = static_cast<std::int16_t>(r.again_until - r.fetched) > 0;
    if (again && slot.wqe == m.wqe) m.executed = slot.executed;  // once only
    if (!again) r.again_until = next;
  }
  slot = m;
  r.fetched = next;
  return true;
}

// The decoded WQE of a message whose sending goes on; nullptr when the program has changed it meanwhile.
SendWqe* reload(Lane& lane, Qp& qp, const SendMessage& m) {
  SendWqe& w = lane.tx_wqe;
  if (w.valid && w.qpn == qp.qpn && w.index == m.wqe) return &w;
  const char* why = "the WQE has changed since it was posted";
  if (fetch_send_wqe(lane.bus, qp, m.wqe, m.bbs, w, &why) == WqeFault::kNone && w.opcode == m.opcode && w.length == m.length) return &w;
  static_cast<void>(refuse(EINVAL, "QP {:#x}: send WQE {} cannot be sent again: {}", qp.qpn, m.wqe, why));
  w.valid = false;
  return nullptr;
}

// Once only: sending may start over at a message before it.
WcError execute_local(Lane& lane, Qp& qp, const SendMessage& m) {
  if (m.executed || opcode_of(m) == WqeOpcode::NOP) return {};
  const SendWqe* w = reload(lane, qp, m);
  return w == nullptr ? kLocalQpOp : execute_umr(lane, qp, *w);
}

Op data_opcode(WqeOpcode o, bool first, bool last) {
  bool write = is_write(o);
  if (!last) return first ? (write ? Op::kWriteFirst : Op::kSendFirst) : (write ? Op::kWriteMiddle : Op::kSendMiddle);
  switch (o) {
    case WqeOpcode::RDMA_WRITE: return first ? Op::kWriteOnly : Op::kWriteLast;
    case WqeOpcode::RDMA_WRITE_IMM: return first ? Op::kWriteOnlyImm : Op::kWriteLastImm;
    case WqeOpcode::SEND_IMM: return first ? Op::kSendOnlyImm : Op::kSendLastImm;
    case WqeOpcode::SEND_INVAL: return first ? Op::kSendOnlyInv : Op::kSendLastInv;
    default: return first ? Op::kSendOnly : Op::kSendLast;
  }
}

// READs and atomics: one packet.
Tx send_read_or_atomic(Lane& lane, Qp& qp, wire::PeerFunction* peer, const SendMessage& m, const SendWqe& w) {
  wire::Packet p;
  WqeOpcode op = opcode_of(m);
  p.reth = {w.raddr, w.rkey, m.length};
  p.xrc_srq = w.xrc_srqn;
  p.bth.ack_req = true;
  Op wire_op = Op::kReadRequest;
  if (op == WqeOpcode::RDMA_READ) {
    // Asked for again after a loss: only what is missing (IBTA 9.7.5.2.4).
    std::uint32_t have = m.got * qp.mtu_bytes;
    p.reth.va += have;
    p.reth.length -= have;
  } else {
    p.atomic_eth = {w.raddr, w.rkey, w.swap_add, w.compare};
    wire_op = op == WqeOpcode::ATOMIC_CS ? Op::kCompareSwap : Op::kFetchAdd;
  }
  if (begin_packet(lane, qp, peer, p, wire_op, psn_add(m.first_psn, m.got), 0) == nullptr) return Tx::kBusy;
  return finish_packet(lane, qp, p);
}

// The data of `m` from `off` on that may go with packets of more than the path MTU, in bytes; 0: none. That is where no wire is between,
// what has never been sent (receivers tell duplicates by their first PSN), and of a WRITE with immediate all but the last packet, which
// takes a receive WQE.
std::uint64_t uncut_data(const Qp& qp, const wire::PeerFunction* peer, const SendMessage& m, std::uint64_t off, std::uint32_t psn) {
  if (peer == nullptr || psn != qp.transport->req.max_psn) return 0;
  std::uint64_t left = m.length - off;
  if (opcode_of(m) == WqeOpcode::RDMA_WRITE_IMM && left > qp.mtu_bytes) left = std::uint64_t{m.packets - 1} * qp.mtu_bytes - off;
  return left <= qp.mtu_bytes ? 0 : left;
}

// A SEND or WRITE packet that is to be built: all of it but its data.
struct DataPacket {
  wire::Packet p;
  Op op{};
  std::uint32_t psn = 0;
  std::uint64_t off = 0;      // of its data in the message
  std::uint64_t len = 0;      // bytes
  std::uint32_t packets = 1;  // of the path MTU
};

// The packet of `len` bytes at r.packet.
DataPacket describe(const Qp& qp, const SendMessage& m, const SendWqe& w, std::uint64_t len) {
  const Requester& r = qp.transport->req;
  DataPacket d;
  d.psn = psn_add(m.first_psn, r.packet);
  d.off = std::uint64_t{r.packet} * qp.mtu_bytes;
  d.len = len;
  d.packets = packets_of(qp, len);
  bool first = r.packet == 0, last = r.packet + d.packets == m.packets;
  d.op = data_opcode(opcode_of(m), first, last);
  d.p.reth = {w.raddr, w.rkey, m.length};
  d.p.xrc_srq = w.xrc_srqn;
  d.p.imm = w.imm;
  d.p.ieth = w.imm;
  d.p.bth.ack_req = is_reliable(qp.type) && (last || (m.first_seq + r.packet) % kAckEvery + d.packets >= kAckEvery);
  d.p.bth.solicited = last && (m.fm_ce_se & prm::kWqeCtrlSolicited) != 0;
  return d;
}

// The packet as one whose data the receiver fetches. False: the data cannot be named so.
bool send_for_fetch(Lane& lane, Qp& qp, wire::PeerFunction& peer, SendMessage& m, const SendWqe& w, DataPacket& d, Tx* tx) {
  rcu::ReadSection section;
  Pieces pieces;
  if (!pieces.add(lane, qp, {w.segs.data(), w.nsegs}, nullptr, d.off, d.len, pci::DmaDir::kToDevice)) return false;
  if (pieces.get().size() > kMaxFetchPieces) return false;
  address_packet(qp, d.p, d.op, d.psn);
  d.p.payload = std::span<const std::byte>(lane.tx_frame.data(), d.len);  // only its size counts
  lane.host_out = &peer;
  *tx = Tx::kBusy;
  if (!begin_fetch_packet(lane, peer, qp, d.p, static_cast<std::uint32_t>(d.len), pieces.get())) return true;
  m.by_reference = true;
  *tx = finish_packet(lane, qp, d.p);
  return true;
}

Tx send_data(Lane& lane, Qp& qp, wire::PeerFunction* peer, const SendWqe& w, DataPacket& d) {
  std::byte* data = begin_packet(lane, qp, peer, d.p, d.op, d.psn, d.len);
  if (data == nullptr) return Tx::kBusy;
  if (!gather(lane, qp, "gather", w, d.off, data, d.len)) return Tx::kFault;
  Tx tx = finish_packet(lane, qp, d.p);
  if (tx == Tx::kSent) charge(lane, qp, d.len);
  return tx;
}

Tx send_datagram(Lane& lane, Qp& qp, const SendMessage& m, const SendWqe& w, DataPacket& d) {
  std::byte* data = begin_datagram(lane, qp, w, d.p, opcode_of(m) == WqeOpcode::SEND_IMM, d.psn, d.len);
  if (!gather(lane, qp, "gather", w, d.off, data, d.len)) return Tx::kFault;
  Tx tx = finish_packet(lane, qp, d.p);
  if (tx == Tx::kSent && d.p.bth.dest_qp == kMulticastQpn) loop_back_multicast(lane, qp, d.p);
  return tx;
}

// Stages build and send from packet r.packet of message `m` on; *packets: how many of the message's have gone.
Tx send_request(Lane& lane, Qp& qp, wire::PeerFunction* peer, SendMessage& m, const SendWqe& w, std::uint32_t* packets) {
  *packets = 1;
  if (is_read_or_atomic(m)) return send_read_or_atomic(lane, qp, peer, m, w);
  const std::uint32_t at = qp.transport->req.packet;
  const std::uint64_t off = std::uint64_t{at} * qp.mtu_bytes;
  std::uint64_t len = std::min<std::uint64_t>(m.length - off, qp.mtu_bytes);
  if (std::uint64_t uncut = uncut_data(qp, peer, m, off, psn_add(m.first_psn, at)); uncut != 0) {
    if (std::uint64_t named = to_fetch(qp, uncut); named != 0) {
      DataPacket d = describe(qp, m, w, named);
      *packets = d.packets;
      Tx tx;
      if (send_for_fetch(lane, qp, *peer, m, w, d, &tx)) return tx;
    }
    len = by_value(qp, uncut);
  }
  DataPacket d = describe(qp, m, w, len);
  *packets = d.packets;
  return is_datagram(qp.type) ? send_datagram(lane, qp, m, w, d) : send_data(lane, qp, peer, w, d);
}

// All of `m` has been executed without frames, and everything before it is complete.
void finish_one_sided(Lane& lane, Qp& qp, SendMessage& m) {
  Requester& r = qp.transport->req;
  r.una_psn = psn_add(m.first_psn, m.psns);
  if (psn_diff(r.una_psn, r.max_psn) > 0) r.max_psn = r.una_psn;
  if (is_read_or_atomic(m)) {
    m.got = m.psns;
    ++r.reads;  // complete_messages() takes it back at once
  }
  r.cursor = static_cast<std::uint16_t>(r.cursor + m.bbs);
  note_progress(qp);
  complete_messages(lane, qp);
  if (qp.state != QpState::kErr && qp.transport->deadline != kNever) restart_ack_timer(lane, qp);
}

bool fence_holds(const Requester& r, const SendMessage& m) {
  // FENCE and the stronger orders wait for READs and atomics; the small fence is about local operations, which complete in order here.
  return (m.fm_ce_se & prm::kWqeCtrlFence) != 0 && r.reads > 0;
}

void finish_drain(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (r.done != r.fetched) return;
  qp.state = QpState::kSqDrained;
  qp_event(lane, EventType::kSqDrained, qp);
}

}  // namespace

SendMessage& message_at(Requester& r, std::uint16_t wqe) {
  return r.messages[wqe & (r.messages.size() - 1)];
}

bool is_read_or_atomic(const SendMessage& m) {
  WqeOpcode o = opcode_of(m);
  return o == WqeOpcode::RDMA_READ || o == WqeOpcode::ATOMIC_CS || o == WqeOpcode::ATOMIC_FA;
}

void note_progress(Qp& qp) {
  Requester& r = qp.transport->req;
  r.retries_left = qp.retry_count;
  r.rnr_left = qp.rnr_retry;
  r.gap_reported = false;
}

bool answers_in_cqe(const Qp& qp, std::uint8_t fm_ce_se, std::uint32_t length) {
  return (fm_ce_se & prm::kWqeCtrlCqUpdate) != 0 && qp.send_cq != nullptr &&
         length <= inline_scatter_limit(*qp.send_cq, qp.scatter_to_cqe_req);
}

bool answers_in_cqe(const Qp& qp, const SendMessage& m) {
  return is_read_or_atomic(m) && answers_in_cqe(qp, m.fm_ce_se, m.length);
}

bool run_requester(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (qp.state != QpState::kRts && qp.state != QpState::kSqDrain) return false;
  if (r.messages.empty()) return false;
  bool did = false;
  while (!r.rnr_wait) {
    if (r.cursor == r.fetched) {
      if (r.fatal || r.fetched == r.posted || qp.state == QpState::kSqDrain) break;
      if (!begin_message(lane, qp)) break;
    }
    SendMessage& m = message_at(r, r.cursor);
    if (m.error) break;
    if (r.packet == 0) {
      if (fence_holds(r, m)) break;
      if (is_read_or_atomic(m) && r.reads >= std::max(1u, qp.max_rd_atomic)) break;
      if (qp.type == QpType::kDci && m.packets != 0) {
        const SendWqe* w = reload(lane, qp, m);
        DcTarget t = w == nullptr ? DcTarget::kInvalid : turn_to_target(lane, qp, m, *w);
        if (t == DcTarget::kWait) break;
        if (t == DcTarget::kInvalid) {
          m.error = kLocalQpOp;
          r.fatal = true;
          break;
        }
      }
    }
    if (m.psns == 0) {
      m.error = execute_local(lane, qp, m);
      if (m.error) {
        r.fatal = true;
        break;
      }
      m.executed = true;
    }
    if (r.packet < m.packets) {
      wire::PeerFunction* peer = direct_peer(lane, qp);
      const std::uint32_t window = peer != nullptr ? kHostWindow : kSendWindow;
      if (static_cast<std::int32_t>(m.first_seq + r.packet - oldest_seq(r)) >= static_cast<std::int32_t>(window)) break;
      SendWqe* w = reload(lane, qp, m);
      if (w != nullptr && peer != nullptr && r.packet == 0 && r.una_psn == m.first_psn && r.reads == 0 &&
          execute_one_sided(lane, qp, *peer, m, *w)) {
        finish_one_sided(lane, qp, m);
        did = true;
        if (qp.state != QpState::kRts && qp.state != QpState::kSqDrain) return true;
        continue;
      }
      if (m.length > 0 && !is_read_or_atomic(m) && must_wait(lane, qp)) break;
      std::uint32_t packets = 1;
      Tx tx = w == nullptr ? Tx::kFault : send_request(lane, qp, peer, m, *w, &packets);
      if (tx == Tx::kBusy) {
        lane.schedule(qp);
        break;
      }
      if (tx == Tx::kFault) {
        m.error = w == nullptr ? kLocalQpOp : kLocalProtSend;
        r.fatal = true;
        break;
      }
      std::uint32_t psn_end = psn_add(m.first_psn, is_read_or_atomic(m) ? m.psns : r.packet + packets);
      if (psn_diff(psn_end, r.max_psn) > 0) r.max_psn = psn_end;
      if (!is_reliable(qp.type)) r.una_psn = psn_end;  // nothing comes back: sent is done
      if (is_read_or_atomic(m)) ++r.reads;
      r.packet += packets;
    }
    did = true;
    if (r.packet == m.packets) {
      r.cursor = static_cast<std::uint16_t>(r.cursor + m.bbs);
      r.packet = 0;
    }
  }
  // What the QP's own pace takes is no delay of the peer's.
  if (did && (qp.transport->deadline == kNever || qp.transport->flow.current != 0)) restart_ack_timer(lane, qp);
  const bool completed = complete_messages(lane, qp);
  // Where nothing comes back, nothing else would take up again what the window has stopped.
  if (completed && !is_reliable(qp.type) && qp.state == QpState::kRts && (r.cursor != r.fetched || r.fetched != r.posted))
    lane.schedule(qp);
  return completed || did;
}

void go_back(Qp& qp) {
  Requester& r = qp.transport->req;
  r.cursor = r.done;
  r.packet = 0;
  r.reads = 0;
  if (r.done == r.fetched) return;
  const SendMessage& m = message_at(r, r.done);
  if (m.error || is_read_or_atomic(m)) return;
  r.packet =
      static_cast<std::uint32_t>(std::clamp<std::int32_t>(psn_diff(r.una_psn, m.first_psn), 0, static_cast<std::int32_t>(m.packets)));
}

void complete_send(Lane& lane, Qp& qp, std::uint16_t wqe, std::uint8_t opcode, std::uint32_t bytes, bool in_cqe) {
  Cqe c;
  c.wqe_opcode = opcode;
  c.wqe_counter = wqe;
  c.byte_cnt = bytes;
  if (in_cqe) c.data = {qp.transport->req.in_cqe.data(), bytes};
  write_cqe(lane, qp.send_cq, qp, c);
}

bool complete_messages(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  bool did = false;
  while (r.done != r.fetched) {
    SendMessage& m = message_at(r, r.done);
    if (m.error) {
      fail_oldest_send(lane, qp, m.error);
      return true;
    }
    if (m.psns == 0) {
      if (r.done == r.cursor) break;  // a local operation that is still waiting its turn
    } else if (is_read_or_atomic(m)) {
      if (m.got < m.psns) break;
      if (r.reads > 0) --r.reads;
    } else if (psn_diff(r.una_psn, psn_add(m.first_psn, m.psns)) < 0) {
      break;
    }
    if (r.cursor == r.done) {  // acknowledged while it was being sent again
      r.cursor = static_cast<std::uint16_t>(r.cursor + m.bbs);
      r.packet = 0;
    }
    if ((m.fm_ce_se & prm::kWqeCtrlCqUpdate) != 0)
      complete_send(lane, qp, m.wqe, m.opcode, m.psns == 0 ? 0 : m.length, answers_in_cqe(qp, m));
    r.done = static_cast<std::uint16_t>(r.done + m.bbs);
    did = true;
  }
  if (qp.state == QpState::kSqDrain) finish_drain(lane, qp);
  return did;
}

void restart_ack_timer(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (r.rnr_wait) return;
  if (qp.ack_timeout == 0 || psn_diff(r.max_psn, r.una_psn) <= 0) {
    lane.timers.stop(qp);
    return;
  }
  // IBTA 9.7.6.1.3: expires between one and four times 4.096 us * 2^timeout.
  Nanos t = std::max<Nanos>(Nanos{2} * (Nanos{4096} << std::min(qp.ack_timeout, 31u)), kMinAckTimeout);
  lane.timers.start(qp, lane.now + t);
}

}  // namespace uhca::hca
