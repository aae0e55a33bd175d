// SPDX-License-Identifier: MIT
// "This thread is inside the engine or the kernel floor." A program's signal handler must not run there: it could longjmp out
// while a lock is held, or post work that needs the same lock. kernel/sys defers the signal and raises it again when the
// outermost Guard ends (DESIGN, decision 2).
#pragma once

#include <atomic>
#include <csignal>

namespace uhca::inside {

struct State {
  int depth;
  volatile std::sig_atomic_t deferred;  // set by the signal trampoline: something waits for the Guard's end
};

// Initial-exec: usable on the data path and in signal handlers of threads that were just born.
extern constinit thread_local State state __attribute__((tls_model("initial-exec")));

// Set once by kernel/sys: raises what was deferred on this thread. Called with depth 0.
extern constinit std::atomic<void (*)()> raise_deferred;

inline bool active() { return state.depth != 0; }

class Guard {
 public:
  Guard() {
    ++state.depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Guard() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (--state.depth == 0 && __builtin_expect(state.deferred, 0)) {
      if (auto* f = raise_deferred.load(std::memory_order_acquire)) f();
    }
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
};

}  // namespace uhca::inside
