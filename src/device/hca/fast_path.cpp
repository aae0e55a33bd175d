// SPDX-License-Identifier: MIT
#include "device/hca/fast_path.h"

#include "base/rcu.h"
#include "base/safecopy.h"
#include "base/types.h"
#include "device/hca/direct.h"
#include "device/hca/mkey_access.h"
#include "device/hca/published.h"
#include "device/hca/rc_requester.h"

namespace uhca::hca {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;

// The responder's view of our QP; nullptr: not published, or not connected to us. *seq: what the entry must still have afterwards.
PublishedQp* find_responder(PublishedTables& t, const Qp& qp, std::uint32_t* seq) {
  PublishedQp& e = t.qps[qp.remote_qpn % kPublishedQps];
  *seq = e.seq.load(memory_order_acquire);
  bool ours = *seq != 0 && e.qpn.load(memory_order_relaxed) == qp.remote_qpn && e.remote_qpn.load(memory_order_relaxed) == qp.qpn &&
              e.path.load(memory_order_relaxed) == qp.transport->peer_path;
  return ours ? &e : nullptr;
}

// Where [va, va + len) of `rkey` lies in the target's address space; 0: not for this responder, or not for this operation.
std::uint64_t locate(PublishedTables& t, void* area, std::uint32_t pd, std::uint32_t rkey, std::uint64_t va, std::uint64_t len,
                     std::uint32_t right) {
  if (rkey >> 8 >= kPublishedMkeys) return 0;
  PublishedMkey& e = t.mkeys[rkey >> 8];
  std::uint32_t seq = e.seq.load(memory_order_acquire);
  if (seq == 0) return 0;
  std::uint64_t start = e.start.load(memory_order_relaxed), size = e.len.load(memory_order_relaxed);
  std::uint64_t address = e.address.load(memory_order_relaxed), state = e.range_state.load(memory_order_relaxed);
  std::uint32_t range = e.range.load(memory_order_relaxed);
  bool allowed = e.key.load(memory_order_relaxed) == rkey && e.pd.load(memory_order_relaxed) == pd &&
                 (e.rights.load(memory_order_relaxed) & right) != 0;
  std::atomic_thread_fence(memory_order_acquire);
  if (!allowed || e.seq.load(memory_order_relaxed) != seq) return 0;
  if (va < start || va - start > size || len > size - (va - start)) return 0;
  if (range >= pci::SharedArea::kRanges || pci::SharedArea::range_states_of(area)[range].load(memory_order_acquire) != state) return 0;
  return address + (va - start);
}

// The local side: the data segments as pieces of our address space. False: something that only frames can do.
bool local_side(Lane& lane, const Qp& qp, const SendMessage& m, const SendWqe& w, bool read, Pieces& out) {
  if (read && answers_in_cqe(qp, m)) return out.add(qp.transport->req.in_cqe.data(), m.length);
  return out.add(lane, qp, {w.segs.data(), w.nsegs}, w.raw.data(), 0, m.length, read ? pci::DmaDir::kFromDevice : pci::DmaDir::kToDevice);
}

struct OneSided {
  bool read = false;
  std::uint32_t rkey = 0;
  std::uint64_t raddr = 0;
  std::uint32_t length = 0;  // bytes
  std::uint32_t first_psn = 0;
  std::uint32_t psns = 0;
};

// The responder's checks, the copy, its progress.
bool execute_there(wire::PeerFunction& peer, const Qp& qp, const OneSided& op, std::span<const RangePiece> local) {
  auto& tables = *static_cast<PublishedTables*>(pci::SharedArea::device_part_of(peer.area));
  Holding holding(peer);
  std::uint32_t seq;
  PublishedQp* responder = find_responder(tables, qp, &seq);
  if (responder == nullptr) return false;
  std::uint64_t progress = responder->progress.load(memory_order_acquire);
  if ((progress & kResponderBusy) != 0 || progress_epsn(progress) != op.first_psn) return false;
  const std::uint32_t right = op.read ? kPublishedReadable : kPublishedWritable;
  if ((responder->rights.load(memory_order_relaxed) & right) == 0) return false;
  std::uint64_t remote = locate(tables, peer.area, responder->pd.load(memory_order_relaxed), op.rkey, op.raddr, op.length, right);
  if (remote == 0 || responder->seq.load(memory_order_acquire) != seq) return false;

  const RangePiece there{remote, 0, op.length, 0};
  if (!copy_between(peer.pid, op.read ? CopyWay::kFromThem : CopyWay::kToThem, local, {&there, 1})) return false;
  std::uint64_t next = pack_progress(wire::psn_add(progress_epsn(progress), op.psns), wire::psn_add(progress_msn(progress), 1));
  if (!responder->progress.compare_exchange_strong(progress, next, std::memory_order_acq_rel)) return false;
  // Nobody else counts here: a responder has one initiator.
  auto& executed = op.read ? responder->reads : responder->writes;
  executed.store(executed.load(memory_order_relaxed) + 1, memory_order_relaxed);
  return true;
}

// A WQE of the plainest kind: ctrl, raddr, and one data segment or inline data, in one basic block. `raw`: all of it.
struct PlainWqe {
  alignas(16) std::uint8_t raw[prm::kSendWqeBb];
  std::uint8_t fm_ce_se = 0;
  std::uint32_t lkey = 0;
  std::uint64_t addr = 0;
  const std::uint8_t* inlined = nullptr;
  OneSided op;
};

constexpr std::size_t kRaddrAt = prm::wqe_ctrl_seg::kBytes, kDataAt = kRaddrAt + prm::wqe_raddr_seg::kBytes;

bool fetch_plain(const Qp& qp, std::uint16_t index, PlainWqe& w) {
  const std::uint64_t slot = index & ((1u << qp.log_sq_size) - 1);
  const std::byte* at = qp.buf.window.at(qp.sq_offset() + slot * prm::kSendWqeBb);
  if (at == nullptr || safecopy::copy(w.raw, at, sizeof w.raw) != 0) return false;
  const auto opcode = static_cast<prm::WqeOpcode>(prm::get<prm::wqe_ctrl_seg::opcode>(w.raw));
  w.op.read = opcode == prm::WqeOpcode::RDMA_READ;
  if ((!w.op.read && opcode != prm::WqeOpcode::RDMA_WRITE) || prm::get<prm::wqe_ctrl_seg::qpn>(w.raw) != qp.qpn) return false;
  w.fm_ce_se = static_cast<std::uint8_t>(prm::get<prm::wqe_ctrl_seg::fm_ce_se>(w.raw));
  const std::size_t end = prm::get<prm::wqe_ctrl_seg::ds>(w.raw) * prm::kWqeDsUnit;
  w.op.raddr = prm::get<prm::wqe_raddr_seg::raddr>(w.raw + kRaddrAt);
  w.op.rkey = static_cast<std::uint32_t>(prm::get<prm::wqe_raddr_seg::rkey>(w.raw + kRaddrAt));
  const std::uint8_t* data = w.raw + kDataAt;
  if (prm::get<prm::wqe_inline_seg::is_inline>(data) != 0) {
    w.op.length = static_cast<std::uint32_t>(prm::get<prm::wqe_inline_seg::byte_count>(data));
    w.inlined = data + prm::wqe_inline_seg::kBytes;
    return !w.op.read && end <= sizeof w.raw && w.op.length != 0 &&
           kDataAt + align_up(prm::wqe_inline_seg::kBytes + w.op.length, prm::kWqeDsUnit) == end;
  }
  w.op.length = static_cast<std::uint32_t>(prm::get<prm::wqe_data_seg::byte_count>(data));
  w.lkey = static_cast<std::uint32_t>(prm::get<prm::wqe_data_seg::lkey>(data));
  w.addr = prm::get<prm::wqe_data_seg::addr>(data);
  return end == kDataAt + prm::wqe_data_seg::kBytes && w.op.length != 0;
}

// Where the WQE's data lies, or is to go.
const void* find_local(Lane& lane, Qp& qp, const PlainWqe& w, bool in_cqe) {
  if (w.inlined != nullptr) return w.inlined;
  KeyView v = check_key(lane.objects, qp, w.lkey, w.addr, w.op.length, w.op.read ? KeyAccess::kLocalWrite : KeyAccess::kLocalRead);
  if (!v.ok() || v.mkey == nullptr) return nullptr;
  if (in_cqe) return qp.transport->req.in_cqe.data();
  const std::uint64_t off = w.addr - v.mkey->start;
  return w.op.read ? v.mkey->window.writable_at(off) : v.mkey->window.at(off);
}

}  // namespace

bool execute_one_sided(Lane& lane, Qp& qp, wire::PeerFunction& peer, SendMessage& m, const SendWqe& w) {
  const auto op = static_cast<prm::WqeOpcode>(m.opcode);
  const bool read = op == prm::WqeOpcode::RDMA_READ;
  if (!read && op != prm::WqeOpcode::RDMA_WRITE) return false;
  if (m.length == 0) return false;

  rcu::ReadSection section;  // local memory stays where it is until the copy has ended
  Pieces local;
  if (!local_side(lane, qp, m, w, read, local)) return false;
  return execute_there(peer, qp, {read, w.rkey, w.raddr, m.length, m.first_psn, m.psns}, local.get());
}

bool execute_plain(Lane& lane, Qp& qp) {
  Requester& r = qp.transport->req;
  if (r.done != r.fetched || r.fetched == r.posted || r.fatal || r.rnr_wait || qp.blue_flame.wqe != nullptr) return false;
  wire::PeerFunction* peer = direct_peer(lane, qp);
  if (peer == nullptr) return false;

  PlainWqe w;
  bool in_cqe;
  {
    rcu::ReadSection section;
    if (!fetch_plain(qp, r.fetched, w) || w.op.length > max_message(qp)) return false;
    in_cqe = w.op.read && answers_in_cqe(qp, w.fm_ce_se, w.op.length);
    const void* local = find_local(lane, qp, w, in_cqe);
    if (local == nullptr) return false;
    w.op.first_psn = r.next_psn;
    w.op.psns = packets_of(qp, w.op.length);
    const RangePiece piece{reinterpret_cast<std::uintptr_t>(local), 0, w.op.length, 0};
    if (!execute_there(*peer, qp, w.op, {&piece, 1})) return false;
  }
  if ((w.fm_ce_se & prm::kWqeCtrlCqUpdate) != 0) {
    const auto opcode = static_cast<std::uint8_t>(w.op.read ? prm::WqeOpcode::RDMA_READ : prm::WqeOpcode::RDMA_WRITE);
    complete_send(lane, qp, r.fetched, opcode, w.op.length, in_cqe);
  }
  // As a message that has come and gone.
  r.next_psn = r.una_psn = wire::psn_add(r.next_psn, w.op.psns);
  if (wire::psn_diff(r.una_psn, r.max_psn) > 0) r.max_psn = r.una_psn;
  r.next_seq += w.op.read ? 1 : w.op.psns;
  r.done = r.cursor = r.fetched = static_cast<std::uint16_t>(r.fetched + 1);
  note_progress(qp);
  if (qp.transport->deadline != kNever) restart_ack_timer(lane, qp);
  return true;
}

}  // namespace uhca::hca
