// SPDX-License-Identifier: MIT
// Rings of SDMA packets, and KFD's events.
#include "kernel/gpu/sdma.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "base/safecopy.h"
#include "kernel/gpu/gpu.h"

namespace uhca::kernel::gpu {
namespace {

std::uint64_t address(const void* p) {
  return reinterpret_cast<std::uintptr_t>(p);
}

struct Bench {
  Bench() {
    safecopy::install_handler();
    uhca::gpu::Config c;
    c.vram = 16 << 20;
    gpu = std::move(*Gpu::make(c));
    vm = std::make_shared<Vm>();
    bo = std::move(*gpu->create(1 << 20, kDomainVram, kDomainVram | kDomainGtt, 0));
    EXPECT_TRUE(vm->map(kVa, bo).ok());
    auto made = sdma.create(vm, {address(ring), sizeof ring, address(&read), address(&write)});
    EXPECT_TRUE(made.ok());
    queue = *made;
  }
  void put(std::vector<std::uint32_t> packet) {
    for (std::uint32_t dword : packet) {
      ring[at / 4 % (sizeof ring / 4)] = dword;
      at += 4;
    }
  }
  void ring_doorbell() { __atomic_store_n(&write, at, __ATOMIC_RELEASE); }
  void wait() {
    ring_doorbell();
    while (__atomic_load_n(&read, __ATOMIC_ACQUIRE) != at) std::this_thread::yield();
  }
  static std::uint32_t lo(std::uint64_t v) { return static_cast<std::uint32_t>(v); }
  static std::uint32_t hi(std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); }
  void put_copy(std::uint64_t dst, std::uint64_t src, std::uint32_t n) { put({1, n - 1, 0, lo(src), hi(src), lo(dst), hi(dst)}); }
  void put_fence(const void* to, std::uint32_t v) { put({5, lo(address(to)), hi(address(to)), v}); }

  static constexpr std::uint64_t kVa = 0x7000'0000'0000;
  alignas(256) std::uint32_t ring[256] = {};
  alignas(8) std::uint64_t read = 0, write = 0;
  std::uint64_t at = 0;
  std::unique_ptr<Gpu> gpu;
  std::shared_ptr<Vm> vm;
  std::shared_ptr<Bo> bo;
  KfdEvents events;
  Sdma sdma{events};
  std::uint32_t queue = 0;
};

TEST(Sdma, CopiesFillsFencesAndCounts) {
  Bench b;
  std::vector<std::uint8_t> out(5000), in(5000);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::uint8_t>(i * 11);
  std::uint32_t fence = 0;
  std::uint64_t signal = 5, stamp = 0;
  b.put_copy(Bench::kVa + 100, address(out.data()), 5000);
  b.put({0x8, 0, 0x80000000, 0, 0, 0});  // a flush
  b.put_copy(address(in.data()), Bench::kVa + 100, 5000);
  b.put({11 | 2u << 30, Bench::lo(Bench::kVa), Bench::hi(Bench::kVa), 0xa1b2c3d4, 15});
  b.put({0 | 2 << 16, 7, 7});  // padding
  b.put({10 | 47u << 25, Bench::lo(address(&signal)), Bench::hi(address(&signal)), ~0u, ~0u, 0, 0, 0});
  b.put({13 | 2 << 8, Bench::lo(address(&stamp)), Bench::hi(address(&stamp))});
  b.put_fence(&fence, 77);
  b.wait();
  EXPECT_EQ(in, out);
  EXPECT_EQ(fence, 77u);
  EXPECT_EQ(signal, 4u);
  EXPECT_NE(stamp, 0u);
  std::uint32_t filled[5] = {};
  ASSERT_TRUE(b.bo->read(0, filled, sizeof filled).ok());
  EXPECT_EQ(filled[3], 0xa1b2c3d4u);
  EXPECT_EQ(filled[4], 0u);
}

TEST(Sdma, WaitsForMemoryAndWrapsAround) {
  Bench b;
  for (std::uint32_t round = 1; round <= 60; ++round) {
    std::uint32_t gate = 0, fence = 0;
    const bool wraps = b.at % sizeof b.ring > sizeof b.ring - 40;
    if (wraps) b.put(std::vector<std::uint32_t>((sizeof b.ring - b.at % sizeof b.ring) / 4, 0));
    b.put({8 | 3u << 28 | 1u << 31, Bench::lo(address(&gate)), Bench::hi(address(&gate)), round, ~0u, 0});
    b.put_fence(&fence, round);
    b.ring_doorbell();
    for (int i = 0; i < 50; ++i) std::this_thread::yield();
    EXPECT_EQ(__atomic_load_n(&fence, __ATOMIC_ACQUIRE), 0u);
    __atomic_store_n(&gate, round, __ATOMIC_RELEASE);
    b.wait();
    EXPECT_EQ(fence, round);
  }
}

TEST(Sdma, TrapsSignalEvents) {
  Bench b;
  kfd_ioctl_create_event_args e{};
  ASSERT_TRUE(b.events.create(e).ok());
  EXPECT_NE(e.event_page_offset, 0u);
  b.put({6, e.event_id});
  b.put({6, 4000});  // of nobody
  b.wait();
  kfd_event_data data{};
  data.event_id = e.event_id;
  kfd_ioctl_wait_events_args w{};
  w.events_ptr = address(&data);
  w.num_events = 1;
  w.timeout = 0;
  ASSERT_TRUE(b.events.wait(w).ok());
  EXPECT_EQ(w.wait_result, static_cast<unsigned>(KFD_IOC_WAIT_RESULT_COMPLETE));
}

TEST(Sdma, AQueueStopsAtWhatItCannotDoAndOthersGoOn) {
  Bench b;
  alignas(256) std::uint32_t ring[64] = {};
  alignas(8) std::uint64_t read = 0, write = 0;
  auto other = b.sdma.create(b.vm, {address(ring), sizeof ring, address(&read), address(&write)});
  ASSERT_TRUE(other.ok());
  ring[0] = 200;  // no such packet
  __atomic_store_n(&write, 4, __ATOMIC_RELEASE);
  std::uint32_t fence = 0;
  b.put_fence(&fence, 1);
  b.wait();
  EXPECT_EQ(__atomic_load_n(&read, __ATOMIC_ACQUIRE), 0u);
  // ... or memory that is not there.
  b.put_copy(Bench::kVa, 4096, 64);
  b.put_fence(&fence, 2);
  b.ring_doorbell();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  EXPECT_EQ(fence, 1u);
  EXPECT_TRUE(b.sdma.destroy(b.queue).ok());
  EXPECT_EQ(b.sdma.destroy(b.queue).code(), EINVAL);
  EXPECT_TRUE(b.sdma.destroy(*other).ok());
}

// Rings that lie about what is in them stop; nothing of them keeps whoever ends them waiting.
TEST(Sdma, ARingThatLiesStops) {
  const std::vector<std::uint32_t> beyond = {16u << 16};        // a NOP of 17 dwords, of which one is there
  const std::vector<std::uint32_t> nowhere = {5, ~0u, ~0u, 1};  // a fence whose address wraps around
  struct {
    std::vector<std::uint32_t> packets;
    std::uint64_t write;
  } const rings[] = {{beyond, 4}, {nowhere, 16}, {{0}, 1 << 20}, {{0}, 6}, {{0}, ~std::uint64_t{0} - 3}};
  for (const auto& r : rings) {
    Bench b;
    b.put(r.packets);
    __atomic_store_n(&b.write, r.write, __ATOMIC_RELEASE);
    for (int i = 0; i < 200; ++i) std::this_thread::yield();
    EXPECT_TRUE(b.sdma.destroy(b.queue).ok());
    EXPECT_EQ(b.read, 0u);
  }
  Bench b;
  std::uint64_t v = 0;
  EXPECT_EQ(b.vm->read(~std::uint64_t{0} - 3, &v, 8).code(), EFAULT);
  EXPECT_EQ(b.vm->write(~std::uint64_t{0}, &v, 4).code(), EFAULT);
}

TEST(Sdma, RefusesCrookedRings) {
  Bench b;
  EXPECT_EQ(b.sdma.create(b.vm, {address(b.ring), 1000, address(&b.read), address(&b.write)}).code(), EINVAL);
  EXPECT_EQ(b.sdma.create(b.vm, {address(b.ring) + 4, 1024, address(&b.read), address(&b.write)}).code(), EINVAL);
  EXPECT_EQ(b.sdma.create(b.vm, {address(b.ring), 1024, address(&b.read) + 1, address(&b.write)}).code(), EINVAL);
  EXPECT_EQ(b.sdma.create(b.vm, {address(b.ring), 1024, 64, 64}).code(), EFAULT);
}

TEST(KfdEvents, WaitForOneOrForAll) {
  KfdEvents events;
  kfd_ioctl_create_event_args a{}, b{};
  b.auto_reset = 1;
  ASSERT_TRUE(events.create(a).ok() && events.create(b).ok());
  EXPECT_NE(a.event_id, b.event_id);
  kfd_event_data data[2] = {};
  data[0].event_id = a.event_id, data[1].event_id = b.event_id;
  kfd_ioctl_wait_events_args w{};
  auto wait = [&](bool all, std::uint32_t timeout) {
    w = {};
    w.events_ptr = address(data), w.num_events = 2, w.wait_for_all = all, w.timeout = timeout;
    Status s = events.wait(w);
    while (s.code() == EINTR) s = events.wait(w);
    return s.code();
  };
  EXPECT_EQ(wait(false, 0), 0);
  EXPECT_EQ(w.wait_result, static_cast<unsigned>(KFD_IOC_WAIT_RESULT_TIMEOUT));
  EXPECT_EQ(wait(false, 60), 0);  // comes back in between
  EXPECT_EQ(w.wait_result, static_cast<unsigned>(KFD_IOC_WAIT_RESULT_TIMEOUT));
  ASSERT_TRUE(events.set(b.event_id).ok());
  EXPECT_EQ(wait(false, 0), 0);
  EXPECT_EQ(w.wait_result, static_cast<unsigned>(KFD_IOC_WAIT_RESULT_COMPLETE));
  EXPECT_EQ(wait(false, 0), 0);
  EXPECT_EQ(w.wait_result, static_cast<unsigned>(KFD_IOC_WAIT_RESULT_TIMEOUT)) << "it resets itself";
  ASSERT_TRUE(events.set(a.event_id).ok());
  std::thread later([&] { EXPECT_TRUE(events.set(b.event_id).ok()); });
  EXPECT_EQ(wait(true, 0xffffffff), 0);
  later.join();
  ASSERT_TRUE(events.reset(a.event_id).ok());
  EXPECT_EQ(events.set(999).code(), EINVAL);
  EXPECT_EQ(events.reset(999).code(), EINVAL);
  ASSERT_TRUE(events.destroy(b.event_id).ok());
  EXPECT_EQ(events.destroy(b.event_id).code(), EINVAL);
  EXPECT_EQ(wait(false, 0), EINVAL);
  kfd_ioctl_create_event_args e{};
  for (unsigned i = 0; i < KFD_SIGNAL_EVENT_LIMIT - 2; ++i) ASSERT_TRUE(events.create(e).ok());
  EXPECT_EQ(events.create(e).code(), ENOSPC);
}

}  // namespace
}  // namespace uhca::kernel::gpu
