// SPDX-License-Identifier: MIT
// Queue arithmetic: how large WQEs and queues become for the capabilities that a program asks for, which capabilities it gets in
// return, and when a queue is full. Numbers follow libmlx5 (rdma-core providers/mlx5/verbs.c), so that programs see the same caps.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cstdint>

#include "base/result.h"
#include "user/mlx5/wqe_build.h"

namespace uhca::mlx5 {

// From the GET_CONTEXT response; bytes, basic blocks, work requests.
struct QueueLimits {
  std::uint32_t max_sq_desc_sz = 0;
  std::uint32_t max_rq_desc_sz = 0;
  std::uint32_t max_send_wqebb = 0;
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_srq_recv_wr = 0;
};

constexpr std::uint64_t round_up_pow2(std::uint64_t v) {
  return v <= 1 ? 1 : std::bit_ceil(v);
}
// log2 of the smallest power of two that is >= v.
constexpr unsigned log2_up(std::uint64_t v) {
  return v <= 1 ? 0 : static_cast<unsigned>(std::bit_width(v - 1));
}

struct SqPlan {
  std::uint32_t wqe_size = 0;    // bytes, a multiple of a basic block
  std::uint32_t wqe_cnt = 0;     // basic blocks, a power of two
  std::uint32_t max_post = 0;    // work requests
  std::uint32_t max_inline = 0;  // bytes
  std::uint64_t bytes = 0;
};

struct RqPlan {
  std::uint32_t wqe_shift = 0;
  std::uint32_t wqe_cnt = 0;
  std::uint32_t max_post = 0;
  std::uint32_t max_gs = 0;
  std::uint64_t bytes = 0;
};

struct SrqPlan {
  std::uint32_t wqe_shift = 0;
  std::uint32_t max_gs = 0;
  std::uint32_t max = 0;   // WQEs in the buffer, with the spare ones
  std::uint32_t tail = 0;  // last WQE of the main list; also what the program may post
  bool spare = false;      // WQEs after `tail` exist (the queue that cools page-faulted WQEs down)
};

// Bytes before the gather list for the largest of `ops` (IBV_QP_EX_WITH_*). EINVAL for a type without send queue formats.
Result<std::uint32_t> sq_overhead(ibv_qp_type type, std::uint64_t ops);
// The operations that ibv_create_qp without send_ops_flags must be able to carry.
Result<std::uint64_t> default_send_ops(ibv_qp_type type);

// `headers`: bytes of the longest headers of a TSO request.
Result<SqPlan> plan_sq(const QueueLimits& lim, ibv_qp_type type, std::uint64_t ops, const ibv_qp_cap& cap, std::uint32_t headers = 0);
// `with_srq`: the QP has no receive queue, and its receive capabilities are ignored (IBTA 10.2.9.1).
Result<RqPlan> plan_rq(const QueueLimits& lim, const ibv_qp_cap& cap, bool with_srq);
Result<SrqPlan> plan_srq(const QueueLimits& lim, std::uint32_t max_wr, std::uint32_t max_sge);

// One direction of a QP (or a WQ). head counts work requests, tail completed ones; posting reads tail while another thread polls.
struct WorkQueue {
  std::uint64_t* wrid = nullptr;
  std::uint32_t* wqe_head = nullptr;  // SQ: value of head when the WQE at this block was posted
  std::uint8_t* wr_data = nullptr;    // SQ: ibv_wc_opcode of UMR based work requests
  std::uint32_t wqe_cnt = 0;
  std::uint32_t wqe_shift = 0;
  std::uint32_t max_post = 0;
  std::uint32_t head = 0;
  std::atomic<std::uint32_t> tail{0};
  int max_gs = 0;
  int state_max_gs = -1;  // -1: the QP's state forbids posting
  std::uint64_t offset = 0;

  // Whether `n` more after those already counted in head would be one too many.
  bool overflow(std::uint32_t n) const { return head - tail.load(std::memory_order_acquire) + n >= max_post; }
  void reset() {
    head = 0;
    tail.store(0, std::memory_order_relaxed);
  }
};

}  // namespace uhca::mlx5
