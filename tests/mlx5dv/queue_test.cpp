// SPDX-License-Identifier: MIT
// Queue sizes and the capabilities that a program gets back: the numbers of libmlx5 for the same request.
#include "user/mlx5/queue.h"

#include <gtest/gtest.h>

namespace {
using namespace uhca;
using namespace uhca::mlx5;

constexpr QueueLimits kLim{1024, 512, 32768, 32768, 32768};

ibv_qp_cap cap(std::uint32_t send_wr, std::uint32_t recv_wr, std::uint32_t send_sge, std::uint32_t recv_sge, std::uint32_t inl) {
  return ibv_qp_cap{send_wr, recv_wr, send_sge, recv_sge, inl};
}

TEST(Queue, SendCapsOfRc) {
  std::uint64_t ops = *default_send_ops(IBV_QPT_RC);
  EXPECT_EQ(192u, *sq_overhead(IBV_QPT_RC, ops));
  auto p = plan_sq(kLim, IBV_QPT_RC, ops, cap(8, 8, 1, 1, 0));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(256u, p->wqe_size);
  EXPECT_EQ(32u, p->wqe_cnt);
  EXPECT_EQ(8u, p->max_post);
  EXPECT_EQ(60u, p->max_inline);
  auto q = plan_sq(kLim, IBV_QPT_RC, ops, cap(128, 0, 1, 0, 236));
  ASSERT_TRUE(q.ok());
  EXPECT_EQ(448u, q->wqe_size);  // 192 + 240, in whole blocks
  EXPECT_EQ(1024u, q->wqe_cnt);
  EXPECT_EQ(65536u / 448, q->max_post);
  EXPECT_EQ(448u - 192 - 4, q->max_inline);
}

TEST(Queue, SendOpsFlagsShrinkTheWqe) {
  auto p = plan_sq(kLim, IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE, cap(4, 0, 1, 0, 0));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(64u, p->wqe_size);
  EXPECT_EQ(64u - 32 - 4, p->max_inline);
  EXPECT_EQ(16u, *sq_overhead(IBV_QPT_RC, IBV_QP_EX_WITH_SEND));
  EXPECT_EQ(48u, *sq_overhead(IBV_QPT_RC, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD));
  EXPECT_EQ(64u, *sq_overhead(IBV_QPT_UD, *default_send_ops(IBV_QPT_UD)));
}

TEST(Queue, RawPackets) {
  auto ops = *default_send_ops(IBV_QPT_RAW_PACKET);
  EXPECT_EQ(std::uint64_t{IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO}, ops);
  EXPECT_EQ(48u, *sq_overhead(IBV_QPT_RAW_PACKET, ops));
  auto p = plan_sq(kLim, IBV_QPT_RAW_PACKET, ops, cap(8, 0, 1, 0, 0));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(64u, p->wqe_size);
  // Headers of TSO lie before the gather list.
  auto tso = plan_sq(kLim, IBV_QPT_RAW_PACKET, ops, cap(8, 0, 1, 0, 0), 54);
  ASSERT_TRUE(tso.ok());
  EXPECT_EQ(128u, tso->wqe_size);
}

TEST(Queue, SendRefusals) {
  std::uint64_t ops = *default_send_ops(IBV_QPT_RC);
  EXPECT_TRUE(plan_sq(kLim, IBV_QPT_RC, ops, cap(1, 0, 52, 0, 0)).ok());
  EXPECT_EQ(EINVAL, plan_sq(kLim, IBV_QPT_RC, ops, cap(1, 0, 53, 0, 0)).code());
  EXPECT_EQ(EINVAL, plan_sq(kLim, IBV_QPT_RC, ops, cap(1, 0, 0xffffffff, 0, 0)).code());
  EXPECT_EQ(EINVAL, plan_sq(kLim, IBV_QPT_RC, ops, cap(1, 0, 1, 0, 0xffffffff)).code());
  EXPECT_EQ(EINVAL, plan_sq(kLim, IBV_QPT_RC, ops, cap(0xffffffff, 0, 1, 0, 0)).code());
  EXPECT_EQ(EINVAL, plan_sq(kLim, IBV_QPT_RC, ops, cap(32768, 0, 1, 0, 0)).code());
  EXPECT_EQ(EINVAL, plan_sq(kLim, static_cast<ibv_qp_type>(7), ops, cap(1, 0, 1, 0, 0)).code());
  auto none = plan_sq(kLim, IBV_QPT_RC, ops, cap(0, 1, 1, 1, 0));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(0u, none->bytes);
}

TEST(Queue, LargestWqeStaysWithinItsSizeField) {
  std::uint64_t ops = *default_send_ops(IBV_QPT_RC);
  auto p = plan_sq(kLim, IBV_QPT_RC, ops, cap(1, 0, 1, 0, 828));
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(1024u, p->wqe_size);
  EXPECT_LE((192 + 4 + p->max_inline + 15) / 16, kMaxDs);
}

TEST(Queue, Receive) {
  auto p = plan_rq(kLim, cap(0, 100, 0, 3, 0), false);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(6u, p->wqe_shift);
  EXPECT_EQ(128u, p->wqe_cnt);
  EXPECT_EQ(128u, p->max_post);
  EXPECT_EQ(4u, p->max_gs);
  auto one = plan_rq(kLim, cap(0, 1, 0, 0, 0), false);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(4u, one->wqe_shift);
  EXPECT_EQ(4u, one->wqe_cnt);  // at least one basic block
  EXPECT_EQ(EINVAL, plan_rq(kLim, cap(0, 32769, 0, 1, 0), false).code());
  EXPECT_EQ(EINVAL, plan_rq(kLim, cap(0, 1, 0, 33, 0), false).code());
  auto srq = plan_rq(kLim, cap(0, 0x7fffffff, 0, 1, 0), true);
  ASSERT_TRUE(srq.ok());
  EXPECT_EQ(0u, srq->max_post);
}

TEST(Queue, Shared) {
  auto p = plan_srq(kLim, 16, 1);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(5u, p->wqe_shift);
  EXPECT_EQ(1u, p->max_gs);
  EXPECT_EQ(64u, p->max);
  EXPECT_EQ(31u, p->tail);
  auto big = plan_srq(kLim, 32767, 2);
  ASSERT_TRUE(big.ok());
  EXPECT_FALSE(big->spare);
  EXPECT_EQ(32768u, big->max);
  EXPECT_EQ(32767u, big->tail);
  EXPECT_EQ(EINVAL, plan_srq(kLim, 32769, 1).code());
  EXPECT_EQ(EINVAL, plan_srq(kLim, 1, 33).code());
}

TEST(Queue, Overflow) {
  WorkQueue q;
  q.max_post = 4;
  q.head = 0xfffffffe;
  q.tail = 0xfffffffe;
  EXPECT_FALSE(q.overflow(3));
  EXPECT_TRUE(q.overflow(4));
  q.head += 4;  // wraps
  EXPECT_TRUE(q.overflow(0));
  q.tail.fetch_add(1);
  EXPECT_FALSE(q.overflow(0));
  EXPECT_TRUE(q.overflow(1));
}

TEST(Queue, Powers) {
  EXPECT_EQ(0u, log2_up(1));
  EXPECT_EQ(4u, log2_up(16));
  EXPECT_EQ(5u, log2_up(17));
  EXPECT_EQ(1u, round_up_pow2(0));
  EXPECT_EQ(std::uint64_t{1} << 33, round_up_pow2((std::uint64_t{1} << 32) + 1));
}

}  // namespace
