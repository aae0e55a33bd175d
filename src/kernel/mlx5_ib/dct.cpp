// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/dct.h"

#include "base/log.h"
#include "prm/queue_context.h"

namespace uhca::kernel::mlx5 {
namespace {

using S = ib_qp_state;
constexpr std::uint32_t kResScat64 = 0x2;  // dctc.cs_res (MLX5_RES_SCAT_DATA64_CQE)
constexpr std::uint32_t kAtomicIb = 1;     // dctc.atomic_mode: IB compliant

void* context_of(Dct& d) {
  return prm::at<prm::create_dct_in::dct_context_entry>(static_cast<void*>(d.create));
}

bool is_valid_mask(std::uint32_t mask, std::uint32_t required, std::uint32_t optional) {
  return (mask & required) == required && (mask & ~(required | optional)) == 0;
}

Status simple(mlx5_core_dev& m, prm::Opcode op, std::uint32_t dctn, std::uint16_t uid) {
  std::uint8_t in[prm::destroy_dct_in::kBytes] = {}, out[prm::destroy_dct_out::kBytes] = {};
  prm::set<prm::destroy_dct_in::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<prm::destroy_dct_in::uid>(in, uid);
  prm::set<prm::destroy_dct_in::dctn>(in, dctn);
  return m.cmd().exec(in, sizeof in, out, sizeof out);
}

// What is under way to a target ends before it goes. Linux: mlx5_core_destroy_dct.
Status destroy_in_hardware(mlx5_ib_qp& qp) {
  Dct& d = *qp.dct;
  auto& m = *to_mdev(*qp.device).mdev;
  auto uid = static_cast<std::uint16_t>(prm::get<prm::create_dct_in::uid>(d.create));
  if (!d.drained) UHCA_CHECK(simple(m, prm::Opcode::DRAIN_DCT, d.dctn, uid));
  d.drained = true;
  UHCA_CHECK(simple(m, prm::Opcode::DESTROY_DCT, d.dctn, uid));
  d.dctn = 0;
  return success();
}

Status to_init(mlx5_ib_qp& qp, const ib_qp_attr& a, std::uint32_t mask) {
  if (!is_valid_mask(mask, IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT, 0))
    return refuse(EINVAL, "modify DCT: RESET -> INIT with attribute mask {:#x}", mask);
  if (a.port_num != 1) return refuse(EINVAL, "modify DCT: port {} of 1", a.port_num);
  void* c = context_of(*qp.dct);
  prm::set<prm::dctc::rre>(c, a.qp_access_flags & kAccessRemoteRead ? 1 : 0);
  prm::set<prm::dctc::rwe>(c, a.qp_access_flags & kAccessRemoteWrite ? 1 : 0);
  if (a.qp_access_flags & kAccessRemoteAtomic) {
    prm::set<prm::dctc::rae>(c, 1);
    prm::set<prm::dctc::atomic_mode>(c, kAtomicIb);
  }
  prm::set<prm::dctc::pkey_index>(c, a.pkey_index);
  prm::set<prm::dctc::port>(c, a.port_num);
  qp.port_num = a.port_num;
  return success();
}

Status to_rtr(mlx5_ib_qp& qp, const ib_qp_attr& a, std::uint32_t mask, Udata* udata) {
  using Resp = ::mlx5_ib_modify_qp_resp;
  constexpr std::size_t kNeeded = offsetof(Resp, dctn) + sizeof(Resp::dctn);
  if (udata == nullptr || udata->outlen < kNeeded) return refuse(EINVAL, "modify DCT: no room for its number");
  if (!is_valid_mask(mask, IB_QP_STATE | IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU, 0))
    return refuse(EINVAL, "modify DCT: INIT -> RTR with attribute mask {:#x}", mask);
  Dct& d = *qp.dct;
  if (d.dctn != 0) UHCA_CHECK(destroy_in_hardware(qp));  // left over: its number could not be told to the program
  void* c = context_of(d);
  prm::set<prm::dctc::min_rnr_nak>(c, a.min_rnr_timer & 0x1f);
  prm::set<prm::dctc::tclass>(c, a.ah_attr.traffic_class);
  prm::set<prm::dctc::flow_label>(c, a.ah_attr.flow_label & 0xfffff);
  prm::set<prm::dctc::mtu>(c, a.path_mtu & 7);
  prm::set<prm::dctc::my_addr_index>(c, a.ah_attr.sgid_index);
  prm::set<prm::dctc::hop_limit>(c, a.ah_attr.hop_limit);
  prm::set<prm::dctc::eth_prio>(c, a.ah_attr.sl & 7);
  std::uint8_t out[prm::create_dct_out::kBytes] = {};
  prm::set<prm::create_dct_in::opcode>(d.create, static_cast<std::uint16_t>(prm::Opcode::CREATE_DCT));
  UHCA_CHECK(to_mdev(*qp.device).mdev->cmd().exec(d.create, sizeof d.create, out, sizeof out));
  d.dctn = prm::get<prm::create_dct_out::dctn>(out);
  d.drained = false;
  Resp resp{};
  resp.response_length = static_cast<std::uint32_t>(udata->outlen < sizeof resp ? kNeeded : sizeof resp);
  resp.dctn = d.dctn;
  resp.ece_options = prm::get<prm::create_dct_out::ece>(out);
  Status s = udata->copy_out(&resp, resp.response_length);
  if (!s) {
    if (Status f = destroy_in_hardware(qp); !f) log::error("DCT {:#x} could not be destroyed ({})", d.dctn, f.code());
  }
  return s;
}

}  // namespace

Status create_dct(mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd, std::uint32_t uidx) {
  if (attr.srq == nullptr || attr.recv_cq == nullptr) return refuse(EINVAL, "create DCT: an SRQ and a receive CQ are needed");
  qp.dct = std::make_unique<Dct>();
  prm::set<prm::create_dct_in::uid>(qp.dct->create, to_mucontext(*qp.pd->ucontext).devx_uid);
  void* c = context_of(*qp.dct);
  prm::set<prm::dctc::pd>(c, to_mpd(*qp.pd).pdn);
  prm::set<prm::dctc::srqn_xrqn>(c, to_msrq(*attr.srq).srqn);
  prm::set<prm::dctc::cqn>(c, to_mcq(*attr.recv_cq).cqn);
  prm::set<prm::dctc::dc_access_key>(c, ucmd.access_key);
  prm::set<prm::dctc::user_index>(c, uidx);
  if (to_mdev(*qp.device).mdev->cap_gen<prm::cmd_hca_cap::ece_support>()) prm::set<prm::dctc::ece>(c, ucmd.ece_options);
  if ((ucmd.flags & MLX5_QP_FLAG_SCATTER_CQE) && to_mcq(*attr.recv_cq).cqe_size == 128) prm::set<prm::dctc::cs_res>(c, kResScat64);
  return success();
}

Status modify_dct(mlx5_ib_qp& qp, const ib_qp_attr& a, std::uint32_t mask, std::uint32_t ece, Udata* udata) {
  if (!(mask & IB_QP_STATE)) return refuse(EINVAL, "modify DCT: only state changes are possible");
  // What was said at creation stays, unless something is said now.
  if (ece != 0 && to_mdev(*qp.device).mdev->cap_gen<prm::cmd_hca_cap::ece_support>()) prm::set<prm::dctc::ece>(context_of(*qp.dct), ece);
  if (qp.state == S::RESET && a.qp_state == S::INIT) {
    UHCA_CHECK(to_init(qp, a, mask));
  } else if (qp.state == S::INIT && a.qp_state == S::RTR) {
    UHCA_CHECK(to_rtr(qp, a, mask, udata));
  } else {
    return refuse(EINVAL, "modify DCT: {} -> {} is not possible", to_string(qp.state), to_string(a.qp_state));
  }
  qp.state = a.qp_state;
  return success();
}

Status query_dct(mlx5_ib_qp& qp, ib_qp_attr& a, std::uint32_t mask) {
  constexpr std::uint32_t known =
      IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PORT | IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_PKEY_INDEX;
  if (mask & ~known) return refuse(EINVAL, "query DCT: attributes {:#x}", mask & ~known);
  if (qp.state != S::RTR) return refuse(EINVAL, "query DCT: it is in {}, the device has it in RTR only", to_string(qp.state));
  std::uint8_t in[prm::query_dct_in::kBytes] = {}, out[prm::query_dct_out::kBytes] = {};
  prm::set<prm::query_dct_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_DCT));
  prm::set<prm::query_dct_in::dctn>(in, qp.dct->dctn);
  UHCA_CHECK(to_mdev(*qp.device).mdev->cmd().exec(in, sizeof in, out, sizeof out));
  const void* c = prm::at<prm::query_dct_out::dct_context_entry>(static_cast<const void*>(out));
  a.qp_state = S::RTR;
  if (prm::get<prm::dctc::rre>(c)) a.qp_access_flags |= kAccessRemoteRead;
  if (prm::get<prm::dctc::rwe>(c)) a.qp_access_flags |= kAccessRemoteWrite;
  if (prm::get<prm::dctc::rae>(c)) a.qp_access_flags |= kAccessRemoteAtomic;
  a.port_num = qp.port_num;
  a.min_rnr_timer = static_cast<std::uint8_t>(prm::get<prm::dctc::min_rnr_nak>(c));
  a.ah_attr.traffic_class = static_cast<std::uint8_t>(prm::get<prm::dctc::tclass>(c));
  a.ah_attr.flow_label = prm::get<prm::dctc::flow_label>(c);
  a.ah_attr.sgid_index = static_cast<std::uint8_t>(prm::get<prm::dctc::my_addr_index>(c));
  a.ah_attr.hop_limit = static_cast<std::uint8_t>(prm::get<prm::dctc::hop_limit>(c));
  a.path_mtu = static_cast<std::uint8_t>(prm::get<prm::dctc::mtu>(c));
  a.pkey_index = static_cast<std::uint16_t>(prm::get<prm::dctc::pkey_index>(c));
  return success();
}

Status destroy_dct(mlx5_ib_qp& qp) {
  if (qp.dct->dctn == 0) return success();
  UHCA_CHECK(destroy_in_hardware(qp));
  qp.state = S::RESET;
  return success();
}

bool modify_dci_is_ok(S from, S to, std::uint32_t mask) {
  constexpr std::uint32_t state = IB_QP_STATE;
  if (to == S::RESET || (to == S::ERR && from != S::RESET)) return is_valid_mask(mask, state, 0);
  if (from == S::RESET && to == S::INIT) return is_valid_mask(mask, state | IB_QP_PKEY_INDEX | IB_QP_PORT, 0);
  if (from == S::INIT && to == S::INIT) return is_valid_mask(mask, state, IB_QP_PKEY_INDEX | IB_QP_PORT);
  if (from == S::INIT && to == S::RTR) return is_valid_mask(mask, state | IB_QP_PATH_MTU, IB_QP_PKEY_INDEX | IB_QP_AV);
  if (from == S::RTR && to == S::RTS)
    return is_valid_mask(mask, state | IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC | IB_QP_SQ_PSN,
                         IB_QP_MIN_RNR_TIMER);
  if (from == S::RTS && to == S::RTS) return is_valid_mask(mask, state, IB_QP_MIN_RNR_TIMER);
  return false;
}

}  // namespace uhca::kernel::mlx5
