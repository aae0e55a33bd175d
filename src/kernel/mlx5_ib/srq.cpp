// SPDX-License-Identifier: MIT
// Shared receive queues of programs and XRC domains. Linux: hw/mlx5/srq.c, qp.c (mlx5_ib_alloc_xrcd).
#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/log.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "kernel/mlx5_ib/srq_cmd.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kSegment = 16, kMinStride = 32;                 // bytes
constexpr std::uint32_t kFlagSignature = 1;                             // MLX5_SRQ_FLAG_SIGNATURE
constexpr std::uint32_t kEventSrqErr = 14, kEventSrqLimitReached = 15;  // enum ib_event_type

void event(mlx5_core_srq& core, EventType type) {
  auto& srq = static_cast<mlx5_ib_srq&>(core);
  if (srq.event_handler == nullptr) return;
  srq.event_handler(&srq, type == EventType::SRQ_RQ_LIMIT ? kEventSrqLimitReached : kEventSrqErr, srq.srq_context);
}

}  // namespace

Result<std::unique_ptr<ib_srq>> create_srq(ib_pd& pd, ib_srq_init_attr& init, Udata* udata) {
  auto& dev = to_mdev(*pd.device);
  auto& m = *dev.mdev;
  if (init.srq_type != ib_srq_type::BASIC && init.srq_type != ib_srq_type::XRC)
    return refuse(EOPNOTSUPP, "create_srq: SRQ type {} is not supported by the device", static_cast<int>(init.srq_type));
  if (udata == nullptr || pd.ucontext == nullptr) return refuse(EOPNOTSUPP, "create_srq: kernel SRQs are not supported by this driver");
  std::uint32_t max_wqes = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_srq_sz>();
  std::uint32_t max_sge = m.cap_gen<prm::cmd_hca_cap::max_wqe_sz_rq>() / kSegment;
  if (init.attr.max_wr >= max_wqes || init.attr.max_sge > max_sge)
    return refuse(EINVAL, "create_srq: max_wr {} and max_sge {}; less than {} and at most {} are possible", init.attr.max_wr,
                  init.attr.max_sge, max_wqes, max_sge);
  DevResources::View devr = UHCA_TRY(dev.devr->get());

  using Cmd = ::mlx5_ib_create_srq;
  constexpr std::size_t need = offsetof(Cmd, flags) + sizeof(Cmd::flags);
  if (udata->inlen < need) return refuse(EINVAL, "create_srq: driver data of {} bytes; {} are needed", udata->inlen, need);
  UHCA_CHECK(udata->check_in_tail(sizeof(Cmd)));
  Cmd ucmd;
  UHCA_CHECK(udata->copy_in(&ucmd, sizeof ucmd));
  if (ucmd.reserved0 || ucmd.reserved1) return refuse(EINVAL, "create_srq: reserved fields are set");
  if (ucmd.db_addr % 8) return refuse(EINVAL, "create_srq: doorbell record at {:#x} is not aligned to 8 bytes", ucmd.db_addr);

  SrqSpec spec;
  spec.kind = init.srq_type == ib_srq_type::XRC ? SrqKind::kXrc : SrqKind::kRmp;
  if (spec.kind == SrqKind::kXrc) {
    bool given = udata->inlen > offsetof(Cmd, uidx);
    spec.user_index = UHCA_TRY(user_index(to_mucontext(*pd.ucontext), given, ucmd.uidx));
  }
  auto srq = std::make_unique<mlx5_ib_srq>();
  srq->kind = spec.kind;
  srq->max = std::bit_ceil(init.attr.max_wr + 1);
  srq->max_gs = init.attr.max_sge;
  std::uint32_t stride = std::max(kMinStride, std::bit_ceil(kSegment + srq->max_gs * kSegment));
  srq->buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, std::size_t{srq->max} * stride, false, "SRQ buffer"));
  srq->doorbell = UHCA_TRY(m.domain().pin(ucmd.db_addr, 8, false, "SRQ doorbell record"));

  spec.pdn = to_mpd(pd).pdn;
  spec.log_size = static_cast<unsigned>(std::countr_zero(srq->max));
  spec.log_stride = static_cast<unsigned>(std::countr_zero(stride));
  spec.signature = ucmd.flags & kFlagSignature;
  spec.doorbell = srq->doorbell->dma();
  spec.pages = UHCA_TRY(queue_pages(*srq->buffer, srq_offset_bits(spec.kind)));
  spec.xrcdn = init.xrcd != nullptr ? to_mxrcd(*init.xrcd).xrcdn : devr.xrcdn0;
  spec.cqn = init.cq != nullptr ? to_mcq(*init.cq).cqn : devr.c0;
  srq->device = pd.device;
  static_cast<mlx5_core_srq&>(*srq).event = event;
  srq->srqn = srq->srq_num = UHCA_TRY(cmd_create_srq(m, spec));
  Status s = m.add_srq(*srq);
  if (s.ok()) {
    m.domain().rename(srq->buffer->dma(), fmt::format("SRQ {:#x} buffer", srq->srqn));
    m.domain().rename(srq->doorbell->dma(), fmt::format("SRQ {:#x} doorbell record", srq->srqn));
    ::mlx5_ib_create_srq_resp resp{};
    resp.srqn = srq->srqn;
    s = udata->copy_out(&resp, sizeof resp);
    if (!s.ok()) m.remove_srq(*srq);
  }
  if (!s.ok()) {
    if (Status f = cmd_destroy_srq(m, srq->kind, srq->srqn); !f) log::error("SRQ {:#x} could not be destroyed", srq->srqn);
    return s.error();
  }
  init.attr.max_wr = srq->max - 1;
  return std::unique_ptr<ib_srq>(std::move(srq));
}

Status modify_srq(ib_srq& ibsrq, const ib_srq_attr& a, std::uint32_t mask, Udata*) {
  auto& srq = to_msrq(ibsrq);
  if (mask & IB_SRQ_MAX_WR) return refuse(EINVAL, "modify_srq: SRQ {:#x} cannot be resized", srq.srqn);
  if (!(mask & IB_SRQ_LIMIT)) return success();
  if (a.srq_limit >= srq.max) return refuse(EINVAL, "modify_srq: limit {} of SRQ {:#x}, which has {} WQEs", a.srq_limit, srq.srqn, srq.max);
  return cmd_arm_srq(*to_mdev(*srq.device).mdev, srq.kind, srq.srqn, static_cast<std::uint16_t>(a.srq_limit));
}

Status query_srq(ib_srq& ibsrq, ib_srq_attr& a) {
  auto& srq = to_msrq(ibsrq);
  a.srq_limit = UHCA_TRY(cmd_query_srq_limit(*to_mdev(*srq.device).mdev, srq.kind, srq.srqn));
  a.max_wr = srq.max - 1;
  a.max_sge = srq.max_gs;
  return success();
}

Status destroy_srq(ib_srq& ibsrq) {
  auto& srq = to_msrq(ibsrq);
  auto& m = *to_mdev(*srq.device).mdev;
  m.remove_srq(srq);
  if (Status s = cmd_destroy_srq(m, srq.kind, srq.srqn); !s.ok()) {
    if (Status f = m.add_srq(srq); !f) log::error("SRQ {:#x} lost its events", srq.srqn);
    return s;
  }
  srq.buffer.reset();
  srq.doorbell.reset();
  return success();
}

Result<std::unique_ptr<ib_xrcd>> alloc_xrcd(ib_device& d, Udata*) {
  auto& m = *to_mdev(d).mdev;
  if (!m.cap_gen<prm::cmd_hca_cap::xrc>()) return refuse(ENOSYS, "open_xrcd: the device has no XRC");
  auto x = std::make_unique<mlx5_ib_xrcd>();
  x->device = &d;
  x->xrcdn = UHCA_TRY(m.alloc_xrcd());
  return std::unique_ptr<ib_xrcd>(std::move(x));
}

Status dealloc_xrcd(ib_xrcd& x) {
  return to_mdev(*x.device).mdev->dealloc_xrcd(to_mxrcd(x).xrcdn);
}

}  // namespace uhca::kernel::mlx5
