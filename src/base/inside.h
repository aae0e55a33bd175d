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
  int engine;                             // inside the engine itself: a call of its hooks is a re-entry
  volatile std::sig_atomic_t deferred;    // set by the signal trampoline: something waits for the Guard's end
  volatile std::sig_atomic_t cancelable;  // the thread may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS)
};

// Initial-exec: usable on the data path and in signal handlers of threads that were just born.
extern constinit thread_local State state __attribute__((tls_model("initial-exec")));

// Set once by kernel/sys: raises what was deferred on this thread. Called with depth 0.
extern constinit std::atomic<void (*)()> raise_deferred;
// Set with `cancelable`: holds asynchronous cancellation back (true), or lets it in (false, which may not return).
extern constinit std::atomic<void (*)(bool)> hold_cancellation;

inline bool active() {
  return state.depth != 0;
}
inline bool in_engine() {
  return state.engine != 0;
}

namespace detail {
void hold();
void settle();  // what was held back while depth was not 0
}  // namespace detail

class Guard {
 public:
  Guard() {
    if (__builtin_expect(state.cancelable && state.depth == 0, 0)) detail::hold();
    ++state.depth;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Guard() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (--state.depth == 0 && __builtin_expect(state.deferred | state.cancelable, 0)) detail::settle();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
};

// A Guard of the engine: what runs below it drives the device.
class EngineGuard {
 public:
  EngineGuard() { ++state.engine; }
  ~EngineGuard() { --state.engine; }
  EngineGuard(const EngineGuard&) = delete;
  EngineGuard& operator=(const EngineGuard&) = delete;

 private:
  Guard guard_;
};

}  // namespace uhca::inside
