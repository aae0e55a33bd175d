// SPDX-License-Identifier: MIT
// Memory of the simulated GPU: allocation, placement, eviction, what follows a move.
#include "kernel/gpu/gpu.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/safecopy.h"
#include "kernel/gpu/vm.h"
#include "kernel/mm/trap_names.h"

namespace uhca::kernel::gpu {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::unique_ptr<Gpu> amd(std::uint64_t vram = 16 * kMiB, bool small_bar = false) {
  uhca::gpu::Config c;
  c.vram = vram;
  c.small_bar = small_bar;
  return std::move(*Gpu::make(c));
}

std::shared_ptr<Bo> in_vram(Gpu& g, std::uint64_t size, std::uint64_t flags = 0) {
  auto b = g.create(size, kDomainVram, kDomainVram | kDomainGtt, flags);
  return b.ok() ? std::move(*b) : nullptr;
}

std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> v(n);
  std::mt19937 random(seed);
  for (auto& b : v) b = static_cast<std::byte>(random());
  return v;
}

TEST(GpuConfig, WordsAreChecked) {
  uhca::gpu::Config c;
  EXPECT_EQ(uhca::gpu::parse_config("amd", &c), nullptr);
  EXPECT_EQ(uhca::gpu::parse_config("nvidia,vram=64M,bar=small,p2p=off,runtime-pm=on", &c), nullptr);
  EXPECT_EQ(c.vram, 64 * kMiB);
  EXPECT_TRUE(c.small_bar && !c.p2p && c.runtime_pm && c.kind == uhca::gpu::Kind::kNvidia);
  EXPECT_EQ(c.visible(), 16 * kMiB);
  for (const char* bad : {"", "intel", "amd,vram=", "amd,vram=1", "amd,vram=1T", "amd,vram=9999999G", "amd,bar=big", "amd,p2p", "amd,x=1"})
    EXPECT_NE(uhca::gpu::parse_config(bad, &c), nullptr) << bad;
}

TEST(Buddy, BlocksAreDisjointAndComeBack) {
  Buddy b(13 * kMiB + 4096);  // four roots and one more
  std::mt19937 random(7);
  std::vector<std::vector<Block>> held;
  for (int i = 0; i < 3000; ++i) {
    if (random() % 3 != 0) {
      auto got = b.alloc((1 + random() % 300) * 4096, 13 * kMiB + 4096, random() % 2);
      if (got.ok()) held.push_back(std::move(*got));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      b.free(held.back());
      held.pop_back();
    }
    if (i % 100 != 0) continue;
    std::vector<Block> all;
    for (auto& h : held) all.insert(all.end(), h.begin(), h.end());
    std::sort(all.begin(), all.end(), [](auto& x, auto& y) { return x.offset < y.offset; });
    std::uint64_t used = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      used += all[k].size;
      ASSERT_EQ(all[k].offset % all[k].size, 0u);
      if (k > 0) {
        ASSERT_GE(all[k].offset, all[k - 1].offset + all[k - 1].size);
      }
    }
    ASSERT_EQ(b.free_bytes(~0ull), 13 * kMiB + 4096 - used);
  }
  for (auto& h : held) b.free(h);
  EXPECT_EQ((*b.alloc(8 * kMiB, 13 * kMiB, false)).size(), 1u) << "all has been joined again";
}

TEST(Buddy, KeepsBelowItsLimitOrTakesNothing) {
  Buddy b(16 * kMiB);
  for (bool down : {false, true}) {
    auto got = b.alloc(3 * kMiB, 4 * kMiB, down);
    ASSERT_TRUE(got.ok());
    for (auto& x : *got) EXPECT_LE(x.offset + x.size, 4 * kMiB);
    b.free(*got);
  }
  EXPECT_EQ(b.alloc(5 * kMiB, 4 * kMiB, false).code(), ENOSPC);
  EXPECT_EQ(b.free_bytes(~0ull), 16 * kMiB);
  auto high = b.alloc(kMiB, 16 * kMiB, true);
  EXPECT_EQ((*high).front().offset, 15 * kMiB);
}

TEST(Gpu, RefusesWhatIsNoBuffer) {
  auto g = amd();
  EXPECT_EQ(g->create(0, kDomainVram, 0, 0).code(), EINVAL);
  EXPECT_EQ(g->create(4096, kDomainCpu, 0, 0).code(), EINVAL);
  EXPECT_EQ(g->create(17 * kMiB, kDomainVram, kDomainVram, 0).code(), ENOMEM);
  EXPECT_EQ(g->create(5ull << 30, kDomainGtt, kDomainGtt, 0).code(), ENOMEM);
  EXPECT_EQ(g->gtt_used(), 0u);
}

TEST(Gpu, TheLongestUnusedGoesToGttAndKeepsItsBytes) {
  auto g = amd();
  auto a = in_vram(*g, 6 * kMiB), b = in_vram(*g, 6 * kMiB);
  const auto bytes = pattern(6 * kMiB, 1);
  ASSERT_TRUE(a->write(0, bytes.data(), bytes.size()).ok());
  auto c = in_vram(*g, 8 * kMiB);
  EXPECT_EQ(a->place(), Place::kGtt);
  EXPECT_EQ(b->place(), Place::kVram);
  EXPECT_EQ(c->place(), Place::kVram);
  std::vector<std::byte> seen(bytes.size());
  ASSERT_TRUE(a->read(0, seen.data(), seen.size()).ok());
  EXPECT_EQ(seen, bytes);
  // Nothing makes room for it now; when there is room, it comes back.
  {
    std::lock_guard r(a->resv());
    ASSERT_TRUE(g->validate(*a, kDomainGtt | kDomainVram, false).ok());
    EXPECT_EQ(a->place(), Place::kGtt);
  }
  c.reset();
  {
    std::lock_guard r(a->resv());
    ASSERT_TRUE(g->validate(*a, kDomainGtt | kDomainVram, false).ok());
    EXPECT_EQ(a->place(), Place::kVram);
  }
  ASSERT_TRUE(a->read(0, seen.data(), seen.size()).ok());
  EXPECT_EQ(seen, bytes);
  g->engine().drain();
  EXPECT_EQ(g->gtt_used(), 0u);
}

TEST(Gpu, WhatIsPinnedStaysAndOthersGetGtt) {
  auto g = amd();
  auto a = in_vram(*g, 12 * kMiB);
  {
    std::lock_guard r(a->resv());
    ASSERT_TRUE(g->pin(*a, kDomainVram | kDomainGtt).ok());
    EXPECT_EQ(g->pin(*a, kDomainGtt).code(), EINVAL);
    EXPECT_EQ(g->validate(*a, kDomainGtt, false).code(), EINVAL);
  }
  auto b = in_vram(*g, 8 * kMiB);
  EXPECT_EQ(b->place(), Place::kGtt);
  EXPECT_EQ(g->create(8 * kMiB, kDomainVram, kDomainVram, 0).code(), ENOMEM);
  std::lock_guard r(a->resv());
  g->unpin(*a);
  ASSERT_TRUE(g->validate(*a, kDomainGtt, false).ok());
  EXPECT_EQ(a->place(), Place::kGtt);
}

TEST(Gpu, PinsInVisibleVramOnly) {
  auto g = amd(16 * kMiB, true);  // 4 MiB are visible
  auto a = in_vram(*g, 5 * kMiB), b = in_vram(*g, 3 * kMiB);
  EXPECT_FALSE(a->visible());
  {
    std::lock_guard r(a->resv());
    EXPECT_EQ(g->pin(*a, kDomainVram).code(), ENOMEM);
  }
  std::lock_guard r(b->resv());
  ASSERT_TRUE(g->pin(*b, kDomainVram).ok());
  EXPECT_TRUE(b->visible());
}

TEST(Gpu, MappingsOfProgramsFollowMoves) {
  safecopy::install_handler();
  auto g = amd();
  auto a = in_vram(*g, 2 * kMiB);
  mm::UserMapping m;
  m.length = 2 * kMiB;
  m.prot = PROT_READ | PROT_WRITE;
  m.flags = MAP_SHARED;
  auto at = a->mmap(m);
  ASSERT_TRUE(at.ok());
  auto* p = reinterpret_cast<std::uint32_t*>(*at);
  for (unsigned i = 0; i < 20; ++i) {
    p[i * 1000] = i + 1;
    std::lock_guard r(a->resv());
    ASSERT_TRUE(g->validate(*a, i % 2 ? kDomainVram : kDomainGtt, false).ok());
    ASSERT_EQ(a->place(), i % 2 ? Place::kVram : Place::kGtt);
    g->engine().drain();
    for (unsigned k = 0; k <= i; ++k) ASSERT_EQ(p[k * 1000], k + 1);
  }
  EXPECT_TRUE(views_overlap(*at + 4096, 1));
  m.flags = MAP_PRIVATE;
  EXPECT_EQ(a->mmap(m).code(), EINVAL);
  // A piece in the middle goes; the rest follows still, and the buffer lives by it.
  ASSERT_EQ(::munmap(reinterpret_cast<void*>(*at + kMiB), 4096), 0);
  views_unmapped(*at + kMiB, 4096);
  EXPECT_FALSE(views_overlap(*at + kMiB, 4096));
  std::weak_ptr<Bo> alive = a;
  {
    std::lock_guard r(a->resv());
    ASSERT_TRUE(g->validate(*a, kDomainGtt, false).ok());
  }
  a.reset();
  g->engine().drain();
  EXPECT_EQ(p[19000], 20u);
  EXPECT_FALSE(alive.expired());
  views_unmapped(*at, 2 * kMiB);
  ::munmap(reinterpret_cast<void*>(*at), 2 * kMiB);
  EXPECT_TRUE(alive.expired());
}

TEST(Gpu, WhatTheCpuMustNotSeeIsNotMapped) {
  auto g = amd();
  auto a = in_vram(*g, 4096, kNoCpuAccess);
  EXPECT_EQ(a->mmap({0, 4096, PROT_READ, MAP_SHARED, 0}).code(), EPERM);
  alignas(4096) static char page[4096];
  auto u = g->create_user(reinterpret_cast<std::uintptr_t>(page), 4096);
  ASSERT_TRUE(u.ok());
  EXPECT_EQ((*u)->mmap({0, 4096, PROT_READ, MAP_SHARED, 0}).code(), EPERM);
  EXPECT_EQ(g->create_user(reinterpret_cast<std::uintptr_t>(page) + 1, 4096).code(), EINVAL);
}

TEST(Gpu, PowerIsHeldByItsUsers) {
  uhca::gpu::Config c;
  c.vram = 16 * kMiB;
  c.runtime_pm = true;
  auto g = std::move(*Gpu::make(c));
  EXPECT_FALSE(g->active());
  EXPECT_FALSE(g->power_get_if_active());
  g->power_get();
  EXPECT_TRUE(g->power_get_if_active());
  g->power_put();
  EXPECT_TRUE(g->active());
  g->power_put();
  EXPECT_FALSE(g->active());
}

TEST(Vram, PagesThatNobodyHasMappedTrap) {
  safecopy::install_handler();
  auto v = std::move(*Vram::make(16 * kMiB, 8 * kMiB));
  EXPECT_EQ(v->open_aperture(8 * kMiB - 4096, 8192).code(), ENOMEM);
  auto first = v->open_aperture(0, 3 * 4096), second = v->open_aperture(2 * 4096, 4 * 4096);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(v->aperture_used(), 6u * 4096);
  std::byte b{};
  std::byte* base = *first;
  auto readable = [&](unsigned page) { return safecopy::copy(&b, base + page * 4096, 1) == 0; };
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(readable(i), i < 6) << i;
  v->close_aperture(0, 3 * 4096);
  for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(readable(i), i >= 2 && i < 6) << i;
  v->close_aperture(2 * 4096, 4 * 4096);
  for (unsigned i = 0; i < 8; ++i) EXPECT_FALSE(readable(i)) << i;
  EXPECT_EQ(v->aperture_used(), 0u);
  ASSERT_NE(mm::trap_at(base + 100), nullptr);
  EXPECT_NE(std::string_view(mm::trap_at(base)).find("stale bus address"), std::string_view::npos);
  v.reset();
  EXPECT_EQ(mm::trap_at(base), nullptr);
}

TEST(Vram, FreedMemoryIsZero) {
  auto g = amd();
  auto a = in_vram(*g, 16 * kMiB);
  const auto bytes = pattern(16 * kMiB, 3);
  ASSERT_TRUE(a->write(0, bytes.data(), bytes.size()).ok());
  a.reset();
  auto b = in_vram(*g, 16 * kMiB);
  std::vector<std::byte> seen(16 * kMiB);
  ASSERT_TRUE(b->read(0, seen.data(), seen.size()).ok());
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](std::byte x) { return x == std::byte{0}; }));
}

TEST(Vm, CopiesBetweenBuffersAndPrograms) {
  auto g = amd();
  Vm vm;
  auto a = in_vram(*g, 3 * kMiB), b = in_vram(*g, kMiB);
  constexpr std::uint64_t kA = 0x7000'0000'0000;
  ASSERT_TRUE(vm.map(kA, a).ok());
  EXPECT_EQ(vm.map(kA + kMiB, b).code(), EINVAL);
  EXPECT_EQ(vm.map(kA - 4096, b).code(), EINVAL);
  ASSERT_TRUE(vm.map(kA + 3 * kMiB, b).ok());  // side by side
  EXPECT_EQ(vm.at(kA + 5).left, 3 * kMiB - 5);
  EXPECT_EQ(vm.at(kA - 5).left, 5u);
  const auto bytes = pattern(4 * kMiB, 5);
  ASSERT_TRUE(vm.copy(kA, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()).ok());
  std::vector<std::byte> seen(bytes.size());
  ASSERT_TRUE(vm.copy(reinterpret_cast<std::uintptr_t>(seen.data()), kA, seen.size()).ok());
  EXPECT_EQ(seen, bytes);
  EXPECT_EQ(vm.copy(kA, 16, 64).code(), EFAULT);
  EXPECT_EQ(vm.copy(kA, ~0ull - 3, 64).code(), EFAULT);
  ASSERT_TRUE(vm.fill(kA + 2, 0xab12, 2, 6).ok());
  std::uint8_t few[10];
  ASSERT_TRUE(a->read(0, few, 10).ok());
  EXPECT_EQ(few[2], 0x12);
  EXPECT_EQ(few[7], 0xab);
  EXPECT_EQ(std::byte{few[8]}, bytes[8]);
  ASSERT_TRUE(vm.unmap(kA).ok());
  EXPECT_EQ(vm.unmap(kA).code(), EINVAL);
  EXPECT_EQ(vm.at(kA).bo, nullptr);
}

}  // namespace
}  // namespace uhca::kernel::gpu
