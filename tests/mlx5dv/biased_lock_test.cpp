// SPDX-License-Identifier: MIT
// The lock of the provider's queues: its owner's way, and the way of everybody once there are two.
#include "user/mlx5/biased_lock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace uhca::mlx5 {
namespace {

TEST(BiasedLock, ExcludesFromTheMomentTheSecondThreadComes) {
  BiasedLock::prepare();
  for (int round = 0; round < 300; ++round) {
    BiasedLock lock;
    unsigned long guarded = 0;
    constexpr int kThreads = 3, kTimes = 400;
    // The owner is at work when the others come.
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kTimes; ++i) {
          lock.lock();
          guarded = guarded + 1;
          lock.unlock();
        }
      });
    }
    for (auto& t : threads) t.join();
    ASSERT_EQ(guarded, static_cast<unsigned long>(kThreads) * kTimes);
  }
}

// A signal handler that polls between ibv_start_poll and ibv_end_poll: the outer holder still has it afterwards.
TEST(BiasedLock, OwnerMayComeAgain) {
  BiasedLock::prepare();
  BiasedLock lock;
  bool inside = false;
  lock.lock();
  lock.lock();
  lock.unlock();
  std::thread other([&] {
    lock.lock();
    inside = true;
    lock.unlock();
  });
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  EXPECT_FALSE(__atomic_load_n(&inside, __ATOMIC_RELAXED));
  lock.unlock();
  other.join();
  EXPECT_TRUE(inside);
}

TEST(BiasedLock, OffItIsNothing) {
  BiasedLock lock;
  lock.enable(false);
  lock.lock();
  lock.lock();
  lock.unlock();
}

}  // namespace
}  // namespace uhca::mlx5
