// SPDX-License-Identifier: MIT
// Completion queues of programs. Linux: hw/mlx5/cq.c.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/log.h"
#include "kernel/mlx5_ib/kernel_queue.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/queue_pages.h"
#include "kernel/mlx5_ib/uapi_ids.h"
#include "kernel/uverbs/attr_bundle.h"
#include "prm/cmd_object.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kFlagTimestamp = 1 << 0, kFlagIgnoreOverrun = 1 << 1;  // IB_UVERBS_CQ_FLAGS_*
constexpr std::uint32_t kEventCqErr = 0;
constexpr std::uint32_t kCqe128 = 1;  // cqc.cqe_sz

void comp(mlx5_core_cq& core) {
  auto& cq = static_cast<mlx5_ib_cq&>(core);
  if (cq.comp_handler != nullptr) cq.comp_handler(&cq, cq.cq_context);
}

void event(mlx5_core_cq& core, EventType type) {
  auto& cq = static_cast<mlx5_ib_cq&>(core);
  if (type == EventType::CQ_ERROR && cq.event_handler != nullptr) cq.event_handler(&cq, kEventCqErr, cq.cq_context);
}

Result<std::uint32_t> uar_of(mlx5_ib_ucontext& c, const ::mlx5_ib_create_cq& ucmd, Udata& udata) {
  std::uint32_t index;
  if (auto* bundle = rdma_udata_to_uverbs_attr_bundle(&udata); bundle != nullptr && uverbs_attr_is_valid(*bundle, kAttrCreateCqUarIndex)) {
    UHCA_CHECK(uverbs_copy_from(&index, *bundle, kAttrCreateCqUarIndex));
    return index;
  }
  if (ucmd.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) return std::uint32_t{ucmd.uar_page_index};
  return uar_of_bfreg(c, 0);
}

}  // namespace

mlx5_ib_cq::mlx5_ib_cq() = default;
mlx5_ib_cq::~mlx5_ib_cq() = default;

void set_cq_handlers(mlx5_ib_cq& cq) {
  cq.comp = comp;
  cq.event = event;
}

Result<std::unique_ptr<ib_cq>> create_cq(ib_device& d, ib_ucontext* uctx, const ib_cq_init_attr& attr, Udata* udata) {
  auto& dev = to_mdev(d);
  auto& m = *dev.mdev;
  if (uctx == nullptr || udata == nullptr) return create_kernel_cq(dev, attr);
  auto& c = to_mucontext(*uctx);
  std::uint32_t log_max = m.cap_gen<prm::cmd_hca_cap::log_max_cq_sz>();
  if (attr.cqe == 0 || attr.cqe > 1u << log_max) return refuse(EINVAL, "create_cq: {} entries of at most {}", attr.cqe, 1u << log_max);
  if (attr.flags & ~(kFlagTimestamp | kFlagIgnoreOverrun)) return refuse(EOPNOTSUPP, "create_cq: flags {:#x}", attr.flags);
  std::uint32_t entries = std::bit_ceil(attr.cqe + 1);
  if (entries > 1u << log_max) return refuse(EINVAL, "create_cq: {} entries of at most {}", entries, 1u << log_max);

  using Cmd = ::mlx5_ib_create_cq;
  if (udata->inlen < offsetof(Cmd, flags)) return refuse(EINVAL, "create_cq: driver data of {} bytes", udata->inlen);
  Cmd ucmd;
  UHCA_CHECK(udata->copy_in(&ucmd, sizeof ucmd));
  constexpr std::uint32_t kKnown =
      MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX | MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
  if (ucmd.flags & ~kKnown) return refuse(EINVAL, "create_cq: driver flags {:#x}", ucmd.flags);
  if (ucmd.cqe_size != 64 && ucmd.cqe_size != 128) return refuse(EINVAL, "create_cq: CQE size {}", ucmd.cqe_size);
  if (ucmd.reserved0 || ucmd.reserved1) return refuse(EINVAL, "create_cq: reserved fields are set");
  if (ucmd.cqe_comp_en) return refuse(EOPNOTSUPP, "create_cq: CQE compression is not supported by the device");
  if (ucmd.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) return refuse(EOPNOTSUPP, "create_cq: CQE padding is not supported by the device");
  if (ucmd.flags & MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS) return refuse(EOPNOTSUPP, "create_cq: no real-time timestamps");
  if (ucmd.db_addr % 8) return refuse(EINVAL, "create_cq: doorbell record at {:#x} is not aligned to 8 bytes", ucmd.db_addr);

  auto cq = std::make_unique<mlx5_ib_cq>();
  cq->cqe_size = ucmd.cqe_size;
  cq->buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, std::size_t{entries} * ucmd.cqe_size, true, "CQ buffer"));
  cq->doorbell = UHCA_TRY(m.domain().pin(ucmd.db_addr, 8, true, "CQ doorbell record"));
  auto pages = UHCA_TRY(queue_pages(*cq->buffer));
  std::uint32_t uar = UHCA_TRY(uar_of(c, ucmd, *udata));
  std::uint32_t eqn = UHCA_TRY(m.comp_eqn(attr.comp_vector));

  std::vector<std::uint8_t> in(prm::create_cq_in::kBytes + pages.pas.size() * 8);
  for (std::size_t i = 0; i < pages.pas.size(); ++i) prm::set<prm::create_cq_in::pas>(in.data(), pages.pas[i], i);
  void* cqc = prm::at<prm::create_cq_in::cq_context>(in.data());
  prm::set<prm::cqc::cqe_sz>(cqc, ucmd.cqe_size == 128 ? kCqe128 : 0);
  prm::set<prm::cqc::log_cq_size>(cqc, static_cast<unsigned>(std::countr_zero(entries)));
  prm::set<prm::cqc::uar_page>(cqc, uar);
  prm::set<prm::cqc::c_eqn_or_apu_element>(cqc, eqn);
  prm::set<prm::cqc::log_page_size>(cqc, pages.log_page_size);
  prm::set<prm::cqc::page_offset>(cqc, pages.page_offset);
  prm::set<prm::cqc::dbr_addr>(cqc, cq->doorbell->dma());
  prm::set<prm::cqc::oi>(cqc, attr.flags & kFlagIgnoreOverrun ? 1 : 0);
  cq->device = &d;
  cq->ucontext = uctx;
  cq->cqe = static_cast<int>(entries - 1);
  set_cq_handlers(*cq);
  UHCA_CHECK(m.create_cq(*cq, in));
  m.domain().rename(*cq->buffer, fmt::format("CQ {:#x} buffer", cq->cqn));
  m.domain().rename(*cq->doorbell, fmt::format("CQ {:#x} doorbell record", cq->cqn));
  std::uint32_t answer = cq->cqn;
  if (Status s = udata->copy_out(&answer, sizeof answer); !s) {
    if (Status f = m.destroy_cq(*cq); !f) log::error("CQ {:#x} could not be destroyed", cq->cqn);
    return s.error();
  }
  return std::unique_ptr<ib_cq>(std::move(cq));
}

Status destroy_cq(ib_cq& ibcq) {
  auto& cq = to_mcq(ibcq);
  UHCA_CHECK(to_mdev(*cq.device).mdev->destroy_cq(cq));
  cq.buffer.reset();
  cq.doorbell.reset();
  return success();
}

}  // namespace uhca::kernel::mlx5
