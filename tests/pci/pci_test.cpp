// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "device/pci/iommu_bus.h"
#include "device/pci/irq.h"
#include "device/pci/service_thread.h"

using namespace uhca;
using namespace uhca::pci;

namespace {

// ---- interrupts

struct Counter {
  std::atomic<int> runs{0};
  std::atomic<int> inside{0};
  std::atomic<int> overlap{0};
};

void count(void* context) {
  auto* c = static_cast<Counter*>(context);
  if (c->inside.fetch_add(1) != 0) c->overlap.fetch_add(1);
  c->runs.fetch_add(1);
  c->inside.fetch_sub(1);
}

TEST(IrqTable, RaiseOnlyRecords) {
  IrqTable irqs;
  Counter c;
  irqs.request(3, count, &c);
  irqs.raise(3);
  irqs.raise(3);
  EXPECT_EQ(c.runs.load(), 0);
  irqs.dispatch();
  EXPECT_EQ(c.runs.load(), 1) << "two raises of an edge-triggered vector before dispatch are one interrupt";
  irqs.dispatch();
  EXPECT_EQ(c.runs.load(), 1);
  irqs.raise(99);  // no such vector
  irqs.dispatch();
}

TEST(IrqTable, OneVectorNeverRunsTwiceAtOnceAndNothingIsLost) {
  IrqTable irqs;
  Counter c;
  irqs.request(1, count, &c);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        irqs.raise(1);
        irqs.dispatch();
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(c.overlap.load(), 0);
  EXPECT_FALSE(irqs.any_pending());
  int before = c.runs.load();
  irqs.raise(1);
  irqs.dispatch();
  EXPECT_EQ(c.runs.load(), before + 1);
  irqs.free(1);
  irqs.raise(1);
  irqs.dispatch();
  EXPECT_EQ(c.runs.load(), before + 1);
}

// ---- DMA

class OneRange final : public Iommu {
 public:
  std::vector<char> memory = std::vector<char>(8192);
  bool writable = true;
  void* translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous, const char** why) override {
    if (addr < 0x10000 || addr >= 0x10000 + memory.size()) {
      *why = "outside";
      return nullptr;
    }
    if (dir == DmaDir::kFromDevice && !writable) {
      *why = "read-only";
      return nullptr;
    }
    std::size_t off = addr - 0x10000;
    // Pages are contiguous, but translations reach only to the page's end: the bus must loop.
    std::size_t page_left = 4096 - off % 4096;
    *contiguous = std::min(len, page_left);
    return memory.data() + off;
  }
};

class TestBus final : public IommuBus {
 public:
  void raise(unsigned) override {}
  using IommuBus::set_iommu;
};

TEST(IommuBus, EveryAccessGoesThroughTheIommu) {
  TestBus bus;
  char c[16];
  EXPECT_FALSE(bus.dma_read(c, 0x10000, 16));
  EXPECT_STREQ(bus.last_fault(), "no IOMMU domain attached");
  OneRange iommu;
  bus.set_iommu(&iommu);
  std::vector<char> data(6000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i);
  EXPECT_TRUE(bus.dma_write(0x10000 + 100, data.data(), data.size()));  // crosses a page
  std::vector<char> back(6000);
  EXPECT_TRUE(bus.dma_read(back.data(), 0x10000 + 100, back.size()));
  EXPECT_EQ(back, data);
  EXPECT_FALSE(bus.dma_write(0x10000 + 8000, data.data(), 500));
  EXPECT_STREQ(bus.last_fault(), "outside");
  std::uint32_t v = 0;
  EXPECT_TRUE(bus.dma_store32(0x10010, 0x01020304));
  EXPECT_TRUE(bus.dma_load32(0x10010, &v));
  EXPECT_EQ(v, 0x01020304u);
  EXPECT_FALSE(bus.dma_load32(0xfff0, &v));
  EXPECT_TRUE(bus.dma_write_last_byte_last(0x10020, "abc", 3));
  EXPECT_EQ(std::memcmp(iommu.memory.data() + 0x20, "abc", 3), 0);
  std::uint64_t expected = 0;
  EXPECT_TRUE(bus.dma_cas64(0x10040, &expected, 7));
  EXPECT_FALSE(bus.dma_cas64(0x20000, &expected, 7));
  iommu.writable = false;
  EXPECT_FALSE(bus.dma_write(0x10000, "x", 1));
  EXPECT_STREQ(bus.last_fault(), "read-only");
  EXPECT_FALSE(bus.dma_store32(0x10000, 1));
  EXPECT_FALSE(bus.dma_cas64(0x10040, &expected, 8));
  EXPECT_TRUE(bus.dma_read(c, 0x10000, 1));
}

// ---- the service thread

class FakeEngine final : public Engine {
 public:
  std::atomic<int> drives{0}, looks{0};
  std::atomic<unsigned> armed{0};
  std::atomic<Nanos> deadline{kNever};
  std::atomic<int> todo{0};
  std::size_t bar0_size() const override { return 4096; }
  std::uint64_t mmio_read(std::uint64_t, unsigned) override { return 0; }
  void mmio_write(std::uint64_t, std::uint64_t, unsigned) override {}
  void reset() override {}
  void uar_store(std::uint64_t, std::uint64_t) override {}
  void look_at_send_queue(std::uint32_t) override {}
  void look_at_cq(std::uint32_t) override {}
  void look_at_uar(std::uint32_t) override { ++looks; }
  bool drive(bool) override {
    ++drives;
    int n = todo.load();
    if (n > 0) todo.store(n - 1);
    if (deadline.load() != kNever && SystemClock::instance().now() >= deadline.load()) deadline.store(kNever);
    return n > 0;
  }
  Nanos next_deadline() override { return deadline.load(); }
  unsigned armed_cqs() override { return armed.load(); }
};

class FakePort final : public wire::Port {
 public:
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::atomic<bool> asleep{false};
  ~FakePort() override { close(fd); }
  wire::Send send(wire::Frame) override { return wire::Send::kUnreachable; }
  unsigned poll(wire::FrameSink&, unsigned, bool) override { return 0; }
  int wait_fd() const override { return fd; }
  void set_asleep(bool a) override { asleep.store(a); }
  Nanos service(Nanos) override {
    std::uint64_t v;
    [[maybe_unused]] ssize_t n = read(fd, &v, sizeof v);
    return kNever;
  }
};

// Waits for a condition; the limit only keeps a broken build from hanging for ever.
template <class F>
bool eventually(F f) {
  for (int i = 0; i < 20000; ++i) {
    if (f()) return true;
    usleep(1000);
  }
  return false;
}

class ServiceThreadTest : public ::testing::Test {
 protected:
  FakeEngine engine;
  FakePort port;
  IrqTable irqs;
  IdleWatch idle;
  ServiceThread service{engine, port, irqs, idle};
};

TEST_F(ServiceThreadTest, SleepsUntilTheDeadlineAndThenDrives) {
  service.start();
  EXPECT_TRUE(eventually([&] { return port.asleep.load() && engine.drives.load() > 0; }));
  usleep(20000);
  int quiet = engine.drives.load();
  usleep(50000);
  EXPECT_EQ(engine.drives.load(), quiet) << "an idle service thread does nothing";
  engine.deadline.store(SystemClock::instance().now() + 2'000'000);
  service.check_deadline();
  EXPECT_TRUE(eventually([&] { return engine.deadline.load() == kNever; }));
}

TEST_F(ServiceThreadTest, FramesWakeItAndItDrains) {
  Counter c;
  irqs.request(2, count, &c);
  service.start();
  ASSERT_TRUE(eventually([&] { return engine.drives.load() > 0; }));
  engine.todo.store(200);
  irqs.raise(2);
  std::uint64_t one = 1;
  ASSERT_EQ(write(port.fd, &one, sizeof one), 8);
  EXPECT_TRUE(eventually([&] { return engine.todo.load() == 0 && c.runs.load() == 1; }));
}

TEST_F(ServiceThreadTest, PollingProgramsAttendAndAreMissedWhenTheyStop) {
  service.start();
  ASSERT_TRUE(eventually([&] { return port.asleep.load() && engine.drives.load() > 0; }));
  for (int i = 0; i < 100; ++i) service.polled();
  EXPECT_FALSE(port.asleep.load()) << "peers need not wake a polling program";
  std::uint32_t word = 0;
  const std::uint32_t* words[] = {&word};
  idle.publish(words, kNever);
  // Polls that rest count as polls, unless the machine takes the processor away for so long that none comes.
  auto only_rests_for_five_ticks = [&] {
    for (int i = 0; i < 100; ++i) service.polled();
    for (Nanos end = SystemClock::instance().now() + 5'000'000; SystemClock::instance().now() < end;)
      if (!idle.poll_may_rest()) return false;
    return !port.asleep.load();
  };
  EXPECT_TRUE(eventually(only_rests_for_five_ticks));
  EXPECT_TRUE(eventually([&] { return port.asleep.load(); })) << "the polls stopped";
  // An armed CQ means that somebody will sleep.
  engine.armed.store(1);
  for (int i = 0; i < 100; ++i) service.polled();
  EXPECT_TRUE(port.asleep.load());
  engine.armed.store(0);
  for (int i = 0; i < 100; ++i) service.polled();
  EXPECT_FALSE(port.asleep.load());
  service.unattend();
  EXPECT_TRUE(port.asleep.load());
}

TEST(IdleWatch, PollsRestWhileAllWordsAreZeroAndSomebodyAttends) {
  IdleWatch idle;
  std::uint32_t word[2] = {};
  const std::uint32_t* words[] = {&word[0], &word[1]};
  EXPECT_FALSE(idle.nothing_came()) << "nothing was published";
  idle.publish(words, 77);
  EXPECT_EQ(idle.deadline(), 77u);
  EXPECT_FALSE(idle.poll_may_rest()) << "nobody attends";
  EXPECT_TRUE(idle.nothing_came());
  idle.attend(true);
  EXPECT_FALSE(idle.take_seen());
  EXPECT_TRUE(idle.poll_may_rest());
  EXPECT_TRUE(idle.take_seen());
  EXPECT_FALSE(idle.take_seen());
  word[1] = 1;
  EXPECT_FALSE(idle.poll_may_rest());
  word[1] = 0;
  idle.close();
  EXPECT_FALSE(idle.poll_may_rest());
  EXPECT_TRUE(idle.closed());
}

// Polls so seldom that none of them goes into the engine: the thread does what they would have done.
TEST_F(ServiceThreadTest, DrivesForPollsThatRest) {
  service.start();
  const std::uint32_t* none[] = {nullptr};
  idle.publish(std::span(none).first(0), kNever);
  auto driven_while_attended = [&] {
    for (int i = 0; i < 100; ++i) service.polled();
    for (Nanos end = SystemClock::instance().now() + 5'000'000; SystemClock::instance().now() < end;)
      if (!idle.poll_may_rest()) return false;
    // The last poll that counted lies a tick and more behind.
    int before = engine.drives.load();
    for (Nanos end = SystemClock::instance().now() + 5'000'000; SystemClock::instance().now() < end;)
      if (!idle.poll_may_rest()) return false;
    return engine.drives.load() > before;
  };
  EXPECT_TRUE(eventually(driven_while_attended));
}

TEST_F(ServiceThreadTest, TakesTheDeadlineThatWasPublished) {
  service.start();
  ASSERT_TRUE(eventually([&] { return port.asleep.load() && engine.drives.load() > 0; }));
  usleep(20000);
  int before = engine.drives.load();
  const std::uint32_t* none[] = {nullptr};
  idle.publish(std::span(none).first(0), SystemClock::instance().now() + 1'000'000);
  service.check_deadline();
  EXPECT_TRUE(eventually([&] { return engine.drives.load() > before; }));
}

TEST_F(ServiceThreadTest, WatchesDoorbellsOfProgramsThatRingThemselves) {
  service.start();
  ASSERT_TRUE(eventually([&] { return engine.drives.load() > 0; }));
  EXPECT_EQ(engine.looks.load(), 0);
  service.watch_uar(17, true);
  EXPECT_TRUE(eventually([&] { return engine.looks.load() > 3; }));
  service.watch_uar(17, false);
  int quiet = engine.looks.load();
  usleep(100000);
  EXPECT_EQ(engine.looks.load(), quiet);
}

}  // namespace
