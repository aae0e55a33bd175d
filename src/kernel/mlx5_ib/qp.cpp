// SPDX-License-Identifier: MIT
// Queue pairs of programs: creation and destruction. Linux: hw/mlx5/qp.c.
#include <bit>
#include <cstddef>

#include "base/log.h"
#include "kernel/mlx5_ib/dct.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "kernel/mlx5_ib/kernel_queue.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/queue_pages.h"
#include "kernel/mlx5_ib/raw_packet.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr unsigned kSqShift = 6;      // send queues count in basic blocks of 64 bytes (MLX5_SEND_WQE_BB)
constexpr unsigned kMaxRqShift = 16;  // a receive WQE of 64 KiB is far beyond any cap, and shifts stay defined
constexpr std::uint32_t kUserIndexMask = 0xffffff;
constexpr std::uint32_t kMigrated = 3;                                     // qpc.pm_state (MLX5_QP_PM_MIGRATED)
constexpr std::uint32_t kNonZeroRq = 0, kSharedRq = 1, kZeroLengthRq = 3;  // qpc.rq_type
// qpc.cs_req, cs_res (MLX5_REQ_SCAT_DATA*_CQE, MLX5_RES_SCAT_DATA*_CQE).
constexpr std::uint32_t kReqScat32 = 0x11, kReqScat64 = 0x22, kResScat32 = 0x1, kResScat64 = 0x2;

constexpr std::uint32_t kBlockMulticastLoopback = 1 << 1;  // IB_QP_CREATE_BLOCK_MULTICAST_LOOPBACK

// IB event numbers (enum ib_event_type).
std::uint32_t ib_event(EventType t) {
  switch (t) {
    case EventType::PATH_MIG: return 6;
    case EventType::COMM_EST: return 4;
    case EventType::SQ_DRAINED: return 5;
    case EventType::SRQ_LAST_WQE: return 16;
    case EventType::WQ_CATAS_ERROR: return 1;
    case EventType::PATH_MIG_FAILED: return 7;
    case EventType::WQ_INVAL_REQ_ERROR: return 2;
    case EventType::WQ_ACCESS_ERROR: return 3;
    default: return ~0u;
  }
}

}  // namespace

void qp_event(mlx5_core_qp& core, EventType type) {
  auto& qp = static_cast<mlx5_ib_qp&>(core);
  std::uint32_t e = ib_event(type);
  if (e != ~0u && qp.event_handler != nullptr) qp.event_handler(&qp, e, qp.qp_context);
}

namespace {

// Which end of DC a QP of the driver's type is to be.
constexpr std::uint32_t kDcFlags = MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_TYPE_DCT;

Status check_flags(const mlx5_core_dev& m, ib_qp_type type, std::uint32_t flags) {
  if (type == ib_qp_type::DRIVER) {
    std::uint32_t dc = flags & kDcFlags;
    if (dc != MLX5_QP_FLAG_TYPE_DCI && dc != MLX5_QP_FLAG_TYPE_DCT) return refuse(EINVAL, "create_qp: a DC QP is either DCI or DCT");
    flags &= ~kDcFlags;
  }
  std::uint32_t known = MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX;
  if (m.cap_gen<prm::cmd_hca_cap::log_max_dci_stream_channels>()) known |= MLX5_QP_FLAG_DCI_STREAM;
  if (m.cap_gen<prm::cmd_hca_cap::sctr_data_cqe>()) known |= MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE;
  if (m.cap_gen<prm::cmd_hca_cap::wq_signature>()) known |= MLX5_QP_FLAG_SIGNATURE;
  if (m.cap_gen<prm::cmd_hca_cap::qp_packet_based>()) known |= MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE;
  if (flags & ~known) return refuse(EINVAL, "create_qp: driver flags {:#x} are not supported by this device or QP type", flags & ~known);
  return success();
}

}  // namespace

// Linux: set_rq_size for user QPs.
Status size_receive_queue(const mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd) {
  std::uint32_t max_wr = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_qp_sz>();
  if (attr.cap.max_recv_wr > max_wr) return refuse(EINVAL, "create_qp: max_recv_wr {} of at most {}", attr.cap.max_recv_wr, max_wr);
  if (attr.srq != nullptr || attr.qp_type == ib_qp_type::XRC_INI || attr.cap.max_recv_wr == 0) return success();
  if (ucmd.rq_wqe_shift > kMaxRqShift || ucmd.rq_wqe_shift < 4)
    return refuse(EINVAL, "create_qp: receive WQEs of 2^{} bytes", ucmd.rq_wqe_shift);
  if (!std::has_single_bit(ucmd.rq_wqe_count) || ucmd.rq_wqe_count > max_wr)
    return refuse(EINVAL, "create_qp: {} receive WQEs; a power of two up to {} is possible", ucmd.rq_wqe_count, max_wr);
  std::uint32_t signature = ucmd.flags & MLX5_QP_FLAG_SIGNATURE ? 1 : 0;
  std::uint32_t segments = (1u << ucmd.rq_wqe_shift) / 16;
  if (segments < signature) return refuse(EINVAL, "create_qp: receive WQEs of 2^{} bytes", ucmd.rq_wqe_shift);
  std::uint32_t max_bytes = m.cap_gen<prm::cmd_hca_cap::max_wqe_sz_rq>();
  if ((1u << ucmd.rq_wqe_shift) > max_bytes)
    return refuse(EINVAL, "create_qp: receive WQEs of 2^{} bytes; the device takes {}", ucmd.rq_wqe_shift, max_bytes);
  qp.rq_wqe_cnt = ucmd.rq_wqe_count;
  qp.rq_wqe_shift = ucmd.rq_wqe_shift;
  qp.rq_max_gs = segments - signature;
  return success();
}

// Linux: set_user_buf_size.
Status size_send_queue(const mlx5_core_dev& m, mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd) {
  std::uint32_t max_bb = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_qp_sz>();
  if (attr.cap.max_send_wr > max_bb) return refuse(EINVAL, "create_qp: max_send_wr {} of at most {}", attr.cap.max_send_wr, max_bb);
  if (ucmd.sq_wqe_count != 0 && !std::has_single_bit(ucmd.sq_wqe_count))
    return refuse(EINVAL, "create_qp: sq_wqe_count {} is not a power of two", ucmd.sq_wqe_count);
  if (ucmd.sq_wqe_count > max_bb) return refuse(EINVAL, "create_qp: sq_wqe_count {} of at most {}", ucmd.sq_wqe_count, max_bb);
  qp.sq_wqe_cnt = ucmd.sq_wqe_count;
  return success();
}

Result<std::uint32_t> uar_of(mlx5_ib_ucontext& c, const ::mlx5_ib_create_qp& ucmd) {
  constexpr std::uint32_t both = MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX;
  if ((ucmd.flags & both) == both) return refuse(EINVAL, "create_qp: both a UAR page index and a bfreg index");
  if (ucmd.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) return std::uint32_t{ucmd.bfreg_index};
  // Without a wish, programs in static mode share the first page.
  return uar_of_bfreg(c, ucmd.flags & MLX5_QP_FLAG_BFREG_INDEX ? ucmd.bfreg_index : 0);
}

namespace {

// Small receives and READ responses inside the CQE (Linux: configure_responder_scat_cqe, configure_requester_scat_cqe).
void set_scatter_to_cqe(void* qpc, const ib_qp_init_attr& attr, std::uint32_t flags) {
  if (!(flags & MLX5_QP_FLAG_SCATTER_CQE)) return;
  auto wide = [](ib_cq* cq) { return cq != nullptr && to_mcq(*cq).cqe_size == 128; };
  if (attr.qp_type == ib_qp_type::RC || attr.qp_type == ib_qp_type::UC)
    prm::set<prm::qpc::cs_res>(qpc, wide(attr.recv_cq) ? kResScat64 : kResScat32);
  if (attr.qp_type != ib_qp_type::RC && attr.qp_type != ib_qp_type::DRIVER) return;
  if (attr.sq_sig_all || (flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE))
    prm::set<prm::qpc::cs_req>(qpc, wide(attr.send_cq) ? kReqScat64 : kReqScat32);
}

}  // namespace

std::uint8_t to_mlx5_st(ib_qp_type t) {
  switch (t) {
    case ib_qp_type::RC: return 0x0;
    case ib_qp_type::UC: return 0x1;
    case ib_qp_type::UD: return 0x2;
    case ib_qp_type::XRC_INI:
    case ib_qp_type::XRC_TGT: return 0x3;
    case ib_qp_type::SMI: return 0x7;
    case ib_qp_type::GSI: return 0x8;
    case ib_qp_type::DRIVER: return 0x5;  // DCI: targets are no QPs
    default: return 0xff;
  }
}

Result<std::uint32_t> user_index(const mlx5_ib_ucontext& c, bool given, std::uint32_t uidx) {
  if (given && c.cqe_version == 0 && uidx == kDefaultUserIndex) return kDefaultUserIndex;
  if (given != (c.cqe_version != 0)) return refuse(EINVAL, "a user index comes with CQE version 1, and only then");
  if (!given) return kDefaultUserIndex;
  if (uidx & ~kUserIndexMask) return refuse(EINVAL, "user index {:#x} has more than 24 bits", uidx);
  return uidx;
}

namespace {

// The driver's own number for what a QP of this type does not have from the program.
void set_default_resources(void* qpc, const ib_qp_init_attr& attr, const DevResources::View& devr) {
  if (attr.qp_type == ib_qp_type::XRC_INI) {
    prm::set<prm::qpc::cqn_rcv>(qpc, devr.c0);
    prm::set<prm::qpc::xrcd>(qpc, devr.xrcdn1);
    prm::set<prm::qpc::srqn_rmpn_xrqn>(qpc, devr.s0);
    return;
  }
  prm::set<prm::qpc::xrcd>(qpc, attr.srq != nullptr ? devr.xrcdn0 : devr.xrcdn1);
  prm::set<prm::qpc::srqn_rmpn_xrqn>(qpc, attr.srq != nullptr ? to_msrq(*attr.srq).srqn : devr.s1);
}

// Linux: create_xrc_tgt_qp. It has no queues: what arrives goes to the SRQ that the packet names.
Result<std::unique_ptr<ib_qp>> create_xrc_target(mlx5_ib_dev& dev, const ib_qp_init_attr& attr, const DevResources::View& devr) {
  auto& m = *dev.mdev;
  auto qp = std::make_unique<mlx5_ib_qp>();
  qp->device = &dev;
  qp->qp_type = ib_qp_type::XRC_TGT;
  qp->sq_sig_all = attr.sq_sig_all;
  std::vector<std::uint8_t> in(prm::create_qp_in::kBytes);
  void* qpc = prm::at<prm::create_qp_in::qpc>(in.data());
  prm::set<prm::qpc::st>(qpc, to_mlx5_st(qp->qp_type));
  prm::set<prm::qpc::pm_state>(qpc, kMigrated);
  prm::set<prm::qpc::pd>(qpc, devr.p0);
  prm::set<prm::qpc::rq_type>(qpc, kSharedRq);
  prm::set<prm::qpc::no_sq>(qpc, 1);
  prm::set<prm::qpc::cqn_rcv>(qpc, devr.c0);
  prm::set<prm::qpc::cqn_snd>(qpc, devr.c0);
  prm::set<prm::qpc::srqn_rmpn_xrqn>(qpc, devr.s0);
  prm::set<prm::qpc::xrcd>(qpc, to_mxrcd(*attr.xrcd).xrcdn);
  prm::set<prm::qpc::user_index>(qpc, kDefaultUserIndex);
  static_cast<mlx5_core_qp&>(*qp).event = qp_event;
  UHCA_CHECK(m.create_qp(*qp, in));
  qp->qp_num = qp->qpn;
  return std::unique_ptr<ib_qp>(std::move(qp));
}

bool known_type(const mlx5_core_dev& m, ib_qp_type t) {
  switch (t) {
    case ib_qp_type::DRIVER: return m.cap_gen<prm::cmd_hca_cap::dct>();
    case ib_qp_type::RC:
    case ib_qp_type::UC:
    case ib_qp_type::UD:
    case ib_qp_type::XRC_INI:
    case ib_qp_type::XRC_TGT: return true;
    default: return false;
  }
}

}  // namespace

mlx5_ib_qp::mlx5_ib_qp() = default;
mlx5_ib_qp::~mlx5_ib_qp() = default;

Result<std::unique_ptr<ib_qp>> create_qp(ib_device& d, ib_pd* ibpd, ib_qp_init_attr& attr, Udata* udata) {
  auto& dev = to_mdev(d);
  auto& m = *dev.mdev;
  if (udata == nullptr && ibpd != nullptr && ibpd->ucontext == nullptr) return create_kernel_qp(dev, *ibpd, attr);
  if (attr.qp_type == ib_qp_type::RAW_PACKET || attr.rwq_ind_tbl != nullptr) return create_raw_packet_qp(dev, ibpd, attr, udata);
  if (!known_type(m, attr.qp_type))
    return refuse(EOPNOTSUPP, "create_qp: QP type {} is not supported by this driver", static_cast<int>(attr.qp_type));
  DevResources::View devr = UHCA_TRY(dev.devr->get());
  std::uint32_t create_flags = attr.create_flags;
  if (attr.qp_type != ib_qp_type::DRIVER && m.cap_gen<prm::cmd_hca_cap::block_lb_mc>()) create_flags &= ~kBlockMulticastLoopback;
  if (create_flags != 0) return refuse(EOPNOTSUPP, "create_qp: create_flags {:#x} are not supported by the device", create_flags);
  if (attr.qp_type == ib_qp_type::XRC_TGT) return create_xrc_target(dev, attr, devr);
  if (udata == nullptr || ibpd == nullptr || ibpd->ucontext == nullptr)
    return refuse(EOPNOTSUPP, "create_qp: kernel QPs are not supported by this driver");
  ib_pd& pd = *ibpd;
  bool initiator = attr.qp_type == ib_qp_type::XRC_INI;
  if (attr.send_cq == nullptr || (attr.recv_cq == nullptr && !initiator))
    return refuse(EINVAL, "create_qp: a send and a receive CQ are needed");
  auto& c = to_mucontext(*pd.ucontext);
  using Cmd = ::mlx5_ib_create_qp;
  if (udata->inlen < offsetof(Cmd, flags)) return refuse(EINVAL, "create_qp: driver data of {} bytes", udata->inlen);
  UHCA_CHECK(udata->check_in_tail(sizeof(Cmd)));
  Cmd ucmd;
  UHCA_CHECK(udata->copy_in(&ucmd, sizeof ucmd));
  UHCA_CHECK(check_flags(m, attr.qp_type, ucmd.flags));

  auto qp = std::make_unique<mlx5_ib_qp>();
  qp->device = &d;
  qp->pd = &pd;
  qp->qp_type = attr.qp_type;
  qp->sq_sig_all = attr.sq_sig_all;
  qp->max_inline_data = attr.cap.max_inline_data;
  std::uint32_t uidx = UHCA_TRY(user_index(c, udata->inlen >= offsetof(Cmd, uidx) + sizeof ucmd.uidx, ucmd.uidx));
  if (attr.qp_type == ib_qp_type::DRIVER) {
    if (ucmd.flags & MLX5_QP_FLAG_TYPE_DCT) {
      UHCA_CHECK(create_dct(*qp, attr, ucmd, uidx));
      ::mlx5_ib_create_qp_resp none{};
      UHCA_CHECK(udata->copy_out(&none, sizeof none));
      return std::unique_ptr<ib_qp>(std::move(qp));
    }
    if (attr.cap.max_recv_wr != 0 || attr.cap.max_recv_sge != 0) return refuse(EINVAL, "create_qp: a DCI receives nothing");
  }
  UHCA_CHECK(size_receive_queue(m, *qp, attr, ucmd));
  UHCA_CHECK(size_send_queue(m, *qp, attr, ucmd));
  std::uint32_t uar = UHCA_TRY(uar_of(c, ucmd));
  if (ucmd.db_addr % 8) return refuse(EINVAL, "create_qp: doorbell record at {:#x} is not aligned to 8 bytes", ucmd.db_addr);

  std::size_t bytes = (std::size_t{qp->rq_wqe_cnt} << qp->rq_wqe_shift) + (std::size_t{qp->sq_wqe_cnt} << kSqShift);
  QueuePages pages;
  if (bytes != 0) {
    qp->buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, bytes, false, "QP buffer"));
    pages = UHCA_TRY(queue_pages(*qp->buffer));
  }
  qp->doorbell = UHCA_TRY(m.domain().pin(ucmd.db_addr, 8, false, "QP doorbell record"));

  std::vector<std::uint8_t> in(prm::create_qp_in::kBytes + pages.pas.size() * 8);
  for (std::size_t i = 0; i < pages.pas.size(); ++i) prm::set<prm::create_qp_in::pas>(in.data(), pages.pas[i], i);
  const bool ece = m.cap_gen<prm::cmd_hca_cap::ece_support>();
  if (ece) prm::set<prm::create_qp_in::ece>(in.data(), ucmd.ece_options);
  prm::set<prm::create_qp_in::uid>(in.data(), c.devx_uid);
  void* qpc = prm::at<prm::create_qp_in::qpc>(in.data());
  prm::set<prm::qpc::st>(qpc, to_mlx5_st(attr.qp_type));
  prm::set<prm::qpc::pm_state>(qpc, kMigrated);
  prm::set<prm::qpc::pd>(qpc, to_mpd(pd).pdn);
  prm::set<prm::qpc::wq_signature>(qpc, ucmd.flags & MLX5_QP_FLAG_SIGNATURE ? 1 : 0);
  prm::set<prm::qpc::block_lb_mc>(qpc, attr.create_flags & kBlockMulticastLoopback ? 1 : 0);
  if (attr.qp_type == ib_qp_type::DRIVER && (ucmd.flags & MLX5_QP_FLAG_DCI_STREAM)) {
    prm::set<prm::qpc::log_num_dci_stream_channels>(qpc, ucmd.dci_streams.log_num_concurent);
    prm::set<prm::qpc::log_num_dci_errored_streams>(qpc, ucmd.dci_streams.log_num_errored);
  }
  set_scatter_to_cqe(qpc, attr, ucmd.flags);
  if (qp->rq_wqe_cnt != 0) {
    prm::set<prm::qpc::log_rq_stride>(qpc, qp->rq_wqe_shift - 4);
    prm::set<prm::qpc::log_rq_size>(qpc, static_cast<unsigned>(std::countr_zero(qp->rq_wqe_cnt)));
  }
  prm::set<prm::qpc::rq_type>(qpc, attr.srq != nullptr || initiator ? kSharedRq : qp->rq_wqe_cnt != 0 ? kNonZeroRq : kZeroLengthRq);
  if (qp->sq_wqe_cnt != 0) {
    prm::set<prm::qpc::log_sq_size>(qpc, static_cast<unsigned>(std::countr_zero(qp->sq_wqe_cnt)));
  } else {
    prm::set<prm::qpc::no_sq>(qpc, 1);
  }
  set_default_resources(qpc, attr, devr);
  prm::set<prm::qpc::cqn_snd>(qpc, to_mcq(*attr.send_cq).cqn);
  if (attr.recv_cq != nullptr) prm::set<prm::qpc::cqn_rcv>(qpc, to_mcq(*attr.recv_cq).cqn);
  prm::set<prm::qpc::dbr_addr>(qpc, qp->doorbell->dma());
  if (c.cqe_version == 1) prm::set<prm::qpc::user_index>(qpc, uidx);
  prm::set<prm::qpc::uar_page>(qpc, uar);
  prm::set<prm::qpc::log_page_size>(qpc, pages.log_page_size);
  prm::set<prm::qpc::page_offset>(qpc, pages.page_offset);
  static_cast<mlx5_core_qp&>(*qp).event = qp_event;
  UHCA_CHECK(m.create_qp(*qp, in));
  qp->qp_num = qp->qpn;
  if (qp->buffer) m.domain().rename(qp->buffer->dma(), fmt::format("QP {:#x} buffer", qp->qpn));
  m.domain().rename(qp->doorbell->dma(), fmt::format("QP {:#x} doorbell record", qp->qpn));

  ::mlx5_ib_create_qp_resp resp{};
  if (ece) resp.ece_options = static_cast<mlx5_core_qp&>(*qp).ece;
  if (Status s = udata->copy_out(&resp, sizeof resp); !s) {
    if (Status f = m.destroy_qp(*qp); !f) log::error("QP {:#x} could not be destroyed", qp->qpn);
    return s.error();
  }
  return std::unique_ptr<ib_qp>(std::move(qp));
}

Status destroy_qp(ib_qp& ibqp) {
  auto& qp = to_mqp(ibqp);
  auto& m = *to_mdev(*qp.device).mdev;
  std::lock_guard g(qp.lock);
  if (qp.dct) return destroy_dct(qp);
  if (qp.raw) return destroy_raw_packet_qp(qp);
  // Linux goes to RESET first, so that the device is done with the queues when the number is freed.
  if (qp.state != ib_qp_state::RESET) {
    std::uint8_t in[prm::qp_2rst_in::kBytes] = {}, out[prm::qp_2rst_out::kBytes] = {};
    prm::set<prm::qp_2rst_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::TO_2RST_QP));
    prm::set<prm::qp_2rst_in::qpn>(in, qp.qpn);
    if (Status s = m.cmd().exec(in, sizeof in, out, sizeof out); !s) log::warn("QP {:#x}: could not be reset before destruction", qp.qpn);
  }
  UHCA_CHECK(m.destroy_qp(qp));
  if (qp.kernel) leave_kernel_cqs(qp);
  qp.buffer.reset();
  qp.doorbell.reset();
  return success();
}

}  // namespace uhca::kernel::mlx5
