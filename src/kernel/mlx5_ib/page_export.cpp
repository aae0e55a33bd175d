// SPDX-License-Identifier: MIT
// Pages of the device as dma-bufs. Linux: core/uverbs_std_types_dmabuf.c, ib_core_uverbs.c (rdma_user_mmap_entry_remove), hw/mlx5/main.c
// (mlx5_ib_mmap_get_pfns).
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "kernel/mlx5_ib/dmabuf.h"

namespace uhca::kernel::mlx5 {
namespace {

class BarPages final : public mm::DmaBufExporter {
 public:
  BarPages(std::byte* memory, std::size_t length, std::shared_ptr<void> hold) : memory_(memory), length_(length), hold_(std::move(hold)) {}
  ~BarPages() override { syscall(SYS_munmap, memory_, length_); }

  Status attach(mm::DmaBufAttachment& a) override {
    if (!a.peer2peer) return refuse(EOPNOTSUPP, "dma-buf of device pages: an importer without peer-to-peer");
    return success();
  }
  bool has_pin() const override { return true; }
  Status pin(mm::DmaBufAttachment&) override { return refuse(EOPNOTSUPP, "dma-buf of device pages: they are not pinned"); }
  Result<std::unique_ptr<mm::SgTable>> map(mm::DmaBufAttachment&) override {
    if (revoked) return refuse(ENODEV, "dma-buf of device pages: what they were is gone");
    auto t = std::make_unique<mm::SgTable>();
    t->entries.push_back({memory_, length_});
    return t;
  }
  bool revoked = false;  // under resv

 private:
  std::byte* memory_;
  std::size_t length_;
  std::shared_ptr<void> hold_;
};

}  // namespace

Result<std::shared_ptr<mm::DmaBuf>> PageExports::add(int bar_fd, std::uint64_t offset, std::uint64_t length, std::shared_ptr<void> hold) {
  long at = syscall(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, bar_fd, offset);
  if (at == -1) return refuse(errno, "dma-buf of device pages: no mapping");
  syscall(SYS_madvise, at, length, MADV_DONTFORK);
  auto buf = mm::DmaBuf::make(std::make_unique<BarPages>(reinterpret_cast<std::byte*>(at), length, std::move(hold)), length, "uverbs");
  std::lock_guard g(lock_);
  if (removed_) return refuse(EIO, "dma-buf of device pages: they are going away");
  std::erase_if(all_, [](auto& w) { return w.expired(); });
  all_.push_back(buf);
  return buf;
}

void PageExports::revoke() {
  std::lock_guard g(lock_);
  removed_ = true;
  for (auto& w : all_) {
    auto buf = w.lock();
    if (buf == nullptr) continue;
    std::lock_guard r(buf->resv());
    auto& pages = static_cast<BarPages&>(buf->exporter());
    pages.revoked = true;
    buf->invalidate_mappings();  // importers have unmapped when this returns
    buf->resv().wait(mm::DmaResvUsage::kBookkeep);
  }
  all_.clear();
}

Result<std::shared_ptr<mm::DmaBuf>> export_mmap(ib_ucontext& uctx, std::uint64_t pgoff) {
  auto& c = to_mucontext(uctx);
  std::lock_guard g(c.lock);
  auto it = c.entries.find(pgoff);
  if (it == c.entries.end()) return refuse(EINVAL, "export: page offset {:#x} belongs to no object", pgoff);
  MmapEntry& e = *it->second;
  if (e.trapped) return refuse(EOPNOTSUPP, "export: page offset {:#x} is no memory", pgoff);
  if (!e.exports) e.exports = std::make_shared<PageExports>();
  return e.exports->add(to_mdev(*c.device).slot.bar_fd(), e.bar_offset, e.length, e.hold);
}

}  // namespace uhca::kernel::mlx5
