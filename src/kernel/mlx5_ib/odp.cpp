// SPDX-License-Identifier: MIT
// On-demand paging. Linux: hw/mlx5/odp.c, where the device raises page faults as events and the driver loads translations by UMR. Here a
// key has all its translations from the start, and the IOMMU serves the faults (mm::OdpPages): as with PCIe page requests, the device
// waits for nobody but the bus.
#include <shared_mutex>
#include <vector>

#include "base/log.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/mlx5_ib/mr.h"
#include "prm/other_caps.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kOdpSupport = 1, kOdpImplicit = 2;  // enum ib_odp_general_cap_bits

// ib_odp_transport_cap_bits: the bits of the device's capability in the other order.
std::uint32_t transport_caps(const void* service) {
  using S = prm::odp_per_transport_service_cap;
  std::uint32_t caps = 0;
  if (prm::get<S::send>(service)) caps |= 1 << 0;
  if (prm::get<S::receive>(service)) caps |= 1 << 1;
  if (prm::get<S::write>(service)) caps |= 1 << 2;
  if (prm::get<S::read>(service)) caps |= 1 << 3;
  if (prm::get<S::atomic>(service)) caps |= 1 << 4;
  if (prm::get<S::srq_receive>(service)) caps |= 1 << 5;
  return caps;
}

bool is_implicit(std::uint64_t start, std::uint64_t length) {
  return start == 0 && length == ~std::uint64_t{0};
}

Result<std::unique_ptr<ib_mr>> reg_implicit(ib_pd& pd, std::uint64_t iova, std::uint32_t access) {
  auto& dev = to_mdev(*pd.device);
  if (iova != 0) return refuse(EINVAL, "reg_mr: the whole address space begins at iova 0, not {:#x}", iova);
  auto umem = UHCA_TRY(dev.mdev->domain().on_demand_everything(needs_writing(access), "implicit MR"));
  std::vector<pci::DmaAddr> pages;
  pages.reserve(mm::UmemOdp::kAddressSpace >> kLogLargePage);
  for (pci::DmaAddr window : umem->windows())
    for (std::uint64_t at = 0; at < mm::UmemOdp::kWindow; at += std::uint64_t{1} << kLogLargePage) pages.push_back(window + at);
  auto mr = UHCA_TRY(create_mtt_mr(pd, {pages, kLogLargePage, 0, mm::UmemOdp::kAddressSpace, access}));
  for (pci::DmaAddr window : umem->windows()) dev.mdev->domain().rename(window, fmt::format("implicit MR lkey {:#x}", mr->lkey));
  mr->odp = std::move(umem);
  mr->odp_implicit = true;
  mr->length = ~std::uint64_t{0};
  return std::unique_ptr<ib_mr>(std::move(mr));
}

// The MR of a prefetch; under the table's lock, which keeps it alive. Linux: get_prefetchable_mr.
Result<mlx5_ib_mr*> prefetchable(mlx5_ib_dev& dev, ib_pd& pd, std::uint32_t advice, std::uint32_t lkey) {
  auto it = dev.odp_mrs.find(lkey);
  if (it == dev.odp_mrs.end()) return refuse(ENOENT, "advise_mr: lkey {:#x} is of no on-demand MR", lkey);
  mlx5_ib_mr* mr = it->second;
  if (mr->pd != &pd) return refuse(EPERM, "advise_mr: lkey {:#x} is of another PD", lkey);
  if (advice == ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE && !(mr->odp ? mr->odp->writable() : mr->dmabuf->umem->writable()))
    return refuse(EPERM, "advise_mr: lkey {:#x} is for reading only", lkey);
  return mr;
}

Status prefetch(mlx5_ib_mr& mr, std::uint32_t advice, const ::ib_uverbs_sge& sge) {
  if (sge.addr < mr.iova) return refuse(EFAULT, "advise_mr: {:#x} is not in the MR with lkey {:#x}", std::uint64_t{sge.addr}, mr.lkey);
  // A dma-buf comes as a whole, whatever was asked for.
  if (mr.dmabuf) return mr.dmabuf->fault();
  const std::uint64_t off = sge.addr - mr.iova, length = mr.odp->length();
  if (off >= length || length - off < sge.length)
    return refuse(EFAULT, "advise_mr: [{:#x}, +{:#x}) is not in the MR with lkey {:#x}", std::uint64_t{sge.addr}, std::uint32_t{sge.length},
                  mr.lkey);
  using P = mm::OdpPages::Prefetch;
  const P how = advice == ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ? P::kNoFault
                : advice == ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE  ? P::kWrite
                                                                         : P::kRead;
  if (int e = mr.odp->pages().prefetch(mr.odp->va() + off, sge.length, how))
    return refuse(e, "advise_mr: [{:#x}, +{:#x}) cannot be brought in", std::uint64_t{sge.addr}, std::uint32_t{sge.length});
  return success();
}

}  // namespace

Result<std::unique_ptr<ib_mr>> reg_odp_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access) {
  auto& dev = to_mdev(*pd.device);
  std::unique_ptr<ib_mr> made;
  if (is_implicit(start, length)) {
    made = UHCA_TRY(reg_implicit(pd, iova, access));
  } else {
    if (iova + length < iova) return refuse(EINVAL, "reg_mr: iova {:#x} + {:#x} wraps", iova, length);
    auto umem = UHCA_TRY(dev.mdev->domain().on_demand(start, length, needs_writing(access), "on-demand MR", iova));
    auto mr = UHCA_TRY(create_mtt_mr(pd, {large_pages(umem->dma(), length), kLogLargePage, iova, length, access}));
    dev.mdev->domain().rename(umem->dma(), fmt::format("on-demand MR lkey {:#x}", mr->lkey));
    mr->odp = std::move(umem);
    made = std::move(mr);
  }
  remember_odp_mr(to_mmr(*made));
  return made;
}

void remember_odp_mr(mlx5_ib_mr& mr) {
  auto& dev = to_mdev(*mr.device);
  std::unique_lock g(dev.odp_lock);
  dev.odp_mrs[mr.lkey] = &mr;
}

void forget_odp_mr(mlx5_ib_mr& mr) {
  auto& dev = to_mdev(*mr.device);
  std::unique_lock g(dev.odp_lock);
  dev.odp_mrs.erase(mr.lkey);
}

// With or without the flag that asks for it, the pages are there when the call returns.
Status advise_mr(ib_pd& pd, std::uint32_t advice, std::uint32_t, const ::ib_uverbs_sge* sges, std::size_t n, uverbs_attr_bundle*) {
  if (advice != ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH && advice != ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != ::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
    return refuse(EOPNOTSUPP, "advise_mr: advice {}", advice);
  auto& dev = to_mdev(*pd.device);
  std::shared_lock g(dev.odp_lock);
  for (std::size_t i = 0; i < n; ++i) {
    mlx5_ib_mr* mr = UHCA_TRY(prefetchable(dev, pd, advice, sges[i].lkey));
    UHCA_CHECK(prefetch(*mr, advice, sges[i]));
  }
  return success();
}

void fill_odp_caps(const mlx5_ib_dev& dev, ib_device_attr& a) {
  using cap = prm::odp_cap;
  const void* odp = dev.mdev->cap_odp();
  a.odp_rc_caps = transport_caps(prm::at<cap::rc_odp_caps>(odp));
  if (a.odp_rc_caps == 0) return;
  a.odp_uc_caps = transport_caps(prm::at<cap::uc_odp_caps>(odp));
  a.odp_ud_caps = transport_caps(prm::at<cap::ud_odp_caps>(odp));
  a.xrc_odp_caps = transport_caps(prm::at<cap::xrc_odp_caps>(odp));
  a.odp_general_caps = kOdpSupport | kOdpImplicit;
}

}  // namespace uhca::kernel::mlx5
