// SPDX-License-Identifier: MIT
// Protection domains, memory regions, address handles. Linux: hw/mlx5/main.c, mr.c, ah.c.
#include "kernel/mlx5_ib/mr.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/mlx5_ib/mkey_fields.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/umr.h"
#include "prm/cmd_object.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint64_t kPresent = 3;  // MTT: readable and writable (Linux: MLX5_IB_MTT_PRESENT)

}  // namespace

Result<std::unique_ptr<ib_pd>> alloc_pd(ib_device& d, ib_ucontext* uctx, Udata* udata) {
  auto& m = *to_mdev(d).mdev;
  auto pd = std::make_unique<mlx5_ib_pd>();
  pd->device = &d;
  pd->ucontext = uctx;
  pd->pdn = UHCA_TRY(m.alloc_pd(uid_of(uctx)));
  if (udata != nullptr) {
    ::mlx5_ib_alloc_pd_resp resp{pd->pdn};
    if (Status s = udata->copy_out(&resp, sizeof resp); !s) {
      if (Status f = m.dealloc_pd(pd->pdn); !f) log::error("PD {:#x} could not be freed", pd->pdn);
      return s.error();
    }
  }
  return std::unique_ptr<ib_pd>(std::move(pd));
}

Status dealloc_pd(ib_pd& pd) {
  return to_mdev(*pd.device).mdev->dealloc_pd(to_mpd(pd).pdn);
}

namespace {

Status check_range(std::uint64_t start, std::uint64_t length, std::uint64_t iova) {
  if ((start ^ iova) & 0xfff) return refuse(EINVAL, "reg_mr: address {:#x} and iova {:#x} differ within the page", start, iova);
  if (iova + length < iova) return refuse(EINVAL, "reg_mr: iova {:#x} + {:#x} wraps", iova, length);
  return success();
}

// An MR with a key over `umem`, which it takes when all goes well.
Result<std::unique_ptr<ib_mr>> create_mr(ib_pd& pd, std::unique_ptr<mm::Umem>& umem, std::uint64_t iova, std::uint32_t access) {
  auto pages = large_pages(umem->dma(), umem->length());
  auto mr = UHCA_TRY(create_mtt_mr(pd, {pages, kLogLargePage, iova, umem->length(), access}));
  to_mdev(*pd.device).mdev->domain().rename(umem->dma(), fmt::format("MR lkey {:#x}", mr->lkey));
  mr->umem = std::move(umem);
  return std::unique_ptr<ib_mr>(std::move(mr));
}

}  // namespace

mlx5_ib_mr::mlx5_ib_mr() = default;
mlx5_ib_mr::~mlx5_ib_mr() {
  // Of one whose key could not be destroyed: nobody may find it.
  if (odp || dmabuf) forget_odp_mr(*this);
}

bool needs_writing(std::uint32_t access) {
  return access & (kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteAtomic | kAccessMwBind);
}

std::vector<pci::DmaAddr> large_pages(pci::DmaAddr dma, std::uint64_t length) {
  constexpr std::uint64_t page = std::uint64_t{1} << kLogLargePage;
  std::vector<pci::DmaAddr> out;
  for (pci::DmaAddr at = align_down(dma, page); at < dma + length; at += page) out.push_back(at);
  return out;
}

Result<std::unique_ptr<mlx5_ib_mr>> create_mtt_mr(ib_pd& pd, const MttKey& k) {
  auto& m = *to_mdev(*pd.device).mdev;
  const std::size_t octowords = (k.pages.size() + 1) / 2;
  std::vector<std::uint8_t> in(prm::create_mkey_in::kBytes + octowords * 16);
  prm::set<prm::create_mkey_in::uid>(in.data(), uid_of(pd.ucontext));
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  prm::set<prm::mkc::access_mode_1_0>(mkc, prm::kMkeyModeMtt);
  prm::set<prm::mkc::umr_en>(mkc, 1);
  set_mkc_access_pd_addr_fields(m, mkc, k.access, k.iova, pd);
  prm::set<prm::mkc::len>(mkc, k.length);
  prm::set<prm::mkc::log_page_size>(mkc, k.log_page);
  prm::set<prm::mkc::translations_octword_size>(mkc, octowords);
  prm::set<prm::create_mkey_in::translations_octword_actual_size>(in.data(), octowords);
  for (std::size_t i = 0; i < k.pages.size(); ++i)
    store_be<std::uint64_t>(in.data() + prm::byte_of<prm::create_mkey_in::klm_pas_mtt> + i * 8, k.pages[i] | kPresent);
  auto mr = std::make_unique<mlx5_ib_mr>();
  mr->lkey = mr->rkey = UHCA_TRY(m.create_mkey(in));
  mr->access = k.access;
  mr->device = pd.device;
  mr->pd = &pd;
  mr->iova = k.iova;
  mr->length = k.length;
  return mr;
}

Result<std::unique_ptr<ib_mr>> reg_user_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access,
                                           Udata*) {
  if (access & kAccessOnDemand) return reg_odp_mr(pd, start, length, iova, access);
  UHCA_CHECK(check_range(start, length, iova));
  auto umem = UHCA_TRY(to_mdev(*pd.device).mdev->domain().pin_like(start, length, needs_writing(access), "MR", iova));
  return create_mr(pd, umem, iova, access);
}

// Flags that a UMR changes; the rest needs a new key (Linux: can_use_umr_rereg_access).
constexpr std::uint32_t kChangeable = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

// Where only the PD or these flags change, the key stays. Else the new key first: when it cannot be had, the old MR stays as it is.
Result<std::unique_ptr<ib_mr>> rereg_user_mr(ib_mr& ibmr, std::uint32_t flags, std::uint64_t start, std::uint64_t length,
                                             std::uint64_t iova, std::uint32_t access, ib_pd& pd, Udata*) {
  constexpr std::uint32_t trans = 1, new_access = 4;  // IB_MR_REREG_*
  auto& mr = to_mmr(ibmr);
  auto& dev = to_mdev(*mr.device);
  if (mr.dm) return refuse(EOPNOTSUPP, "rereg_mr: MR {:#x} is device memory", mr.lkey);
  if (!(flags & new_access)) access = mr.access;
  const bool writable = mr.umem ? mr.umem->writable() : mr.odp ? mr.odp->writable() : mr.dmabuf ? mr.dmabuf->umem->writable() : true;
  if ((flags & (new_access | trans)) == new_access && needs_writing(access) && !writable)
    return refuse(EACCES, "rereg_mr: MR {:#x} was registered for reading only; new access {:#x}", mr.lkey, access);
  if (mr.odp_implicit && !(flags & trans)) {
    if (!(access & kAccessOnDemand)) return refuse(EOPNOTSUPP, "rereg_mr: MR {:#x} is the whole address space, on demand", mr.lkey);
    start = iova = 0;
    length = ~std::uint64_t{0};
    flags |= trans;
  }
  std::unique_ptr<ib_mr> fresh;
  if (flags & trans) {
    fresh = UHCA_TRY(reg_user_mr(pd, start, length, iova, access, nullptr));
  } else {
    if (((access ^ mr.access) & ~kChangeable) == 0) {
      auto ring = +[](void* d, std::uint64_t offset, std::uint64_t value) { static_cast<mlx5_ib_dev*>(d)->doorbell(offset, value); };
      UHCA_CHECK(dev.umr->change_pd_access(mr.lkey, to_mpd(pd).pdn, access, ring, &dev));
      mr.access = access;
      return std::unique_ptr<ib_mr>();
    }
    // Another kind of access to the same pinned memory, which both keys share for a moment.
    if (!mr.umem || (access & kAccessOnDemand))
      return refuse(EOPNOTSUPP, "rereg_mr: MR {:#x} cannot become one with access {:#x}", mr.lkey, access);
    auto umem = std::move(mr.umem);
    auto made = create_mr(pd, umem, mr.iova, access);
    if (!made.ok()) {
      mr.umem = std::move(umem);
      return made.error();
    }
    fresh = std::move(*made);
  }
  if (Status s = destroy_mr(mr); !s.ok()) {
    auto& n = to_mmr(*fresh);
    if (Status f = destroy_mr(n); !f.ok()) log::error("MKey {:#x} could not be destroyed", n.lkey);
    if (!(flags & trans)) mr.umem = std::move(n.umem);
    return s.error();
  }
  mr.umem.reset();
  mr.odp.reset();
  mr.dmabuf.reset();
  return fresh;
}

// The key first: while it lives, the device may use the memory.
Status destroy_mr(mlx5_ib_mr& mr) {
  const bool listed = mr.odp || mr.dmabuf;
  if (listed) forget_odp_mr(mr);
  if (Status s = to_mdev(*mr.device).mdev->destroy_mkey(mr.lkey); !s.ok()) {
    if (listed) remember_odp_mr(mr);
    return s;
  }
  return success();
}

Status dereg_mr(ib_mr& ibmr) {
  auto& mr = to_mmr(ibmr);
  UHCA_CHECK(destroy_mr(mr));
  mr.umem.reset();
  mr.odp.reset();
  mr.dmabuf.reset();
  return success();
}

Result<std::unique_ptr<ib_ah>> create_user_ah(ib_pd& pd, const rdma_ah_attr& attr, Udata* udata) {
  if (!attr.is_global) return refuse(EINVAL, "create_ah: RoCE needs a GRH");
  if (udata != nullptr && udata->outlen > 0) {
    // Linux: create_ah of user verbs on Ethernet returns the resolved MAC; libmlx5 writes it into its address vectors.
    ::mlx5_ib_create_ah_resp resp{};
    constexpr std::size_t need = offsetof(::mlx5_ib_create_ah_resp, dmac) + sizeof resp.dmac;
    if (udata->outlen < need) return refuse(EINVAL, "create_ah: room for {} bytes; {} are needed", udata->outlen, need);
    resp.response_length = need;
    std::copy(attr.dmac.begin(), attr.dmac.end(), resp.dmac);
    UHCA_CHECK(udata->copy_out(&resp, need));
  }
  auto ah = std::make_unique<ib_ah>();
  ah->device = pd.device;
  ah->pd = &pd;
  ah->attr = attr;
  return ah;
}

Status destroy_ah(ib_ah&) {
  return success();
}

}  // namespace uhca::kernel::mlx5
