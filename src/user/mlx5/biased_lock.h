// SPDX-License-Identifier: MIT
// The lock of a queue. As long as one thread alone uses the queue, which is how nearly all programs use them, taking it is two plain
// stores: the first thread owns it until another one comes, which then pays for the fence that the owner leaves out (membarrier(2)). From
// then on it is a spin lock for all of them.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdint>

namespace uhca::mlx5 {

class BiasedLock {
 public:
  // Off (MLX5_SINGLE_THREADED, a thread domain, a single-threaded CQ) it costs one predictable branch.
  void enable(bool on) { on_ = on; }

  void lock() {
    if (!on_) return;
    const std::uintptr_t me = self();
    std::uintptr_t owner = owner_.load(std::memory_order_relaxed);
    if (owner == me || (owner == kNobody && may_own() && owner_.compare_exchange_strong(owner, me))) {
      owner_inside_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // revoke() makes this a full one
      if (__builtin_expect(owner_.load(std::memory_order_relaxed) == me, 1)) {
        ++owner_depth_;
        return;
      }
      owner_inside_.store(false, std::memory_order_release);
    }
    lock_shared();
  }

  void unlock() {
    if (!on_) return;
    if (owner_depth_ != 0) {
      if (--owner_depth_ == 0) owner_inside_.store(false, std::memory_order_release);
    } else {
      held_.store(false, std::memory_order_release);
    }
  }

  // Once for the process: whether locks may have owners.
  static void prepare();

 private:
  static constexpr std::uintptr_t kNobody = 0, kShared = 1;

  static std::uintptr_t self() {
#if defined(__x86_64__)
    std::uintptr_t p;
    __asm__("movq %%fs:0, %0" : "=r"(p));
    return p;
#else
    return reinterpret_cast<std::uintptr_t>(pthread_self());
#endif
  }
  static bool may_own() {
    return owners_.load(std::memory_order_relaxed);
  }

  void lock_shared() {
    for (unsigned spins = 0; held_.exchange(true, std::memory_order_acquire);) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins % 256 == 0) {
          sched_yield();
        } else {
#if defined(__x86_64__)
          __builtin_ia32_pause();
#endif
        }
      }
    }
    if (__builtin_expect(owner_.load(std::memory_order_relaxed) != kShared, 0)) revoke();
  }
  void revoke();  // by the holder of held_: no owner any more, and none inside

  std::atomic<std::uintptr_t> owner_{kNobody};
  std::atomic<bool> owner_inside_{false};
  std::atomic<bool> held_{false};
  unsigned owner_depth_ = 0;  // of whoever has the lock; more than 1: a signal handler between ibv_start_poll and ibv_end_poll
  bool on_ = true;

  static constinit std::atomic<bool> owners_;
};

}  // namespace uhca::mlx5
