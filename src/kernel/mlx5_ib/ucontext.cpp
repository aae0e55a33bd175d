// SPDX-License-Identifier: MIT
// User contexts: UAR pages and how they are mapped. Linux: hw/mlx5/main.c.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/clock.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/dmabuf.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/uverbs/attr_bundle.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint32_t kBfregsPerPage = 2;  // MLX5_NON_FP_BFREGS_PER_UAR
constexpr std::uint32_t kMaxBfregs = 1024;   // MLX5_MAX_BFREGS
constexpr std::uint32_t kCacheLine = 64;

// mmap's page offset: command in bits 8..15, index in bits 0..7 and 16..23 (Linux: MLX5_IB_MMAP_CMD_SHIFT, get_extended_index).
enum MmapCommand : std::uint32_t {
  kRegular = 0,
  kContiguous = 1,
  kWc = 2,
  kNc = 3,
  kCoreClock = 5,
  kAllocWc = 6,
  kClockInfo = 7,
  kDeviceMem = 8,
  kFirstCookie = 9
};

Result<MmapTarget> clock_page(mlx5_ib_dev& dev, int fd, std::uint64_t offset, std::size_t length, int prot) {
  if (length != kPage) return refuse(EINVAL, "mmap of a clock page: {} bytes, not a page", length);
  if (prot & (PROT_WRITE | PROT_EXEC)) return refuse(EPERM, "mmap of a clock page: it is read only");
  dev.clock->refresh();
  return MmapTarget{fd, offset, 0, true, false, nullptr};
}

std::uint64_t pgoff_of(std::uint64_t command, std::uint64_t index) {
  return (index >> 8) << 16 | command << 8 | (index & 0xff);
}
std::uint64_t cookie_pgoff(std::uint32_t cookie) {
  return pgoff_of(kFirstCookie + (cookie >> 16), cookie & 0xffff);
}
constexpr std::uint32_t kMaxCookie = (0x100 - kFirstCookie) << 16;

}  // namespace

::mlx5_ib_alloc_ucontext_resp ucontext_resp(mlx5_ib_dev& dev, mlx5_ib_ucontext& c) {
  auto& m = *dev.mdev;
  using cap = prm::cmd_hca_cap;
  ::mlx5_ib_alloc_ucontext_resp r{};
  r.qp_tab_size = 1u << m.cap_gen<cap::log_max_qp>();
  // No write-combining: every doorbell is one 8-byte store, which is all that a page of memory can tell the device.
  r.bf_reg_size = 0;
  r.tot_bfregs = c.lib_uar_dyn ? 0 : static_cast<std::uint32_t>(c.sys_pages.size()) * kBfregsPerPage;
  r.cache_line_size = kCacheLine;
  r.max_sq_desc_sz = static_cast<std::uint16_t>(m.cap_gen<cap::max_wqe_sz_sq>());
  r.max_rq_desc_sz = static_cast<std::uint16_t>(m.cap_gen<cap::max_wqe_sz_rq>());
  r.max_send_wqebb = 1u << m.cap_gen<cap::log_max_qp_sz>();
  r.max_recv_wr = 1u << m.cap_gen<cap::log_max_qp_sz>();
  r.max_srq_recv_wr = 1u << m.cap_gen<cap::log_max_srq_sz>();
  r.num_ports = static_cast<std::uint16_t>(dev.num_ports);
  r.cqe_version = c.cqe_version;
  r.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  r.eth_min_inline = static_cast<std::uint8_t>(dev.min_inline + 1);
  r.log_uar_size = 12;
  r.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1;
  r.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
  if (m.cap_gen<cap::ece_support>()) r.comp_mask |= MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE;
  r.hca_core_clock_offset = ClockPages::kTimerOffset;
  r.num_uars_per_page = 1;
  return r;
}

Result<std::unique_ptr<ib_ucontext>> alloc_ucontext(ib_device& d, Udata& udata) {
  // From now on the program may sleep for events or stop polling: somebody else has to drive the device then.
  to_mdev(d).slot.start_service();
  auto& dev = to_mdev(d);
  auto& m = *dev.mdev;
  using Req = ::mlx5_ib_alloc_ucontext_req_v2;
  if (udata.inlen != sizeof(::mlx5_ib_alloc_ucontext_req) && udata.inlen < offsetof(Req, max_cqe_version))
    return refuse(EINVAL, "alloc_ucontext: request of {} bytes", udata.inlen);
  Req req;
  UHCA_CHECK(udata.copy_in(&req, sizeof req));
  if (req.flags & ~static_cast<std::uint32_t>(MLX5_IB_ALLOC_UCTX_DEVX)) return refuse(EOPNOTSUPP, "alloc_ucontext: flags {:#x}", req.flags);
  if (req.comp_mask || req.reserved0 || req.reserved1 || req.reserved2)
    return refuse(EOPNOTSUPP, "alloc_ucontext: comp_mask {:#x} or reserved fields are set", req.comp_mask);
  std::uint64_t bfregs = align_up(req.total_num_bfregs, kBfregsPerPage);
  if (bfregs == 0 || req.num_low_latency_bfregs > bfregs - 1)
    return refuse(EINVAL, "alloc_ucontext: {} low latency of {} bfregs", req.num_low_latency_bfregs, bfregs);

  auto c = std::make_unique<mlx5_ib_ucontext>();
  c->device = &d;
  c->lib_uar_dyn = req.lib_caps & MLX5_LIB_CAP_DYN_UAR;
  c->cqe_version = static_cast<std::uint8_t>(std::min<std::uint32_t>(m.cap_gen<prm::cmd_hca_cap::cqe_version>(), req.max_cqe_version));
  if (!c->lib_uar_dyn && bfregs > kMaxBfregs) return refuse(ENOMEM, "alloc_ucontext: {} bfregs of at most {}", bfregs, kMaxBfregs);
  if (req.flags & MLX5_IB_ALLOC_UCTX_DEVX) c->devx_uid = UHCA_TRY(devx_create(dev));
  Status s;
  if (!c->lib_uar_dyn) {
    for (std::uint64_t i = 0; i < bfregs / kBfregsPerPage && s.ok(); ++i) {
      auto uar = m.alloc_uar(c->devx_uid);
      if (uar) {
        c->sys_pages.push_back(*uar);
      } else {
        s = uar.error();
      }
    }
  }
  if (s.ok()) {
    auto td = m.alloc_transport_domain(c->devx_uid);
    if (td) {
      c->tdn = *td;
      auto resp = ucontext_resp(dev, *c);
      resp.response_length = static_cast<std::uint32_t>(std::min(udata.outlen, sizeof resp));
      s = udata.copy_out(&resp, resp.response_length);
      if (s.ok()) return std::unique_ptr<ib_ucontext>(std::move(c));
      if (Status f = m.dealloc_transport_domain(c->tdn); !f) log::error("transport domain {:#x} could not be freed", c->tdn);
    } else {
      s = td.error();
    }
  }
  for (std::uint32_t uar : c->sys_pages)
    if (Status f = m.dealloc_uar(uar); !f) log::error("UAR {:#x} could not be freed", uar);
  devx_destroy(dev, c->devx_uid);
  return s.error();
}

void dealloc_ucontext(ib_ucontext& uctx) {
  auto& c = to_mucontext(uctx);
  auto& m = *to_mdev(*c.device).mdev;
  if (Status f = m.dealloc_transport_domain(c.tdn); !f) log::error("transport domain {:#x} could not be freed", c.tdn);
  for (std::uint32_t uar : c.sys_pages)
    if (Status f = m.dealloc_uar(uar); !f) log::error("UAR {:#x} could not be freed", uar);
  devx_destroy(to_mdev(*c.device), c.devx_uid);
}

Result<std::unique_ptr<UarEntry>> alloc_uar_entry(mlx5_ib_ucontext& c) {
  auto& m = *to_mdev(*c.device).mdev;
  auto e = std::make_unique<UarEntry>();
  e->page_id = UHCA_TRY(m.alloc_uar(c.devx_uid));
  e->bar_offset = std::uint64_t{e->page_id} * kPage;
  e->uar = true;
  Status s = add_mmap_entry(c, *e);
  if (s.ok()) return e;
  if (Status f = m.dealloc_uar(e->page_id); !f) log::error("UAR {:#x} could not be freed", e->page_id);
  return s.error();
}

Status add_mmap_entry(mlx5_ib_ucontext& c, MmapEntry& e) {
  std::lock_guard g(c.lock);
  // Cookies go round; one that is still in use is passed over.
  for (std::uint32_t tries = 0; tries < kMaxCookie; ++tries) {
    e.pgoff = cookie_pgoff(c.next_cookie);
    c.next_cookie = (c.next_cookie + 1) % kMaxCookie;
    if (c.entries.emplace(e.pgoff, &e).second) return success();
  }
  return refuse(ENOMEM, "no mmap offset left for a page of the device");
}

Status add_device_memory_entry(mlx5_ib_ucontext& c, MmapEntry& e) {
  constexpr std::uint32_t kIndexes = 1u << 16;
  std::lock_guard g(c.lock);
  for (std::uint32_t tries = 0; tries < kIndexes; ++tries) {
    e.pgoff = pgoff_of(kDeviceMem, c.next_dm_index);
    c.next_dm_index = (c.next_dm_index + 1) % kIndexes;
    if (c.entries.emplace(e.pgoff, &e).second) return success();
  }
  return refuse(ENOMEM, "no mmap offset left for device memory");
}

void remove_mmap_entry(mlx5_ib_ucontext& c, MmapEntry& e) {
  std::shared_ptr<PageExports> exports;
  {
    std::lock_guard g(c.lock);
    c.entries.erase(e.pgoff);
    exports = std::move(e.exports);
  }
  if (exports) exports->revoke();
}

Status free_uar_entry(mlx5_ib_ucontext& c, UarEntry& e) {
  // Before somebody else can be given the page. What is refused now is tried again, when the queues are gone.
  remove_mmap_entry(c, e);
  return to_mdev(*c.device).mdev->dealloc_uar(e.page_id);
}

Result<std::uint32_t> uar_of_bfreg(mlx5_ib_ucontext& c, std::uint32_t bfreg) {
  if (c.lib_uar_dyn) return refuse(EINVAL, "bfreg {}: this context has dynamic UARs, which need a UAR page index", bfreg);
  if (bfreg / kBfregsPerPage >= c.sys_pages.size()) return refuse(EINVAL, "bfreg {} of {}", bfreg, c.sys_pages.size() * kBfregsPerPage);
  return c.sys_pages[bfreg / kBfregsPerPage];
}

Status query_ucontext(ib_ucontext& uctx, uverbs_attr_bundle& b) {
  auto& c = to_mucontext(uctx);
  auto resp = ucontext_resp(to_mdev(*c.device), c);
  // The driver's attribute is optional for the core's own question.
  auto room = uverbs_attr_get_len(b, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX);
  if (!room.ok()) return success();
  resp.response_length = static_cast<std::uint32_t>(std::min(*room, sizeof resp));
  return uverbs_copy_to_struct_or_zero(b, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &resp, sizeof resp);
}

Result<MmapTarget> mmap(ib_ucontext& uctx, std::uint64_t pgoff, std::size_t length, int prot) {
  auto& c = to_mucontext(uctx);
  auto& dev = to_mdev(*c.device);
  auto command = static_cast<std::uint32_t>(pgoff >> 8 & 0xff);
  auto uar_page = [&dev](std::uint32_t uar) {
    return MmapTarget{dev.slot.bar_fd(), std::uint64_t{uar} * kPage, uar, false, false, nullptr};
  };
  switch (command) {
    case kRegular:
    case kNc:
    case kWc: {
      if (length != kPage) return refuse(EINVAL, "mmap of a UAR: {} bytes, not a page", length);
      std::uint64_t index = pgoff & 0xff;
      if (c.lib_uar_dyn || index >= c.sys_pages.size()) return refuse(EINVAL, "mmap: static UAR page {} of {}", index, c.sys_pages.size());
      return uar_page(c.sys_pages[index]);
    }
    case kContiguous: return refuse(ENOSYS, "mmap: contiguous pages are not offered");
    case kCoreClock: return clock_page(dev, dev.clock->timer_fd(), ClockPages::kTimerPage, length, prot);
    case kAllocWc: return refuse(EINVAL, "mmap: dynamic UAR pages are allocated as objects");
    case kClockInfo:
      if ((pgoff & 0xff) != MLX5_IB_CLOCK_INFO_V1) return refuse(EOPNOTSUPP, "mmap: clock info version {}", pgoff & 0xff);
      return clock_page(dev, dev.clock->info_fd(), 0, length, prot);
    default: break;
  }
  std::lock_guard g(c.lock);
  auto it = c.entries.find(pgoff);
  if (it == c.entries.end()) return refuse(EINVAL, "mmap: page offset {:#x} belongs to no object", pgoff);
  const MmapEntry& e = *it->second;
  if (length != e.length) return refuse(EINVAL, "mmap: {} bytes of an object of {}", length, e.length);
  return MmapTarget{dev.slot.bar_fd(), e.bar_offset, e.uar ? e.page_id : 0, false, e.trapped, e.hold};
}

}  // namespace uhca::kernel::mlx5
