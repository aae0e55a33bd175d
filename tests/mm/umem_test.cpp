// SPDX-License-Identifier: MIT
#include "kernel/mm/umem.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "kernel/mm/procmap.h"
#include "kernel/mm/range_index.h"

namespace uhca::kernel::mm {
namespace {

using pci::DmaDir;
constexpr std::uint64_t k2G = std::uint64_t{2} << 30;

char* map_pages(std::size_t bytes, int prot = PROT_READ | PROT_WRITE) {
  void* p = mmap(nullptr, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}
UserPtr up(const void* p) {
  return reinterpret_cast<UserPtr>(p);
}

std::size_t vma_count() {
  std::ifstream f("/proc/self/maps");
  std::size_t n = 0;
  for (std::string line; std::getline(f, line);) ++n;
  return n;
}

TEST(Iommu, TranslationCoversExactlyTheRange) {
  IommuDomain d;
  char* p = map_pages(3 * 4096);
  auto u = d.pin(up(p) + 100, 5000, true, "MR");
  ASSERT_TRUE(u.ok());
  pci::DmaAddr a = (*u)->dma();
  EXPECT_EQ((up(p) + 100) % k2G, a % k2G);
  EXPECT_EQ(0u, a >> 63);
  std::size_t n = 0;
  const char* why = nullptr;
  EXPECT_EQ(p + 100, d.translate(a, 5000, DmaDir::kFromDevice, &n, &why));
  EXPECT_EQ(5000u, n);
  // Pinned are the whole pages; past them is nothing.
  EXPECT_EQ(p + 8191, d.translate(a + 8091, 10, DmaDir::kToDevice, &n, &why));
  EXPECT_EQ(1u, n);
  EXPECT_EQ(nullptr, d.translate(a + 8092, 1, DmaDir::kToDevice, &n, &why));
  EXPECT_NE(nullptr, std::strstr(why, "outside")) << why;
  EXPECT_EQ(p, d.translate(a - 100, 1, DmaDir::kToDevice, &n, &why));
  EXPECT_EQ(nullptr, d.translate(a - 101, 1, DmaDir::kToDevice, &n, &why));
  munmap(p, 3 * 4096);
}

TEST(Iommu, UnmappedAddressesHaveReasons) {
  IommuDomain d;
  const char* why = nullptr;
  for (pci::DmaAddr a : {pci::DmaAddr{0}, pci::DmaAddr{4096}, pci::DmaAddr{7} << 41, ~pci::DmaAddr{0}, pci::DmaAddr{1} << 63}) {
    why = nullptr;
    EXPECT_EQ(nullptr, d.translate(a, 1, DmaDir::kToDevice, nullptr, &why));
    ASSERT_NE(nullptr, why);
    EXPECT_NE(nullptr, std::strstr(why, "never mapped")) << why;
  }
  EXPECT_EQ(nullptr, d.translate(0, 1, DmaDir::kToDevice, nullptr, nullptr));
}

TEST(Iommu, PinRefusesHolesPermissionsAndNonsense) {
  IommuDomain d;
  char* p = map_pages(5 * 4096);
  munmap(p + 2 * 4096, 4096);
  mprotect(p + 3 * 4096, 4096, PROT_READ);
  mprotect(p + 4 * 4096, 4096, PROT_NONE);
  EXPECT_EQ(EFAULT, d.pin(up(p), 3 * 4096, false, "MR").code());
  EXPECT_EQ(EFAULT, d.pin(up(p) + 2 * 4096, 1, false, "MR").code());
  EXPECT_EQ(EFAULT, d.pin(up(p) + 3 * 4096, 1, true, "MR").code());
  EXPECT_EQ(EFAULT, d.pin(up(p) + 3 * 4096, 4097, false, "MR").code());
  EXPECT_EQ(EFAULT, d.pin(0, 4096, false, "MR").code());
  EXPECT_EQ(EINVAL, d.pin(up(p), 0, false, "MR").code());
  EXPECT_EQ(EINVAL, d.pin(up(p), ~std::size_t{0}, false, "MR").code());
  EXPECT_EQ(EINVAL, d.pin(~UserPtr{0} - 10, 5, false, "MR").code());
  EXPECT_EQ(EFAULT, d.pin(up(p), std::size_t{1} << 62, false, "MR").code());
  auto ro = d.pin(up(p) + 3 * 4096, 4096, false, "MR");
  ASSERT_TRUE(ro.ok());
  const char* why = nullptr;
  EXPECT_NE(nullptr, d.translate((*ro)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  EXPECT_EQ(nullptr, d.translate((*ro)->dma(), 1, DmaDir::kFromDevice, nullptr, &why));
  EXPECT_NE(nullptr, std::strstr(why, "read-only")) << why;
  munmap(p, 5 * 4096);
}

TEST(Iommu, AdjacentMappingsFormOneRange) {
  IommuDomain d;
  char* p = map_pages(3 * 4096);
  // Different protections keep the kernel from merging them.
  mprotect(p + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
  EXPECT_TRUE(d.pin(up(p), 3 * 4096, true, "MR").ok());
  munmap(p, 3 * 4096);
}

TEST(ProcMaps, BothWaysAgree) {
  ProcMaps maps;
  char* p = map_pages(64 * 4096);
  std::mt19937 rng(1);
  for (int i = 0; i < 20; ++i) {
    char* q = p + (rng() % 64) * 4096;
    switch (rng() % 3) {
      case 0: munmap(q, 4096); break;
      case 1: mprotect(q, 4096, PROT_READ); break;
      case 2: mprotect(q, 4096, PROT_NONE); break;
    }
  }
  bool queried = maps.check_by_query(up(p), up(p) + 4096, false).code() != EOPNOTSUPP;
  int seen[4] = {};
  for (int i = 0; i < 300; ++i) {
    UserPtr b = up(p) + (rng() % 60) * 4096, e = b + (1 + rng() % 4) * 4096;
    bool w = rng() % 2;
    auto text = ProcMaps::check_by_text(b, e, w);
    ASSERT_TRUE(text.ok());
    ++seen[static_cast<int>(text->what)];
    if (!queried) continue;
    auto query = maps.check_by_query(b, e, w);
    ASSERT_TRUE(query.ok());
    EXPECT_EQ(text->what, query->what);
    if (text->what != Coverage::kOk) {
      EXPECT_EQ(text->at, query->at);
    }
  }
  for (int n : seen) EXPECT_GT(n, 0);
  munmap(p, 64 * 4096);
}

TEST(Iommu, PoisonedRangeSaysWhoAndHow) {
  IommuDomain d;
  char* p = map_pages(8 * 4096);
  auto mr = d.pin(up(p), 4 * 4096, true, "MR");
  auto other = d.pin(up(p) + 4 * 4096, 4 * 4096, true, "CQ buffer");
  ASSERT_TRUE(mr.ok() && other.ok());
  d.rename((*mr)->dma(), "MR lkey 0x1234");
  d.invalidate(up(p) + 4 * 4096 - 1, 1, "munmap()ed");
  const char* why = nullptr;
  EXPECT_EQ(nullptr, d.translate((*mr)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  EXPECT_NE(nullptr, std::strstr(why, "MR lkey 0x1234 [0x")) << why;
  EXPECT_NE(nullptr, std::strstr(why, "memory was munmap()ed while registered")) << why;
  EXPECT_NE(nullptr, d.translate((*other)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  d.invalidate(up(p) + 100 * 4096, 4096, "munmap()ed");
  EXPECT_NE(nullptr, d.translate((*other)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  // Whatever is mapped there later belongs to nobody's registration.
  auto again = d.pin(up(p), 4096, true, "MR");
  ASSERT_TRUE(again.ok());
  EXPECT_NE(nullptr, d.translate((*again)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  EXPECT_EQ(nullptr, d.translate((*mr)->dma(), 1, DmaDir::kToDevice, nullptr, &why));
  pci::DmaAddr old = (*again)->dma();
  *again = nullptr;
  EXPECT_EQ(nullptr, d.translate(old, 1, DmaDir::kToDevice, nullptr, &why));
  EXPECT_NE(nullptr, std::strstr(why, "no longer mapped")) << why;
  munmap(p, 8 * 4096);
}

TEST(Iommu, InvalidateFindsEveryOverlapAndNothingElse) {
  IommuDomain d;
  constexpr int kPages = 256;
  char* p = map_pages(kPages * 4096);
  std::mt19937 rng(7);
  struct R {
    std::unique_ptr<Umem> u;
    unsigned first, n;
    bool dead = false;
  };
  std::vector<R> ranges;
  for (int i = 0; i < 200; ++i) {
    unsigned n = 1 + rng() % (i % 10 == 0 ? 200 : 8), first = rng() % (kPages - n);
    ranges.push_back({std::move(d.pin(up(p) + first * 4096, n * 4096, true, "MR")).value(), first, n});
  }
  for (int i = 0; i < 20; ++i) {
    unsigned n = 1 + rng() % 3, first = rng() % (kPages - n);
    d.invalidate(up(p) + first * 4096, n * 4096, "munmap()ed");
    for (auto& r : ranges) {
      r.dead = r.dead || (r.first < first + n && first < r.first + r.n);
      EXPECT_EQ(r.dead, d.translate(r.u->dma(), 1, DmaDir::kToDevice, nullptr, nullptr) == nullptr);
    }
  }
  munmap(p, kPages * 4096);
}

TEST(Iommu, HugeRangeIsPinnedWithoutTouchingIt) {
  IommuDomain d;
  std::size_t n = (std::size_t{4} << 30) + 1;
  char* p = map_pages(n);
  ASSERT_NE(nullptr, p);
  auto u = d.pin(up(p), n, true, "MR");
  ASSERT_TRUE(u.ok());
  std::size_t got = 0;
  EXPECT_EQ(p + 1, d.translate((*u)->dma() + 1, n - 1, DmaDir::kFromDevice, &got, nullptr));
  EXPECT_EQ(n - 1, got);
  unsigned char resident[16];
  ASSERT_EQ(0, mincore(p + (std::size_t{2} << 30), 16 * 4096, resident));
  for (unsigned char r : resident) EXPECT_EQ(0, r & 1);
  munmap(p, n);
}

TEST(Iommu, BusAddressFollowsAnotherAddress) {
  IommuDomain d;
  char* p = map_pages(4 * 4096);
  for (std::uint64_t like : {std::uint64_t{0}, std::uint64_t{0x7fff'f000}, std::uint64_t{0x1234'5678'9000}}) {
    auto u = d.pin_like(up(p) + 5, 3 * 4096, true, "MR", like + 5);
    ASSERT_TRUE(u.ok());
    EXPECT_EQ((like + 5) % k2G, (*u)->dma() % k2G);
    std::size_t n = 0;
    EXPECT_EQ(p + 5, d.translate((*u)->dma(), 3 * 4096, DmaDir::kFromDevice, &n, nullptr));
    EXPECT_EQ(3u * 4096, n);
    EXPECT_EQ(1u, d.live_ranges());
  }
  EXPECT_EQ(EINVAL, d.pin_like(up(p), 4096, true, "MR", 8).code());
  EXPECT_EQ(0u, d.live_ranges());
  munmap(p, 4 * 4096);
}

TEST(Iommu, ManyCyclesKeepMappingsFlatAndNumbersApart) {
  IommuDomain d;
  char* p = map_pages(16 * 4096);
  pci::DmaAddr last = 0;
  { auto u = d.pin(up(p), 4096, true, "MR"); }
  std::size_t before = vma_count();
  for (int i = 0; i < 200'000; ++i) {
    auto u = d.pin(up(p), 16 * 4096, true, "MR");
    ASSERT_TRUE(u.ok());
    ASSERT_NE(last, (*u)->dma());  // a number just freed is not the next one given
    last = (*u)->dma();
  }
  // The slots' own memory may add a few mappings, not one per registration.
  EXPECT_LE(vma_count(), before + 64);
  munmap(p, 16 * 4096);
}

TEST(Iommu, CoherentMemoryIsZeroAlignedAndStaysOutOfChildren) {
  IommuDomain d;
  auto b = d.alloc_coherent(5000);
  ASSERT_TRUE(b.ok());
  auto* c = static_cast<unsigned char*>((*b)->cpu());
  EXPECT_EQ(0u, up(c) % 4096);
  EXPECT_EQ(0u, (*b)->dma() % 4096);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(0, c[i]);
  EXPECT_EQ(c + 4999, d.translate((*b)->dma() + 4999, 1, DmaDir::kFromDevice, nullptr, nullptr));
  std::ifstream f("/proc/self/smaps");
  bool found = false, dontfork = false;
  for (std::string line; std::getline(f, line);) {
    unsigned long s, e;
    if (std::sscanf(line.c_str(), "%lx-%lx", &s, &e) == 2) found = s <= up(c) && up(c) < e;
    if (found && line.rfind("VmFlags:", 0) == 0) dontfork = line.find(" dc") != std::string::npos;
  }
  EXPECT_TRUE(dontfork);
  EXPECT_EQ(EINVAL, d.alloc_coherent(0).code());
  pci::DmaAddr a = (*b)->dma();
  *b = nullptr;
  EXPECT_EQ(nullptr, d.translate(a, 1, DmaDir::kToDevice, nullptr, nullptr));
}

// Translations beside registration, poisoning and release: an answer, if any, is always the address of the right range.
TEST(Iommu, ConcurrentUse) {
  IommuDomain d;
  char* p = map_pages(64 * 4096);
  std::atomic<std::uint64_t> shared{0};
  std::atomic<bool> stop{false};
  std::atomic<int> hits{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t)
    readers.emplace_back([&] {
      while (!stop) {
        pci::DmaAddr a = shared.load();
        if (a == 0) continue;
        const char* why = nullptr;
        std::size_t n = 0;
        void* h = d.translate(a, 10, DmaDir::kToDevice, &n, &why);
        if (h != nullptr) {
          EXPECT_EQ(a % k2G, up(h) % k2G);
          ++hits;
        } else {
          EXPECT_NE(nullptr, why);
        }
      }
    });
  std::thread poisoner([&] {
    while (!stop) d.invalidate(up(p) + 32 * 4096, 4096, "munmap()ed");
  });
  for (int i = 0; i < 3000 || (hits == 0 && i < 3'000'000); ++i) {
    auto u = d.pin(up(p) + (i % 60) * 4096, 3 * 4096, true, "MR");
    ASSERT_TRUE(u.ok());
    shared = (*u)->dma();
    d.rename((*u)->dma(), "MR renamed");
  }
  stop = true;
  for (auto& t : readers) t.join();
  poisoner.join();
  EXPECT_GT(hits.load(), 0);
  munmap(p, 64 * 4096);
}

}  // namespace
}  // namespace uhca::kernel::mm
