// SPDX-License-Identifier: MIT
#include "device/hca/cq_moderation.h"

#include <algorithm>

namespace uhca::hca {

Nanos event_due_at(const Cq& cq) {
  return (cq.period_mode == prm::CqPeriodMode::kCqe ? cq.cqe_at : cq.event_at) + Nanos{cq.period} * 1000;
}

void note_event(Lane& lane, Cq& cq) {
  if (!is_moderated(cq)) return;
  lane.need_time();
  cq.event_at = lane.now;
  cq.event_pi = cq.pi;
}

bool hold_event(Lane& lane, Cq& cq) {
  if (__builtin_expect(!is_moderated(cq), 1)) return false;
  lane.need_time();
  if (((cq.pi - cq.event_pi) & 0xffffff) >= cq.max_count || event_due_at(cq) <= lane.now) return false;
  if (!cq.event_held) {
    cq.event_held = true;
    lane.held_events.push_back(&cq);
  }
  lane.event_at = std::min(lane.event_at, event_due_at(cq));
  return true;
}

void forget_event(Lane& lane, Cq& cq) {
  if (__builtin_expect(!cq.event_held, 1)) return;
  cq.event_held = false;
  std::erase(lane.held_events, &cq);
  if (lane.held_events.empty()) lane.event_at = kNever;
}

}  // namespace uhca::hca
