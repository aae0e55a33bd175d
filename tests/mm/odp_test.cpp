// SPDX-License-Identifier: MIT
// Memory on demand: what is counted as a fault, what an invalidation undoes, what cannot be brought in.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <thread>
#include <vector>

#include "kernel/mm/odp_pages.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::mm {
namespace {

using pci::DmaDir;
constexpr std::size_t kPage = 4096;

char* map_pages(std::size_t pages, int prot = PROT_READ | PROT_WRITE) {
  void* p = mmap(nullptr, pages * kPage, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}
UserPtr up(const void* p) {
  return reinterpret_cast<UserPtr>(p);
}

TEST(OdpPages, CountsEachPageOnceUntilItIsTakenAway) {
  char* p = map_pages(100);
  OdpPages o(up(p), up(p) + 100 * kPage);
  EXPECT_EQ(0, o.access(up(p) + 10, 5, false));
  EXPECT_EQ(1u, o.stats().faults);
  EXPECT_EQ(0, o.access(up(p) + 4000, 200, false)) << "one page of the two is new";
  EXPECT_EQ(2u, o.stats().faults);
  EXPECT_EQ(0, o.access(up(p), 64 * kPage, false));
  EXPECT_EQ(64u, o.stats().faults);
  EXPECT_EQ(0, o.access(up(p), 2 * kPage, true)) << "readable so far only";
  EXPECT_EQ(66u, o.stats().faults);
  EXPECT_EQ(0, o.access(up(p), 64 * kPage, false));
  EXPECT_EQ(66u, o.stats().faults);
  EXPECT_EQ(3u, o.invalidate(up(p) + 100, 2 * kPage));
  EXPECT_EQ(0u, o.invalidate(up(p), 3 * kPage));
  EXPECT_EQ(0u, o.invalidate(up(p) + 64 * kPage, 36 * kPage)) << "never used";
  EXPECT_EQ(0u, o.invalidate(up(p) - 10 * kPage, 10 * kPage)) << "outside";
  EXPECT_EQ(3u, o.stats().invalidations);
  EXPECT_EQ(0, o.access(up(p) + 2 * kPage, 1, true));
  EXPECT_EQ(67u, o.stats().faults);
  EXPECT_EQ(61u, o.invalidate(0, ~std::size_t{0} >> 1) - 1) << "the rest";
  munmap(p, 100 * kPage);
}

TEST(OdpPages, WhatIsNotThereIsNotBroughtIn) {
  char* p = map_pages(4);
  ASSERT_EQ(0, mprotect(p + kPage, kPage, PROT_READ));
  ASSERT_EQ(0, mprotect(p + 2 * kPage, kPage, PROT_NONE));
  OdpPages o(up(p), up(p) + 4 * kPage);
  EXPECT_EQ(0, o.access(up(p) + kPage, 1, false));
  EXPECT_EQ(EFAULT, o.access(up(p) + kPage, 1, true));
  EXPECT_EQ(EFAULT, o.access(up(p) + 2 * kPage, 1, false));
  EXPECT_EQ(EFAULT, o.access(up(p), 4 * kPage, false)) << "a hole in the middle";
  EXPECT_EQ(1u, o.stats().faults);
  EXPECT_EQ(EFAULT, o.prefetch(up(p), 4 * kPage, OdpPages::Prefetch::kRead));
  EXPECT_EQ(EFAULT, o.prefetch(up(p) + kPage, 1, OdpPages::Prefetch::kWrite));
  EXPECT_EQ(0u, o.stats().prefetches);
  munmap(p, 4 * kPage);
}

TEST(OdpPages, PrefetchWithoutFaultsTakesOnlyWhatIsInMemory) {
  char* p = map_pages(600);
  p[0] = p[300 * kPage] = 1;
  OdpPages o(up(p), up(p) + 600 * kPage);
  EXPECT_EQ(0, o.prefetch(up(p), 600 * kPage, OdpPages::Prefetch::kNoFault));
  EXPECT_EQ(2u, o.stats().prefetches);
  EXPECT_EQ(0, o.access(up(p) + 300 * kPage, 8, false));
  EXPECT_EQ(0u, o.stats().faults);
  EXPECT_EQ(0, o.prefetch(up(p), 600 * kPage, OdpPages::Prefetch::kWrite));
  EXPECT_EQ(602u, o.stats().prefetches);
  EXPECT_EQ(0, o.access(up(p), 600 * kPage, true));
  EXPECT_EQ(0u, o.stats().faults);
  munmap(p, 600 * kPage);
}

TEST(OdpPages, ThreadsCountNoPageTwice) {
  constexpr std::size_t kPages = 3000;
  char* p = map_pages(kPages);
  OdpPages o(up(p), up(p) + kPages * kPage);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < kPages; ++i) ASSERT_EQ(0, o.access(up(p) + i * kPage, kPage, true));
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(kPages, o.stats().faults);
  EXPECT_EQ(kPages, o.invalidate(up(p), kPages * kPage));
  munmap(p, kPages * kPage);
}

TEST(IommuOnDemand, FollowsTheProgramsMappings) {
  IommuDomain d;
  char* p = map_pages(3);
  ASSERT_EQ(0, mprotect(p, 3 * kPage, PROT_NONE));
  auto u = d.on_demand(up(p) + 100, 2 * kPage, true, "MR", up(p) + 100);
  ASSERT_TRUE(u.ok());
  const pci::DmaAddr a = (*u)->dma();
  std::size_t n = 0;
  const char* why = nullptr;
  EXPECT_EQ(nullptr, d.translate(a, 10, DmaDir::kToDevice, &n, &why));
  EXPECT_NE(nullptr, std::strstr(why, "page fault")) << why;
  ASSERT_EQ(0, mprotect(p, 3 * kPage, PROT_READ | PROT_WRITE));
  EXPECT_EQ(p + 100, d.translate(a, 10, DmaDir::kFromDevice, &n, &why));
  EXPECT_EQ(10u, n);
  EXPECT_EQ(1u, (*u)->pages().stats().faults);
  d.invalidate(up(p), 3 * kPage, "unmapped");
  EXPECT_EQ(1u, (*u)->pages().stats().invalidations);
  EXPECT_EQ(p + 100, d.translate(a, 10, DmaDir::kFromDevice, &n, &why)) << "not poisoned";
  EXPECT_EQ(2u, (*u)->pages().stats().faults);
  EXPECT_EQ(nullptr, d.translate(a + 3 * kPage, 1, DmaDir::kToDevice, &n, &why));
  pci::HostRange r;
  EXPECT_FALSE(d.resolve(a, 10, DmaDir::kToDevice, &r)) << "no other function brings it in";
  munmap(p, 3 * kPage);
}

TEST(IommuOnDemand, EverythingIsTheAddressSpace) {
  IommuDomain d;
  const std::size_t before = d.live_ranges();
  {
    auto u = d.on_demand_everything(true, "implicit MR");
    ASSERT_TRUE(u.ok());
    ASSERT_EQ(UmemOdp::kAddressSpace / UmemOdp::kWindow, (*u)->windows().size());
    static char here[64];
    int on_stack = 7;
    for (void* p : {static_cast<void*>(here), static_cast<void*>(&on_stack)}) {
      const pci::DmaAddr a = (*u)->windows()[up(p) / UmemOdp::kWindow] + up(p) % UmemOdp::kWindow;
      std::size_t n = 0;
      EXPECT_EQ(p, d.translate(a, 4, DmaDir::kFromDevice, &n, nullptr));
    }
    std::size_t n = 0;
    EXPECT_EQ(nullptr, d.translate((*u)->windows()[0] + 8, 4, DmaDir::kToDevice, &n, nullptr)) << "nothing at address 8";
  }
  EXPECT_EQ(before, d.live_ranges());
}

TEST(IommuOnDemand, Refusals) {
  IommuDomain d;
  EXPECT_EQ(EINVAL, d.on_demand(0x1000, 0, true, "MR", 0x1000).code());
  EXPECT_EQ(EINVAL, d.on_demand(0x1000, 10, true, "MR", 0x1001).code());
  EXPECT_EQ(EOVERFLOW, d.on_demand(~std::uint64_t{0} - 10, 100, true, "MR", ~std::uint64_t{0} - 10).code());
  EXPECT_EQ(EOVERFLOW, d.on_demand(~std::uint64_t{0} - 10, 5, true, "MR", ~std::uint64_t{0} - 10).code());
  EXPECT_EQ(ENOMEM, d.on_demand(0x1000, std::size_t{1} << 42, true, "MR", 0x1000).code());
  EXPECT_EQ(0u, d.live_ranges());
}

}  // namespace
}  // namespace uhca::kernel::mm
