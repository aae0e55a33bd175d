// SPDX-License-Identifier: MIT
// Shared receive queues of three kinds in one number space.
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/cmd_qp.h"

namespace uhca::hca::cmd {
namespace {

enum RmpState : unsigned { kRmpReady = 1, kRmpError = 3 };
enum SrqState : unsigned { kSrqGood = 0, kSrqError = 1 };
constexpr std::uint16_t kArmSrq = 1;  // ARM_RQ op_mod

// wq.wq_type (Linux mlx5_ifc.h: MLX5_WQ_TYPE_*).
constexpr unsigned kWqCyclic = 1;

Status keep(Command& c, std::unique_ptr<Srq> srq) {
  if (srq->pd != 0 && !c.st.pds.exists(srq->pd)) return c.no_such("PD", srq->pd);
  if (Status s = c.drivers_only(srq->rlky, "the reserved lkey"); s != Status::OK) return s;
  const std::uint32_t cqn = srq->cq != nullptr ? srq->cq->cqn : 0;
  if (Status s = c.may_use_all({{Kind::kPd, srq->pd}, {Kind::kXrcd, srq->xrcd}, {Kind::kCq, cqn}}); s != Status::OK) return s;
  auto n = c.st.srqns.take();
  if (!n) return c.exhausted("SRQ");
  srq->srqn = *n;
  c.st.pds.hold(srq->pd);
  c.st.xrcds.hold(srq->xrcd);
  if (srq->cq != nullptr) ++srq->cq->users;
  c.objects().srqs.emplace(*n, std::move(srq));
  c.set<prm::create_rmp_out::rmpn>(*n);
  return Status::OK;
}

Srq* find(Command& c, Srq::Kind kind) {
  Srq* srq = c.objects().srq(c.get<prm::query_rmp_in::rmpn>());
  return srq != nullptr && srq->kind == kind ? srq : nullptr;
}

Status destroy(Command& c, Srq::Kind kind, const char* what) {
  std::uint32_t n = c.get<prm::destroy_rmp_in::rmpn>();
  Srq* srq = find(c, kind);
  if (srq == nullptr) return c.no_such(what, n);
  if (srq->users != 0) return c.in_use(what, n, srq->users);
  c.hca.data_path().srq_destroyed(*srq);
  c.st.pds.drop(srq->pd);
  c.st.xrcds.drop(srq->xrcd);
  if (srq->cq != nullptr) --srq->cq->users;
  c.objects().srqs.erase(n);
  c.st.srqns.give_back(n);
  return Status::OK;
}

// The limit event fires once, when fewer than `lwm` WQEs are left.
Status arm(Command& c, Srq& srq, std::uint32_t lwm) {
  if (srq.error) return c.refuse(Status::BAD_RES_STATE, "SRQ {:#x} is in error", srq.srqn);
  if (lwm >= 1u << srq.log_size) return c.refuse(Status::BAD_PARAM, "limit {} of {} WQEs", lwm, 1u << srq.log_size);
  srq.lwm = static_cast<std::uint16_t>(lwm);
  c.hca.data_path().srq_armed(srq);
  return Status::OK;
}

Status take_buffer(Command& c, Srq& srq, std::size_t tail, unsigned log_page, unsigned page_offset) {
  if (srq.log_size > kLogMaxSrqSize) return c.refuse(Status::BAD_PARAM, "2^{} WQEs", srq.log_size);
  if (srq.log_stride > 9) return c.refuse(Status::BAD_PARAM, "WQEs of 2^{} bytes", srq.log_stride);
  if (bad_dbr(srq.dbr)) return c.refuse(Status::BAD_PARAM, "doorbell record at {:#x}", srq.dbr);
  return take_queue_buffer(c, c.tail(tail), log_page, page_offset, std::uint64_t{1} << (srq.log_size + srq.log_stride), srq.buf);
}

}  // namespace

Status create_srq(Command& c) {
  if (c.st.issi != 0) return c.refuse(Status::BAD_OP, "with ISSI 1, SRQs are RMPs");
  const std::uint8_t* ctx = c.at<prm::create_srq_in::srq_context_entry>();
  auto srq = std::make_unique<Srq>();
  srq->kind = Srq::Kind::kSrq;
  srq->pd = prm::get<prm::srqc::pd>(ctx);
  srq->log_size = prm::get<prm::srqc::log_srq_size>(ctx);
  srq->log_stride = prm::get<prm::srqc::log_rq_stride>(ctx) + 4;
  srq->dbr = prm::get<prm::srqc::dbr_addr>(ctx);
  srq->lwm = static_cast<std::uint16_t>(prm::get<prm::srqc::lwm>(ctx));
  srq->rlky = prm::get<prm::srqc::rlky>(ctx);
  unsigned log_page = prm::get<prm::srqc::log_page_size>(ctx) + 12;
  if (log_page > 43) return c.refuse(Status::BAD_PARAM, "pages of 2^{} bytes", log_page);
  Status s = take_buffer(c, *srq, prm::create_srq_in::kBytes, log_page, prm::get<prm::srqc::page_offset>(ctx));
  if (s != Status::OK) return s;
  std::memcpy(srq->context.data(), ctx, prm::srqc::kBytes);
  return keep(c, std::move(srq));
}

Status query_srq(Command& c) {
  Srq* srq = find(c, Srq::Kind::kSrq);
  if (srq == nullptr) return c.no_such("SRQ", c.get<prm::query_srq_in::srqn>());
  void* ctx = c.out_at<prm::query_srq_out::srq_context_entry>();
  std::memcpy(ctx, srq->context.data(), prm::srqc::kBytes);
  prm::set<prm::srqc::state>(ctx, srq->error ? kSrqError : kSrqGood);
  prm::set<prm::srqc::lwm>(ctx, srq->lwm);
  put_pages(c, prm::query_srq_out::kBytes, srq->buf);
  return Status::OK;
}

Status destroy_srq(Command& c) {
  return destroy(c, Srq::Kind::kSrq, "SRQ");
}

Status arm_rq(Command& c) {
  if (c.op_mod() != kArmSrq) return c.refuse(Status::BAD_PARAM, "op_mod {}", c.op_mod());
  Srq* srq = find(c, Srq::Kind::kSrq);
  if (srq == nullptr) return c.no_such("SRQ", c.get<prm::arm_rq_in::srq_number>());
  return arm(c, *srq, c.get<prm::arm_rq_in::lwm>());
}

Status create_xrc_srq(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_xrc_srq_in::xrc_srq_context_entry>();
  auto srq = std::make_unique<Srq>();
  srq->kind = Srq::Kind::kXrcSrq;
  srq->pd = prm::get<prm::xrc_srqc::pd>(ctx);
  srq->xrcd = prm::get<prm::xrc_srqc::xrcd>(ctx);
  srq->user_index = prm::get<prm::xrc_srqc::user_index>(ctx);
  srq->log_size = prm::get<prm::xrc_srqc::log_xrc_srq_size>(ctx);
  srq->log_stride = prm::get<prm::xrc_srqc::log_rq_stride>(ctx) + 4;
  srq->cyclic = prm::get<prm::xrc_srqc::basic_cyclic_rcv_wqe>(ctx);
  srq->dbr = pci::DmaAddr{prm::get<prm::xrc_srqc::db_record_addr_h>(ctx)} << 32 | prm::get<prm::xrc_srqc::db_record_addr_l>(ctx) << 2;
  srq->lwm = static_cast<std::uint16_t>(prm::get<prm::xrc_srqc::lwm>(ctx));
  srq->rlky = prm::get<prm::xrc_srqc::rlky>(ctx);
  if (c.get<prm::create_xrc_srq_in::xrc_srq_umem_valid>() || prm::get<prm::xrc_srqc::dbr_umem_valid>(ctx))
    return c.refuse(Status::BAD_PARAM, "umem objects are not offered");
  if (!c.st.xrcds.exists(srq->xrcd)) return c.no_such("XRCD", srq->xrcd);
  std::uint32_t cqn = prm::get<prm::xrc_srqc::cqn>(ctx);
  srq->cq = c.objects().cq(cqn);
  if (srq->cq == nullptr) return c.no_such("CQ", cqn);
  unsigned log_page = prm::get<prm::xrc_srqc::log_page_size>(ctx) + 12;
  if (log_page > 43) return c.refuse(Status::BAD_PARAM, "pages of 2^{} bytes", log_page);
  Status s = take_buffer(c, *srq, prm::create_xrc_srq_in::kBytes, log_page, prm::get<prm::xrc_srqc::page_offset>(ctx));
  if (s != Status::OK) return s;
  std::memcpy(srq->context.data(), ctx, prm::xrc_srqc::kBytes);
  Srq* created = srq.get();
  s = keep(c, std::move(srq));
  if (s == Status::OK && prm::get<prm::xrc_srqc::user_index_equal_xrc_srqn>(created->context.data())) created->user_index = created->srqn;
  return s;
}

Status query_xrc_srq(Command& c) {
  Srq* srq = find(c, Srq::Kind::kXrcSrq);
  if (srq == nullptr) return c.no_such("XRC SRQ", c.get<prm::query_xrc_srq_in::xrc_srqn>());
  void* ctx = c.out_at<prm::query_xrc_srq_out::xrc_srq_context_entry>();
  std::memcpy(ctx, srq->context.data(), prm::xrc_srqc::kBytes);
  prm::set<prm::xrc_srqc::state>(ctx, srq->error ? kSrqError : kSrqGood);
  prm::set<prm::xrc_srqc::lwm>(ctx, srq->lwm);
  put_pages(c, prm::query_xrc_srq_out::kBytes, srq->buf);
  return Status::OK;
}

Status destroy_xrc_srq(Command& c) {
  return destroy(c, Srq::Kind::kXrcSrq, "XRC SRQ");
}

Status arm_xrc_srq(Command& c) {
  Srq* srq = find(c, Srq::Kind::kXrcSrq);
  if (srq == nullptr) return c.no_such("XRC SRQ", c.get<prm::arm_xrc_srq_in::xrc_srqn>());
  return arm(c, *srq, c.get<prm::arm_xrc_srq_in::lwm>());
}

Status create_rmp(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_rmp_in::ctx>();
  const void* wq = prm::at<prm::rmpc::wq>(static_cast<const void*>(ctx));
  auto srq = std::make_unique<Srq>();
  srq->kind = Srq::Kind::kRmp;
  if (prm::get<prm::rmpc::state>(ctx) != kRmpReady) return c.refuse(Status::BAD_PARAM, "RMP state {}", prm::get<prm::rmpc::state>(ctx));
  unsigned type = prm::get<prm::wq::wq_type>(wq);
  if (type > kWqCyclic) return c.refuse(Status::BAD_PARAM, "wq_type {} is not offered", type);
  if (prm::get<prm::wq::wq_umem_valid>(wq) || prm::get<prm::wq::dbr_umem_valid>(wq))
    return c.refuse(Status::BAD_PARAM, "umem objects are not offered");
  if (prm::get<prm::wq::wq_signature>(wq)) return c.refuse(Status::BAD_PARAM, "WQE signatures are not offered");
  srq->cyclic = type == kWqCyclic;
  srq->pd = prm::get<prm::wq::pd>(wq);
  srq->dbr = prm::get<prm::wq::dbr_addr>(wq);
  srq->log_size = prm::get<prm::wq::log_wq_sz>(wq);
  srq->log_stride = prm::get<prm::wq::log_wq_stride>(wq);
  srq->lwm = static_cast<std::uint16_t>(prm::get<prm::wq::lwm>(wq));
  if (srq->log_stride < 4) return c.refuse(Status::BAD_PARAM, "WQEs of 2^{} bytes", srq->log_stride);
  Status s = take_buffer(c, *srq, prm::create_rmp_in::kBytes, prm::get<prm::wq::log_wq_pg_sz>(wq) + 12, prm::get<prm::wq::page_offset>(wq));
  if (s != Status::OK) return s;
  std::memcpy(srq->context.data(), ctx, prm::rmpc::kBytes);
  return keep(c, std::move(srq));
}

Status modify_rmp(Command& c) {
  Srq* srq = find(c, Srq::Kind::kRmp);
  if (srq == nullptr) return c.no_such("RMP", c.get<prm::modify_rmp_in::rmpn>());
  const std::uint8_t* ctx = c.at<prm::modify_rmp_in::ctx>();
  unsigned from = c.get<prm::modify_rmp_in::rmp_state>(), to = prm::get<prm::rmpc::state>(ctx);
  unsigned now = srq->error ? kRmpError : kRmpReady;
  if (from != now) return c.refuse(Status::BAD_RES_STATE, "RMP {:#x} is in state {}, not {}", srq->srqn, now, from);
  if (to != kRmpReady && to != kRmpError) return c.refuse(Status::BAD_PARAM, "RMP state {}", to);
  if (now == kRmpError && to == kRmpReady) return c.refuse(Status::BAD_RES_STATE, "RMP {:#x} stays in error", srq->srqn);
  if (prm::get<prm::rmp_bitmask::lwm>(c.at<prm::modify_rmp_in::bitmask>())) {
    const void* wq = prm::at<prm::rmpc::wq>(static_cast<const void*>(ctx));
    if (Status s = arm(c, *srq, prm::get<prm::wq::lwm>(wq)); s != Status::OK) return s;
  }
  srq->error = to == kRmpError;
  return Status::OK;
}

Status query_rmp(Command& c) {
  Srq* srq = find(c, Srq::Kind::kRmp);
  if (srq == nullptr) return c.no_such("RMP", c.get<prm::query_rmp_in::rmpn>());
  void* ctx = c.out_at<prm::query_rmp_out::rmp_context>();
  std::memcpy(ctx, srq->context.data(), prm::rmpc::kBytes);
  prm::set<prm::rmpc::state>(ctx, srq->error ? kRmpError : kRmpReady);
  void* wq = prm::at<prm::rmpc::wq>(ctx);
  prm::set<prm::wq::lwm>(wq, srq->lwm);
  prm::set<prm::wq::hw_counter>(wq, srq->hw_counter);
  put_pages(c, prm::query_rmp_out::kBytes, srq->buf);
  return Status::OK;
}

Status destroy_rmp(Command& c) {
  return destroy(c, Srq::Kind::kRmp, "RMP");
}

}  // namespace uhca::hca::cmd
