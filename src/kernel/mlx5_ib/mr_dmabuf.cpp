// SPDX-License-Identifier: MIT
// MRs of dma-bufs. Linux: hw/mlx5/mr.c (reg_user_mr_dmabuf), odp.c (pagefault_dmabuf_mr). Where the buffer lies now is the IOMMU's to know
// (mm::IovaWindow): the key's translations stay, and an access to a buffer that has moved is a fault that maps it again.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "base/log.h"
#include "base/trace.h"
#include "base/types.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/mlx5_ib/mr.h"
#include "kernel/uverbs/attr_bundle.h"
#include "uapi/mlx5_next.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint64_t kPage = 4096;

// The buffer moves: linux's mlx5_ib_dmabuf_invalidate_cb.
void invalidate(mm::DmaBufAttachment& a) {
  mm::UmemDmabuf& umem = mm::UmemDmabuf::of(a);
  if (!umem.mapped() || umem.owner == nullptr) return;
  static_cast<DmabufMemory*>(umem.owner)->window->zap();
  umem.unmap_pages();
}
constexpr mm::DmaBufAttachOps kDynamic = {true, invalidate};

}  // namespace

// Returns with the buffer mapped, or says why it cannot be. On any thread, also the engine's, but with no RCU read section open.
Status DmabufMemory::fault() {
  std::lock_guard g(umem->resv());
  UHCA_CHECK(umem->map_pages());
  window->load(umem->pages());
  return success();
}

DmabufMemory::~DmabufMemory() {
  if (umem == nullptr) return;
  {
    std::lock_guard g(umem->resv());
    umem->owner = nullptr;
  }
  window.reset();  // no DMA any more; then the buffer may go
}

Result<std::unique_ptr<DmabufMemory>> DmabufMemory::make(mlx5_ib_dev& dev, std::unique_ptr<mm::UmemDmabuf> umem, std::uint64_t like) {
  auto m = std::make_unique<DmabufMemory>();
  const std::uint64_t begin = align_down(umem->offset(), kPage), end = align_up(umem->offset() + umem->length(), kPage);
  auto fault = +[](void* self) { return static_cast<DmabufMemory*>(self)->fault().ok(); };
  m->window = UHCA_TRY(dev.mdev->domain().window(end - begin, umem->writable(), "dma-buf", align_down(like, kPage), fault, m.get()));
  m->in_page = umem->offset() % kPage;
  m->umem = std::move(umem);
  {
    std::lock_guard g(m->umem->resv());
    m->umem->owner = m.get();
  }
  UHCA_CHECK(m->fault());
  return m;
}

Result<std::unique_ptr<ib_mr>> reg_user_mr_dmabuf(ib_pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                                  std::uint32_t access, uverbs_attr_bundle* attrs) {
  auto& dev = to_mdev(*pd.device);
  std::uint32_t flags = 0;
  UHCA_CHECK(
      uverbs_get_flags32(&flags, *attrs, uapi::MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, uapi::MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT));
  if (flags & uapi::MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT) {
    if (iova % kPage != 0) return refuse(EOPNOTSUPP, "reg_dmabuf_mr: data direct: iova {:#x} is not page-aligned", iova);
    return refuse(EINVAL, "reg_dmabuf_mr: there is no data direct device");
  }
  auto umem = UHCA_TRY(mm::UmemDmabuf::get(offset, length, fd, needs_writing(access), &kDynamic));
  if (iova + length < iova) return refuse(EINVAL, "reg_dmabuf_mr: iova {:#x} + {:#x} wraps", iova, length);
  auto memory = UHCA_TRY(DmabufMemory::make(dev, std::move(umem), iova));
  auto mr =
      UHCA_TRY(create_mtt_mr(pd, {large_pages(memory->window->dma() + memory->in_page, length), kLogLargePage, iova, length, access}));
  dev.mdev->domain().rename(memory->window->dma(), fmt::format("dma-buf MR lkey {:#x}", mr->lkey));
  if (trace::on())
    trace::Event("mm", "dmabuf_mr")
        .hex("mkey", mr->lkey)
        .hex("iova", iova)
        .hex("offset", offset)
        .hex("dma", memory->window->dma())
        .unum("len", length);
  mr->dmabuf = std::move(memory);
  remember_odp_mr(*mr);
  return std::unique_ptr<ib_mr>(std::move(mr));
}

}  // namespace uhca::kernel::mlx5
