// SPDX-License-Identifier: MIT
#include "device/hca/eqe_writer.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "prm/event.h"

namespace uhca::hca {

void write_eqe(Lane& lane, Eq& eq, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len) {
  std::uint32_t size = 1u << eq.log_size;
  if (((eq.pi - eq.ci) & 0xffffff) >= size) {
    ++lane.counters.eq_overruns;
    log::error("EQ {} of {} entries is full: event {:#x} is lost", eq.eqn, size, type);
    return;
  }
  std::uint8_t e[prm::eqe::kBytes] = {};
  prm::set<prm::eqe::event_type>(e, type);
  prm::set<prm::eqe::event_sub_type>(e, sub_type);
  std::memcpy(prm::at<prm::eqe::event_data>(e), data, std::min<std::size_t>(len, prm::eqe::event_data.width / 8));
  prm::set<prm::eqe::owner>(e, (eq.pi >> eq.log_size) & 1);
  std::uint64_t off = std::uint64_t{eq.pi & (size - 1)} * prm::eqe::kBytes;
  if ((off + eq.buf.page_offset) >> eq.buf.log_page >= eq.buf.pages.size()) {
    log::error("EQ {}: its buffer is smaller than its size", eq.eqn);
    return;
  }
  pci::DmaAddr at = eq.buf.at(off);
  std::uint32_t last;
  std::memcpy(&last, e + sizeof e - sizeof last, sizeof last);
  if (!lane.bus.dma_write(at, e, sizeof e - sizeof last) || !lane.bus.dma_store32(at + sizeof e - sizeof last, last)) {
    log::error("EQ {}: memory at {:#x} cannot be written ({}): event {:#x} is lost", eq.eqn, at, lane.bus.last_fault(), type);
    return;
  }
  ++eq.pi;
  if (trace::on())
    trace::Event("eqe", "EQE").num("eqn", eq.eqn).hex("type", type).hex("sub_type", sub_type).num("pi", eq.pi).flag("irq", eq.armed);
  if (eq.armed) {
    eq.armed = false;
    lane.bus.raise(eq.vector);
  }
}

void async_event(Lane& lane, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len) {
  if (type >= 64) return;
  for (auto& [n, eq] : lane.objects.eqs) {
    if (eq->event_mask >> type & 1) write_eqe(lane, *eq, type, sub_type, data, len);
  }
}

void eq_doorbell(Lane& lane, Eq& eq, std::uint32_t ci, bool arm) {
  eq.ci = ci & 0xffffff;
  if (trace::on()) trace::Event("doorbell", "EQ").num("eqn", eq.eqn).num("ci", eq.ci).flag("arm", arm);
  if (!arm) return;
  eq.armed = ((eq.pi - eq.ci) & 0xffffff) == 0;
  if (!eq.armed) lane.bus.raise(eq.vector);
}

void qp_event(Lane& lane, EventType type, const Qp& qp) {
  std::uint8_t d[prm::qp_events::kBytes] = {};
  prm::set<prm::qp_events::type>(d, 0);  // Linux: MLX5_EVENT_QUEUE_TYPE_QP
  prm::set<prm::qp_events::qpn_rqn_sqn>(d, qp.qpn);
  async_event(lane, static_cast<std::uint8_t>(type), 0, d, sizeof d);
}

void srq_event(Lane& lane, EventType type, const Srq& srq) {
  std::uint8_t d[prm::qp_events::kBytes] = {};
  prm::set<prm::qp_events::qpn_rqn_sqn>(d, srq.srqn);
  async_event(lane, static_cast<std::uint8_t>(type), 0, d, sizeof d);
}

void raw_queue_event(Lane& lane, EventType type, const RawQueue& q) {
  std::uint8_t d[prm::qp_events::kBytes] = {};
  prm::set<prm::qp_events::type>(d, q.send ? 2 : 1);  // Linux: MLX5_EVENT_QUEUE_TYPE_SQ, _RQ
  prm::set<prm::qp_events::qpn_rqn_sqn>(d, q.number);
  async_event(lane, static_cast<std::uint8_t>(type), 0, d, sizeof d);
}

void cq_error_event(Lane& lane, const Cq& cq, std::uint8_t syndrome) {
  std::uint8_t d[prm::cq_error::kBytes] = {};
  prm::set<prm::cq_error::cqn>(d, cq.cqn);
  prm::set<prm::cq_error::syndrome>(d, syndrome);
  async_event(lane, static_cast<std::uint8_t>(EventType::kCqError), 0, d, sizeof d);
}

void completion_event(Lane& lane, const Cq& cq) {
  Eq* eq = lane.objects.eq(cq.eqn);
  if (eq == nullptr) return;
  std::uint8_t d[prm::comp_event::kBytes] = {};
  prm::set<prm::comp_event::cq_number>(d, cq.cqn);
  write_eqe(lane, *eq, static_cast<std::uint8_t>(EventType::kCompletion), 0, d, sizeof d);
}

}  // namespace uhca::hca
