// SPDX-License-Identifier: MIT
// Ethernet send and receive queues (SQ, RQ).
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/cmd_eth.h"
#include "prm/umem_ref.h"

namespace uhca::hca::cmd {
namespace {

// rqc.mem_rq_type (Linux mlx5_ifc.h: MLX5_RQC_MEM_RQ_TYPE_*): the WQEs lie in the RQ itself; RMPs are for QPs.
constexpr unsigned kMemoryInline = 0;
// modify_rq_in.modify_bitmask (MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*).
enum ModifyRq : std::uint64_t { kModVsd = 1 << 1, kModScatterFcs = 1 << 2, kModCounterSet = 1 << 3 };
// wq.wq_type (MLX5_WQ_TYPE_*): linked lists, striding and packet-per-stride queues are not offered.
constexpr unsigned kWqCyclic = 1;

RawQueue* find(Command& c, std::uint32_t n, bool send) {
  RawQueue* q = c.objects().raw_queue(n);
  return q != nullptr && q->send == send ? q : nullptr;
}

// sqc and rqc begin alike (state, user_index, cqn) and carry the wq at the same place.
Status take_wq(Command& c, RawQueue& q, const std::uint8_t* ctx) {
  const void* wq = prm::at<prm::rqc::wq>(static_cast<const void*>(ctx));
  q.user_index = prm::get<prm::rqc::user_index>(ctx);
  q.rlky = prm::get<prm::rqc::rlky>(ctx);
  q.flush_in_error = q.send ? prm::get<prm::sqc::flush_in_error_en>(ctx) : prm::get<prm::rqc::flush_in_error_en>(ctx);
  std::uint32_t cqn = prm::get<prm::rqc::cqn>(ctx);
  if (prm::get<prm::rqc::state>(ctx) != 0) return c.refuse(Status::BAD_PARAM, "queues are created in RST");
  if (prm::get<prm::rqc::hairpin>(ctx)) return c.refuse(Status::BAD_PARAM, "hairpin queues are not offered");
  q.cq = c.objects().cq(cqn);
  if (q.cq == nullptr) return c.no_such("CQ", cqn);
  if (Status s = c.drivers_only(q.rlky, "the reserved lkey"); s != Status::OK) return s;
  unsigned type = prm::get<prm::wq::wq_type>(wq);
  if (type != kWqCyclic) return c.refuse(Status::BAD_PARAM, "wq_type {} is not offered", type);
  q.pd = prm::get<prm::wq::pd>(wq);
  q.uar = q.send ? prm::get<prm::wq::uar_page>(wq) : 0;
  q.log_size = prm::get<prm::wq::log_wq_sz>(wq);
  q.log_stride = prm::get<prm::wq::log_wq_stride>(wq);
  if (q.pd != 0 && !c.st.pds.exists(q.pd)) return c.no_such("PD", q.pd);
  if (q.send && !c.st.uars.exists(q.uar)) return c.no_such("UAR", q.uar);
  if (q.log_size > kLogMaxWqSize) return c.refuse(Status::BAD_PARAM, "2^{} WQEs", q.log_size);
  unsigned least = q.send ? 6 : 4, most = q.send ? 9 : 10;
  if (q.log_stride < least || q.log_stride > most) return c.refuse(Status::BAD_PARAM, "WQEs of 2^{} bytes", q.log_stride);
  if (Status s = c.may_use_all({{Kind::kCq, cqn}, {Kind::kPd, q.pd}, {Kind::kUar, q.uar}}); s != Status::OK) return s;
  return take_wq_memory(c, wq, c.tail(prm::create_rq_in::kBytes), std::uint64_t{1} << (q.log_size + q.log_stride), q.dbr, q.buf);
}

void hold(Command& c, RawQueue& q, int d) {
  auto add = [d](unsigned& users) { users = static_cast<unsigned>(static_cast<int>(users) + d); };
  add(q.cq->users);
  if (auto it = c.objects().tises.find(q.tisn); it != c.objects().tises.end()) add(it->second.users);
  d > 0 ? c.st.pds.hold(q.pd) : c.st.pds.drop(q.pd);
  d > 0 ? c.st.uars.hold(q.uar) : c.st.uars.drop(q.uar);
}

Status keep(Command& c, std::unique_ptr<RawQueue> q, const std::uint8_t* ctx) {
  auto n = c.st.raw_queue_numbers.take();
  if (!n) return c.exhausted(q->send ? "SQ" : "RQ");
  q->number = *n;
  std::memcpy(q->context.data(), ctx, q->context.size());
  hold(c, *q, 1);
  c.objects().raw_queues.emplace(*n, std::move(q));
  c.set<prm::create_rq_out::rqn>(*n);
  return Status::OK;
}

// The fields of an RQ that MODIFY_RQ may change beside its state.
Status modify_rq_fields(Command& c, RawQueue& q) {
  std::uint64_t mask = c.get<prm::modify_rq_in::modify_bitmask>();
  const std::uint8_t* ctx = c.at<prm::modify_rq_in::ctx>();
  if (mask & ~std::uint64_t{kModVsd | kModScatterFcs | kModCounterSet}) return c.refuse(Status::BAD_PARAM, "modify bitmask {:#x}", mask);
  if ((mask & kModScatterFcs) && prm::get<prm::rqc::scatter_fcs>(ctx)) return c.refuse(Status::BAD_PARAM, "scatter FCS is not offered");
  if (mask & kModCounterSet) {
    std::uint32_t set = prm::get<prm::rqc::counter_set_id>(ctx);
    if (set != 0 && c.objects().counter_set(set) == nullptr) return c.no_such("counter set", set);
    if (Status s = c.may_use(Kind::kCounterSet, set); s != Status::OK) return s;
    prm::set<prm::rqc::counter_set_id>(q.context.data(), set);
  }
  if (mask & kModVsd) prm::set<prm::rqc::vsd>(q.context.data(), prm::get<prm::rqc::vsd>(ctx));
  return Status::OK;
}

Status modify(Command& c, bool send) {
  const char* what = send ? "SQ" : "RQ";
  std::uint32_t n = c.get<prm::modify_rq_in::rqn>();
  RawQueue* q = find(c, n, send);
  if (q == nullptr) return c.no_such(what, n);
  auto now = static_cast<unsigned>(q->state);
  unsigned from = c.get<prm::modify_rq_in::rq_state>(), to = prm::get<prm::rqc::state>(c.at<prm::modify_rq_in::ctx>());
  if (from != now) return c.refuse(Status::BAD_RES_STATE, "{} {:#x} is in state {}, not {}", what, n, now, from);
  using S = RawQueue::State;
  auto target = static_cast<S>(to);
  if (target != S::kReset && target != S::kReady && target != S::kError) return c.refuse(Status::BAD_PARAM, "state {}", to);
  if (q->state == S::kError && target == S::kReady) return c.refuse(Status::BAD_RES_STATE, "{} {:#x}: ERR to RDY", what, n);
  if (!send)
    if (Status s = modify_rq_fields(c, *q); s != Status::OK) return s;
  S before = q->state;
  q->state = target;
  prm::set<prm::rqc::state>(q->context.data(), to);
  c.hca.data_path().raw_queue_state_changed(*q, before);
  return Status::OK;
}

Status query(Command& c, bool send) {
  std::uint32_t n = c.get<prm::query_rq_in::rqn>();
  RawQueue* q = find(c, n, send);
  if (q == nullptr) return c.no_such(send ? "SQ" : "RQ", n);
  void* ctx = c.out_at<prm::query_rq_out::rq_context>();
  std::memcpy(ctx, q->context.data(), q->context.size());
  void* wq = prm::at<prm::rqc::wq>(ctx);
  prm::set<prm::wq::hw_counter>(wq, q->hw_counter);
  prm::set<prm::wq::sw_counter>(wq, q->sw_counter);
  return Status::OK;
}

Status destroy(Command& c, bool send) {
  std::uint32_t n = c.get<prm::destroy_rq_in::rqn>();
  RawQueue* q = find(c, n, send);
  if (q == nullptr) return c.no_such(send ? "SQ" : "RQ", n);
  if (q->users != 0) return c.in_use("RQ", n, q->users);
  c.hca.data_path().raw_queue_destroyed(*q);
  hold(c, *q, -1);
  c.objects().raw_queues.erase(n);
  c.st.raw_queue_numbers.give_back(n);
  return Status::OK;
}

}  // namespace

Status take_wq_memory(Command& c, const void* wq, std::span<const std::uint8_t> pas, std::uint64_t bytes, pci::DmaAddr& dbr,
                      QueueBuffer& out) {
  dbr = prm::get<prm::wq::dbr_addr>(wq);
  if (prm::get<prm::wq::dbr_umem_valid>(wq)) {
    if (Status s = take_umem_dbr(c, prm::get<prm::umem_ref::wq_dbr_umem_id>(wq), dbr, dbr); s != Status::OK) return s;
  }
  if (bad_dbr(dbr)) return c.refuse(Status::BAD_PARAM, "doorbell record at {:#x}", dbr);
  if (prm::get<prm::wq::wq_umem_valid>(wq))
    return take_umem_buffer(c, prm::get<prm::umem_ref::wq_umem_id>(wq), prm::get<prm::umem_ref::wq_umem_offset>(wq), bytes, out);
  return take_queue_buffer(c, pas, prm::get<prm::wq::log_wq_pg_sz>(wq) + 12, prm::get<prm::wq::page_offset>(wq), bytes, out);
}

Status create_rq(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_rq_in::ctx>();
  unsigned type = prm::get<prm::rqc::mem_rq_type>(ctx);
  if (type != kMemoryInline) return c.refuse(Status::BAD_PARAM, "mem_rq_type {} is not offered", type);
  if (prm::get<prm::rqc::scatter_fcs>(ctx)) return c.refuse(Status::BAD_PARAM, "scatter FCS is not offered");
  if (prm::get<prm::rqc::delay_drop_en>(ctx)) return c.refuse(Status::BAD_PARAM, "delay drop is not offered");
  std::uint32_t set = prm::get<prm::rqc::counter_set_id>(ctx);
  if (set != 0 && c.objects().counter_set(set) == nullptr) return c.no_such("counter set", set);
  if (Status s = c.may_use(Kind::kCounterSet, set); s != Status::OK) return s;
  auto q = std::make_unique<RawQueue>();
  if (Status s = take_wq(c, *q, ctx); s != Status::OK) return s;
  return keep(c, std::move(q), ctx);
}
Status modify_rq(Command& c) {
  return modify(c, false);
}
Status query_rq(Command& c) {
  return query(c, false);
}
Status destroy_rq(Command& c) {
  return destroy(c, false);
}

Status create_sq(Command& c) {
  if (!c.st.ownership.has_cap(c.uid, prm::kUctxCapRawTx))
    return c.refuse(Status::BAD_OP, "SQ of the user context {}, which may not send raw packets", c.uid);
  const std::uint8_t* ctx = c.at<prm::create_sq_in::ctx>();
  auto q = std::make_unique<RawQueue>();
  q->send = true;
  if (Status s = take_wq(c, *q, ctx); s != Status::OK) return s;
  unsigned tises = prm::get<prm::sqc::tis_lst_sz>(ctx);
  if (tises > 1) return c.refuse(Status::BAD_PARAM, "{} TISes on one SQ", tises);
  if (tises == 1) {
    q->tisn = prm::get<prm::sqc::tis_num_0>(ctx);
    if (!c.objects().tises.contains(q->tisn)) return c.no_such("TIS", q->tisn);
    if (Status s = c.may_use(Kind::kTis, q->tisn); s != Status::OK) return s;
  }
  return keep(c, std::move(q), ctx);
}
Status modify_sq(Command& c) {
  return modify(c, true);
}
Status query_sq(Command& c) {
  return query(c, true);
}
Status destroy_sq(Command& c) {
  return destroy(c, true);
}

}  // namespace uhca::hca::cmd
