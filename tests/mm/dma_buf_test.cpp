// SPDX-License-Identifier: MIT
// dma-bufs: who is asked what in which order, what is refused with which errno, what moves and when a buffer ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/dma-buf.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "device/pci/iommu_bus.h"
#include "kernel/mm/umem.h"
#include "kernel/mm/umem_dmabuf.h"
#include "mm/moving_buffer.h"

namespace uhca::kernel::mm {
namespace {

using pci::DmaDir;
using namespace std::chrono_literals;
constexpr std::size_t kPage = 4096;

int invalidations = 0;
constexpr DmaBufAttachOps kDynamic = {true, [](DmaBufAttachment& a) {
                                        ++invalidations;
                                        UmemDmabuf::of(a).unmap_pages();
                                      }};
Result<std::unique_ptr<UmemDmabuf>> dynamic(std::uint64_t offset, std::uint64_t size, int fd) {
  return UmemDmabuf::get(offset, size, fd, true, &kDynamic);
}

// ---------------------------------------------------------------- fences

TEST(DmaResv, AUsageWaitsForThoseBeforeIt) {
  DmaResv resv;
  std::lock_guard g(resv);
  EXPECT_TRUE(resv.test_signaled(DmaResvUsage::kBookkeep)) << "nothing to wait for";
  auto move = std::make_shared<DmaFence>(), read = std::make_shared<DmaFence>(), hidden = std::make_shared<DmaFence>();
  resv.add_fence(read, DmaResvUsage::kRead);
  resv.add_fence(hidden, DmaResvUsage::kBookkeep);
  EXPECT_TRUE(resv.test_signaled(DmaResvUsage::kKernel));
  EXPECT_TRUE(resv.test_signaled(DmaResvUsage::kWrite)) << "readers do not wait for readers";
  EXPECT_FALSE(resv.test_signaled(DmaResvUsage::kRead));
  resv.add_fence(move, DmaResvUsage::kKernel);
  EXPECT_FALSE(resv.test_signaled(DmaResvUsage::kKernel));
  EXPECT_FALSE(resv.test_signaled(DmaResvUsage::kWrite));
  move->signal();
  read->signal();
  EXPECT_TRUE(resv.test_signaled(DmaResvUsage::kRead)) << "bookkeeping is nobody's implicit wait";
  EXPECT_FALSE(resv.test_signaled(DmaResvUsage::kBookkeep));
  hidden->signal();
  EXPECT_TRUE(resv.test_signaled(DmaResvUsage::kBookkeep));
}

TEST(DmaResv, WaitingEndsWithTheLastFenceAndTellsAnError) {
  DmaResv resv;
  auto a = std::make_shared<DmaFence>(), b = std::make_shared<DmaFence>();
  std::atomic<bool> over{false};
  std::thread t([&] {
    std::this_thread::sleep_for(20ms);
    a->signal();
    std::this_thread::sleep_for(20ms);
    over = true;
    b->signal(EIO);
  });
  {
    std::lock_guard g(resv);
    resv.add_fence(a, DmaResvUsage::kWrite);
    resv.add_fence(b, DmaResvUsage::kKernel);
    EXPECT_EQ(EIO, resv.wait(DmaResvUsage::kWrite));
    EXPECT_TRUE(over);
  }
  t.join();
  EXPECT_EQ(EIO, b->error());
}

// ---------------------------------------------------------------- errnos

TEST(DmaBuf, WhatADescriptorIsNot) {
  EXPECT_EQ(EBADF, dma_buf_get(-1).code());
  EXPECT_EQ(EBADF, dma_buf_get(987654).code());
  int memfd = memfd_create("program", 0), event = eventfd(0, 0);
  EXPECT_EQ(EINVAL, dma_buf_get(memfd).code());
  EXPECT_EQ(EINVAL, dma_buf_get(event).code());
  EXPECT_EQ(EINVAL, dma_buf_get(0).code());
  ::close(memfd);
  ::close(event);
}

TEST(DmaBuf, TheOrderOfChecks) {
  MovingBuffer b(8 * kPage);
  EXPECT_EQ(EINVAL, dynamic(~0ull, 2, -1).code()) << "wraps: before the descriptor is looked at";
  EXPECT_EQ(EBADF, dynamic(0, 1 << 30, -1).code()) << "the descriptor before its size";
  b.exporter->refuse_attach = ENODEV;
  EXPECT_EQ(EINVAL, dynamic(0, 8 * kPage + 1, b.fd).code()) << "the size before the exporter";
  EXPECT_EQ(EINVAL, dynamic(8 * kPage, 1, b.fd).code());
  EXPECT_EQ(EINVAL, dynamic(kPage, 0, b.fd).code()) << "no page";
  EXPECT_EQ(ENODEV, dynamic(0, kPage, b.fd).code()) << "what the exporter says";
  b.exporter->refuse_attach = 0;
  EXPECT_EQ(0, b.seen.attached);
  EXPECT_TRUE(dynamic(0, 8 * kPage, b.fd).ok());
  EXPECT_EQ(0, b.seen.attached) << "and gone again";
  EXPECT_EQ(1, b.seen.times("attach p2p"));
}

TEST(DmaBuf, PinnedUse) {
  MovingBuffer b(8 * kPage);
  b.exporter->refuse_pin = EOPNOTSUPP;
  EXPECT_EQ(EOPNOTSUPP, UmemDmabuf::get_pinned(0, kPage, b.fd, true).code());
  b.exporter->refuse_pin = 0;
  b.exporter->refuse_map = ENOMEM;
  EXPECT_EQ(ENOMEM, UmemDmabuf::get_pinned(0, kPage, b.fd, true).code());
  EXPECT_EQ(0, b.seen.pinned) << "unpinned after the refusal";
  EXPECT_EQ(0, b.seen.attached);
  b.exporter->refuse_map = 0;
  b.seen.calls.clear();
  {
    auto u = UmemDmabuf::get_pinned(0, kPage, b.fd, true);
    ASSERT_TRUE(u.ok());
    EXPECT_TRUE((*u)->pinned() && (*u)->mapped());
    EXPECT_EQ(1, b.seen.pinned);
  }
  EXPECT_EQ((std::vector<std::string>{"attach p2p", "pin", "map", "unmap", "unpin", "detach"}), b.seen.calls);
}

TEST(DmaBuf, ImportersWithoutOpsPinWhileTheyMap) {
  MovingBuffer b(2 * kPage);
  DmaBufAttachment* a = *b.buf->attach(nullptr, nullptr);
  {
    std::lock_guard g(b.buf->resv());
    auto t = b.buf->map_attachment(*a);
    ASSERT_TRUE(t.ok());
    EXPECT_EQ(1, b.seen.pinned);
    b.buf->unmap_attachment(*a, std::move(*t));
    b.exporter->refuse_map = EIO;
    EXPECT_EQ(EIO, b.buf->map_attachment(*a).code());
  }
  DmaBuf::detach(a);
  EXPECT_EQ((std::vector<std::string>{"attach", "pin", "map", "unmap", "unpin", "pin", "unpin", "detach"}), b.seen.calls);
}

TEST(DmaBuf, ADynamicImporterIsNeverPinned) {
  MovingBuffer b(2 * kPage);
  {
    auto u = *dynamic(0, kPage, b.fd);
    std::lock_guard g(u->resv());
    ASSERT_TRUE(u->map_pages().ok());
    u->unmap_pages();
  }
  EXPECT_EQ(0, b.seen.times("pin"));
  EXPECT_EQ(1, b.seen.times("map"));
}

// ---------------------------------------------------------------- pages

TEST(DmaBuf, OnlyThePagesThatAreWanted) {
  MovingBuffer b(10 * kPage);
  auto u = *dynamic(2 * kPage + 100, 2 * kPage, b.fd);
  std::lock_guard g(u->resv());
  ASSERT_TRUE(u->map_pages().ok());
  ASSERT_EQ(2u, u->pages().size()) << "pages 2 to 4 lie in two pieces";
  EXPECT_EQ(b.exporter->memory() + 2 * kPage, u->pages()[0].memory);
  EXPECT_EQ(kPage, u->pages()[0].length);
  EXPECT_EQ(b.exporter->memory() + 3 * kPage, u->pages()[1].memory);
  EXPECT_EQ(2 * kPage, u->pages()[1].length);
  ASSERT_TRUE(u->map_pages().ok()) << "again: the same";
  EXPECT_EQ(1, b.seen.times("map"));
  u->unmap_pages();
  EXPECT_TRUE(u->pages().empty());
}

TEST(DmaBuf, AMoveTakesThePagesAwayAndTheyAreElsewhereThen) {
  MovingBuffer b(4 * kPage);
  auto u = *dynamic(0, 4 * kPage, b.fd);
  {
    std::lock_guard g(u->resv());
    ASSERT_TRUE(u->map_pages().ok());
  }
  invalidations = 0;
  std::byte* first = b.exporter->memory();
  b.move();
  EXPECT_EQ(1, invalidations);
  EXPECT_FALSE(u->mapped());
  EXPECT_EQ(0, b.seen.mapped);
  std::lock_guard g(u->resv());
  ASSERT_TRUE(u->map_pages().ok());
  EXPECT_NE(first, u->pages()[0].memory);
  EXPECT_EQ(b.exporter->memory(), u->pages()[0].memory);
  u->unmap_pages();
}

TEST(DmaBuf, MappingWaitsForTheMoveAndReportsItsFailure) {
  MovingBuffer b(kPage);
  auto u = *dynamic(0, kPage, b.fd);
  auto copy = std::make_shared<DmaFence>();
  std::atomic<bool> copied{false};
  std::thread t;
  {
    std::lock_guard g(u->resv());
    u->resv().add_fence(copy, DmaResvUsage::kKernel);
    t = std::thread([&] {
      std::this_thread::sleep_for(30ms);
      copied = true;
      copy->signal();
    });
    EXPECT_TRUE(u->map_pages().ok());
    EXPECT_TRUE(copied);
    u->resv().add_fence(std::make_shared<DmaFence>(), DmaResvUsage::kWrite);
    EXPECT_TRUE(u->map_pages().ok()) << "another's use of the memory is not waited for";
    auto failed = std::make_shared<DmaFence>();
    failed->signal(EIO);
    u->resv().add_fence(failed, DmaResvUsage::kKernel);
    EXPECT_EQ(EIO, u->map_pages().code());
    u->unmap_pages();
  }
  t.join();
}

TEST(DmaBuf, PinnedAndRevoked) {
  MovingBuffer b(2 * kPage);
  int revoked = 0;
  auto u = *UmemDmabuf::get_pinned_revocable(
      0, kPage, b.fd, true, [](void* n) { ++*static_cast<int*>(n); }, &revoked);
  EXPECT_EQ(1, b.seen.pinned);
  EXPECT_EQ(1, b.seen.mapped);
  b.move();
  EXPECT_EQ(1, revoked);
  EXPECT_EQ(0, b.seen.pinned);
  EXPECT_EQ(0, b.seen.mapped);
  {
    std::lock_guard g(u->resv());
    EXPECT_EQ(EINVAL, u->map_pages().code()) << "for ever";
  }
  b.move();
  u.reset();
  EXPECT_EQ(1, revoked) << "once";
  EXPECT_EQ(0, b.seen.attached);
}

// ---------------------------------------------------------------- lifetime

TEST(DmaBuf, TheLastDescriptorLetsItGo) {
  MovingBuffer b(kPage);
  int second = dup(b.fd);
  b.close();
  EXPECT_EQ(0, b.seen.released) << "a duplicate is open";
  EXPECT_TRUE(dma_buf_get(second).ok());
  ::close(second);
  dma_buf_reap();
  EXPECT_EQ(1, b.seen.released);
}

TEST(DmaBuf, AnImporterKeepsItWithoutAnyDescriptor) {
  MovingBuffer b(kPage);
  auto u = *dynamic(0, kPage, b.fd);
  b.close();
  EXPECT_EQ(0, b.seen.released);
  {
    std::lock_guard g(u->resv());
    EXPECT_TRUE(u->map_pages().ok());
    std::memset(u->pages()[0].memory, 1, kPage);
  }
  u.reset();
  EXPECT_EQ(1, b.seen.released);
  EXPECT_EQ(0, b.seen.mapped);
}

TEST(DmaBuf, DescriptorsAreCloseOnExecHaveTheSizeAndReachAChild) {
  MovingBuffer b(3 * kPage);
  EXPECT_EQ(FD_CLOEXEC, fcntl(b.fd, F_GETFD));
  EXPECT_EQ(static_cast<off_t>(3 * kPage), lseek(b.fd, 0, SEEK_END));
  char c = 1;
  EXPECT_EQ(-1, pwrite(b.fd, &c, 1, 0)) << "nothing is written by way of it";
  pid_t child = fork();
  if (child == 0) {
    dma_buf_forget_after_fork();
    bool ok = dma_buf_get(b.fd).code() == EINVAL && !dma_buf_any_files();
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(0, status) << "another process's buffer is none there";
  EXPECT_TRUE(dma_buf_get(b.fd).ok());
}

TEST(DmaBuf, SyncTellsTheExporterAndWaits) {
  MovingBuffer b(kPage);
  ::dma_buf_sync s{DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE};
  auto arg = reinterpret_cast<std::uint64_t>(&s);
  auto reads = std::make_shared<DmaFence>();
  std::atomic<bool> done{false};
  std::thread t;
  {
    std::lock_guard g(b.buf->resv());
    b.buf->resv().add_fence(reads, DmaResvUsage::kRead);
  }
  t = std::thread([&] {
    std::this_thread::sleep_for(30ms);
    std::lock_guard g(b.buf->resv());  // nobody keeps it who waits
    done = true;
    reads->signal();
  });
  EXPECT_TRUE(dma_buf_ioctl(*b.buf, DMA_BUF_IOCTL_SYNC, arg).ok());
  EXPECT_TRUE(done) << "who writes waits for who reads";
  t.join();
  s.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE;
  EXPECT_TRUE(dma_buf_ioctl(*b.buf, DMA_BUF_IOCTL_SYNC, arg).ok());
  s.flags = DMA_BUF_SYNC_START;
  EXPECT_EQ(EINVAL, dma_buf_ioctl(*b.buf, DMA_BUF_IOCTL_SYNC, arg).code());
  s.flags = 1 << 10 | DMA_BUF_SYNC_READ;
  EXPECT_EQ(EINVAL, dma_buf_ioctl(*b.buf, DMA_BUF_IOCTL_SYNC, arg).code());
  EXPECT_EQ(EFAULT, dma_buf_ioctl(*b.buf, DMA_BUF_IOCTL_SYNC, 16).code());
  EXPECT_EQ(ENOTTY, dma_buf_ioctl(*b.buf, 0x6201, arg).code());
}

// ---------------------------------------------------------------- what the device sees

struct Faulter {
  UmemDmabuf* umem = nullptr;
  std::unique_ptr<IovaWindow> window;
  bool refuse = false;
  static bool fault(void* self) {
    auto& f = *static_cast<Faulter*>(self);
    if (f.refuse) return false;
    std::lock_guard g(f.umem->resv());
    if (!f.umem->map_pages().ok()) return false;
    f.window->load(f.umem->pages());
    return true;
  }
};

struct TestBus final : pci::IommuBus {
  using IommuBus::set_iommu;
  void raise(unsigned) override {}
};

// What may only be read, and what does not come although it is asked for, are refused: nobody asks for ever.
TEST(IovaWindow, RequestsEnd) {
  IommuDomain domain;
  TestBus bus;
  bus.set_iommu(&domain);
  MovingBuffer b(8 * kPage);
  auto umem = *dynamic(0, 8 * kPage, b.fd);
  Faulter f{umem.get(), nullptr};
  f.window = *domain.window(8 * kPage, false, "test", 0x7000, Faulter::fault, &f);
  std::uint64_t word = 7;
  EXPECT_TRUE(bus.dma_read(&word, f.window->dma(), sizeof word));
  EXPECT_FALSE(bus.dma_write(f.window->dma(), &word, sizeof word));
  EXPECT_FALSE(bus.dma_store32(f.window->dma(), 1));
  EXPECT_NE(std::string::npos, std::string(bus.last_fault()).find("read-only")) << bus.last_fault();
  f.window->zap();
  auto nothing = [](void*) { return true; };
  Faulter g{umem.get(), nullptr};
  g.window = *domain.window(8 * kPage, true, "empty", 0x7000, nothing, &g);
  EXPECT_FALSE(bus.dma_write(g.window->dma(), &word, sizeof word));
  std::lock_guard guard(umem->resv());
  umem->unmap_pages();
}

TEST(IovaWindow, FaultsOnceAndEndsWithTheMapping) {
  IommuDomain domain;
  MovingBuffer b(8 * kPage);
  auto umem = *dynamic(0, 8 * kPage, b.fd);
  Faulter f{umem.get(), nullptr};
  f.window = *domain.window(8 * kPage, true, "test", 0x7000, Faulter::fault, &f);
  EXPECT_EQ(0x7000u, f.window->dma() % (1u << 31)) << "where it was asked for";
  std::size_t n = 0;
  const char* why = nullptr;
  EXPECT_EQ(nullptr, domain.translate(f.window->dma(), 8, DmaDir::kToDevice, &n, &why)) << "nothing is loaded";
  EXPECT_TRUE(domain.page_request(f.window->dma(), DmaDir::kToDevice));
  EXPECT_EQ(b.exporter->memory(), domain.translate(f.window->dma(), 8, DmaDir::kToDevice, &n, &why));
  EXPECT_LE(n, 3 * kPage) << "one piece at a time";
  EXPECT_EQ(b.exporter->memory() + 5 * kPage, domain.translate(f.window->dma() + 5 * kPage, 8, DmaDir::kFromDevice, &n, &why));
  pci::HostRange range;
  EXPECT_FALSE(domain.resolve(f.window->dma(), 8, DmaDir::kToDevice, &range)) << "nobody keeps where it lies";
  EXPECT_EQ(1u, f.window->stats().faults);
  f.window->zap();
  EXPECT_EQ(nullptr, domain.translate(f.window->dma(), 8, DmaDir::kToDevice, &n, &why));
  EXPECT_EQ(1u, f.window->stats().invalidations);
  f.refuse = true;
  EXPECT_FALSE(domain.page_request(f.window->dma(), DmaDir::kToDevice));
  EXPECT_FALSE(domain.page_request(f.window->dma() + 64 * kPage, DmaDir::kToDevice)) << "nobody's";
  {
    std::lock_guard g(umem->resv());
    umem->unmap_pages();
  }
  f.window.reset();
  EXPECT_EQ(0u, domain.live_ranges());
}

}  // namespace
}  // namespace uhca::kernel::mm
