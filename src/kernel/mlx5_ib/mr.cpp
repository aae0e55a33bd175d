// SPDX-License-Identifier: MIT
// Protection domains, memory regions, address handles. Linux: hw/mlx5/main.c, mr.c, ah.c.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/umr.h"
#include "prm/cmd_object.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

// Bus addresses agree with iovas modulo 2 GiB: that is the page size of every MR, so registering costs one entry per 2 GiB.
constexpr unsigned kLogPage = 31;
constexpr std::uint64_t kPresent = 3;  // MTT: readable and writable (Linux: MLX5_IB_MTT_PRESENT)

std::uint16_t uid_of(ib_ucontext* c) {
  return c != nullptr ? to_mucontext(*c).devx_uid : std::uint16_t{0};
}

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

bool needs_writing(std::uint32_t access) {
  return access & (kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteAtomic | kAccessMwBind);
}

Status check_range(std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access) {
  if (access & kAccessOnDemand) return refuse(EOPNOTSUPP, "reg_mr: the device has no on-demand paging");
  if ((start ^ iova) & 0xfff) return refuse(EINVAL, "reg_mr: address {:#x} and iova {:#x} differ within the page", start, iova);
  if (iova + length < iova) return refuse(EINVAL, "reg_mr: iova {:#x} + {:#x} wraps", iova, length);
  return success();
}

// An MR with a key over `umem`, which it takes when all goes well.
Result<std::unique_ptr<ib_mr>> create_mr(ib_pd& pd, std::unique_ptr<mm::Umem>& umem, std::uint64_t iova, std::uint32_t access) {
  auto& m = *to_mdev(*pd.device).mdev;
  std::uint64_t length = umem->length();
  pci::DmaAddr dma = umem->dma();
  constexpr std::uint64_t page = std::uint64_t{1} << kLogPage;
  pci::DmaAddr first = align_down(dma, page);
  std::size_t entries = (align_up(dma + length, page) - first) >> kLogPage;
  std::size_t octowords = (entries + 1) / 2;
  std::vector<std::uint8_t> in(prm::create_mkey_in::kBytes + octowords * 16);
  prm::set<prm::create_mkey_in::uid>(in.data(), uid_of(pd.ucontext));
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  prm::set<prm::mkc::access_mode_1_0>(mkc, prm::kMkeyModeMtt);
  prm::set<prm::mkc::umr_en>(mkc, 1);
  prm::set<prm::mkc::lr>(mkc, 1);
  prm::set<prm::mkc::lw>(mkc, access & kAccessLocalWrite ? 1 : 0);
  prm::set<prm::mkc::rr>(mkc, access & kAccessRemoteRead ? 1 : 0);
  prm::set<prm::mkc::rw>(mkc, access & kAccessRemoteWrite ? 1 : 0);
  prm::set<prm::mkc::a>(mkc, access & kAccessRemoteAtomic ? 1 : 0);
  if (access & kAccessRelaxedOrdering) {
    if (m.cap_gen<prm::cmd_hca_cap::relaxed_ordering_write>()) prm::set<prm::mkc::relaxed_ordering_write>(mkc, 1);
    if (m.cap_gen<prm::cmd_hca_cap::relaxed_ordering_read>()) prm::set<prm::mkc::relaxed_ordering_read>(mkc, 1);
  }
  prm::set<prm::mkc::qpn>(mkc, 0xffffff);
  prm::set<prm::mkc::pd>(mkc, to_mpd(pd).pdn);
  prm::set<prm::mkc::start_addr>(mkc, iova);
  prm::set<prm::mkc::len>(mkc, length);
  prm::set<prm::mkc::log_page_size>(mkc, kLogPage);
  prm::set<prm::mkc::translations_octword_size>(mkc, octowords);
  prm::set<prm::create_mkey_in::translations_octword_actual_size>(in.data(), octowords);
  for (std::size_t i = 0; i < entries; ++i)
    store_be<std::uint64_t>(in.data() + prm::byte_of<prm::create_mkey_in::klm_pas_mtt> + i * 8, (first + i * page) | kPresent);
  auto mr = std::make_unique<mlx5_ib_mr>();
  std::uint32_t key = UHCA_TRY(m.create_mkey(in));
  m.domain().rename(*umem, fmt::format("MR lkey {:#x}", key));
  mr->umem = std::move(umem);
  mr->access = access;
  mr->device = pd.device;
  mr->pd = &pd;
  mr->lkey = mr->rkey = key;
  mr->iova = iova;
  mr->length = length;
  return std::unique_ptr<ib_mr>(std::move(mr));
}

}  // namespace

Result<std::unique_ptr<ib_mr>> reg_user_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access,
                                           Udata*) {
  UHCA_CHECK(check_range(start, length, iova, access));
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
  auto& m = *to_mdev(*mr.device).mdev;
  if (!mr.umem) return refuse(EOPNOTSUPP, "rereg_mr: MR {:#x} is no ordinary memory", mr.lkey);
  if (!(flags & new_access)) access = mr.access;
  std::unique_ptr<mm::Umem> umem;
  if (flags & trans) {
    UHCA_CHECK(check_range(start, length, iova, access));
    umem = UHCA_TRY(m.domain().pin_like(start, length, needs_writing(access), "MR", iova));
  } else {
    if (access & kAccessOnDemand) return refuse(EOPNOTSUPP, "rereg_mr: the device has no on-demand paging");
    if (needs_writing(access) && !mr.umem->writable())
      return refuse(EACCES, "rereg_mr: MR {:#x} was registered for reading only; new access {:#x}", mr.lkey, access);
    if (((access ^ mr.access) & ~kChangeable) == 0) {
      auto& dev = to_mdev(*mr.device);
      auto ring = +[](void* d, std::uint64_t offset, std::uint64_t value) { static_cast<mlx5_ib_dev*>(d)->doorbell(offset, value); };
      UHCA_CHECK(dev.umr->change_pd_access(mr.lkey, to_mpd(pd).pdn, access, ring, &dev));
      mr.access = access;
      return std::unique_ptr<ib_mr>();
    }
    umem = std::move(mr.umem);
    iova = mr.iova;
  }
  auto fresh = create_mr(pd, umem, iova, access);
  if (!fresh.ok()) {
    if (!(flags & trans)) mr.umem = std::move(umem);
    return fresh.error();
  }
  if (Status s = m.destroy_mkey(mr.lkey); !s.ok()) {
    auto& n = to_mmr(**fresh);
    if (Status f = m.destroy_mkey(n.lkey); !f.ok()) log::error("MKey {:#x} could not be destroyed", n.lkey);
    if (!(flags & trans)) mr.umem = std::move(n.umem);
    return s.error();
  }
  mr.umem.reset();
  return fresh;
}

Status dereg_mr(ib_mr& mr) {
  // The key first: while it lives, the device may use the memory.
  UHCA_CHECK(to_mdev(*mr.device).mdev->destroy_mkey(mr.lkey));
  to_mmr(mr).umem.reset();
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
