// SPDX-License-Identifier: MIT
// Moderation: how long the event of a CQ may be held back so that it stands for more CQEs than one (cqc.cq_period in microseconds,
// cq_max_count in CQEs; without both there is none). The event goes when so many CQEs have come since the last one, or when the period is
// over. That begins with the last event (the first CQE after a silence is told at once), or with the last CQE (cq_period_mode).
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

inline bool is_moderated(const Cq& cq) {
  return cq.period != 0 && cq.max_count != 0;
}
// When the period of a moderated CQ is over.
Nanos event_due_at(const Cq& cq);

// A CQE was written.
inline void note_cqe(Lane& lane, Cq& cq) {
  if (__builtin_expect(!is_moderated(cq), 1)) return;
  lane.need_time();
  cq.cqe_at = lane.now;
}
// An event was written.
void note_event(Lane& lane, Cq& cq);

// There is something to tell. True: not yet; release_events() (cqe_writer.h) does so in time.
bool hold_event(Lane& lane, Cq& cq);
// There no longer is.
void forget_event(Lane& lane, Cq& cq);

}  // namespace uhca::hca
