// SPDX-License-Identifier: MIT
// The seam to the command interface: every entry reads the clock once and hands over to the lane.
#include "device/hca/data_path.h"

#include "device/hca/cqe_writer.h"
#include "device/hca/dc.h"
#include "device/hca/doorbell.h"
#include "device/hca/eqe_writer.h"
#include "device/hca/hca.h"
#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_states.h"
#include "device/hca/raw_queue.h"
#include "device/hca/srq.h"

namespace uhca::hca {

Qp::Qp() = default;
Qp::~Qp() = default;

struct DataPath::Impl {
  explicit Impl(Hca& hca) : lane(hca) {}
  Lane& enter() {
    lane.stamp();
    return lane;
  }
  Lane lane;
};

DataPath::DataPath(Hca& hca) : impl_(std::make_unique<Impl>(hca)) {}
DataPath::~DataPath() = default;

void DataPath::qp_created(Qp& qp) {
  hca::qp_created(impl_->enter(), qp);
}
void DataPath::qp_state_changed(Qp& qp, QpState from) {
  if (qp.transport == nullptr) return;
  Lane& lane = impl_->enter();
  load_progress(lane, qp);
  hca::qp_state_changed(lane, qp, from);
  qp.transport->peer_path = path_hash(qp.path.dgid, qp.path.sgid);
  qp.transport->own_path = path_hash(qp.path.sgid, qp.path.dgid);
  if (from == QpState::kInit) qp.transport->peer_reaches_us = false;  // another peer, perhaps
  lane.publisher.qp(qp);
}
void DataPath::qp_destroyed(Qp& qp) {
  if (qp.transport != nullptr) impl_->lane.forget(qp);
}
void DataPath::cq_destroyed(Cq& cq) {
  disarm(impl_->lane, cq);
}
void DataPath::cq_moderation_changed() {
  release_events(impl_->enter());
}
void DataPath::srq_armed(Srq& srq) {
  hca::srq_armed(impl_->enter(), srq);
}
void DataPath::srq_destroyed(Srq& srq) {
  hca::srq_destroyed(impl_->enter(), srq);
}
void DataPath::raw_queue_state_changed(RawQueue& q, RawQueue::State from) {
  hca::raw_queue_state_changed(impl_->enter(), q, from);
}
void DataPath::raw_queue_destroyed(RawQueue& q) {
  hca::raw_queue_destroyed(impl_->lane, q);
}
void DataPath::dct_drained(Dct& dct) {
  end_sessions(impl_->enter(), dct);
}
void DataPath::mkey_changed(Mkey& mkey) {
  open_window(impl_->lane.bus, mkey);
  impl_->lane.publisher.mkey(mkey);
}
// Keys are looked up for every packet: nothing else here refers to one.
void DataPath::mkey_destroyed(Mkey& mkey) {
  impl_->lane.publisher.withdraw_mkey(mkey.key);
}
void DataPath::fill_qpc(Qp& qp, void* qpc) {
  if (qp.transport == nullptr) return;
  load_progress(impl_->lane, qp);
  hca::fill_qpc(qp, qpc);
}

void DataPath::uar_store(std::uint64_t offset_in_page, std::uint32_t uar_index, std::uint64_t value) {
  hca::uar_store(impl_->enter(), offset_in_page, uar_index, value);
}
void DataPath::blue_flame_write(std::uint64_t offset_in_page, std::uint32_t uar_index, const std::array<std::uint64_t, 8>& words) {
  hca::blue_flame_write(impl_->enter(), offset_in_page, uar_index, words);
}
void DataPath::look_at_send_queue(Qp& qp) {
  if (qp.transport != nullptr) hca::look_at_send_queue(impl_->enter(), qp);
}
void DataPath::look_at_raw_queue(RawQueue& q) {
  hca::look_at_raw_queue(impl_->enter(), q);
}
void DataPath::look_at_cq(Cq& cq) {
  look_at_cq_record(impl_->enter(), cq, false);
}

void DataPath::set_idle_watch(pci::IdleWatch* watch) {
  impl_->lane.idle = watch;
}

void DataPath::note_work() {
  impl_->lane.note_work();
}

void DataPath::flush() {
  impl_->lane.flush(false);
}

bool DataPath::drive(bool thorough) {
  return impl_->lane.drive(thorough);
}
Nanos DataPath::next_deadline() const {
  return impl_->lane.next_deadline();
}
unsigned DataPath::armed_cqs() const {
  // The CQ of QP1 is always armed, but nobody sleeps for it: its handler runs on whoever drives the engine.
  const Lane& lane = impl_->lane;
  const Qp* gsi = lane.objects.gsi;
  bool of_gsi = gsi != nullptr && gsi->recv_cq != nullptr && gsi->recv_cq->arm != Cq::Arm::kNone;
  return lane.armed - (of_gsi ? 1 : 0);
}
CongestionSettings& DataPath::congestion() {
  return impl_->lane.congestion;
}
Counters& DataPath::counters() {
  return impl_->lane.counters;
}

void DataPath::reset() {
  Lane& lane = impl_->lane;
  for (auto& [n, qp] : lane.objects.qps) {
    if (qp->transport != nullptr) lane.forget(*qp);
  }
  for (auto& [n, dct] : lane.objects.dcts) end_sessions(lane, *dct);
  lane.multicast_loopback.clear();
  for (auto& [n, cq] : lane.objects.cqs) disarm(lane, *cq);
  for (auto& [n, mkey] : lane.objects.mkeys) lane.publisher.withdraw_mkey(mkey->key);
  lane.eth.reset();
  lane.counters = Counters{};
  lane.reset_congestion();
}

void DataPath::async_event(std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len) {
  hca::async_event(impl_->lane, type, sub_type, data, len);
}
void DataPath::write_eqe(Eq& eq, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len) {
  hca::write_eqe(impl_->lane, eq, type, sub_type, data, len);
}
void DataPath::eq_doorbell(Eq& eq, std::uint32_t ci, bool arm) {
  hca::eq_doorbell(impl_->lane, eq, ci, arm);
}

}  // namespace uhca::hca
