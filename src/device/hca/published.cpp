// SPDX-License-Identifier: MIT
#include "device/hca/published.h"

#include <utility>

#include "device/hca/lane.h"
#include "device/hca/qp_transport.h"

namespace uhca::hca {
namespace {

using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

bool takes_requests(const Qp& qp) {
  return qp.type == QpType::kRc && qp.transport != nullptr && (qp.state == QpState::kRtr || qp.state == QpState::kRts);
}

}  // namespace

std::uint64_t path_hash(const wire::Gid& responder, const wire::Gid& requester) {
  std::uint64_t h = 0xcbf29ce484222325;  // FNV-1a
  for (const wire::Gid* g : {&responder, &requester})
    for (std::uint8_t b : *g) h = (h ^ b) * 0x100000001b3;
  return h;
}

std::uint32_t Publisher::fresh_seq() {
  if (next_seq_ == 0) next_seq_ = 1;
  return next_seq_++;
}

void Publisher::mkey(const Mkey& m) {
  if (tables_ == nullptr) return;
  std::uint32_t index = m.key >> 8;
  if (index >= kPublishedMkeys) return;
  PublishedMkey& e = tables_->mkeys[index];
  e.seq.store(0, memory_order_relaxed);
  std::atomic_thread_fence(memory_order_release);
  if (m.qpn != 0xffffff || (!m.rr && !m.rw)) return;
  if ((m.rw ? m.window.writable_at(0) : m.window.at(0)) == nullptr) return;
  const pci::HostRange& r = m.window.range();
  e.key.store(m.key, memory_order_relaxed);
  e.pd.store(m.pd, memory_order_relaxed);
  e.rights.store((m.rr ? kPublishedReadable : 0) | (m.rw ? kPublishedWritable : 0), memory_order_relaxed);
  e.start.store(m.start, memory_order_relaxed);
  e.len.store(m.len, memory_order_relaxed);
  e.address.store(r.address, memory_order_relaxed);
  e.range.store(r.range, memory_order_relaxed);
  e.range_state.store(r.state, memory_order_relaxed);
  e.seq.store(fresh_seq(), memory_order_release);
}

void Publisher::withdraw_mkey(std::uint32_t key) {
  if (tables_ == nullptr || key >> 8 >= kPublishedMkeys) return;
  tables_->mkeys[key >> 8].seq.store(0, memory_order_release);
}

void Publisher::qp(Qp& qp) {
  if (tables_ == nullptr || qp.transport == nullptr) return;
  PublishedQp& e = tables_->qps[qp.qpn % kPublishedQps];
  QpTransport& t = *qp.transport;
  if (t.shared == nullptr && e.seq.load(memory_order_relaxed) != 0) return;  // the place is another QP's
  bool was = t.shared != nullptr;
  e.seq.store(0, memory_order_relaxed);
  std::atomic_thread_fence(memory_order_release);
  if (!takes_requests(qp)) return withdraw_qp(qp);
  e.qpn.store(qp.qpn, memory_order_relaxed);
  e.remote_qpn.store(qp.remote_qpn, memory_order_relaxed);
  e.pd.store(qp.pd, memory_order_relaxed);
  e.rights.store((qp.rre ? kPublishedReadable : 0) | (qp.rwe ? kPublishedWritable : 0), memory_order_relaxed);
  e.path.store(t.own_path, memory_order_relaxed);
  if (!was) {
    t.shared = &e;
    t.resp.writes_seen = e.writes.load(memory_order_relaxed);
    t.resp.reads_seen = e.reads.load(memory_order_relaxed);
    t.resp.loaded = e.progress.load(memory_order_relaxed);
    store_progress(qp);
  }
  e.seq.store(fresh_seq(), memory_order_release);
}

void Publisher::withdraw_qp(Qp& qp) {
  if (qp.transport == nullptr || qp.transport->shared == nullptr) return;
  PublishedQp& e = *std::exchange(qp.transport->shared, nullptr);
  e.seq.store(0, memory_order_release);
  // An initiator that is in the middle of its copy finds that it may not move on, and sends frames.
  std::uint64_t p = e.progress.exchange(kResponderBusy, std::memory_order_acq_rel);
  Responder& r = qp.transport->resp;
  if (p == r.loaded) return;
  r.epsn = progress_epsn(p);
  r.msn = progress_msn(p);
}

void count_one_sided(Lane& lane, Qp& qp) {
  PublishedQp* e = qp.transport->shared;
  if (e == nullptr) return;
  Responder& r = qp.transport->resp;
  const std::uint32_t writes = e->writes.load(memory_order_relaxed), reads = e->reads.load(memory_order_relaxed);
  if (writes != r.writes_seen) count<Qc::rx_write_requests>(lane, qp, writes - std::exchange(r.writes_seen, writes));
  if (reads != r.reads_seen) count<Qc::rx_read_requests>(lane, qp, reads - std::exchange(r.reads_seen, reads));
}

void load_progress(Lane& lane, Qp& qp) {
  PublishedQp* e = qp.transport->shared;
  if (e == nullptr) return;
  Responder& r = qp.transport->resp;
  std::uint64_t p = e->progress.load(memory_order_acquire);
  r.loaded = p;
  r.epsn = progress_epsn(p);
  r.msn = progress_msn(p);
  count_one_sided(lane, qp);
}

void store_progress(Qp& qp) {
  PublishedQp* e = qp.transport->shared;
  if (e == nullptr) return;
  Responder& r = qp.transport->resp;
  bool busy = r.message != Responder::Message::kNone || r.held != Responder::Held::kNo || r.njobs != 0;
  std::uint64_t now = pack_progress(r.epsn, r.msn) | (busy ? kResponderBusy : 0);
  // The initiator moves on alone when everything of its has been answered, and a packet that is processed meanwhile is an old duplicate,
  // which changes nothing: what the initiator has done must not be overwritten then.
  if (now == r.loaded) return;
  if (e->progress.compare_exchange_strong(r.loaded, now, std::memory_order_acq_rel)) r.loaded = now;
}

}  // namespace uhca::hca
