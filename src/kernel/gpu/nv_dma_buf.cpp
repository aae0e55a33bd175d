// SPDX-License-Identifier: MIT
// NVIDIA's open kernel modules, kernel-open/nvidia/nv-dmabuf.c: what is decided, in which order, and with which errno. A discrete GPU.
#include "base/log.h"
#include "base/trace.h"
#include "kernel/gpu/aperture_sg.h"
#include "kernel/gpu/export.h"

namespace uhca::kernel::gpu {
namespace {

constexpr std::uint64_t kPage = 4096;

class NvDmaBuf final : public mm::DmaBufExporter {
 public:
  NvDmaBuf(std::shared_ptr<Bo> bo, std::uint64_t offset, std::uint64_t size) : bo_(std::move(bo)), offset_(offset), size_(size) {}

  Status attach(mm::DmaBufAttachment& a) override {
    if (!bo_->gpu().peers_reach()) return refuse(kEnotsupp, "dma-buf of the GPU: the bus does not route between the importer and it");
    if (a.is_dynamic() && !a.peer2peer)
      return refuse(kEnotsupp, "dma-buf of the GPU: its memory has no pages, and the importer takes no other");
    if (trace::on()) trace::Event("gpu", "peer").unum("bo", bo_->number()).flag("p2p", true);
    return success();
  }
  // Physical addresses of BAR 1 are taken now and given back at unmap: there may be none left.
  Result<std::unique_ptr<mm::SgTable>> map(mm::DmaBufAttachment&) override {
    Vram& vram = bo_->gpu().vram();
    const std::uint64_t bar1 = bo_->gpu().config().visible();
    if (vram.aperture_used() + size_ > bar1)
      return refuse(ENOMEM, "dma-buf of the GPU: {:#x} bytes of BAR 1; {:#x} of {:#x} are mapped", size_, vram.aperture_used(), bar1);
    return ApertureSg::make(vram, *bo_, offset_, size_);
  }
  Result<std::uintptr_t> mmap(const mm::UserMapping&) override {
    return refuse(kEnotsupp, "mmap: a discrete NVIDIA GPU does not let programs map its dma-bufs");
  }

 private:
  std::shared_ptr<Bo> bo_;
  const std::uint64_t offset_, size_;
};

}  // namespace

Result<std::shared_ptr<mm::DmaBuf>> nv_export(const std::shared_ptr<Bo>& bo, std::uint64_t offset, std::uint64_t size, bool pcie) {
  if (size == 0 || offset % kPage != 0 || size % kPage != 0 || offset > bo->size() || size > bo->size() - offset)
    return refuse(EINVAL, "export: [{:#x}, +{:#x}) is not whole pages of a buffer of {:#x} bytes", offset, size, bo->size());
  if (pcie) return refuse(EOPNOTSUPP, "export: a mapping for PCIe only: the GPU has no other link to tell it from");
  return mm::DmaBuf::make(std::make_unique<NvDmaBuf>(bo, offset, size), size, fmt::format("nvidia bo {}", bo->number()), bo->shared_resv());
}

}  // namespace uhca::kernel::gpu
