// SPDX-License-Identifier: MIT
// Linux: drivers/gpu/drm/amd/amdgpu/amdgpu_dma_buf.c; decisions and errnos as there.
#include <algorithm>
#include <mutex>
#include <new>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/gpu/aperture_sg.h"
#include "kernel/gpu/export.h"

namespace uhca::kernel::gpu {
namespace {

constexpr char kDriver = 0;

class AmdgpuDmaBuf final : public mm::DmaBufExporter {
 public:
  explicit AmdgpuDmaBuf(std::shared_ptr<Bo> bo) : bo_(std::move(bo)), gpu_(bo_->gpu()) {}

  const void* driver() const override { return &kDriver; }
  const std::shared_ptr<Bo>& bo() const { return bo_; }
  // Never a refusal: who cannot come peer to peer is served from system memory. A card that sleeps is not woken; one that is awake stays
  // so until the importer goes.
  Status attach(mm::DmaBufAttachment& a) override {
    const char* why = nullptr;
    if (!a.peer2peer) {
      why = "importer";
    } else if (!gpu_.peers_reach()) {
      why = "the bus does not route";
    } else if (!gpu_.power_get_if_active()) {
      why = "the GPU sleeps";
    } else {
      a.exporter_priv = this;  // holds the power
    }
    a.peer2peer = why == nullptr;
    if (trace::on()) trace::Event("gpu", "peer").unum("bo", bo_->number()).flag("p2p", a.peer2peer).str("why_not", why ? why : "-");
    return success();
  }
  void detach(mm::DmaBufAttachment& a) override {
    if (a.exporter_priv != nullptr) gpu_.power_put();
  }

  bool has_pin() const override { return true; }
  Status pin(mm::DmaBufAttachment& a) override {
    unsigned domains = bo_->allowed() & (kDomainGtt | kDomainVram);
    // One importer that does not come peer to peer is enough: memory that is pinned is pinned for all.
    const auto& all = a.dmabuf().attachments();
    if (std::any_of(all.begin(), all.end(), [](const mm::DmaBufAttachment* x) { return !x->peer2peer; })) domains &= ~kDomainVram;
    if (domains == 0)
      return refuse(EINVAL, "dma-buf of GPU buffer {}: not all importers reach VRAM, and it may lie nowhere else", bo_->number());
    return gpu_.pin(*bo_, domains);
  }
  void unpin(mm::DmaBufAttachment&) override { gpu_.unpin(*bo_); }

  Result<std::unique_ptr<mm::SgTable>> map(mm::DmaBufAttachment& a) override {
    if (bo_->pins() == 0) {
      unsigned domains = kDomainGtt;
      if (bo_->preferred() & kDomainVram && a.peer2peer) domains |= kDomainVram;
      UHCA_CHECK(gpu_.validate(*bo_, domains, domains & kDomainVram));
    }
    if (bo_->place() == Place::kVram) return ApertureSg::make(gpu_.vram(), *bo_, 0, bo_->size());
    if (bo_->place() != Place::kGtt)
      return refuse(EINVAL, "dma-buf of GPU buffer {}: it lies in {}", bo_->number(), place_name(bo_->place()));
    auto t = std::make_unique<mm::SgTable>();
    t->entries.push_back({bo_->gtt()->memory, bo_->size()});
    return t;
  }

  // Only for reading, and only what is pinned nowhere: reading VRAM over the bus is slow.
  Status begin_cpu_access(bool read, bool) override {
    if (!read || !(bo_->allowed() & kDomainGtt)) return success();
    std::lock_guard g(bo_->resv());
    if (bo_->pins() != 0 || bo_->place() == Place::kGtt) return success();
    return gpu_.validate(*bo_, kDomainGtt, false);
  }
  Result<std::uintptr_t> mmap(const mm::UserMapping& m) override { return bo_->mmap(m); }

 private:
  std::shared_ptr<Bo> bo_;
  Gpu& gpu_;
};

constinit std::mutex exporting;  // two who export at once get the same

}  // namespace

std::shared_ptr<Bo> amdgpu_own(mm::DmaBuf& buf) {
  return buf.exporter().driver() == &kDriver ? static_cast<AmdgpuDmaBuf&>(buf.exporter()).bo() : nullptr;
}

Result<std::shared_ptr<mm::DmaBuf>> amdgpu_export(const std::shared_ptr<Bo>& bo) {
  if (bo->place() == Place::kUser) return refuse(EPERM, "export: user memory is not the GPU's to give");
  if (bo->flags() & kVmAlwaysValid) return refuse(EPERM, "export: a buffer that is always valid in its VM shares that VM's reservation");
  std::lock_guard g(exporting);
  auto buf = bo->exported.lock();
  if (buf == nullptr) {
    buf = mm::DmaBuf::make(std::make_unique<AmdgpuDmaBuf>(bo), bo->size(), fmt::format("amdgpu bo {}", bo->number()), bo->shared_resv());
    std::lock_guard r(bo->resv());
    bo->exported = buf;
  }
  return buf;
}

void exports_forget_after_fork() {
  new (&exporting) std::mutex;
}

}  // namespace uhca::kernel::gpu
