// SPDX-License-Identifier: MIT
// Memory that programs register for the queues that they create. Linux: hw/mlx5/devx.c (devx_umem_*).
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/devx_cmd.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/cmd_object.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kAccessAllowed = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRelaxedOrdering;
constexpr std::uint32_t kAccessWrites = kAccessLocalWrite | kAccessRemoteWrite;
constexpr std::uint64_t kPage = 4096, kMttRead = 1, kMttWrite = 2;
constexpr std::uint64_t kMaxPage = std::uint64_t{1} << 31;  // bus and virtual addresses agree so far (kernel/mm)

// The command that makes a umem holds 8 bytes for each page: 64 MiB at most. Larger memory needs larger pages.
constexpr std::uint64_t kMaxPages = std::uint64_t{1} << 23;

struct DevxUmem {
  mlx5_ib_dev* dev = nullptr;
  std::unique_ptr<mm::Umem> umem;        // or
  std::unique_ptr<DmabufMemory> dmabuf;  // pinned
  std::vector<std::uint8_t> destroy;
};

// Linux: devx_umem_find_best_pgsize. 0: none of the wanted sizes will do.
std::uint64_t best_page(std::uint64_t dma, std::uint64_t length, std::uint64_t wanted) {
  std::uint64_t most = std::min(kMaxPage, std::max(kPage, std::bit_ceil(length)));
  wanted &= (most << 1) - kPage;
  if (wanted == 0) return 0;
  std::uint64_t page = std::bit_floor(wanted);
  // Pages larger than the system's must lie exactly on the memory.
  while (page > kPage && (dma % page != 0 || length % page != 0)) page /= 2;
  return page;
}

Status umem_cleanup(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* u = static_cast<DevxUmem*>(uobj.object);
  std::uint8_t out[prm::destroy_umem_out::kBytes] = {};
  UHCA_CHECK(u->dev->mdev->cmd().exec(u->destroy.data(), u->destroy.size(), out, sizeof out));
  delete u;
  uobj.object = nullptr;
  return success();
}

Status umem_reg(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  auto& dev = to_mdev(*c.device);
  ib_uobject* uobj = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
  if (c.devx_uid == 0) return refuse(EINVAL, "DEVX: umem_reg needs a context that was opened for DEVX");
  std::uint32_t access;
  std::uint64_t addr, size, wanted;
  UHCA_CHECK(uverbs_get_flags32(&access, b, MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, kAccessAllowed));
  UHCA_CHECK(uverbs_copy_from(&addr, b, MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR));
  UHCA_CHECK(uverbs_copy_from(&size, b, MLX5_IB_ATTR_DEVX_UMEM_REG_LEN));
  UHCA_CHECK(ib_check_mr_access(dev, access));

  auto u = std::make_unique<DevxUmem>();
  u->dev = &dev;
  const bool writes = access & kAccessWrites;
  pci::DmaAddr dma;
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD)) {
    int fd;
    UHCA_CHECK(uverbs_get_raw_fd(&fd, b, MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD));
    auto pinned = UHCA_TRY(mm::UmemDmabuf::get_pinned(addr, size, fd, writes));
    u->dmabuf = UHCA_TRY(DmabufMemory::make(dev, std::move(pinned), addr));
    dma = u->dmabuf->window->dma() + u->dmabuf->in_page;
  } else {
    u->umem = UHCA_TRY(dev.mdev->domain().pin(addr, size, writes, "DEVX umem"));
    dma = u->umem->dma();
  }
  UHCA_CHECK(uverbs_get_const_default(&wanted, b, MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, ~(kPage - 1)));
  std::uint64_t page = best_page(dma, size, wanted);
  if (page == 0) return refuse(EINVAL, "DEVX: umem_reg: no page size of {:#x} fits {:#x} bytes at {:#x}", wanted, size, addr);

  pci::DmaAddr first = align_down(dma, page);
  std::uint64_t n = (align_up(dma + size, page) - first) / page;
  if (n > kMaxPages) return refuse(ENOMEM, "DEVX: umem_reg: {} pages of {:#x} bytes, at most {}", n, page, kMaxPages);
  std::vector<std::uint8_t> in(prm::create_umem_in::kBytes + n * 8);
  std::uint8_t out[prm::create_umem_out::kBytes] = {};
  prm::set<prm::create_umem_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::CREATE_UMEM));
  prm::set<prm::create_umem_in::uid>(in.data(), c.devx_uid);
  void* ctx = prm::at<prm::create_umem_in::umem>(in.data());
  prm::set<prm::umem::num_of_mtt>(ctx, n);
  prm::set<prm::umem::log_page_size>(ctx, static_cast<unsigned>(std::countr_zero(page / kPage)));
  prm::set<prm::umem::page_offset>(ctx, dma - first);
  const std::uint64_t flags = kMttRead | (writes ? kMttWrite : 0);
  for (std::uint64_t i = 0; i < n; ++i) prm::set<prm::umem::mtt>(ctx, (first + i * page) | flags, i);
  UHCA_CHECK(dev.mdev->cmd().exec(in.data(), in.size(), out, sizeof out));

  std::uint32_t id = prm::get<prm::create_umem_out::umem_id>(out);
  dev.mdev->domain().rename(dma, fmt::format("DEVX umem {:#x}", id));
  u->destroy.resize(prm::destroy_umem_in::kBytes);
  prm::set<prm::destroy_umem_in::opcode>(u->destroy.data(), static_cast<std::uint16_t>(prm::Opcode::DESTROY_UMEM));
  prm::set<prm::destroy_umem_in::uid>(u->destroy.data(), c.devx_uid);
  prm::set<prm::destroy_umem_in::umem_id>(u->destroy.data(), id);
  uobj->object = u.release();
  uverbs_finalize_uobj_create(b, MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
  return uverbs_copy_to(b, MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, id);
}

constexpr uverbs_attr_def kRegAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_RAW_FD(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, UA_OPTIONAL),
    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS),
    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, UA_OPTIONAL),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kDeregAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, MLX5_IB_OBJECT_DEVX_UMEM, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_UMEM_REG, kRegAttrs, umem_reg),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_DEVX_UMEM_DEREG, kDeregAttrs),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(umem_cleanup);

}  // namespace

constinit const uverbs_object_def devx_umem_object_def = {
    MLX5_IB_OBJECT_DEVX_UMEM, "MLX5_IB_OBJECT_DEVX_UMEM", &kType, kMethods, std::size(kMethods), devx_supported};

}  // namespace uhca::kernel::mlx5
