// SPDX-License-Identifier: MIT
// State changes and queries of queue pairs. Linux: hw/mlx5/qp.c (__mlx5_ib_modify_qp, mlx5_ib_query_qp).
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/log.h"
#include "kernel/mlx5_ib/dct.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "kernel/mlx5_ib/kernel_queue.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/raw_packet.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

using S = ib_qp_state;
using prm::Opcode;

// opt_param_mask (Linux qp.h: MLX5_QP_OPTPAR_*).
constexpr std::uint32_t kOptAltPath = 1 << 0, kOptRre = 1 << 1, kOptRae = 1 << 2, kOptRwe = 1 << 3, kOptPkeyIndex = 1 << 4,
                        kOptQkey = 1 << 5, kOptRnrTimeout = 1 << 6, kOptPrimaryPath = 1 << 7, kOptSraMax = 1 << 8, kOptRraMax = 1 << 9,
                        kOptPmState = 1 << 10, kOptRetryCount = 1 << 12, kOptRnrRetry = 1 << 13, kOptAckTimeout = 1 << 14,
                        kOptPriPort = 1 << 16;
constexpr std::uint32_t kOptRemote = kOptRre | kOptRae | kOptRwe;
constexpr std::uint32_t kAckReqFreq = 8;  // MLX5_IB_ACK_REQ_FREQ
constexpr std::uint32_t kAtomicIb = 1;    // qpc.atomic_mode: IB compliant
constexpr std::uint8_t kMtu4096 = 5, kUdLogMsg = 12;
constexpr std::uint32_t kRateOffset = 5;  // MLX5_STAT_RATE_OFFSET

// One row per transition that has a command; anything else mlx5 cannot do. `optional`: what opt_param_mask may carry, per
// transport (what is required there needs no bit).
struct Transition {
  S from, to;
  Opcode op;
  std::uint32_t rc, uc, ud;
};
constexpr Transition kTransitions[] = {
    {S::RESET, S::INIT, Opcode::RST2INIT_QP, 0, 0, 0},
    {S::INIT, S::INIT, Opcode::INIT2INIT_QP, kOptRemote | kOptPkeyIndex | kOptPriPort, kOptRwe | kOptPkeyIndex | kOptPriPort,
     kOptPkeyIndex | kOptQkey | kOptPriPort},
    {S::INIT, S::RTR, Opcode::INIT2RTR_QP, kOptAltPath | kOptRemote | kOptPkeyIndex, kOptAltPath | kOptRwe | kOptPkeyIndex,
     kOptPkeyIndex | kOptQkey},
    {S::RTR, S::RTS, Opcode::RTR2RTS_QP, kOptAltPath | kOptRemote | kOptPmState | kOptRnrTimeout, kOptAltPath | kOptRwe | kOptPmState,
     kOptQkey},
    {S::RTS, S::RTS, Opcode::RTS2RTS_QP, kOptRemote | kOptRnrTimeout | kOptPmState | kOptAltPath, kOptRwe | kOptPmState | kOptAltPath,
     kOptQkey},
    {S::SQE, S::RTS, Opcode::SQERR2RTS_QP, kOptRnrTimeout | kOptRemote, kOptRwe, kOptQkey},
};

const Transition* find(S from, S to) {
  for (const Transition& t : kTransitions)
    if (t.from == from && t.to == to) return &t;
  return nullptr;
}

std::uint32_t optional_of(const Transition& t, ib_qp_type type) {
  switch (type) {
    case ib_qp_type::UC: return t.uc;
    case ib_qp_type::UD:
    case ib_qp_type::GSI: return t.ud;
    case ib_qp_type::DRIVER: return 0;
    default: return t.rc;
  }
}

// Linux: ib_mask_to_mlx5_opt.
std::uint32_t to_opt(std::uint32_t mask) {
  std::uint32_t o = 0;
  if (mask & IB_QP_ACCESS_FLAGS) o |= kOptRemote;
  if (mask & IB_QP_PKEY_INDEX) o |= kOptPkeyIndex;
  if (mask & IB_QP_PORT) o |= kOptPriPort;
  if (mask & IB_QP_QKEY) o |= kOptQkey;
  if (mask & IB_QP_AV) o |= kOptPrimaryPath | kOptPriPort;
  if (mask & IB_QP_TIMEOUT) o |= kOptAckTimeout;
  if (mask & IB_QP_RETRY_CNT) o |= kOptRetryCount;
  if (mask & IB_QP_RNR_RETRY) o |= kOptRnrRetry;
  if (mask & IB_QP_MAX_QP_RD_ATOMIC) o |= kOptSraMax;
  if (mask & IB_QP_ALT_PATH) o |= kOptAltPath;
  if (mask & IB_QP_MIN_RNR_TIMER) o |= kOptRnrTimeout;
  if (mask & IB_QP_MAX_DEST_RD_ATOMIC) o |= kOptRraMax | kOptRemote;
  if (mask & IB_QP_PATH_MIG_STATE) o |= kOptPmState;
  return o;
}

unsigned log2_of(unsigned v) {
  return static_cast<unsigned>(std::bit_width(v)) - 1;
}

Status set_path(const mlx5_core_dev& m, void* ads, const rdma_ah_attr& ah) {
  if (!ah.is_global) return refuse(EINVAL, "modify_qp: a RoCE path needs a GRH");
  std::uint32_t table = m.cap_roce<prm::roce_cap::roce_address_table_size>();
  if (ah.sgid_index >= table) return refuse(EINVAL, "modify_qp: sgid_index {} of {}", ah.sgid_index, table);
  prm::set<prm::ads::rmac_47_32>(ads, ah.dmac[0] << 8 | ah.dmac[1]);
  std::memcpy(static_cast<std::uint8_t*>(ads) + prm::byte_of<prm::ads::rmac_31_0>, ah.dmac.data() + 2, 4);
  prm::set<prm::ads::eth_prio>(ads, ah.sl & 7);
  prm::set<prm::ads::grh>(ads, 1);
  prm::set<prm::ads::src_addr_index>(ads, ah.sgid_index);
  prm::set<prm::ads::hop_limit>(ads, ah.hop_limit);
  prm::set<prm::ads::tclass>(ads, ah.traffic_class);
  prm::set<prm::ads::flow_label>(ads, ah.flow_label & 0xfffff);
  std::memcpy(prm::at<prm::ads::rgid_rip>(ads), ah.dgid.data(), 16);
  // The next lower rate that the device supports; 0: the port's own (Linux: ib_rate_to_mlx5).
  std::uint32_t supported = m.cap_gen<prm::cmd_hca_cap::stat_rate_support>();
  std::uint32_t rate = ah.static_rate;
  while (rate != 0 && !(rate + kRateOffset < 32 && (supported >> (rate + kRateOffset) & 1))) --rate;
  prm::set<prm::ads::stat_rate>(ads, rate ? rate + kRateOffset : 0);
  prm::set<prm::ads::vhca_port_num>(ads, ah.port_num);
  return success();
}

Status check_limits(const mlx5_core_dev& m, const mlx5_ib_qp& qp, const ib_qp_attr& a, std::uint32_t mask) {
  if ((mask & IB_QP_PORT) && a.port_num != 1) return refuse(EINVAL, "modify_qp: QP {:#x}: port {} of 1", qp.qpn, a.port_num);
  std::uint32_t pkeys = 128u << m.cap_gen<prm::cmd_hca_cap::pkey_table_size>();
  if ((mask & IB_QP_PKEY_INDEX) && a.pkey_index >= pkeys)
    return refuse(EINVAL, "modify_qp: QP {:#x}: pkey_index {} of {}", qp.qpn, a.pkey_index, pkeys);
  std::uint32_t req = 1u << (qp.qp_type == ib_qp_type::DRIVER ? m.cap_gen<prm::cmd_hca_cap::log_max_ra_res_dc>()
                                                              : m.cap_gen<prm::cmd_hca_cap::log_max_ra_res_qp>());
  std::uint32_t res = 1u << m.cap_gen<prm::cmd_hca_cap::log_max_ra_req_qp>();
  if ((mask & IB_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > req)
    return refuse(EINVAL, "modify_qp: QP {:#x}: max_rd_atomic {}; the device has {} (max_qp_init_rd_atom)", qp.qpn, a.max_rd_atomic, req);
  if ((mask & IB_QP_MAX_DEST_RD_ATOMIC) && a.max_dest_rd_atomic > res)
    return refuse(EINVAL, "modify_qp: QP {:#x}: max_dest_rd_atomic {}; the device has {} (max_qp_rd_atom)", qp.qpn, a.max_dest_rd_atomic,
                  res);
  if ((mask & IB_QP_PATH_MTU) && (a.path_mtu < 1 || a.path_mtu > kMtu4096))
    return refuse(EINVAL, "modify_qp: QP {:#x}: path_mtu {}; 1 (256) to 5 (4096) exist", qp.qpn, a.path_mtu);
  return success();
}

// Linux: set_qpc_atomic_flags. Reads and atomics need a responder depth.
void set_remote_access(void* qpc, mlx5_ib_qp& qp, const ib_qp_attr& a, std::uint32_t mask) {
  std::uint8_t depth = mask & IB_QP_MAX_DEST_RD_ATOMIC ? a.max_dest_rd_atomic : qp.resp_depth;
  std::uint32_t access = mask & IB_QP_ACCESS_FLAGS ? a.qp_access_flags : qp.atomic_rd_en;
  if (depth == 0) access &= kAccessRemoteWrite;
  prm::set<prm::qpc::rre>(qpc, access & kAccessRemoteRead ? 1 : 0);
  prm::set<prm::qpc::rwe>(qpc, access & kAccessRemoteWrite ? 1 : 0);
  if (access & kAccessRemoteAtomic) {
    prm::set<prm::qpc::rae>(qpc, 1);
    prm::set<prm::qpc::atomic_mode>(qpc, kAtomicIb);
  }
}

Status fill_qpc(const mlx5_core_dev& m, mlx5_ib_qp& qp, void* qpc, const ib_qp_attr& a, std::uint32_t mask, const Transition& t) {
  prm::set<prm::qpc::st>(qpc, to_mlx5_st(qp.qp_type));
  // ibv PATH_MIG_STATE: MIGRATED 0, REARM 1, ARMED 2; the device: 3, 1, 0.
  static constexpr std::uint8_t kPm[] = {3, 1, 0};
  prm::set<prm::qpc::pm_state>(qpc, mask & IB_QP_PATH_MIG_STATE && a.path_mig_state < 3 ? kPm[a.path_mig_state] : 3);
  void* ads = prm::at<prm::qpc::primary_address_path>(qpc);
  bool datagram = qp.qp_type == ib_qp_type::UD || qp.qp_type == ib_qp_type::GSI;
  if (datagram) {
    prm::set<prm::qpc::mtu>(qpc, kMtu4096);
    prm::set<prm::qpc::log_msg_max>(qpc, kUdLogMsg);
  } else if (mask & IB_QP_PATH_MTU) {
    prm::set<prm::qpc::mtu>(qpc, a.path_mtu);
    prm::set<prm::qpc::log_msg_max>(qpc, m.cap_gen<prm::cmd_hca_cap::log_max_msg>());
  }
  if (mask & IB_QP_DEST_QPN) prm::set<prm::qpc::remote_qpn>(qpc, a.dest_qp_num);
  if (mask & IB_QP_PKEY_INDEX) prm::set<prm::ads::pkey_index>(ads, a.pkey_index);
  if (mask & IB_QP_PORT) prm::set<prm::ads::vhca_port_num>(ads, a.port_num);
  if (mask & IB_QP_AV) UHCA_CHECK(set_path(m, ads, a.ah_attr));
  if (mask & IB_QP_TIMEOUT) prm::set<prm::ads::ack_timeout>(ads, a.timeout & 0x1f);
  // A shared QP belongs to no PD of a program.
  prm::set<prm::qpc::pd>(qpc, qp.pd != nullptr ? to_mpd(*qp.pd).pdn : UHCA_TRY(to_mdev(*qp.device).devr->get()).p0);
  if (qp.send_cq != nullptr) prm::set<prm::qpc::cqn_snd>(qpc, to_mcq(*qp.send_cq).cqn);
  if (qp.recv_cq != nullptr) prm::set<prm::qpc::cqn_rcv>(qpc, to_mcq(*qp.recv_cq).cqn);
  prm::set<prm::qpc::log_ack_req_freq>(qpc, kAckReqFreq);
  if (mask & IB_QP_RNR_RETRY) prm::set<prm::qpc::rnr_retry>(qpc, a.rnr_retry & 7);
  if (mask & IB_QP_RETRY_CNT) prm::set<prm::qpc::retry_count>(qpc, a.retry_cnt & 7);
  if ((mask & IB_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic) prm::set<prm::qpc::log_sra_max>(qpc, log2_of(a.max_rd_atomic));
  if (mask & IB_QP_SQ_PSN) prm::set<prm::qpc::next_send_psn>(qpc, a.sq_psn & 0xffffff);
  if ((mask & IB_QP_MAX_DEST_RD_ATOMIC) && a.max_dest_rd_atomic) prm::set<prm::qpc::log_rra_max>(qpc, log2_of(a.max_dest_rd_atomic));
  if (mask & (IB_QP_ACCESS_FLAGS | IB_QP_MAX_DEST_RD_ATOMIC)) set_remote_access(qpc, qp, a, mask);
  if (mask & IB_QP_MIN_RNR_TIMER) prm::set<prm::qpc::min_rnr_nak>(qpc, a.min_rnr_timer & 0x1f);
  if (mask & IB_QP_RQ_PSN) prm::set<prm::qpc::next_rcv_psn>(qpc, a.rq_psn & 0xffffff);
  if (mask & IB_QP_QKEY) prm::set<prm::qpc::q_key>(qpc, a.qkey);
  if (t.from == S::RESET && qp.kernel) prm::set<prm::qpc::dbr_addr>(qpc, qp.kernel->doorbell_dma);
  if (t.from == S::RESET && qp.doorbell) prm::set<prm::qpc::dbr_addr>(qpc, qp.doorbell->dma());
  return success();
}

// 2ERR and 2RST carry nothing but the number.
Status simple(mlx5_core_dev& m, Opcode op, std::uint32_t qpn) {
  std::uint8_t in[prm::qp_2err_in::kBytes] = {}, out[prm::qp_2err_out::kBytes] = {};
  prm::set<prm::qp_2err_in::opcode>(in, static_cast<std::uint16_t>(op));
  prm::set<prm::qp_2err_in::qpn>(in, qpn);
  return m.cmd().exec(in, sizeof in, out, sizeof out);
}

// The ECE options.
Result<std::uint32_t> check_udata(Udata* udata) {
  if (udata == nullptr || udata->inlen == 0) return 0u;
  using Cmd = ::mlx5_ib_modify_qp;
  UHCA_CHECK(udata->check_in_tail(sizeof(Cmd)));
  Cmd c;
  UHCA_CHECK(udata->copy_in(&c, sizeof c));
  if (c.comp_mask || c.burst_info.reserved) return refuse(EOPNOTSUPP, "modify_qp: driver comp_mask {:#x} is not supported", c.comp_mask);
  return std::uint32_t{c.ece_options};
}

// Device states, of qpc.state.
S to_ib_state(std::uint32_t st) {
  switch (st) {
    case 0: return S::RESET;
    case 1: return S::INIT;
    case 2: return S::RTR;
    case 3: return S::RTS;
    case 4: return S::SQE;
    case 5:
    case 7:
    case 8: return S::SQD;
    default: return S::ERR;
  }
}

void read_path(const void* ads, rdma_ah_attr& ah) {
  ah = {};
  ah.is_global = true;
  ah.port_num = static_cast<std::uint8_t>(prm::get<prm::ads::vhca_port_num>(ads));
  if (ah.port_num == 0) ah.port_num = 1;
  ah.sl = static_cast<std::uint8_t>(prm::get<prm::ads::eth_prio>(ads));
  std::uint32_t rate = prm::get<prm::ads::stat_rate>(ads);
  ah.static_rate = static_cast<std::uint8_t>(rate ? rate - kRateOffset : 0);
  ah.sgid_index = static_cast<std::uint8_t>(prm::get<prm::ads::src_addr_index>(ads));
  ah.hop_limit = static_cast<std::uint8_t>(prm::get<prm::ads::hop_limit>(ads));
  ah.traffic_class = static_cast<std::uint8_t>(prm::get<prm::ads::tclass>(ads));
  ah.flow_label = prm::get<prm::ads::flow_label>(ads);
  std::memcpy(ah.dgid.data(), prm::at<prm::ads::rgid_rip>(ads), 16);
  std::uint32_t high = prm::get<prm::ads::rmac_47_32>(ads), low = prm::get<prm::ads::rmac_31_0>(ads);
  for (unsigned i = 0; i < 2; ++i) ah.dmac[i] = static_cast<std::uint8_t>(high >> (8 * (1 - i)));
  for (unsigned i = 0; i < 4; ++i) ah.dmac[2 + i] = static_cast<std::uint8_t>(low >> (8 * (3 - i)));
}

void fill_init(const mlx5_ib_qp& qp, ib_qp_attr& a, ib_qp_init_attr& init) {
  // The send side's sizes are the provider's own business; it fills them in.
  a.cap.max_recv_wr = qp.rq_wqe_cnt;
  a.cap.max_recv_sge = qp.rq_max_gs;
  a.cap.max_inline_data = qp.max_inline_data;
  init = {};
  init.send_cq = qp.send_cq;
  init.recv_cq = qp.recv_cq;
  init.srq = qp.srq;
  init.qp_type = qp.qp_type;
  init.sq_sig_all = qp.sq_sig_all;
  init.cap = a.cap;
}

}  // namespace

Status modify_qp(ib_qp& ibqp, const ib_qp_attr& a, std::uint32_t mask, Udata* udata) {
  auto& qp = to_mqp(ibqp);
  auto& m = *to_mdev(*qp.device).mdev;
  if (qp.rwq_ind_tbl != nullptr) return refuse(ENOSYS, "modify_qp: a QP with an indirection table has no states");
  std::uint32_t ece = UHCA_TRY(check_udata(udata));
  if (mask & IB_QP_RATE_LIMIT) return refuse(EOPNOTSUPP, "modify_qp: QP {:#x}: no rate limits", qp.qpn);
  std::lock_guard g(qp.lock);
  if (qp.dct) return modify_dct(qp, a, mask, ece, udata);
  if (!m.cap_gen<prm::cmd_hca_cap::ece_support>()) ece = 0;
  S from = mask & IB_QP_CUR_STATE ? a.cur_qp_state : qp.state;
  S to = mask & IB_QP_STATE ? a.qp_state : from;
  std::string why;
  if (qp.qp_type == ib_qp_type::DRIVER) {
    if (!modify_dci_is_ok(from, to, mask))
      return refuse(EINVAL, "modify_qp: DCI {:#x} {} -> {} with attribute mask {:#x}", qp.qpn, to_string(from), to_string(to), mask);
  } else if (!ib_modify_qp_is_ok(from, to, qp.qp_type, mask, &why))
    return refuse(EINVAL, "modify_qp: QP {:#x} {} -> {}: {}", qp.qpn, to_string(from), to_string(to), why);
  UHCA_CHECK(check_limits(m, qp, a, mask));
  if (to == S::RESET && from == S::RESET) return success();

  if (qp.raw) {
    UHCA_CHECK(modify_raw_packet_qp(qp, from, to));
  } else if (to == S::RESET) {
    UHCA_CHECK(simple(m, Opcode::TO_2RST_QP, qp.qpn));
  } else if (to == S::ERR) {
    UHCA_CHECK(simple(m, Opcode::TO_2ERR_QP, qp.qpn));
  } else {
    const Transition* t = find(from, to);
    if (t == nullptr)
      return refuse(EINVAL, "modify_qp: QP {:#x}: mlx5 has no command for {} -> {}", qp.qpn, to_string(from), to_string(to));
    using In = prm::rst2init_qp_in;  // the state changes that carry a context share one layout
    std::uint8_t in[In::kBytes] = {}, out[prm::rst2init_qp_out::kBytes] = {};
    prm::set<In::opcode>(in, static_cast<std::uint16_t>(t->op));
    prm::set<In::qpn>(in, qp.qpn);
    prm::set<In::opt_param_mask>(in, to_opt(mask) & optional_of(*t, qp.qp_type));
    UHCA_CHECK(fill_qpc(m, qp, prm::at<In::qpc>(in), a, mask, *t));
    prm::set<In::ece>(in, ece);
    UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
    ece = prm::get<prm::rst2init_qp_out::ece>(out);
  }
  qp.state = to;
  if (mask & IB_QP_ACCESS_FLAGS) qp.atomic_rd_en = a.qp_access_flags;
  if (mask & IB_QP_MAX_DEST_RD_ATOMIC) qp.resp_depth = a.max_dest_rd_atomic;
  if (mask & IB_QP_PORT) qp.port_num = a.port_num;
  // Programs that ask nothing get no answer. Linux: mlx5_ib_modify_qp.
  ::mlx5_ib_modify_qp_resp resp{};
  if (udata == nullptr || qp.raw || udata->outlen < sizeof resp) return success();
  resp.response_length = sizeof resp;
  resp.ece_options = ece;
  return udata->copy_out(&resp, sizeof resp);
}

Status query_qp(ib_qp& ibqp, ib_qp_attr& a, std::uint32_t mask, ib_qp_init_attr& init) {
  auto& qp = to_mqp(ibqp);
  auto& m = *to_mdev(*qp.device).mdev;
  if (qp.rwq_ind_tbl != nullptr) return refuse(ENOSYS, "query_qp: a QP with an indirection table has no states");
  std::lock_guard g(qp.lock);
  if (qp.raw) {
    a = {};
    UHCA_CHECK(query_raw_packet_qp(qp));
    a.port_num = 1;
    a.qp_state = a.cur_qp_state = qp.state;
    fill_init(qp, a, init);
    return success();
  }
  if (qp.dct) {
    a = {};
    init = {};
    return query_dct(qp, a, mask);
  }
  std::uint8_t in[prm::query_qp_in::kBytes] = {}, out[prm::query_qp_out::kBytes] = {};
  prm::set<prm::query_qp_in::opcode>(in, static_cast<std::uint16_t>(Opcode::QUERY_QP));
  prm::set<prm::query_qp_in::qpn>(in, qp.qpn);
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  const void* qpc = prm::at<prm::query_qp_out::qpc>(static_cast<const void*>(out));
  const void* ads = prm::at<prm::qpc::primary_address_path>(qpc);

  a = {};
  std::uint32_t st = prm::get<prm::qpc::state>(qpc);
  qp.state = to_ib_state(st);
  a.qp_state = a.cur_qp_state = qp.state;
  a.sq_draining = st == 7;
  a.path_mtu = static_cast<std::uint8_t>(prm::get<prm::qpc::mtu>(qpc));
  static constexpr std::uint8_t kPm[] = {2, 1, 0, 0};  // ARMED, REARM, -, MIGRATED
  a.path_mig_state = kPm[prm::get<prm::qpc::pm_state>(qpc)];
  a.qkey = prm::get<prm::qpc::q_key>(qpc);
  a.rq_psn = prm::get<prm::qpc::next_rcv_psn>(qpc);
  a.sq_psn = prm::get<prm::qpc::next_send_psn>(qpc);
  a.dest_qp_num = prm::get<prm::qpc::remote_qpn>(qpc);
  if (prm::get<prm::qpc::rre>(qpc)) a.qp_access_flags |= kAccessRemoteRead;
  if (prm::get<prm::qpc::rwe>(qpc)) a.qp_access_flags |= kAccessRemoteWrite;
  if (prm::get<prm::qpc::rae>(qpc)) a.qp_access_flags |= kAccessRemoteAtomic;
  if (qp.qp_type != ib_qp_type::UD) {
    read_path(ads, a.ah_attr);
    read_path(prm::at<prm::qpc::secondary_address_path>(qpc), a.alt_ah_attr);
    a.alt_port_num = a.alt_ah_attr.port_num;
  }
  a.pkey_index = static_cast<std::uint16_t>(prm::get<prm::ads::pkey_index>(ads));
  a.port_num = static_cast<std::uint8_t>(std::max<std::uint32_t>(1, prm::get<prm::ads::vhca_port_num>(ads)));
  a.max_rd_atomic = static_cast<std::uint8_t>(1u << prm::get<prm::qpc::log_sra_max>(qpc));
  a.max_dest_rd_atomic = static_cast<std::uint8_t>(1u << prm::get<prm::qpc::log_rra_max>(qpc));
  a.min_rnr_timer = static_cast<std::uint8_t>(prm::get<prm::qpc::min_rnr_nak>(qpc));
  a.timeout = static_cast<std::uint8_t>(prm::get<prm::ads::ack_timeout>(ads));
  a.retry_cnt = static_cast<std::uint8_t>(prm::get<prm::qpc::retry_count>(qpc));
  a.rnr_retry = static_cast<std::uint8_t>(prm::get<prm::qpc::rnr_retry>(qpc));
  fill_init(qp, a, init);
  return success();
}

}  // namespace uhca::kernel::mlx5
