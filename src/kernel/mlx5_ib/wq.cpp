// SPDX-License-Identifier: MIT
// Receive work queues of programs and their indirection tables. Linux: hw/mlx5/qp.c (mlx5_ib_create_wq, ...).
#include <bit>
#include <cstddef>

#include "base/log.h"
#include "kernel/mlx5_ib/queue_pages.h"
#include "kernel/mlx5_ib/raw_packet.h"
#include "prm/cmd_eth.h"
#include "prm/queue_context.h"

namespace uhca::kernel::mlx5 {
namespace {

using prm::Opcode;
using cap = prm::per_protocol_networking_offload_caps;

constexpr std::uint32_t kStridingRq = 1;  // mlx5_ib_create_wq.comp_mask: MLX5_IB_CREATE_WQ_STRIDING_RQ
constexpr std::uint32_t kSignature = 1;   // .flags: MLX5_WQ_FLAG_SIGNATURE
constexpr std::uint32_t kEventWqFatal = 19;
constexpr unsigned kWqCyclic = 1;             // wq.wq_type
constexpr std::uint64_t kModifyVsd = 1 << 1;  // MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_VSD
constexpr unsigned kMaxShift = 31;

void wq_event(mlx5_core_qp& core, EventType type) {
  auto& wq = static_cast<mlx5_ib_rwq&>(core);
  if (type == EventType::WQ_CATAS_ERROR && wq.event_handler != nullptr) wq.event_handler(&wq, kEventWqFatal, wq.wq_context);
}

std::uint16_t uid_of(const ib_wq& wq) {
  return to_mucontext(*wq.pd->ucontext).devx_uid;
}

// Linux: ib_copy_validate_udata_in_cm.
Status read_request(const Udata& udata, ::mlx5_ib_create_wq* ucmd) {
  using Cmd = ::mlx5_ib_create_wq;
  if (udata.inlen < offsetof(Cmd, single_stride_log_num_of_bytes) + sizeof ucmd->single_stride_log_num_of_bytes)
    return refuse(EINVAL, "create_wq: driver data of {} bytes", udata.inlen);
  UHCA_CHECK(udata.check_in_tail(sizeof(Cmd)));
  UHCA_CHECK(udata.copy_in(ucmd, sizeof *ucmd));
  if (ucmd->comp_mask & ~kStridingRq) return refuse(EOPNOTSUPP, "create_wq: driver comp_mask {:#x}", ucmd->comp_mask);
  return success();
}

Status check_create_flags(const mlx5_core_dev& m, std::uint32_t flags) {
  if ((flags & IB_WQ_FLAGS_PCI_WRITE_END_PADDING) && !m.cap_gen<prm::cmd_hca_cap::end_pad>())
    return refuse(EOPNOTSUPP, "create_wq: padding of PCI writes is not supported by the device");
  if ((flags & IB_WQ_FLAGS_CVLAN_STRIPPING) && !m.cap_eth<cap::vlan_cap>())
    return refuse(EOPNOTSUPP, "create_wq: VLAN stripping is not supported by the device");
  if ((flags & IB_WQ_FLAGS_SCATTER_FCS) && !m.cap_eth<cap::scatter_fcs>())
    return refuse(EOPNOTSUPP, "create_wq: scattering the FCS is not supported by the device");
  if (flags & IB_WQ_FLAGS_DELAY_DROP) return refuse(EOPNOTSUPP, "create_wq: delayed drop is not supported by the device");
  return success();
}

}  // namespace

Result<std::unique_ptr<ib_wq>> create_wq(ib_pd& pd, ib_wq_init_attr& attr, Udata* udata) {
  if (udata == nullptr || pd.ucontext == nullptr) return refuse(ENOSYS, "create_wq: WQs are for programs");
  using Resp = ::mlx5_ib_create_wq_resp;
  if (udata->outlen && udata->outlen < offsetof(Resp, reserved) + sizeof Resp::reserved)
    return refuse(EINVAL, "create_wq: room for {} bytes of driver response", udata->outlen);
  auto& m = *to_mdev(*pd.device).mdev;
  if (attr.wq_type != IB_WQT_RQ) return refuse(EINVAL, "create_wq: WQ type {}", attr.wq_type);
  ::mlx5_ib_create_wq ucmd{};
  UHCA_CHECK(read_request(*udata, &ucmd));
  if (ucmd.comp_mask & kStridingRq) return refuse(EOPNOTSUPP, "create_wq: striding RQs are not supported by the device");
  std::uint32_t max_wr = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_wq_sz>();
  if (attr.max_wr > max_wr) return refuse(EINVAL, "create_wq: max_wr {} of at most {}", attr.max_wr, max_wr);
  if (ucmd.rq_wqe_count == 0) return refuse(EINVAL, "create_wq: no WQEs");
  if (ucmd.rq_wqe_shift > kMaxShift || (std::uint64_t{ucmd.rq_wqe_count} << ucmd.rq_wqe_shift) > 0x7fffffff)
    return refuse(EINVAL, "create_wq: {} WQEs of 2^{} bytes", ucmd.rq_wqe_count, ucmd.rq_wqe_shift);
  if (ucmd.buf_addr == 0) return refuse(EINVAL, "create_wq: no buffer");

  auto wq = std::make_unique<mlx5_ib_rwq>();
  wq->buffer = UHCA_TRY(m.domain().pin(ucmd.buf_addr, std::size_t{ucmd.rq_wqe_count} << ucmd.rq_wqe_shift, false, "WQ buffer"));
  QueuePages pages = UHCA_TRY(queue_pages(*wq->buffer, prm::wq::page_offset.width));
  if (ucmd.db_addr % 8) return refuse(EINVAL, "create_wq: doorbell record at {:#x} is not aligned to 8 bytes", ucmd.db_addr);
  wq->doorbell = UHCA_TRY(m.domain().pin(ucmd.db_addr, 8, false, "WQ doorbell record"));
  UHCA_CHECK(check_create_flags(m, attr.create_flags));

  std::uint16_t uid = to_mucontext(*pd.ucontext).devx_uid;
  std::vector<std::uint8_t> in(prm::create_rq_in::kBytes + pages.pas.size() * 8);
  prm::set<prm::create_rq_in::uid>(in.data(), uid);
  void* rqc = prm::at<prm::create_rq_in::ctx>(static_cast<void*>(in.data()));
  prm::set<prm::rqc::vsd>(rqc, attr.create_flags & IB_WQ_FLAGS_CVLAN_STRIPPING ? 0 : 1);
  prm::set<prm::rqc::scatter_fcs>(rqc, attr.create_flags & IB_WQ_FLAGS_SCATTER_FCS ? 1 : 0);
  prm::set<prm::rqc::user_index>(rqc, ucmd.user_index & 0xffffff);
  prm::set<prm::rqc::cqn>(rqc, to_mcq(*attr.cq).cqn);
  prm::set<prm::rqc::flush_in_error_en>(rqc, 1);
  void* w = prm::at<prm::rqc::wq>(rqc);
  prm::set<prm::wq::wq_type>(w, kWqCyclic);
  prm::set<prm::wq::end_padding_mode>(w, attr.create_flags & IB_WQ_FLAGS_PCI_WRITE_END_PADDING ? 1 : 0);
  prm::set<prm::wq::log_wq_stride>(w, ucmd.rq_wqe_shift);
  prm::set<prm::wq::log_wq_sz>(w, static_cast<unsigned>(std::bit_width(ucmd.rq_wqe_count)) - 1);
  prm::set<prm::wq::pd>(w, to_mpd(pd).pdn);
  prm::set<prm::wq::page_offset>(w, pages.page_offset);
  prm::set<prm::wq::log_wq_pg_sz>(w, pages.log_page_size);
  prm::set<prm::wq::wq_signature>(w, ucmd.flags & kSignature ? 1 : 0);
  prm::set<prm::wq::dbr_addr>(w, wq->doorbell->dma());
  for (std::size_t i = 0; i < pages.pas.size(); ++i) prm::set<prm::wq::pas>(w, pages.pas[i], i);
  static_cast<mlx5_core_qp&>(*wq).event = wq_event;
  UHCA_CHECK(create_raw_queue(m, *wq, Opcode::CREATE_RQ, in));
  wq->wq_num = wq->qpn;
  m.domain().rename(wq->buffer->dma(), fmt::format("WQ {:#x} buffer", wq->qpn));
  m.domain().rename(wq->doorbell->dma(), fmt::format("WQ {:#x} doorbell record", wq->qpn));
  if (udata->outlen) {
    Resp resp{};
    resp.response_length = offsetof(Resp, response_length) + sizeof resp.response_length;
    if (Status s = udata->copy_out(&resp, sizeof resp); !s) {
      if (Status f = destroy_raw_queue(m, *wq, Opcode::DESTROY_RQ, uid); !f) log::error("WQ {:#x} could not be destroyed", wq->qpn);
      return s.error();
    }
  }
  return std::unique_ptr<ib_wq>(std::move(wq));
}

Status modify_wq(ib_wq& ibwq, const ib_wq_attr& a, std::uint32_t mask, Udata* udata) {
  auto& wq = to_mrwq(ibwq);
  auto& m = *to_mdev(*wq.device).mdev;
  if (udata == nullptr || udata->inlen < sizeof(::mlx5_ib_modify_wq)) return refuse(EINVAL, "modify_wq: no driver data");
  ::mlx5_ib_modify_wq ucmd{};
  UHCA_CHECK(udata->check_in_tail(sizeof ucmd));
  UHCA_CHECK(udata->copy_in(&ucmd, sizeof ucmd));
  if (ucmd.comp_mask || ucmd.reserved) return refuse(EOPNOTSUPP, "modify_wq: driver comp_mask {:#x}", ucmd.comp_mask);
  auto state_of = [](ib_wq_state s) { return static_cast<unsigned>(s == ib_wq_state::ERR ? WqState::kError : static_cast<WqState>(s)); };
  std::uint8_t in[prm::modify_rq_in::kBytes] = {}, out[prm::modify_rq_out::kBytes] = {};
  void* rqc = prm::at<prm::modify_rq_in::ctx>(static_cast<void*>(in));
  prm::set<prm::modify_rq_in::opcode>(in, static_cast<std::uint16_t>(Opcode::MODIFY_RQ));
  prm::set<prm::modify_rq_in::uid>(in, uid_of(wq));
  prm::set<prm::modify_rq_in::rqn>(in, wq.qpn);
  prm::set<prm::modify_rq_in::rq_state>(in, state_of(a.curr_wq_state));
  prm::set<prm::rqc::state>(rqc, state_of(a.wq_state));
  if (mask & IB_WQ_FLAGS) {
    if (a.flags_mask & IB_WQ_FLAGS_CVLAN_STRIPPING) {
      if (!m.cap_eth<cap::vlan_cap>()) return refuse(EOPNOTSUPP, "modify_wq: VLAN stripping is not supported by the device");
      prm::set<prm::modify_rq_in::modify_bitmask>(in, kModifyVsd);
      prm::set<prm::rqc::vsd>(rqc, a.flags & IB_WQ_FLAGS_CVLAN_STRIPPING ? 0 : 1);
    }
    if (a.flags_mask & IB_WQ_FLAGS_PCI_WRITE_END_PADDING) return refuse(EOPNOTSUPP, "modify_wq: padding of PCI writes cannot be changed");
  }
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  wq.state = a.wq_state;
  return success();
}

Status destroy_wq(ib_wq& ibwq) {
  auto& wq = to_mrwq(ibwq);
  UHCA_CHECK(destroy_raw_queue(*to_mdev(*wq.device).mdev, wq, Opcode::DESTROY_RQ, uid_of(wq)));
  wq.buffer.reset();
  wq.doorbell.reset();
  return success();
}

Result<std::unique_ptr<ib_rwq_ind_table>> create_rwq_ind_table(ib_device& d, const std::vector<ib_wq*>& wqs, Udata* udata) {
  auto& m = *to_mdev(d).mdev;
  using Resp = ::mlx5_ib_create_rwq_ind_tbl_resp;
  if (udata == nullptr) return refuse(EOPNOTSUPP, "create_rwq_ind_table: indirection tables are for programs");
  UHCA_CHECK(udata->check_in_tail(0));
  std::size_t most = std::size_t{1} << m.cap_gen<prm::cmd_hca_cap::log_max_rqt_size>();
  if (wqs.size() > most) return refuse(EINVAL, "create_rwq_ind_table: {} places of at most {}", wqs.size(), most);
  if (udata->outlen && udata->outlen < offsetof(Resp, reserved) + sizeof Resp::reserved)
    return refuse(EINVAL, "create_rwq_ind_table: room for {} bytes of driver response", udata->outlen);
  auto table = std::make_unique<mlx5_ib_rwq_ind_table>();
  table->uid = uid_of(*wqs[0]);
  std::vector<std::uint8_t> in(prm::create_rqt_in::kBytes + wqs.size() * 4);
  std::uint8_t out[prm::create_rqt_out::kBytes] = {};
  prm::set<prm::create_rqt_in::opcode>(in.data(), static_cast<std::uint16_t>(Opcode::CREATE_RQT));
  prm::set<prm::create_rqt_in::uid>(in.data(), table->uid);
  void* rqtc = prm::at<prm::create_rqt_in::rqt_context>(static_cast<void*>(in.data()));
  prm::set<prm::rqtc::rqt_actual_size>(rqtc, wqs.size());
  prm::set<prm::rqtc::rqt_max_size>(rqtc, wqs.size());
  for (std::size_t i = 0; i < wqs.size(); ++i) prm::set<prm::rqtc::rq_num>(rqtc, wqs[i]->wq_num, i);
  UHCA_CHECK(m.cmd().exec(in.data(), in.size(), out, sizeof out));
  table->ind_tbl_num = prm::get<prm::create_rqt_out::rqtn>(out);
  if (udata->outlen) {
    Resp resp{};
    resp.response_length = offsetof(Resp, response_length) + sizeof resp.response_length;
    if (Status s = udata->copy_out(&resp, sizeof resp); !s) {
      if (Status f = exec_on_number(m, Opcode::DESTROY_RQT, table->ind_tbl_num, table->uid); !f)
        log::error("RQT {:#x} could not be destroyed", table->ind_tbl_num);
      return s.error();
    }
  }
  return std::unique_ptr<ib_rwq_ind_table>(std::move(table));
}

Status destroy_rwq_ind_table(ib_rwq_ind_table& t) {
  return exec_on_number(*to_mdev(*t.device).mdev, Opcode::DESTROY_RQT, t.ind_tbl_num, static_cast<mlx5_ib_rwq_ind_table&>(t).uid);
}

}  // namespace uhca::kernel::mlx5
