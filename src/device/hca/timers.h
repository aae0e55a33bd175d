// SPDX-License-Identifier: MIT
// One timer per QP in a binary heap. A deadline that moves away is not moved in the heap: the entry comes up early and is put
// back (most acknowledge timers never fire, and every acknowledge moves one).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/hca/qp_transport.h"

namespace uhca::hca {

class TimerHeap {
 public:
  // So that start() does not allocate for that many QPs.
  void reserve(std::size_t qps) { heap_.reserve(qps); }

  void start(Qp& qp, Nanos deadline) {
    QpTransport& t = *qp.transport;
    t.deadline = deadline;
    if (t.heap_slot == 0) {
      heap_.push_back({deadline, &qp});
      t.heap_slot = static_cast<std::uint32_t>(heap_.size());
      up(heap_.size() - 1);
    } else if (deadline < heap_[t.heap_slot - 1].key) {
      heap_[t.heap_slot - 1].key = deadline;
      up(t.heap_slot - 1);
    }
  }
  // The entry may stay until it comes up.
  void stop(Qp& qp) { qp.transport->deadline = kNever; }
  // No trace of the QP remains.
  void forget(Qp& qp) {
    QpTransport& t = *qp.transport;
    t.deadline = kNever;
    if (t.heap_slot != 0) remove(t.heap_slot - 1);
  }
  // A QP whose timer is due (the timer is stopped), or nullptr.
  Qp* pop_due(Nanos now) {
    while (!heap_.empty() && heap_[0].key <= now) {
      Qp* qp = heap_[0].qp;
      Nanos deadline = qp->transport->deadline;
      if (deadline > now && deadline != kNever) {
        heap_[0].key = deadline;
        down(0);
        continue;
      }
      remove(0);
      qp->transport->deadline = kNever;
      if (deadline != kNever) return qp;
    }
    return nullptr;
  }
  // Not later than the earliest deadline.
  Nanos earliest() const { return heap_.empty() ? kNever : heap_[0].key; }
  void clear() {
    for (Entry& e : heap_) e.qp->transport->heap_slot = 0;
    heap_.clear();
  }

 private:
  struct Entry {
    Nanos key;
    Qp* qp;
  };
  void place(std::size_t i) { heap_[i].qp->transport->heap_slot = static_cast<std::uint32_t>(i + 1); }
  void up(std::size_t i) {
    while (i > 0 && heap_[i].key < heap_[(i - 1) / 2].key) {
      std::swap(heap_[i], heap_[(i - 1) / 2]);
      place(i);
      i = (i - 1) / 2;
    }
    place(i);
  }
  void down(std::size_t i) {
    for (;;) {
      std::size_t c = 2 * i + 1;
      if (c >= heap_.size()) break;
      if (c + 1 < heap_.size() && heap_[c + 1].key < heap_[c].key) ++c;
      if (heap_[i].key <= heap_[c].key) break;
      std::swap(heap_[i], heap_[c]);
      place(i);
      i = c;
    }
    place(i);
  }
  void remove(std::size_t i) {
    heap_[i].qp->transport->heap_slot = 0;
    Entry last = heap_.back();
    heap_.pop_back();
    if (i == heap_.size()) return;
    heap_[i] = last;
    up(i);
    down(heap_[i].qp == last.qp ? i : last.qp->transport->heap_slot - 1);
  }

  std::vector<Entry> heap_;
};

}  // namespace uhca::hca
