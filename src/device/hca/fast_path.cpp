// SPDX-License-Identifier: MIT
#include "device/hca/fast_path.h"

#include "base/rcu.h"
#include "device/hca/direct.h"
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

}  // namespace

bool execute_one_sided(Lane& lane, Qp& qp, SendMessage& m, const SendWqe& w) {
  const auto op = static_cast<prm::WqeOpcode>(m.opcode);
  const bool read = op == prm::WqeOpcode::RDMA_READ;
  if (!read && op != prm::WqeOpcode::RDMA_WRITE) return false;
  if (m.length == 0) return false;
  wire::PeerFunction* peer = direct_peer(lane, qp);
  if (peer == nullptr) return false;

  rcu::ReadSection section;  // local memory stays where it is until the copy has ended
  Pieces local;
  if (!local_side(lane, qp, m, w, read, local)) return false;

  auto& tables = *static_cast<PublishedTables*>(pci::SharedArea::device_part_of(peer->area));
  Holding holding(*peer);
  std::uint32_t seq;
  PublishedQp* responder = find_responder(tables, qp, &seq);
  if (responder == nullptr) return false;
  std::uint64_t progress = responder->progress.load(memory_order_acquire);
  if ((progress & kResponderBusy) != 0 || progress_epsn(progress) != m.first_psn) return false;
  const std::uint32_t right = read ? kPublishedReadable : kPublishedWritable;
  if ((responder->rights.load(memory_order_relaxed) & right) == 0) return false;
  std::uint64_t remote = locate(tables, peer->area, responder->pd.load(memory_order_relaxed), w.rkey, w.raddr, m.length, right);
  if (remote == 0 || responder->seq.load(memory_order_acquire) != seq) return false;

  const RangePiece there{remote, 0, m.length, 0};
  if (!copy_between(peer->pid, read ? CopyWay::kFromThem : CopyWay::kToThem, local.get(), {&there, 1})) return false;
  std::uint64_t next = pack_progress(wire::psn_add(progress_epsn(progress), m.psns), wire::psn_add(progress_msn(progress), 1));
  if (!responder->progress.compare_exchange_strong(progress, next, std::memory_order_acq_rel)) return false;
  // Nobody else counts here: a responder has one initiator.
  auto& executed = read ? responder->reads : responder->writes;
  executed.store(executed.load(memory_order_relaxed) + 1, memory_order_relaxed);
  return true;
}

}  // namespace uhca::hca
