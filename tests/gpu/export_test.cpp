// SPDX-License-Identifier: MIT
// Buffers of the GPU as dma-bufs: who gets VRAM and who GTT, what is refused, and who learns what when they move. Orders and errnos are
// amdgpu_dma_buf.c's and nv-dmabuf.c's.
#include "kernel/gpu/export.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "base/safecopy.h"
#include "kernel/gpu/gpu.h"
#include "kernel/mm/umem_dmabuf.h"

namespace uhca::kernel::gpu {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
using mm::DmaBufAttachment;
using mm::DmaBufAttachOps;
using mm::UmemDmabuf;

// An importer that follows moves, as mlx5's MRs.
struct Importer {
  explicit Importer(std::shared_ptr<mm::DmaBuf> b, bool p2p = true) : buf(std::move(b)) {
    static constexpr DmaBufAttachOps kOps[2] = {{false, moved}, {true, moved}};
    auto a = buf->attach(&kOps[p2p], this);
    refused = a.code();
    attach = a.ok() ? *a : nullptr;
  }
  ~Importer() {
    if (attach == nullptr) return;
    {
      std::lock_guard g(buf->resv());
      unmap();
      if (pinned) buf->unpin(*attach);
    }
    mm::DmaBuf::detach(attach);
  }
  static void moved(DmaBufAttachment& a) {
    auto* self = static_cast<Importer*>(a.importer_priv);
    ++self->invalidations;
    self->unmap();
  }
  int map() {
    std::lock_guard g(buf->resv());
    auto t = buf->map_attachment(*attach);
    if (t.ok()) sgt = std::move(*t);
    buf->resv().wait(mm::DmaResvUsage::kKernel);
    return t.code();
  }
  void unmap() {
    if (sgt) buf->unmap_attachment(*attach, std::move(sgt));
  }
  int pin() {
    std::lock_guard g(buf->resv());
    const int e = buf->pin(*attach).code();
    pinned = e == 0;
    return e;
  }
  std::byte* memory() { return sgt->entries.front().memory; }
  std::shared_ptr<mm::DmaBuf> buf;
  DmaBufAttachment* attach = nullptr;
  std::unique_ptr<mm::SgTable> sgt;
  int refused = 0, invalidations = 0;
  bool pinned = false;
};

struct Card {
  explicit Card(const char* words) {
    uhca::gpu::Config c;
    EXPECT_EQ(uhca::gpu::parse_config(words, &c), nullptr);
    gpu = std::move(*Gpu::make(c));
  }
  std::shared_ptr<Bo> vram(std::uint64_t size = kMiB, std::uint64_t flags = 0) {
    return std::move(*gpu->create(size, kDomainVram, kDomainVram | kDomainGtt, flags));
  }
  std::shared_ptr<Bo> vram_only(std::uint64_t size = kMiB) { return std::move(*gpu->create(size, kDomainVram, kDomainVram, 0)); }
  void place(Bo& bo, unsigned domains) {
    std::lock_guard g(bo.resv());
    ASSERT_TRUE(gpu->validate(bo, domains, false).ok());
  }
  std::unique_ptr<Gpu> gpu;
};

TEST(AmdgpuExport, OneDmaBufForEachBuffer) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto first = *amdgpu_export(bo), second = *amdgpu_export(bo);
  EXPECT_EQ(first, second);
  EXPECT_EQ(first->size(), kMiB);
  EXPECT_EQ(&first->resv(), &bo->resv());
}

TEST(AmdgpuExport, RefusesWhatIsNotItsToGive) {
  Card card("amd,vram=16M");
  EXPECT_EQ(amdgpu_export(card.vram(kMiB, kVmAlwaysValid)).code(), EPERM);
  alignas(4096) static char page[4096];
  EXPECT_EQ(amdgpu_export(*card.gpu->create_user(reinterpret_cast<std::uintptr_t>(page), 4096)).code(), EPERM);
}

TEST(AmdgpuExport, PeersGetVramAndOthersGtt) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto buf = *amdgpu_export(bo);
  Importer peer(buf);
  ASSERT_EQ(peer.map(), 0);
  EXPECT_EQ(bo->place(), Place::kVram);
  EXPECT_EQ(card.gpu->vram().aperture_used(), kMiB);
  Importer other(buf, false);
  ASSERT_EQ(other.map(), 0);
  EXPECT_EQ(bo->place(), Place::kGtt) << "the second importer had it moved";
  EXPECT_EQ(peer.invalidations, 1);
  EXPECT_EQ(peer.sgt, nullptr);
  EXPECT_EQ(card.gpu->vram().aperture_used(), 0u);
}

TEST(AmdgpuExport, WithoutARouteEverybodyGetsGtt) {
  Card card("amd,vram=16M,p2p=off");
  auto bo = card.vram();
  Importer i(*amdgpu_export(bo));
  EXPECT_EQ(i.refused, 0) << "attaching never fails for want of a route";
  EXPECT_FALSE(i.attach->peer2peer);
  ASSERT_EQ(i.map(), 0);
  EXPECT_EQ(bo->place(), Place::kGtt);
}

TEST(AmdgpuExport, ASleepingCardIsNotWokenAndAnAwakeOneIsHeld) {
  Card card("amd,vram=16M,runtime-pm=on");
  auto bo = card.vram();
  auto buf = *amdgpu_export(bo);
  {
    Importer asleep(buf);
    EXPECT_FALSE(asleep.attach->peer2peer);
  }
  card.gpu->power_get();
  {
    Importer awake(buf);
    EXPECT_TRUE(awake.attach->peer2peer);
    card.gpu->power_put();
    EXPECT_TRUE(card.gpu->active());
  }
  EXPECT_FALSE(card.gpu->active());
}

TEST(AmdgpuExport, PinnedInVramForPeersOnly) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto buf = *amdgpu_export(bo);
  Importer peer(buf);
  ASSERT_EQ(peer.pin(), 0);
  EXPECT_EQ(bo->place(), Place::kVram);
  Importer other(buf, false);
  EXPECT_EQ(other.pin(), EINVAL) << "pinned in VRAM, where the second does not reach";
  EXPECT_EQ(bo->pins(), 1u);
}

TEST(AmdgpuExport, OneThatDoesNotReachVramPinsItInGttForAll) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto buf = *amdgpu_export(bo);
  Importer other(buf, false), peer(buf);
  ASSERT_EQ(peer.pin(), 0);
  EXPECT_EQ(bo->place(), Place::kGtt);
  EXPECT_EQ(other.pin(), 0);
  ASSERT_EQ(peer.map(), 0);
  EXPECT_EQ(card.gpu->vram().aperture_used(), 0u);
}

TEST(AmdgpuExport, PinNeedsAPlaceThatAllReach) {
  Card card("amd,vram=16M");
  auto bo = card.vram_only();
  auto buf = *amdgpu_export(bo);
  Importer other(buf, false);
  EXPECT_EQ(other.pin(), EINVAL);
  // Unpinned, it is served from GTT, whatever the buffer allows: amdgpu looks at its preference only.
  EXPECT_EQ(other.map(), 0);
  EXPECT_EQ(bo->place(), Place::kGtt);
}

TEST(AmdgpuExport, PinFailsWhereVisibleVramIsFull) {
  Card card("amd,vram=16M,bar=small");
  auto full = card.vram(4 * kMiB, kCpuAccessRequired);
  auto bo = card.vram();
  Importer hold(*amdgpu_export(full)), i(*amdgpu_export(bo));
  ASSERT_EQ(hold.pin(), 0);
  EXPECT_EQ(i.pin(), ENOMEM);
  EXPECT_EQ(i.map(), 0) << "unpinned, it is served from GTT";
  EXPECT_EQ(bo->place(), Place::kGtt);
}

TEST(AmdgpuExport, MovesTellFirstAndAreWaitedFor) {
  safecopy::install_handler();
  Card card("amd,vram=16M");
  auto bo = card.vram();
  std::vector<std::byte> bytes(kMiB, std::byte{0x5a}), seen(kMiB);
  ASSERT_TRUE(bo->write(0, bytes.data(), kMiB).ok());
  Importer i(*amdgpu_export(bo));
  ASSERT_EQ(i.map(), 0);
  std::byte* stale = i.memory();
  EXPECT_EQ(safecopy::copy(seen.data(), stale, kMiB), 0u);
  EXPECT_EQ(seen, bytes);
  // Something holds the copy up: whoever maps gets the new place at once, and its bytes when the fence has been signalled.
  std::atomic<bool> go{false};
  auto blocker = card.gpu->engine().submit([&go] {
    while (!go) std::this_thread::yield();
  });
  card.place(*bo, kDomainGtt);
  EXPECT_EQ(i.invalidations, 1);
  EXPECT_NE(safecopy::copy(seen.data(), stale, 1), 0u) << "a stale bus address traps";
  {
    std::lock_guard g(bo->resv());
    EXPECT_FALSE(bo->resv().test_signaled(mm::DmaResvUsage::kKernel));
  }
  std::atomic<bool> mapped{false};
  std::thread waiter([&] {
    EXPECT_EQ(i.map(), 0);
    EXPECT_TRUE(go);
    mapped = true;
  });
  for (int n = 0; n < 1000; ++n) std::this_thread::yield();
  EXPECT_FALSE(mapped);
  go = true;
  waiter.join();
  card.gpu->engine().drain();
  EXPECT_EQ(std::memcmp(i.memory(), bytes.data(), kMiB), 0);
}

TEST(AmdgpuExport, PressureMovesWhatIsMappedButNotWhatIsPinned) {
  Card card("amd,vram=16M");
  auto mapped = card.vram(6 * kMiB), pinned = card.vram(6 * kMiB);
  Importer i(*amdgpu_export(mapped)), p(*amdgpu_export(pinned));
  ASSERT_EQ(p.pin(), 0);
  ASSERT_EQ(p.map(), 0);
  ASSERT_EQ(i.map(), 0);
  auto big = card.vram(8 * kMiB);
  EXPECT_EQ(big->place(), Place::kVram);
  EXPECT_EQ(mapped->place(), Place::kGtt);
  EXPECT_EQ(pinned->place(), Place::kVram);
  EXPECT_EQ(i.invalidations, 1);
  EXPECT_EQ(p.invalidations, 0);
}

TEST(AmdgpuExport, TheCpuReadsFromGtt) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto buf = *amdgpu_export(bo);
  ASSERT_TRUE(buf->exporter().begin_cpu_access(false, true).ok());
  EXPECT_EQ(bo->place(), Place::kVram);
  ASSERT_TRUE(buf->exporter().begin_cpu_access(true, false).ok());
  EXPECT_EQ(bo->place(), Place::kGtt);
  Importer i(buf);
  ASSERT_EQ(i.map(), 0);
  EXPECT_EQ(bo->place(), Place::kVram) << "there was room, so the next importer brought it back";
  ASSERT_EQ(i.pin(), 0);
  ASSERT_TRUE(buf->exporter().begin_cpu_access(true, false).ok());
  EXPECT_EQ(bo->place(), Place::kVram) << "pinned";
}

TEST(AmdgpuExport, FreedMemoryLivesAsLongAsItsImporters) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  std::weak_ptr<Bo> alive = bo;
  {
    Importer i(*amdgpu_export(bo));
    ASSERT_EQ(i.map(), 0);
    bo.reset();
    EXPECT_FALSE(alive.expired());
    std::memset(i.memory(), 1, kMiB);
  }
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(card.gpu->vram().free_bytes(~0ull), 16 * kMiB);
}

TEST(AmdgpuExport, MapsForProgramsByTheBuffersOwnRules) {
  Card card("amd,vram=16M");
  const mm::UserMapping m{0, kMiB, PROT_READ | PROT_WRITE, MAP_SHARED, 0};
  EXPECT_EQ((*amdgpu_export(card.vram(kMiB, kNoCpuAccess)))->exporter().mmap(m).code(), EPERM);
  auto at = (*amdgpu_export(card.vram()))->exporter().mmap(m);
  ASSERT_TRUE(at.ok());
  std::memset(reinterpret_cast<void*>(*at), 7, kMiB);
  ::munmap(reinterpret_cast<void*>(*at), kMiB);
  views_unmapped(*at, kMiB);
}

// Importers of the driver's own kinds, by descriptor.
TEST(AmdgpuExport, UmemsOfTheNicFollowIt) {
  Card card("amd,vram=16M");
  auto bo = card.vram();
  auto fd = mm::dma_buf_fd(*amdgpu_export(bo));
  ASSERT_TRUE(fd.ok());
  auto pinned = UmemDmabuf::get_pinned(4096, 8192, *fd, true);
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(bo->pins(), 1u);
  EXPECT_EQ((*pinned)->pages().size(), 1u);
  EXPECT_EQ((*pinned)->pages().front().length, 8192u);
  EXPECT_EQ(UmemDmabuf::get_pinned(kMiB - 4096, 8192, *fd, true).code(), EINVAL);
  *pinned = nullptr;
  EXPECT_EQ(bo->pins(), 0u);
  ::close(*fd);
  mm::dma_buf_reap();
}

TEST(NvExport, WholePagesOfOneBuffer) {
  Card card("nvidia,vram=16M");
  auto bo = card.vram_only();
  EXPECT_EQ(nv_export(bo, 0, 0, false).code(), EINVAL);
  EXPECT_EQ(nv_export(bo, 100, 4096, false).code(), EINVAL);
  EXPECT_EQ(nv_export(bo, 0, 100, false).code(), EINVAL);
  EXPECT_EQ(nv_export(bo, kMiB - 4096, 8192, false).code(), EINVAL);
  EXPECT_EQ(nv_export(bo, 0, kMiB, true).code(), EOPNOTSUPP);
  auto a = *nv_export(bo, 4096, 8192, false), b = *nv_export(bo, 4096, 8192, false);
  EXPECT_NE(a, b) << "each export is a dma-buf of its own";
  EXPECT_EQ(a->size(), 8192u);
}

TEST(NvExport, AttachingIsWhereItRefuses) {
  Card off("nvidia,vram=16M,p2p=off"), on("nvidia,vram=16M");
  Importer none(*nv_export(off.vram_only(), 0, kMiB, false));
  EXPECT_EQ(none.refused, kEnotsupp);
  Importer pages_only(*nv_export(on.vram_only(), 0, kMiB, false), false);
  EXPECT_EQ(pages_only.refused, kEnotsupp);
  // An importer of the old kind, which says nothing, passes.
  auto buf = *nv_export(on.vram_only(), 0, kMiB, false);
  auto fixed = buf->attach(nullptr, nullptr);
  ASSERT_TRUE(fixed.ok());
  mm::DmaBuf::detach(*fixed);
}

TEST(NvExport, IsNeitherMappedNorMoved) {
  Card card("nvidia,vram=16M");
  auto bo = card.vram_only();
  auto buf = *nv_export(bo, 0, kMiB, false);
  EXPECT_EQ(buf->exporter().mmap({0, kMiB, PROT_READ, MAP_SHARED, 0}).code(), kEnotsupp);
  EXPECT_FALSE(buf->exporter().has_pin());
  Importer i(buf);
  ASSERT_EQ(i.map(), 0);
  EXPECT_EQ(card.gpu->create(16 * kMiB, kDomainVram, kDomainVram, 0).code(), ENOMEM);
  EXPECT_EQ(i.invalidations, 0);
}

TEST(NvExport, Bar1RunsOutWhenItIsMapped) {
  Card card("nvidia,vram=16M,bar=small");  // 4 MiB of BAR 1
  auto big = card.vram_only(8 * kMiB), small = card.vram_only(3 * kMiB);
  Importer i(*nv_export(big, 0, 8 * kMiB, false)), j(*nv_export(small, 0, 3 * kMiB, false)), k(*nv_export(big, 5 * kMiB, 2 * kMiB, false));
  EXPECT_EQ(i.refused, 0);
  EXPECT_EQ(i.map(), ENOMEM);
  EXPECT_EQ(k.map(), 0) << "any page of the memory, as long as there is room";
  EXPECT_EQ(j.map(), ENOMEM);
  {
    std::lock_guard g(k.buf->resv());
    k.unmap();
  }
  EXPECT_EQ(j.map(), 0);
}

}  // namespace
}  // namespace uhca::kernel::gpu
