// SPDX-License-Identifier: MIT
#include "user/mlx5/queue.h"

#include <algorithm>

#include "base/log.h"

namespace uhca::mlx5 {

namespace {
constexpr std::uint32_t kCtrl = prm::wqe_ctrl_seg::kBytes;
constexpr std::uint32_t kRaddr = prm::wqe_raddr_seg::kBytes;
constexpr std::uint32_t kAtomic = prm::wqe_atomic_seg::kBytes;
constexpr std::uint32_t kData = prm::wqe_data_seg::kBytes;
constexpr std::uint32_t kUmr = prm::wqe_umr_ctrl_seg::kBytes + prm::wqe_mkey_context_seg::kBytes + 64;
constexpr std::uint32_t kEthernet = 32;  // the segment, with room for 18 bytes of inlined headers
constexpr std::uint32_t kInlineHeader = prm::wqe_inline_seg::kBytes;

constexpr std::uint64_t kOpsConnected = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
                                        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                                        IBV_QP_EX_WITH_BIND_MW;
}  // namespace

Result<std::uint64_t> default_send_ops(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER: return kOpsConnected;
    case IBV_QPT_UD: return std::uint64_t{IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM};
    case IBV_QPT_RAW_PACKET: return std::uint64_t{IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO};
    default: return refuse(EINVAL, "create_qp: QP type {} has no send queue format here", static_cast<int>(type));
  }
}

Result<std::uint32_t> sq_overhead(ibv_qp_type type, std::uint64_t ops) {
  std::uint32_t size = kCtrl;
  if (ops & (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ))
    size = std::max(size, kCtrl + kRaddr);
  if (ops & (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)) size = std::max(size, kCtrl + kRaddr + kAtomic);
  if (ops & (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)) size = std::max(size, kCtrl + kUmr);
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UC: return size;
    case IBV_QPT_UD:
    case IBV_QPT_DRIVER: return size + static_cast<std::uint32_t>(prm::wqe_av::kBytes);
    case IBV_QPT_RAW_PACKET: return size + kEthernet;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: return size + static_cast<std::uint32_t>(prm::wqe_xrc_seg::kBytes);
    default: return refuse(EINVAL, "create_qp: QP type {} has no send queue format here", static_cast<int>(type));
  }
}

Result<SqPlan> plan_sq(const QueueLimits& lim, ibv_qp_type type, std::uint64_t ops, const ibv_qp_cap& cap, std::uint32_t headers) {
  SqPlan plan;
  if (!cap.max_send_wr) return plan;
  std::uint32_t overhead = UHCA_TRY(sq_overhead(type, ops));
  std::uint64_t before = overhead + align_up(std::uint64_t{headers}, kData);
  if (before > lim.max_sq_desc_sz || cap.max_send_sge > (lim.max_sq_desc_sz - before) / kData)
    return refuse(EINVAL, "create_qp: {} send SGEs do not fit into a WQE of {} bytes", cap.max_send_sge, lim.max_sq_desc_sz);
  std::uint64_t gather = before + std::uint64_t{cap.max_send_sge} * kData;
  std::uint64_t inl = cap.max_inline_data ? overhead + align_up(kInlineHeader + std::uint64_t{cap.max_inline_data}, kData) : 0;
  std::uint64_t wqe = align_up(std::max(gather, inl), prm::kSendWqeBb);
  if (wqe > lim.max_sq_desc_sz)
    return refuse(EINVAL, "create_qp: send WQE of {} bytes (max_send_sge {}, max_inline_data {}) exceeds {}", wqe, cap.max_send_sge,
                  cap.max_inline_data, lim.max_sq_desc_sz);
  if (cap.max_send_wr > 0x7fffffffu / lim.max_sq_desc_sz) return refuse(EINVAL, "create_qp: max_send_wr {} is too large", cap.max_send_wr);
  plan.bytes = round_up_pow2(cap.max_send_wr * wqe);
  plan.wqe_size = static_cast<std::uint32_t>(wqe);
  plan.wqe_cnt = static_cast<std::uint32_t>(plan.bytes / prm::kSendWqeBb);
  if (plan.wqe_cnt > lim.max_send_wqebb)
    return refuse(EINVAL, "create_qp: the send queue needs {} basic blocks of {}", plan.wqe_cnt, lim.max_send_wqebb);
  plan.max_post = static_cast<std::uint32_t>(plan.bytes / wqe);
  // A WQE of 1024 bytes has more room than its 6-bit size field can tell.
  plan.max_inline = std::min<std::uint32_t>(plan.wqe_size, kMaxDs * prm::kWqeDsUnit) - overhead - kInlineHeader;
  return plan;
}

Result<RqPlan> plan_rq(const QueueLimits& lim, const ibv_qp_cap& cap, bool with_srq) {
  RqPlan plan;
  if (!cap.max_recv_wr || with_srq) return plan;
  if (cap.max_recv_wr > lim.max_recv_wr) return refuse(EINVAL, "create_qp: max_recv_wr {} exceeds {}", cap.max_recv_wr, lim.max_recv_wr);
  std::uint64_t wqe = std::uint64_t{std::max(cap.max_recv_sge, 1u)} * kData;
  if (wqe > lim.max_rq_desc_sz)
    return refuse(EINVAL, "create_qp: {} receive SGEs do not fit into a WQE of {} bytes", cap.max_recv_sge, lim.max_rq_desc_sz);
  wqe = round_up_pow2(wqe);
  plan.bytes = std::max<std::uint64_t>(round_up_pow2(cap.max_recv_wr) * wqe, prm::kSendWqeBb);
  plan.wqe_cnt = static_cast<std::uint32_t>(plan.bytes / wqe);
  plan.wqe_shift = log2_up(wqe);
  plan.max_post = plan.wqe_cnt;
  plan.max_gs = static_cast<std::uint32_t>(wqe / kData);
  return plan;
}

Result<SrqPlan> plan_srq(const QueueLimits& lim, std::uint32_t max_wr, std::uint32_t max_sge) {
  if (max_wr > lim.max_srq_recv_wr) return refuse(EINVAL, "create_srq: max_wr {} exceeds {}", max_wr, lim.max_srq_recv_wr);
  if (max_sge > lim.max_rq_desc_sz / kData)
    return refuse(EINVAL, "create_srq: {} SGEs do not fit into a WQE of {} bytes", max_sge, lim.max_rq_desc_sz);
  SrqPlan plan;
  std::uint64_t with_spare = std::uint64_t{max_wr} * 2 + 1;
  plan.spare = with_spare <= lim.max_srq_recv_wr;
  std::uint64_t wqe = round_up_pow2(std::max<std::uint64_t>(32, prm::wqe_srq_next_seg::kBytes + std::uint64_t{max_sge} * kData));
  if (wqe > lim.max_recv_wr) return refuse(EINVAL, "create_srq: a WQE of {} bytes is too large", wqe);
  plan.wqe_shift = log2_up(wqe);
  plan.max_gs = static_cast<std::uint32_t>((wqe - prm::wqe_srq_next_seg::kBytes) / kData);
  plan.max = static_cast<std::uint32_t>(round_up_pow2(plan.spare ? with_spare : std::uint64_t{max_wr} + 1));
  plan.tail = static_cast<std::uint32_t>(round_up_pow2(std::uint64_t{max_wr} + 1)) - 1;
  return plan;
}

}  // namespace uhca::mlx5
