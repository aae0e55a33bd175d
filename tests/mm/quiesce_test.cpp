// SPDX-License-Identifier: MIT
// Taking memory away from under DMA: once unmapping or invalidation has returned, not one byte of it is written or read any more.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/safecopy.h"
#include "device/pci/iommu_bus.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::mm {
namespace {

class TestBus final : public pci::IommuBus {
 public:
  void raise(unsigned) override {}
  using IommuBus::set_iommu;
};

// Lets others run between a translation and the copy that uses it: the window in which the memory may be taken away.
class SlowIommu final : public pci::Iommu {
 public:
  explicit SlowIommu(Iommu& inner) : inner_(inner) {}
  void* translate(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, std::size_t* contiguous, const char** why) override {
    void* p = inner_.translate(addr, len, dir, contiguous, why);
    for (int i = 0; p != nullptr && i < 2; ++i) std::this_thread::yield();
    return p;
  }

 private:
  Iommu& inner_;
};

constexpr std::size_t kBytes = 64 * 1024;

class Quiesce : public testing::Test {
 protected:
  void SetUp() override {
    memory_ = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(MAP_FAILED, static_cast<void*>(memory_));
    bus_.set_iommu(&slow_);
    // Nothing faults here: the memory stays mapped. The plain copy loops leave the narrowest window to get wrong.
    safecopy::set_handler_ready(true);
    for (int i = 0; i < 2; ++i) writers_.emplace_back([this] { write(); });
  }
  void TearDown() override {
    stop_.store(true);
    for (auto& t : writers_) t.join();
    safecopy::set_handler_ready(false);
    munmap(memory_, kBytes);
  }
  void write() {
    std::vector<char> junk(kBytes, '\x11');
    while (!stop_.load(std::memory_order_relaxed)) {
      pci::DmaAddr at = target_.load(std::memory_order_acquire);
      bool ok = at != 0 && bus_.dma_write(at, junk.data(), junk.size());
      (ok ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed);
      std::this_thread::yield();
    }
  }
  // Lets the writers reach the memory at least once.
  void let_them_write(pci::DmaAddr at) {
    long before = hits_.load();
    target_.store(at, std::memory_order_release);
    while (hits_.load() == before) std::this_thread::yield();
  }
  long stray_bytes() {
    std::memset(memory_, 0x5a, kBytes);
    for (int i = 0; i < 3; ++i) std::this_thread::yield();
    return std::count_if(memory_, memory_ + kBytes, [](char c) { return c != 0x5a; });
  }

  TestBus bus_;
  IommuDomain domain_;
  SlowIommu slow_{domain_};
  char* memory_ = nullptr;
  std::atomic<pci::DmaAddr> target_{0};
  std::atomic<bool> stop_{false};
  std::atomic<long> hits_{0}, misses_{0};
  std::vector<std::thread> writers_;
};

TEST_F(Quiesce, NothingIsWrittenAfterUnmapReturned) {
  for (int i = 0; i < 100; ++i) {
    auto umem = domain_.pin(reinterpret_cast<UserPtr>(memory_), kBytes, true, "MR");
    ASSERT_TRUE(umem.ok());
    let_them_write((*umem)->dma());
    (*umem).reset();
    ASSERT_EQ(0, stray_bytes()) << "round " << i;
  }
  EXPECT_LT(0, misses_.load());
}

TEST_F(Quiesce, NothingIsWrittenAfterInvalidateReturned) {
  for (int i = 0; i < 100; ++i) {
    auto umem = domain_.pin(reinterpret_cast<UserPtr>(memory_), kBytes, true, "MR");
    ASSERT_TRUE(umem.ok());
    let_them_write((*umem)->dma());
    // Two callers at once, each for its own part: both must wait, also the one that finds the range poisoned.
    std::thread other([&] { domain_.invalidate(reinterpret_cast<UserPtr>(memory_), kBytes / 2, "munmap()ed"); });
    domain_.invalidate(reinterpret_cast<UserPtr>(memory_) + kBytes / 2, kBytes / 2, "munmap()ed");
    std::memset(memory_ + kBytes / 2, 0x5a, kBytes / 2);
    for (int k = 0; k < 3; ++k) std::this_thread::yield();
    long stray = std::count_if(memory_ + kBytes / 2, memory_ + kBytes, [](char c) { return c != 0x5a; });
    other.join();
    ASSERT_EQ(0, stray) << "round " << i;
    ASSERT_EQ(0, stray_bytes()) << "round " << i;
  }
  EXPECT_LT(0, misses_.load());
}

}  // namespace
}  // namespace uhca::kernel::mm
