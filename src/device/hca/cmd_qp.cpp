// SPDX-License-Identifier: MIT
// Queue pairs: creation, states, destruction.
#include "prm/cmd_qp.h"

#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "device/hca/ece.h"
#include "device/hca/qp_context.h"
#include "device/hca/qp_states.h"
#include "prm/qos.h"
#include "prm/umem_ref.h"

namespace uhca::hca::cmd {
namespace {

// qpc.rq_type (Linux mlx5/qp.h: MLX5_NON_ZERO_RQ, MLX5_SRQ_RQ, MLX5_CRQ_RQ, MLX5_ZERO_LEN_RQ).
enum RqType : unsigned { kOwnRq = 0, kSharedRq = 1, kCrq = 2, kNoRq = 3 };

bool known_type(const HcaConfig& config, unsigned st) {
  switch (static_cast<QpType>(st)) {
    case QpType::kRc:
    case QpType::kUc:
    case QpType::kUd:
    case QpType::kXrc:
    case QpType::kQp1:
    case QpType::kRegUmr: return true;
    case QpType::kDci: return config.offer_dc;
    case QpType::kQp0:  // subnet management: no InfiniBand port here
    case QpType::kDctSession: return false;
  }
  return false;
}

// qpc.cs_res; cs_req has the same code in both of its halves (Linux mlx5/qp.h: MLX5_RES_SCAT_DATA*_CQE, MLX5_REQ_SCAT_DATA*_CQE).
unsigned scatter_bytes(unsigned code) {
  return code == 1 ? 32 : code == 2 ? 64 : 0;
}

constexpr unsigned bit(QpState s) {
  return 1u << static_cast<unsigned>(s);
}
constexpr unsigned kAnyState = 0x1ff;

struct Transition {
  prm::Opcode opcode;
  unsigned from;  // set of states
  QpState to;
  bool has_context;
};
constexpr Transition kTransitions[] = {
    {prm::Opcode::RST2INIT_QP, bit(QpState::kReset), QpState::kInit, true},
    {prm::Opcode::INIT2INIT_QP, bit(QpState::kInit), QpState::kInit, true},
    {prm::Opcode::INIT2RTR_QP, bit(QpState::kInit), QpState::kRtr, true},
    {prm::Opcode::RTR2RTS_QP, bit(QpState::kRtr), QpState::kRts, true},
    {prm::Opcode::RTS2RTS_QP, bit(QpState::kRts), QpState::kRts, true},
    {prm::Opcode::SQERR2RTS_QP, bit(QpState::kSqErr), QpState::kRts, true},
    {prm::Opcode::SQD_RTS_QP, bit(QpState::kSqDrain) | bit(QpState::kSqDrained), QpState::kRts, true},
    {prm::Opcode::TO_2ERR_QP, kAnyState, QpState::kErr, false},
    {prm::Opcode::TO_2RST_QP, kAnyState, QpState::kReset, false},
};

const Transition* find_transition(std::uint32_t opcode) {
  for (const Transition& t : kTransitions)
    if (static_cast<std::uint32_t>(t.opcode) == opcode) return &t;
  return nullptr;
}

// The queues of a new QP: sizes, completion queues, shared receive queue, buffer.
Status take_queues(Command& c, Qp& qp, const std::uint8_t* qpc) {
  qp.has_sq = !prm::get<prm::qpc::no_sq>(qpc);
  qp.log_sq_size = prm::get<prm::qpc::log_sq_size>(qpc);
  unsigned rq_type = prm::get<prm::qpc::rq_type>(qpc);
  qp.has_rq = rq_type == kOwnRq;
  qp.log_rq_size = prm::get<prm::qpc::log_rq_size>(qpc);
  qp.log_rq_stride = prm::get<prm::qpc::log_rq_stride>(qpc) + 4;
  // log_sq_size has four bits, and 2^15 is the most: nothing to check. The receive stride is bounded by max_wqe_sz_rq, 512.
  if (qp.has_rq && qp.log_rq_stride > 9) return c.refuse(Status::BAD_PARAM, "receive WQEs of 2^{} bytes", qp.log_rq_stride);
  if (rq_type > kNoRq || rq_type == kCrq) return c.refuse(Status::BAD_PARAM, "rq_type {}", rq_type);
  if (rq_type == kSharedRq) {
    qp.srqn = prm::get<prm::qpc::srqn_rmpn_xrqn>(qpc);
    qp.srq = c.objects().srq(qp.srqn);
    if (qp.srq == nullptr) return c.no_such("SRQ", qp.srqn);
    if (qp.type == QpType::kXrc && qp.srq->kind != Srq::Kind::kXrcSrq)
      return c.refuse(Status::BAD_PARAM, "SRQ {:#x} is not an XRC SRQ", qp.srqn);
  }
  std::uint32_t send_cqn = prm::get<prm::qpc::cqn_snd>(qpc), recv_cqn = prm::get<prm::qpc::cqn_rcv>(qpc);
  qp.send_cq = c.objects().cq(send_cqn);
  qp.recv_cq = c.objects().cq(recv_cqn);
  if (qp.send_cq == nullptr && (qp.has_sq || send_cqn != 0)) return c.no_such("send CQ", send_cqn);
  if (qp.recv_cq == nullptr && (rq_type != kNoRq || recv_cqn != 0)) return c.no_such("receive CQ", recv_cqn);

  qp.dbr = prm::get<prm::qpc::dbr_addr>(qpc);
  std::uint64_t bytes = qp.sq_offset() + (qp.has_sq ? std::uint64_t{64} << qp.log_sq_size : 0);
  if (bytes == 0) return Status::OK;
  if (prm::get<prm::qpc::dbr_umem_valid>(qpc)) {
    if (Status s = take_umem_dbr(c, prm::get<prm::umem_ref::qpc_dbr_umem_id>(qpc), qp.dbr, qp.dbr); s != Status::OK) return s;
  }
  if (bad_dbr(qp.dbr)) return c.refuse(Status::BAD_PARAM, "doorbell record at {:#x}", qp.dbr);
  qp.dbr_window.open(c.hca.bus(), qp.dbr, prm::kDoorbellRecord);
  if (c.get<prm::create_qp_in::wq_umem_valid>())
    return take_umem_buffer(c, c.get<prm::umem_ref::qp_umem_id>(), c.get<prm::umem_ref::qp_umem_offset>(), bytes, qp.buf);
  return take_queue_buffer(c, c.tail(prm::create_qp_in::kBytes), prm::get<prm::qpc::log_page_size>(qpc) + 12,
                           prm::get<prm::qpc::page_offset>(qpc), bytes, qp.buf);
}

// What the new QP names must be its user's, and what it may do, too.
Status check_user(Command& c, const Qp& qp, const std::uint8_t* qpc) {
  const std::pair<bool, const char*> privileges[] = {{qp.rlky, "the reserved lkey"},
                                                     {qp.fre, "fast registration"},
                                                     {qp.type == QpType::kRegUmr, "a UMR QP"},
                                                     {qp.type == QpType::kQp1, "QP1"}};
  for (auto [asked, what] : privileges)
    if (Status s = c.drivers_only(asked, what); s != Status::OK) return s;
  return c.may_use_all({{Kind::kPd, qp.pd},
                        {Kind::kUar, qp.uar},
                        {Kind::kXrcd, qp.xrcd},
                        {Kind::kCounterSet, qp.counter_set},
                        {Kind::kCq, prm::get<prm::qpc::cqn_snd>(qpc)},
                        {Kind::kCq, prm::get<prm::qpc::cqn_rcv>(qpc)},
                        {Kind::kSrq, prm::get<prm::qpc::srqn_rmpn_xrqn>(qpc)}});
}

void hold(Command& c, Qp& qp, bool on) {
  int d = on ? 1 : -1;
  auto add = [d](unsigned& users) { users = static_cast<unsigned>(static_cast<int>(users) + d); };
  if (qp.send_cq != nullptr) add(qp.send_cq->users);
  if (qp.recv_cq != nullptr) add(qp.recv_cq->users);
  if (qp.srq != nullptr) add(qp.srq->users);
  for (auto [objects, n] : {std::pair{&c.st.pds, qp.pd}, std::pair{&c.st.uars, qp.uar}, std::pair{&c.st.xrcds, qp.xrcd}})
    on ? objects->hold(n) : objects->drop(n);
}

}  // namespace

Status create_qp(Command& c) {
  const std::uint8_t* qpc = c.at<prm::create_qp_in::qpc>();
  unsigned st = prm::get<prm::qpc::st>(qpc);
  if (!known_type(c.hca.config(), st)) return c.refuse(Status::BAD_PARAM, "transport service {:#x} is not offered", st);
  if (c.get<prm::create_qp_in::input_qpn>() != 0) return c.refuse(Status::BAD_PARAM, "QPNs cannot be chosen");
  if (prm::get<prm::qpc::wq_signature>(qpc)) return c.refuse(Status::BAD_PARAM, "WQE signatures are not offered");
  auto qp = std::make_unique<Qp>();
  qp->type = static_cast<QpType>(st);
  qp->pd = prm::get<prm::qpc::pd>(qpc);
  qp->uar = prm::get<prm::qpc::uar_page>(qpc);
  qp->user_index = prm::get<prm::qpc::user_index>(qpc);
  qp->rlky = prm::get<prm::qpc::rlky>(qpc);
  qp->fre = prm::get<prm::qpc::fre>(qpc);
  qp->block_lb_mc = prm::get<prm::qpc::block_lb_mc>(qpc);
  qp->deth_sqpn = prm::get<prm::qpc::deth_sqpn>(qpc);
  qp->scatter_to_cqe_req = scatter_bytes(prm::get<prm::qpc::cs_req>(qpc) & 0xf);
  qp->scatter_to_cqe_res = scatter_bytes(prm::get<prm::qpc::cs_res>(qpc));
  qp->counter_set = static_cast<std::uint8_t>(prm::get<prm::qpc::counter_set_id>(qpc));
  unsigned log_streams = prm::get<prm::qpc::log_num_dci_stream_channels>(qpc);
  unsigned log_errors = prm::get<prm::qpc::log_num_dci_errored_streams>(qpc);
  if (qp->type == QpType::kDci && (log_streams > kLogMaxDciStreams || log_errors > kLogMaxDciStreams))
    return c.refuse(Status::BAD_PARAM, "2^{} streams, of which 2^{} may fail; at most 2^{}", log_streams, log_errors, kLogMaxDciStreams);
  if (!c.st.pds.exists(qp->pd) && !(qp->type == QpType::kRegUmr && qp->pd == 0)) return c.no_such("PD", qp->pd);
  if (qp->counter_set != 0 && c.objects().counter_set(qp->counter_set) == nullptr) return c.no_such("counter set", qp->counter_set);
  if (qp->type == QpType::kXrc) {
    qp->xrcd = prm::get<prm::qpc::xrcd>(qpc);
    if (!c.st.xrcds.exists(qp->xrcd)) return c.no_such("XRCD", qp->xrcd);
  }
  if (Status s = check_user(c, *qp, qpc); s != Status::OK) return s;
  if (Status s = take_queues(c, *qp, qpc); s != Status::OK) return s;
  if (!c.st.uars.exists(qp->uar) && (qp->has_sq || qp->uar != 0)) return c.no_such("UAR", qp->uar);
  if (qp->type == QpType::kQp1 && c.objects().gsi != nullptr)
    return c.refuse(Status::BAD_RES_STATE, "QP {:#x} is QP1 of this port", c.objects().gsi->qpn);
  auto n = c.st.take_qpn(c.hca.lease());
  if (!n) return c.exhausted("QPN");
  qp->qpn = *n;
  if (qp->type == QpType::kQp1) c.objects().gsi = qp.get();
  std::memcpy(qp->qpc.data(), qpc, qp->qpc.size());
  hold(c, *qp, true);
  Qp& created = *qp;
  c.objects().qps.emplace(*n, std::move(qp));
  c.hca.data_path().qp_created(created);
  c.set<prm::create_qp_out::qpn>(*n);
  c.set<prm::create_qp_out::ece>(granted_ece(c.get<prm::create_qp_in::ece>()));
  return Status::OK;
}

Status destroy_qp(Command& c) {
  std::uint32_t n = c.get<prm::destroy_qp_in::qpn>();
  Qp* qp = c.objects().qp(n);
  if (qp == nullptr) return c.no_such("QP", n);
  for (auto& [gid, qpns] : c.objects().multicast)
    if (std::find(qpns.begin(), qpns.end(), n) != qpns.end())
      return c.refuse(Status::BAD_RES_STATE, "QP {:#x} is attached to a multicast group", n);
  c.hca.data_path().qp_destroyed(*qp);
  hold(c, *qp, false);
  leave_queue_groups(c, *qp);
  if (c.objects().gsi == qp) c.objects().gsi = nullptr;
  c.objects().qps.erase(n);
  c.st.freed_qpns.push_back(n);
  return Status::OK;
}

Status modify_qp(Command& c) {
  const Transition* t = find_transition(c.get<prm::cmd_in::opcode>());
  std::uint32_t n = c.get<prm::rst2init_qp_in::qpn>();
  Qp* qp = c.objects().qp(n);
  if (qp == nullptr) return c.no_such("QP", n);
  if (!(t->from & bit(qp->state))) return c.refuse(Status::BAD_QP_STATE, "QP {:#x} is in {}", n, qp_state_name(qp->state));
  QpState from = qp->state;
  if (t->has_context) {
    // qpn, opt_param_mask and qpc lie at the same place in all of them.
    const std::uint8_t* qpc = c.at<prm::rst2init_qp_in::qpc>();
    std::uint32_t mask = c.get<prm::rst2init_qp_in::opt_param_mask>();
    if (Status s = check_optional(c, mask, qpc); s != Status::OK) return s;
    if (std::uint32_t ece = c.get<prm::rst2init_qp_in::ece>()) c.set<prm::rst2init_qp_out::ece>(granted_ece(ece));
    bool extensible = t->opcode == prm::Opcode::INIT2INIT_QP || t->opcode == prm::Opcode::RTS2RTS_QP;
    std::uint64_t more = extensible ? c.get<prm::qos::qp_opt_mask_95_32>() : 0;
    if (Status s = check_extended(c, *qp, more); s != Status::OK) return s;
    if (t->to == QpState::kRtr) {
      if (Status s = check_rtr(c, *qp, qpc); s != Status::OK) return s;
    }
    // Drivers name the counter set now (Linux qp.c: __mlx5_ib_modify_qp).
    const std::uint32_t counters = t->opcode == prm::Opcode::RST2INIT_QP ? prm::get<prm::qpc::counter_set_id>(qpc) : 0;
    if (counters != 0 && c.objects().counter_set(counters) == nullptr) return c.no_such("counter set", counters);
    if (Status s = counters != 0 ? c.may_use(Kind::kCounterSet, counters) : Status::OK; s != Status::OK) return s;
    // Drivers name the PD of a UMR QP only now (Linux qp.c: create_kernel_qp leaves it out).
    if (t->opcode == prm::Opcode::RST2INIT_QP && qp->type == QpType::kRegUmr && qp->pd == 0) {
      std::uint32_t pd = prm::get<prm::qpc::pd>(qpc);
      if (pd != 0 && !c.st.pds.exists(pd)) return c.no_such("PD", pd);
      if (Status s = c.may_use(Kind::kPd, pd); s != Status::OK) return s;
      c.st.pds.hold(pd);
      qp->pd = pd;
    }
    if (counters != 0) {
      qp->counter_set = static_cast<std::uint8_t>(counters);
      prm::set<prm::qpc::counter_set_id>(qp->qpc.data(), counters);
    }
    if (t->opcode == prm::Opcode::RST2INIT_QP) apply_init(*qp, qpc);
    if (t->opcode == prm::Opcode::INIT2RTR_QP) apply_rtr(c, *qp, qpc);
    if (t->opcode == prm::Opcode::RTR2RTS_QP) apply_rts(*qp, qpc);
    apply_optional(c, *qp, mask, qpc);
    apply_extended(c, *qp, more, qpc);
  } else if (t->to == QpState::kReset) {
    apply_reset(*qp);
    leave_queue_groups(c, *qp);
  }
  qp->state = t->to;
  prm::set<prm::qpc::state>(qp->qpc.data(), static_cast<unsigned>(qp->state));
  c.hca.data_path().qp_state_changed(*qp, from);
  return Status::OK;
}

Status query_qp(Command& c) {
  std::uint32_t n = c.get<prm::query_qp_in::qpn>();
  Qp* qp = c.objects().qp(n);
  if (qp == nullptr) return c.no_such("QP", n);
  std::uint8_t* qpc = c.out_at<prm::query_qp_out::qpc>();
  std::memcpy(qpc, qp->qpc.data(), qp->qpc.size());
  prm::set<prm::qpc::state>(qpc, static_cast<unsigned>(qp->state));
  c.hca.data_path().fill_qpc(*qp, qpc);
  put_pages(c, prm::query_qp_out::kBytes, qp->buf);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
