// SPDX-License-Identifier: MIT
// Who sees whose stores: the lane's lock, the far fence, the cheap clock.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/far_fence.h"
#include "base/lane_lock.h"

namespace uhca {
namespace {

TEST(LaneLock, ExcludesAndForgetsNobody) {
  LaneLock lock;
  unsigned long guarded = 0;
  constexpr int kThreads = 6, kRounds = 20000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        std::lock_guard<LaneLock> g(lock);
        guarded = guarded + 1;
        if (t == 0 && i % 500 == 0) usleep(50);  // the others go to sleep
      }
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(guarded, static_cast<unsigned long>(kThreads) * kRounds);
  EXPECT_TRUE(lock.try_lock());
  EXPECT_FALSE(lock.try_lock());
  lock.unlock();
}

// Each round the frequent side stores, then loads; the rare side stores, fences, then loads. Not both may miss the other.
TEST(FarFence, OneOfTheTwoSees) {
  ASSERT_TRUE(far_fence::join());
  EXPECT_TRUE(far_fence::joined());
  EXPECT_TRUE(far_fence::join()) << "again";
  struct alignas(64) Line {
    std::atomic<unsigned> v{0};
  };
  Line record, asleep, frequent_round, rare_round;
  constexpr unsigned kRounds = 20000;
  std::vector<bool> missed(kRounds + 1);
  std::thread frequent([&] {
    for (unsigned i = 1; i <= kRounds; ++i) {
      while (rare_round.v.load(std::memory_order_acquire) < i - 1) {
      }
      record.v.store(i, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      missed[i] = asleep.v.load(std::memory_order_relaxed) != i;
      frequent_round.v.store(i, std::memory_order_release);
    }
  });
  unsigned both = 0;
  for (unsigned i = 1; i <= kRounds; ++i) {
    asleep.v.store(i, std::memory_order_relaxed);
    ASSERT_TRUE(far_fence::heavy());
    bool rare_missed = record.v.load(std::memory_order_acquire) != i;
    while (frequent_round.v.load(std::memory_order_acquire) < i) {
    }
    if (rare_missed && missed[i]) ++both;
    rare_round.v.store(i, std::memory_order_release);
  }
  frequent.join();
  EXPECT_EQ(both, 0u);
}

TEST(SystemClock, RecentIsNow) {
  SystemClock& clock = SystemClock::instance();
  for (int i = 0; i < 3000; ++i) {
    Nanos before = clock.now(), recent = clock.recent(), after = clock.now();
    ASSERT_GE(recent + 600, before) << i;
    ASSERT_LE(recent, after + 600) << i;
    if (i % 100 == 0) usleep(i);
  }
}

}  // namespace
}  // namespace uhca
