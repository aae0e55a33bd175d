// SPDX-License-Identifier: MIT
// CQs and QPs of kernel consumers: who knows whom.
#include "kernel/mlx5_ib/kernel_queue.h"

#include "mlx5/rig.h"

namespace uhca::mlx5test {
namespace {

TEST_F(DeviceTest, DestroyedKernelQpsLeaveTheirCqs) {
  auto kernel_pd = ib_alloc_pd(*dev, nullptr, nullptr);
  ASSERT_TRUE(kernel_pd.ok());
  ib_cq_init_attr cq_attr;
  cq_attr.cqe = 64;
  auto scq = ib_create_cq(*dev, nullptr, cq_attr, nullptr), rcq = ib_create_cq(*dev, nullptr, cq_attr, nullptr);
  ASSERT_TRUE(scq.ok() && rcq.ok());
  ib_qp_init_attr attr;
  attr.qp_type = ib_qp_type::UD;
  attr.send_cq = scq->get();
  attr.recv_cq = rcq->get();
  attr.cap = {16, 16, 1, 1, 0};
  auto& sends = to_mcq(**scq).kernel->qps;
  auto& receives = to_mcq(**rcq).kernel->qps;
  auto first = ib_create_qp(**kernel_pd, attr, nullptr), second = ib_create_qp(**kernel_pd, attr, nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(2u, sends.size());
  EXPECT_EQ(2u, receives.size());
  ASSERT_TRUE(ib_destroy_qp(**first).ok());
  first->reset();
  const std::vector<mlx5_ib_qp*> left{&to_mqp(**second)};
  EXPECT_EQ(left, sends);
  EXPECT_EQ(left, receives);
  ib_wc wc;
  EXPECT_EQ(0u, dev->ops.poll_cq(**rcq, &wc, 1));
  ASSERT_TRUE(ib_destroy_qp(**second).ok());
  EXPECT_TRUE(sends.empty());
  EXPECT_TRUE(receives.empty());
  EXPECT_TRUE(ib_destroy_cq(**scq).ok());
  EXPECT_TRUE(ib_destroy_cq(**rcq).ok());
  EXPECT_TRUE(ib_dealloc_pd(**kernel_pd).ok());
}

}  // namespace
}  // namespace uhca::mlx5test
