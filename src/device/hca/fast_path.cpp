// SPDX-License-Identifier: MIT
#include "device/hca/fast_path.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/rcu.h"
#include "base/trace.h"
#include "device/hca/hca.h"
#include "device/hca/mkey_access.h"
#include "device/hca/published.h"
#include "device/hca/rc_requester.h"
#include "device/pci/shared_area.h"

namespace uhca::hca {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr std::size_t kMaxPieces = 64;

// The initiator's hold on the area of the target, for the time of one access (decision 6).
class Holding {
 public:
  explicit Holding(pci::Hold& h) : hold_(h), seq_(h.seq.load(memory_order_relaxed) | 1) {
    hold_.seq.store(seq_, memory_order_relaxed);
    // Against the owner's "withdraw; fence; look for accessors".
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Holding() { hold_.seq.store(seq_ + 1, memory_order_release); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

 private:
  pci::Hold& hold_;
  std::uint32_t seq_;
};

bool reachable(wire::PeerFunction& peer) {
  using Access = wire::PeerFunction::Access;
  if (peer.access == Access::kUntried) {
    peer.access = peer.number < pci::SharedArea::kHolds && pci::SharedArea::reachable(peer.area, peer.pid) ? Access::kYes : Access::kNo;
    log::info("direct access to process {}: {}", peer.pid,
              peer.access == Access::kYes ? "possible" : "not permitted (Yama, seccomp or namespaces): frames instead");
  }
  return peer.access == Access::kYes;
}

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

// The local side: the data segments as pieces of our address space. 0: too many pieces, or something that only frames can do.
std::size_t local_pieces(Lane& lane, const Qp& qp, const SendWqe& w, bool read, std::array<iovec, kMaxPieces>& out) {
  std::size_t n = 0;
  for (unsigned i = 0; i < w.nsegs; ++i) {
    const DataSeg& s = w.segs[i];
    if (s.len == 0) continue;
    if (s.inline_at != 0) {
      if (n == out.size()) return 0;
      out[n++] = {const_cast<std::uint8_t*>(w.raw.data()) + s.inline_at, s.len};
      continue;
    }
    KeyView v = check_key(lane.objects, qp, s.lkey, s.addr, s.len, read ? KeyAccess::kLocalWrite : KeyAccess::kLocalRead);
    if (!v.ok()) return 0;
    std::uint64_t va = s.addr, left = s.len;
    while (left > 0) {
      std::size_t piece;
      pci::DmaAddr at = translate(v, va, left, &piece);
      pci::HostRange r;
      if (piece == 0 || n == out.size() || !lane.bus.resolve(at, piece, read ? pci::DmaDir::kFromDevice : pci::DmaDir::kToDevice, &r))
        return 0;
      out[n++] = {reinterpret_cast<void*>(r.address), piece};
      va += piece;
      left -= piece;
    }
  }
  return n;
}

// The last byte is a piece of its own: pieces become visible in order, and a program may poll the last one (performance.md).
bool copy(pid_t pid, bool read, const iovec* local, std::size_t n, std::uint64_t remote, std::uint64_t len) {
  std::array<iovec, 2> far;
  unsigned pieces = 1;
  far[0] = {reinterpret_cast<void*>(remote), static_cast<std::size_t>(len)};
  if (!read && len > 1) {
    far[0].iov_len = len - 1;
    far[1] = {reinterpret_cast<void*>(remote + len - 1), 1};
    pieces = 2;
  }
  int saved = errno;
  long done = syscall(read ? SYS_process_vm_readv : SYS_process_vm_writev, pid, local, n, far.data(), std::size_t{pieces}, 0ul);
  errno = saved;
  return done >= 0 && static_cast<std::uint64_t>(done) == len;
}

}  // namespace

bool execute_one_sided(Lane& lane, Qp& qp, SendMessage& m, const SendWqe& w) {
  const auto op = static_cast<prm::WqeOpcode>(m.opcode);
  const bool read = op == prm::WqeOpcode::RDMA_READ;
  if (!read && op != prm::WqeOpcode::RDMA_WRITE) return false;
  if (m.length == 0 || qp.type != QpType::kRc) return false;
  // Frames that can be looked at are asked for.
  if (trace::on() || !lane.hca.config().one_sided) return false;
  wire::PeerFunction* peer = lane.port.peer(qp.path.dgid, qp.remote_qpn);
  if (peer == nullptr || !reachable(*peer)) return false;

  rcu::ReadSection section;  // local memory stays where it is until the copy has ended
  std::array<iovec, kMaxPieces> local;
  std::size_t n = 1;
  if (read && answers_in_cqe(qp, m)) {
    local[0] = {qp.transport->req.in_cqe.data(), m.length};
  } else {
    n = local_pieces(lane, qp, w, read, local);
  }
  if (n == 0) return false;

  auto& tables = *static_cast<PublishedTables*>(pci::SharedArea::device_part_of(peer->area));
  Holding holding(pci::SharedArea::hold_of(peer->area, peer->number));
  std::uint32_t seq;
  PublishedQp* responder = find_responder(tables, qp, &seq);
  if (responder == nullptr) return false;
  std::uint64_t progress = responder->progress.load(memory_order_acquire);
  if ((progress & kResponderBusy) != 0 || progress_epsn(progress) != m.first_psn) return false;
  const std::uint32_t right = read ? kPublishedReadable : kPublishedWritable;
  if ((responder->rights.load(memory_order_relaxed) & right) == 0) return false;
  std::uint64_t remote = locate(tables, peer->area, responder->pd.load(memory_order_relaxed), w.rkey, w.raddr, m.length, right);
  if (remote == 0 || responder->seq.load(memory_order_acquire) != seq) return false;

  if (!copy(peer->pid, read, local.data(), n, remote, m.length)) return false;
  std::uint64_t next = pack_progress(wire::psn_add(progress_epsn(progress), m.psns), wire::psn_add(progress_msn(progress), 1));
  if (!responder->progress.compare_exchange_strong(progress, next, std::memory_order_acq_rel)) return false;
  (read ? responder->reads : responder->writes).fetch_add(1, memory_order_relaxed);
  return true;
}

}  // namespace uhca::hca
