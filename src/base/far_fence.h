// SPDX-License-Identifier: MIT
// A fence whose cost the rare side pays, for two processes: the frequent side stores, then loads, with nothing in between; the rare side
// stores, calls heavy(), then loads. One of the two sees the other's store, as if both had a full fence. Linux: membarrier(2),
// MEMBARRIER_CMD_GLOBAL_EXPEDITED.
#pragma once

#include <atomic>

namespace uhca::far_fence {

namespace detail {
extern constinit std::atomic<bool> registered;
}

// Once for each process, before it takes either side. False: it cannot (old kernel, seccomp), and must use real fences.
bool join();

// In the child after fork: it has not joined.
void after_fork();

// Frequent side: whether this process may leave its fence out towards one whose heavy() works.
inline bool joined() {
  return detail::registered.load(std::memory_order_relaxed);
}

// Frequent side, between the store and the load. `answered`: the rare side says that it uses heavy().
inline void light(bool answered) {
  if (joined() && answered)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Rare side. False: nothing was ordered.
bool heavy();

}  // namespace uhca::far_fence
