// SPDX-License-Identifier: MIT
// The provider without a kernel: the command layer's functions that QPs, CQs and SRQs call are replaced by ones that hand out numbers, and
// the test plays the device (it reads WQEs and writes CQEs).
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "user/mlx5/post.h"

namespace fake {

using namespace uhca;
using namespace uhca::mlx5;

struct Calls {
  int err = 0;  // what the next create/modify/destroy answers
  std::uint32_t next_number = 0x100;
  mlx5_ib_create_qp qp_in;
  mlx5_ib_create_cq cq_in;
  mlx5_ib_create_srq srq_in;
  std::uint32_t resize_from_ci = 0;
  // Opening a context.
  int cmd_fd = -1;  // -1: closed
  int contexts = 0;
  mlx5_ib_alloc_ucontext_resp context_resp = {};
  std::vector<std::pair<std::size_t, std::uint32_t>> get_contexts;  // request length and flags of each attempt
  int refuse_get_contexts = 0;                                      // how many attempts fail with EINVAL
  int ioctl_err = 0;
  verbs_context_ops ops = {};
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  int pds = 0, mrs = 0, ahs = 0;
  ibv_gid_type_sysfs gid_type = IBV_GID_TYPE_SYSFS_ROCE_V2;
  std::vector<std::pair<volatile void*, std::uint64_t>> doorbells;
  std::vector<std::uint32_t> empty_polls;
  void (*on_empty_poll)() = nullptr;
};
extern Calls calls;

inline void doorbell_hook(volatile void* reg, std::uint64_t value) {
  calls.doorbells.emplace_back(reg, value);
}
inline int poll_hook(std::uint32_t cqn) {
  calls.empty_polls.push_back(cqn);
  if (calls.on_empty_poll) calls.on_empty_poll();
  return 1;
}

class Env {
 public:
  Env() {
    calls = Calls{};
    ctx = static_cast<Context*>(std::calloc(1, sizeof(Context)));
    ctx->limits = QueueLimits{1024, 512, 32768, 32768, 32768};
    ctx->cache_line_size = 64;
    ctx->num_ports = 1;
    ctx->atomic_cap = IBV_ATOMIC_HCA;
    ctx->dump_fill_mkey = 0x99;
    ctx->nc_uar.page = uar;
    ctx->nc_uar.reg = uar + 0x800;
    ctx->nc_uar.page_id = 7;
    ctx->doorbell_hook = doorbell_hook;
    ctx->poll_hook = poll_hook;
    pd.pd.context = context();
    fill_cq_ops(&ops);
    fill_srq_ops(&ops);
    fill_qp_ops(&ops);
  }
  ~Env() {
    for (auto& t : ctx->uidx_tables) delete[] t.load();
    std::free(ctx);
  }
  ibv_context* context() { return to_ibv(ctx); }

  Cq* cq(std::uint32_t n, std::uint64_t wc_flags = 0, std::uint32_t cqe_size = 64) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = n;
    attr.wc_flags = wc_flags;
    mlx5dv_cq_init_attr dv = {};
    dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
    dv.cqe_size = static_cast<std::uint16_t>(cqe_size);
    ibv_cq_ex* q = create_cq(context(), &attr, &dv, true);
    return q ? to_cq(q) : nullptr;
  }
  ibv_qp_init_attr_ex attr(Cq* scq, Cq* rcq, ibv_qp_type type = IBV_QPT_RC) {
    ibv_qp_init_attr_ex a = {};
    a.qp_type = type;
    a.send_cq = &scq->v.cq;
    a.recv_cq = &rcq->v.cq;
    a.cap = {8, 8, 4, 4, 0};
    a.comp_mask = IBV_QP_INIT_ATTR_PD;
    a.pd = &pd.pd;
    return a;
  }
  Qp* qp(ibv_qp_init_attr_ex* a) {
    ibv_qp* q = create_qp(context(), a, nullptr);
    return q ? to_qp(q) : nullptr;
  }
  Qp* rts(ibv_qp_init_attr_ex* a) {
    Qp* q = qp(a);
    for (ibv_qp_state s : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) modify(q, s);
    return q;
  }
  int modify(Qp* q, ibv_qp_state s) {
    ibv_qp_attr m = {};
    m.qp_state = s;
    return ops.modify_qp(&q->v.qp, &m, IBV_QP_STATE);
  }

  // The device's side: appends a CQE to the CQ.
  struct Producer {
    Cq* cq;
    std::uint32_t pi = 0;
    std::uint8_t* push(CqeOpcode op, std::uint32_t uidx, std::uint16_t wqe_counter, std::uint8_t low_bits = 0) {
      std::uint8_t* c = cq->cqe64(pi);
      std::memset(c, 0, 63);
      prm::set<prm::cqe64::srqn_uidx>(c, uidx);
      prm::set<prm::cqe64::wqe_counter>(c, wqe_counter);
      c[63] = static_cast<std::uint8_t>(static_cast<unsigned>(op) << 4 | low_bits | ((pi & cq->ncqe) ? 1 : 0));
      ++pi;
      return c;
    }
  };

  Context* ctx;
  Pd pd;
  verbs_context_ops ops = {};
  alignas(4096) std::uint8_t uar[4096] = {};
};

}  // namespace fake
