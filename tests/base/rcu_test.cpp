// SPDX-License-Identifier: MIT
#include "base/rcu.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

namespace uhca {
namespace {

TEST(Rcu, WaitsForASectionThatHasBegunAndForNoOther) {
  std::atomic<int> step{0};
  std::atomic<bool> done{false};
  std::thread reader([&] {
    rcu::ReadSection section;
    { rcu::ReadSection nested; }
    step.store(1);
    while (step.load() != 2) std::this_thread::yield();
  });
  while (step.load() != 1) std::this_thread::yield();
  std::thread waiter([&] {
    rcu::synchronize();
    done.store(true);
  });
  usleep(20000);
  EXPECT_FALSE(done.load()) << "the reader is still in its section";
  step.store(2);
  waiter.join();
  reader.join();
  EXPECT_TRUE(done.load());
  rcu::synchronize();  // nobody is in one
}

TEST(Rcu, OwnSectionIsNotWaitedForAndErrnoStays) {
  errno = 77;
  {
    rcu::ReadSection section;
    rcu::synchronize();
  }
  EXPECT_EQ(77, errno);
}

// A reader that leaves and enters again all the time must not keep the waiter.
TEST(Rcu, ABusyReaderDoesNotStarveTheWaiter) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!stop.load()) {
        for (int k = 0; k < 100; ++k) rcu::ReadSection section;
        std::this_thread::yield();
      }
    });
  for (int i = 0; i < 100; ++i) rcu::synchronize();
  stop.store(true);
  for (auto& t : readers) t.join();
}

// What the waiter took back before the call, no section sees after it.
TEST(Rcu, PublishedAndTakenBack) {
  struct Box {
    std::atomic<int> alive{1};
  };
  std::vector<Box> boxes(400);
  std::atomic<Box*> current{nullptr};
  std::atomic<bool> stop{false};
  std::atomic<long> used{0}, dead{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        std::this_thread::yield();
        rcu::ReadSection section;
        Box* b = current.load(std::memory_order_acquire);
        if (b == nullptr) continue;
        for (int k = 0; k < 20; ++k)
          if (b->alive.load(std::memory_order_relaxed) == 0) dead.fetch_add(1);
        used.fetch_add(1);
      }
    });
  for (Box& b : boxes) {
    current.store(&b, std::memory_order_release);
    long before = used.load();
    for (int spin = 0; spin < 20 && used.load() == before; ++spin) std::this_thread::yield();
    current.store(nullptr, std::memory_order_release);
    rcu::synchronize();
    b.alive.store(0, std::memory_order_relaxed);
  }
  stop.store(true);
  for (auto& t : readers) t.join();
  EXPECT_EQ(0, dead.load());
  EXPECT_LT(0, used.load());
}

// More threads over time than there are slots, and more at once.
TEST(Rcu, ManyThreads) {
  for (int i = 0; i < 700; ++i) std::thread([] { rcu::ReadSection section; }).join();
  rcu::synchronize();
  std::atomic<int> in{0};
  std::atomic<bool> leave{false}, done{false};
  std::vector<std::thread> all;
  for (int i = 0; i < 520; ++i)
    all.emplace_back([&] {
      rcu::ReadSection section;
      in.fetch_add(1);
      while (!leave.load()) usleep(1000);
    });
  while (in.load() < 520) usleep(1000);
  std::thread waiter([&] {
    rcu::synchronize();
    done.store(true);
  });
  usleep(10000);
  EXPECT_FALSE(done.load());
  leave.store(true);
  for (auto& t : all) t.join();
  waiter.join();
}

TEST(Rcu, AChildDoesNotWaitForThreadsThatItDoesNotHave) {
  std::atomic<int> step{0};
  std::thread reader([&] {
    rcu::ReadSection section;
    step.store(1);
    while (step.load() != 2) usleep(1000);
  });
  while (step.load() != 1) usleep(1000);
  pid_t child = fork();
  if (child == 0) {
    rcu::after_fork();
    rcu::synchronize();
    { rcu::ReadSection section; }
    rcu::synchronize();
    _exit(5);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(5, WEXITSTATUS(status));
  step.store(2);
  reader.join();
}

}  // namespace
}  // namespace uhca
