// SPDX-License-Identifier: MIT
// The lock of an engine's lane: short critical sections, taken by application threads on the data path. Spins briefly, then
// sleeps in a futex. Raw system calls (no cancellation point), errno preserved, no destructor.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>

namespace uhca {

// Meets the standard's Lockable, so std::lock_guard and std::unique_lock work on it. Not recursive.
class LaneLock {
 public:
  constexpr LaneLock() = default;
  LaneLock(const LaneLock&) = delete;
  LaneLock& operator=(const LaneLock&) = delete;

  bool try_lock() {
    std::uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock() {
    for (int i = 0; i < kSpins; ++i) {
      if (word_.load(std::memory_order_relaxed) == kFree && try_lock()) return;
      pause();
    }
    int saved = errno;
    waiters_.fetch_add(1);
    const timespec once_more{0, kLookAgain};
    while (!try_lock()) syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, kHeld, &once_more, nullptr, 0);
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    errno = saved;
  }
  // A plain store: a fence would wait for every cache line that was written under the lock. Whoever begins to wait in that very moment may
  // not be seen; he looks again.
  void unlock() {
    word_.store(kFree, std::memory_order_release);
    if (__builtin_expect(waiters_.load(std::memory_order_relaxed) == 0, 1)) return;
    int saved = errno;
    syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    errno = saved;
  }

 private:
  static constexpr std::uint32_t kFree = 0, kHeld = 1;
  static constexpr int kSpins = 100;
  static constexpr long kLookAgain = 500'000;  // ns
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  std::atomic<std::uint32_t> word_{kFree};
  std::atomic<std::uint32_t> waiters_{0};
};

}  // namespace uhca
