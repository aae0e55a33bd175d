// SPDX-License-Identifier: MIT
// Completion queues of programs: creation, moderation, resizing. Linux: hw/mlx5/cq.c.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/log.h"
#include "kernel/mlx5_ib/kernel_queue.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/queue_pages.h"
#include "kernel/uverbs/attr_bundle.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/cq_moderation.h"
#include "uapi/mlx5_next.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kFlagTimestamp = 1 << 0, kFlagIgnoreOverrun = 1 << 1;  // IB_UVERBS_CQ_FLAGS_*
constexpr std::uint32_t kEventCqErr = 0;
constexpr std::uint32_t kCqe128 = 1, kCqe128Padded = 2;  // cqc.cqe_sz
constexpr std::uint32_t kMaxPeriod = 0xfff;              // Linux cq.h: MLX5_MAX_CQ_PERIOD
// MODIFY_CQ with op_mod "resize" (Linux mlx5_ib cq.c: MLX5_MODIFY_CQ_MASK_*).
constexpr std::uint32_t kSelectLogSize = 1 << 0, kSelectPageOffset = 1 << 1, kSelectPageSize = 1 << 2;
constexpr std::uint16_t kOpModResize = 1;

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
  if (auto* bundle = rdma_udata_to_uverbs_attr_bundle(&udata);
      bundle != nullptr && uverbs_attr_is_valid(*bundle, uapi::MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX)) {
    UHCA_CHECK(uverbs_copy_from(&index, *bundle, uapi::MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX));
    return index;
  }
  if (ucmd.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) return std::uint32_t{ucmd.uar_page_index};
  return uar_of_bfreg(c, 0);
}

// cqc.mini_cqe_res_format of what the program asks for (Linux: mini_cqe_res_format_to_hw). EOPNOTSUPP, EINVAL.
Result<std::uint32_t> compression_of(const mlx5_core_dev& m, const ::mlx5_ib_create_cq& ucmd) {
  if (ucmd.cqe_comp_en != 1) return std::uint32_t{0};
  bool can = ucmd.cqe_size == 128 ? m.cap_gen<prm::cmd_hca_cap::cqe_compression_128>() : m.cap_gen<prm::cmd_hca_cap::cqe_compression>();
  if (!can) return refuse(EOPNOTSUPP, "create_cq: CQEs of {} bytes cannot be compressed by the device", ucmd.cqe_size);
  switch (ucmd.cqe_comp_res_format) {
    case MLX5_IB_CQE_RES_FORMAT_HASH: return std::uint32_t{0};
    case MLX5_IB_CQE_RES_FORMAT_CSUM: return std::uint32_t{1};
    case MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX:
      if (m.cap_gen<prm::cmd_hca_cap::mini_cqe_resp_stride_index>()) return std::uint32_t{3};
      return refuse(EOPNOTSUPP, "create_cq: no compression with stride indexes");
    default: return refuse(EINVAL, "create_cq: compression format {:#x}", ucmd.cqe_comp_res_format);
  }
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
  std::uint32_t mini_format = UHCA_TRY(compression_of(m, ucmd));
  bool padded = ucmd.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
  if (padded && (ucmd.cqe_size != 128 || !m.cap_gen<prm::cmd_hca_cap::cqe_128_always>()))
    return refuse(EOPNOTSUPP, "create_cq: CQEs of {} bytes cannot be padded by the device", ucmd.cqe_size);
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
  prm::set<prm::create_cq_in::uid>(in.data(), c.devx_uid);
  void* cqc = prm::at<prm::create_cq_in::cq_context>(in.data());
  cq->size_code = padded ? kCqe128Padded : ucmd.cqe_size == 128 ? kCqe128 : 0;
  prm::set<prm::cqc::cqe_sz>(cqc, cq->size_code);
  if (ucmd.cqe_comp_en == 1) {
    prm::set<prm::cqc::cqe_comp_en>(cqc, 1);
    prm::set<prm::cqc::mini_cqe_res_format>(cqc, mini_format);
  }
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
  m.domain().rename(cq->buffer->dma(), fmt::format("CQ {:#x} buffer", cq->cqn));
  m.domain().rename(cq->doorbell->dma(), fmt::format("CQ {:#x} doorbell record", cq->cqn));
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

Status modify_cq(ib_cq& ibcq, std::uint16_t count, std::uint16_t period) {
  auto& cq = to_mcq(ibcq);
  auto& m = *to_mdev(*cq.device).mdev;
  if (!m.cap_gen<prm::cmd_hca_cap::cq_moderation>()) return refuse(EOPNOTSUPP, "modify_cq: the device moderates no CQs");
  if (period > kMaxPeriod) return refuse(EINVAL, "modify_cq: period {} us of at most {}", period, kMaxPeriod);
  using In = prm::modify_cq_in;
  std::vector<std::uint8_t> in(In::kBytes);
  std::uint8_t out[prm::modify_cq_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::MODIFY_CQ));
  prm::set<In::cqn>(in.data(), cq.cqn);
  prm::set<In::modify_field_select_resize_field_select>(in.data(), prm::kCqModifyPeriod | prm::kCqModifyCount);
  void* cqc = prm::at<In::cq_context>(in.data());
  prm::set<prm::cqc::cq_period>(cqc, period);
  prm::set<prm::cqc::cq_max_count>(cqc, count);
  return m.cmd().exec(in.data(), in.size(), out, sizeof out);
}

Status resize_cq(ib_cq& ibcq, std::uint32_t cqe, Udata* udata) {
  auto& cq = to_mcq(ibcq);
  auto& m = *to_mdev(*cq.device).mdev;
  if (!m.cap_gen<prm::cmd_hca_cap::cq_resize>()) return refuse(ENOSYS, "resize_cq: the device cannot");
  std::uint32_t most = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_cq_sz>();
  if (cqe > most) return refuse(EINVAL, "resize_cq: {} entries of at most {}", cqe, most);
  std::uint32_t entries = std::bit_ceil(cqe + 1);
  if (entries > most) return refuse(EINVAL, "resize_cq: {} entries of at most {}", entries, most);
  std::lock_guard g(cq.resize_lock);
  if (entries == static_cast<std::uint32_t>(cq.cqe) + 1) return success();
  using Cmd = ::mlx5_ib_resize_cq;
  if (udata == nullptr || udata->inlen < sizeof(Cmd)) return refuse(EINVAL, "resize_cq: driver data of {} bytes", udata ? udata->inlen : 0);
  UHCA_CHECK(udata->check_in_tail(sizeof(Cmd)));
  Cmd ucmd;
  UHCA_CHECK(udata->copy_in(&ucmd, sizeof ucmd));
  if (ucmd.reserved0 || ucmd.reserved1) return refuse(EINVAL, "resize_cq: reserved fields are set");
  if (ucmd.cqe_size != cq.cqe_size) return refuse(EINVAL, "resize_cq: CQE size {}, the CQ has {}", ucmd.cqe_size, cq.cqe_size);
  auto buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, std::size_t{entries} * cq.cqe_size, true, "CQ buffer"));
  auto pages = UHCA_TRY(queue_pages(*buffer));
  using In = prm::modify_cq_in;
  std::vector<std::uint8_t> in(In::kBytes + pages.pas.size() * 8);
  std::uint8_t out[prm::modify_cq_out::kBytes] = {};
  prm::set<In::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::MODIFY_CQ));
  prm::set<In::op_mod>(in.data(), kOpModResize);
  prm::set<In::cqn>(in.data(), cq.cqn);
  prm::set<In::modify_field_select_resize_field_select>(in.data(), kSelectLogSize | kSelectPageOffset | kSelectPageSize);
  void* cqc = prm::at<In::cq_context>(in.data());
  prm::set<prm::cqc::cqe_sz>(cqc, cq.size_code);
  prm::set<prm::cqc::log_cq_size>(cqc, static_cast<unsigned>(std::countr_zero(entries)));
  prm::set<prm::cqc::log_page_size>(cqc, pages.log_page_size);
  prm::set<prm::cqc::page_offset>(cqc, pages.page_offset);
  for (std::size_t i = 0; i < pages.pas.size(); ++i) prm::set<In::pas>(in.data(), pages.pas[i], i);
  UHCA_CHECK(m.cmd().exec(in.data(), in.size(), out, sizeof out));
  m.domain().rename(buffer->dma(), fmt::format("CQ {:#x} buffer", cq.cqn));
  // From here on the device writes to the new buffer; the old one was read up to the RESIZE_CQ entry by the program itself.
  cq.buffer = std::move(buffer);
  cq.cqe = static_cast<int>(entries - 1);
  return success();
}

}  // namespace uhca::kernel::mlx5
