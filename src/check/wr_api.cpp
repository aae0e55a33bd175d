// SPDX-License-Identifier: MIT
// ibv_wr_*: a request is complete when its SGEs are set, and counts as posted then. That
// ibv_wr_complete refuses a batch is not seen (its pointer belongs to whoever has to know when the device gets work).
#include <utility>

#include "check/next.h"
#include "check/state.h"

namespace uhca::check {

struct QpEx {
  ibv_qp_ex was;  // the functions as they were
  Plan plan;
  bool open = false;
};

namespace {

constinit Next<ibv_qp_ex*(ibv_qp*)> next_ibv_qp_to_qp_ex{"libibverbs.so.1", "ibv_qp_to_qp_ex"};

std::shared_ptr<QpEx> of(ibv_qp_ex* qp) {
  Lock lock(state().lock);
  auto it = state().qps.find(qp->qp_base.qp_num);
  return it == state().qps.end() ? nullptr : it->second.ex;
}

void begin(ibv_qp_ex* qp, QpEx& e, int opcode, std::uint32_t rkey = 0, std::uint64_t remote = 0) {
  Inside inside;
  e.plan = {};
  e.plan.opcode = opcode;
  e.plan.flags = qp->wr_flags;
  e.plan.wr_id = qp->wr_id;
  e.plan.rkey = rkey;
  e.plan.remote_addr = remote;
  e.open = true;
}

void end(ibv_qp_ex* qp, QpEx& e) {
  if (!e.open || Inside::active()) return;
  const Site site = here();
  Inside inside;
  e.open = false;
  const std::uint32_t n = qp->qp_base.qp_num;
  accepted(n, e.plan, examine(n, e.plan, site));
}

// Only the functions that programs on this QP may call are there.
#define WR(name, params, args, opcode, ...)                      \
  void name params {                                             \
    auto e = of(qp);                                             \
    if (e == nullptr) return; /* destroyed meanwhile */          \
    if (!Inside::active()) begin(qp, *e, opcode, ##__VA_ARGS__); \
    e->was.name args;                                            \
  }
WR(wr_send, (ibv_qp_ex * qp), (qp), IBV_WR_SEND)
WR(wr_send_imm, (ibv_qp_ex * qp, __be32 imm), (qp, imm), IBV_WR_SEND_WITH_IMM)
WR(wr_rdma_read, (ibv_qp_ex * qp, std::uint32_t rkey, std::uint64_t at), (qp, rkey, at), IBV_WR_RDMA_READ, rkey, at)
WR(wr_rdma_write, (ibv_qp_ex * qp, std::uint32_t rkey, std::uint64_t at), (qp, rkey, at), IBV_WR_RDMA_WRITE, rkey, at)
WR(wr_rdma_write_imm, (ibv_qp_ex * qp, std::uint32_t rkey, std::uint64_t at, __be32 imm), (qp, rkey, at, imm), IBV_WR_RDMA_WRITE_WITH_IMM,
   rkey, at)
WR(wr_atomic_cmp_swp, (ibv_qp_ex * qp, std::uint32_t rkey, std::uint64_t at, std::uint64_t a, std::uint64_t b), (qp, rkey, at, a, b),
   IBV_WR_ATOMIC_CMP_AND_SWP, rkey, at)
WR(wr_atomic_fetch_add, (ibv_qp_ex * qp, std::uint32_t rkey, std::uint64_t at, std::uint64_t a), (qp, rkey, at, a),
   IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, at)
#undef WR

void wr_send_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) begin(qp, *e, IBV_WR_SEND_WITH_INV), e->plan.invalidate = rkey;
  e->was.wr_send_inv(qp, rkey);
}
// These have no SGEs.
void wr_local_inv(ibv_qp_ex* qp, std::uint32_t rkey) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) begin(qp, *e, IBV_WR_LOCAL_INV), e->plan.invalidate = rkey, end(qp, *e);
  e->was.wr_local_inv(qp, rkey);
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) begin(qp, *e, IBV_WR_BIND_MW, rkey), end(qp, *e);
  e->was.wr_bind_mw(qp, mw, rkey, info);
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) e->plan.sges = {{addr, length, lkey}}, end(qp, *e);
  e->was.wr_set_sge(qp, lkey, addr, length);
}
void wr_set_sge_list(ibv_qp_ex* qp, size_t n, const ibv_sge* list) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) e->plan.sges.assign(list, list + n), end(qp, *e);
  e->was.wr_set_sge_list(qp, n, list);
}
void wr_set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active())
    e->plan.is_inline = true, e->plan.sges = {{reinterpret_cast<std::uint64_t>(addr), static_cast<std::uint32_t>(length), 0}}, end(qp, *e);
  e->was.wr_set_inline_data(qp, addr, length);
}
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t n, const ibv_data_buf* list) {
  auto e = of(qp);
  if (e == nullptr) return;
  if (!Inside::active()) {
    e->plan.is_inline = true;
    e->plan.sges.clear();
    for (size_t i = 0; i < n; ++i)
      e->plan.sges.push_back({reinterpret_cast<std::uint64_t>(list[i].addr), static_cast<std::uint32_t>(list[i].length), 0});
    end(qp, *e);
  }
  e->was.wr_set_inline_data_list(qp, n, list);
}
void wr_abort(ibv_qp_ex* qp) {
  auto e = of(qp);
  if (e == nullptr) return;
  e->was.wr_abort(qp);
  if (Inside::active()) return;
  Inside inside;
  Lock lock(state().lock);
  auto it = state().qps.find(qp->qp_base.qp_num);
  e->open = false;
  if (it == state().qps.end()) return;
  // Where the batch began is not known: nothing is said about what is on its way.
  for (Request& r : it->second.sends) r.reads.clear(), r.writes.clear();
}

}  // namespace

void wrap_wr_api(ibv_qp* qp) {
  Inside inside;
  ibv_qp_ex* ex = next_ibv_qp_to_qp_ex(qp);
  if (!ex) return;
  auto e = std::make_shared<QpEx>();
  e->was = *ex;
  {
    Lock lock(state().lock);
    auto it = state().qps.find(qp->qp_num);
    if (it == state().qps.end()) return;
    it->second.ex = e;
  }
#define WRAP(name) \
  if (ex->name) ex->name = name
  WRAP(wr_send);
  WRAP(wr_send_imm);
  WRAP(wr_send_inv);
  WRAP(wr_rdma_read);
  WRAP(wr_rdma_write);
  WRAP(wr_rdma_write_imm);
  WRAP(wr_atomic_cmp_swp);
  WRAP(wr_atomic_fetch_add);
  WRAP(wr_local_inv);
  WRAP(wr_bind_mw);
  WRAP(wr_set_sge);
  WRAP(wr_set_sge_list);
  WRAP(wr_set_inline_data);
  WRAP(wr_set_inline_data_list);
  WRAP(wr_abort);
#undef WRAP
}

}  // namespace uhca::check
