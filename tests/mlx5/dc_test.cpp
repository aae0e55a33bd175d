// SPDX-License-Identifier: MIT
// DC initiators and targets: what makes them, the states they may take, and that targets exist in the device in RTR only.
#include <cstring>

#include "kernel/mlx5_ib/dct.h"
#include "kernel/mlx5_ib/dev_resources.h"
#include "mlx5/rig.h"

namespace uhca::mlx5test {
namespace {

using S = ib_qp_state;
constexpr std::uint64_t kKey = 0x0123456789abcdef;

class DcTest : public DeviceTest {
 protected:
  Pages cq_buf{65536}, srq_buf{65536}, qp_buf{65536}, db{4096};
  std::unique_ptr<ib_cq> cq;
  std::unique_ptr<ib_srq> srq;

  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_TRUE(dev->devr->get().ok());
    ranges_before = dev->mdev->domain().live_ranges();
    auto c = make_cq(63, cq_buf.p, db.p);
    ASSERT_TRUE(c.ok());
    cq = std::move(c).value();
    Call<mlx5_ib_create_srq, mlx5_ib_create_srq_resp> call;
    call.in.buf_addr = up(srq_buf.p);
    call.in.db_addr = up(db.p + 64);
    call.in.uidx = 9;
    ib_srq_init_attr a;
    a.attr = {64, 1, 0};
    auto s = ib_create_srq(*pd, a, &call.udata);
    ASSERT_TRUE(s.ok());
    srq = std::move(s).value();
  }
  void TearDown() override {
    EXPECT_TRUE(ib_destroy_srq(*srq).ok());
    EXPECT_TRUE(ib_destroy_cq(*cq).ok());
    DeviceTest::TearDown();
  }
  Result<std::unique_ptr<ib_qp>> make(std::uint32_t flags, ib_srq* with, std::uint32_t recv_wr = 0) {
    Call<mlx5_ib_create_qp, mlx5_ib_create_qp_resp> call;
    call.in = qp_request(qp_buf.p, db.p + 128);
    call.in.flags |= flags;
    call.in.rq_wqe_count = call.in.rq_wqe_shift = 0;
    call.in.access_key = kKey;
    ib_qp_init_attr attr;
    attr.send_cq = attr.recv_cq = cq.get();
    attr.qp_type = ib_qp_type::DRIVER;
    attr.srq = with;
    attr.cap = {16, recv_wr, 1, 0, 0};
    return ib_create_qp(*dev, pd.get(), attr, &call.udata);
  }
  int modify(ib_qp& qp, S to, std::uint32_t mask, std::uint32_t* dctn = nullptr, std::size_t outlen = sizeof(mlx5_ib_modify_qp_resp)) {
    Call<mlx5_ib_modify_qp, mlx5_ib_modify_qp_resp> call(sizeof(mlx5_ib_modify_qp), outlen);
    ib_qp_attr a;
    a.qp_state = to;
    a.port_num = 1;
    a.path_mtu = 3;
    a.qp_access_flags = kAccessRemoteWrite;
    a.min_rnr_timer = 12;
    a.ah_attr.is_global = true;
    a.ah_attr.hop_limit = 64;
    a.max_rd_atomic = 1;
    int e = dev->ops.modify_qp(qp, a, mask | IB_QP_STATE, &call.udata).code();
    if (dctn) *dctn = call.out.dctn;
    return e;
  }
  static constexpr std::uint32_t kDctInit = IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT;
  static constexpr std::uint32_t kDctRtr = IB_QP_MIN_RNR_TIMER | IB_QP_AV | IB_QP_PATH_MTU;
};

TEST_F(DcTest, TargetsAreMadeInRtr) {
  EXPECT_EQ(EINVAL, make(0, srq.get()).code()) << "neither end";
  EXPECT_EQ(EINVAL, make(MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI, srq.get()).code());
  EXPECT_EQ(EINVAL, make(MLX5_QP_FLAG_TYPE_DCT, nullptr).code()) << "no SRQ";
  auto dct = make(MLX5_QP_FLAG_TYPE_DCT, srq.get());
  ASSERT_TRUE(dct.ok()) << dct.code();
  ib_qp_attr got;
  ib_qp_init_attr init;
  EXPECT_EQ(EINVAL, dev->ops.query_qp(**dct, got, IB_QP_STATE, init).code()) << "the device knows nothing of it yet";
  EXPECT_EQ(EINVAL, modify(**dct, S::RTR, kDctRtr)) << "not from RESET";
  EXPECT_EQ(EINVAL, modify(**dct, S::INIT, kDctInit & ~std::uint32_t{IB_QP_PORT}));
  EXPECT_EQ(EINVAL, modify(**dct, S::INIT, kDctInit | IB_QP_QKEY));
  EXPECT_EQ(0, modify(**dct, S::INIT, kDctInit));
  EXPECT_EQ(EINVAL, modify(**dct, S::INIT, kDctInit));
  EXPECT_EQ(EINVAL, modify(**dct, S::RTR, kDctRtr & ~std::uint32_t{IB_QP_AV}));
  EXPECT_EQ(EINVAL, modify(**dct, S::RTR, kDctRtr, nullptr, 4)) << "no room for the number";
  std::uint32_t dctn = 0;
  EXPECT_EQ(0, modify(**dct, S::RTR, kDctRtr, &dctn, 8));
  EXPECT_NE(0u, dctn);
  EXPECT_EQ(EINVAL, modify(**dct, S::RTS, 0));
  EXPECT_EQ(EINVAL, modify(**dct, S::RESET, 0));
  EXPECT_EQ(EINVAL, dev->ops.query_qp(**dct, got, IB_QP_QKEY, init).code());
  ASSERT_TRUE(dev->ops.query_qp(**dct, got, IB_QP_STATE | IB_QP_PATH_MTU, init).ok());
  EXPECT_EQ(S::RTR, got.qp_state);
  EXPECT_EQ(3, got.path_mtu);
  EXPECT_EQ(12, got.min_rnr_timer);
  EXPECT_EQ(kAccessRemoteWrite, got.qp_access_flags);
  EXPECT_EQ(EBUSY, ib_destroy_srq(*srq).code());
  EXPECT_TRUE(ib_destroy_qp(**dct).ok());
}

TEST_F(DcTest, TargetsMayGoInAnyState) {
  for (int steps = 0; steps < 3; ++steps) {
    auto dct = make(MLX5_QP_FLAG_TYPE_DCT, srq.get());
    ASSERT_TRUE(dct.ok());
    if (steps > 0) {
      ASSERT_EQ(0, modify(**dct, S::INIT, kDctInit));
    }
    if (steps > 1) {
      ASSERT_EQ(0, modify(**dct, S::RTR, kDctRtr));
    }
    EXPECT_TRUE(ib_destroy_qp(**dct).ok());
  }
}

TEST_F(DcTest, Initiators) {
  EXPECT_EQ(EINVAL, make(MLX5_QP_FLAG_TYPE_DCI, nullptr, 4).code()) << "receives";
  auto dci = make(MLX5_QP_FLAG_TYPE_DCI, nullptr);
  ASSERT_TRUE(dci.ok()) << dci.code();
  EXPECT_EQ(EINVAL, modify(**dci, S::INIT, kDctInit)) << "an initiator has no remote access";
  EXPECT_EQ(0, modify(**dci, S::INIT, IB_QP_PKEY_INDEX | IB_QP_PORT));
  EXPECT_EQ(EINVAL, modify(**dci, S::RTR, IB_QP_PATH_MTU | IB_QP_DEST_QPN)) << "its peers are named by each request";
  EXPECT_EQ(0, modify(**dci, S::RTR, IB_QP_PATH_MTU));
  EXPECT_EQ(0, modify(**dci, S::RTS, IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC | IB_QP_SQ_PSN));
  ib_qp_attr got;
  ib_qp_init_attr init;
  ASSERT_TRUE(dev->ops.query_qp(**dci, got, 0, init).ok());
  EXPECT_EQ(S::RTS, got.qp_state);
  EXPECT_EQ(0, modify(**dci, S::ERR, 0));
  EXPECT_EQ(0, modify(**dci, S::RESET, 0));
  EXPECT_TRUE(ib_destroy_qp(**dci).ok());
}

}  // namespace
}  // namespace uhca::mlx5test
