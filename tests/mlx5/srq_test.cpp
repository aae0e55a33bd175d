// SPDX-License-Identifier: MIT
// SRQs, XRC domains and XRC QPs on the device.
#include <cstring>

#include "kernel/mlx5_ib/dev_resources.h"
#include "mlx5/rig.h"

namespace uhca::mlx5test {
namespace {

class SrqTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    ASSERT_TRUE(dev->devr->get().ok());
    ranges_before = dev->mdev->domain().live_ranges();
  }
  Result<std::unique_ptr<ib_srq>> make_srq(ib_srq_init_attr& attr, void* buf, void* db, auto change,
                                           std::size_t inlen = sizeof(mlx5_ib_create_srq)) {
    Call<mlx5_ib_create_srq, mlx5_ib_create_srq_resp> call(inlen);
    call.in.buf_addr = up(buf);
    call.in.db_addr = up(db);
    call.in.uidx = 9;
    change(call.in);
    auto s = ib_create_srq(*pd, attr, &call.udata);
    if (s.ok()) {
      EXPECT_EQ(call.out.srqn, (*s)->srq_num);
    }
    return s;
  }
  static void as_is(mlx5_ib_create_srq&) {}
  // Receives that the program has posted, as its doorbell record says: a limit above what is there fires at once and reads 0 again.
  static void announce(std::uint8_t* db, std::uint32_t posted) {
    const std::uint32_t big_endian = __builtin_bswap32(posted);
    std::memcpy(db, &big_endian, sizeof big_endian);
  }
  static ib_srq_init_attr size(std::uint32_t wr, std::uint32_t sge) {
    ib_srq_init_attr a;
    a.attr = {wr, sge, 0};
    return a;
  }
};

TEST_F(SrqTest, BasicSrqIsAnRmp) {
  Pages buf(65536), db(64);
  ib_srq_init_attr a = size(100, 3);
  auto srq = make_srq(a, buf.p, db.p, as_is);
  ASSERT_TRUE(srq.ok()) << srq.code();
  EXPECT_EQ(127u, a.attr.max_wr);
  ib_srq_attr q;
  ASSERT_TRUE(dev->ops.query_srq(**srq, q).ok());
  EXPECT_EQ(127u, q.max_wr);
  EXPECT_EQ(3u, q.max_sge);
  EXPECT_EQ(0u, q.srq_limit);
  EXPECT_EQ(EINVAL, dev->ops.modify_srq(**srq, {256, 0, 0}, IB_SRQ_MAX_WR, nullptr).code());
  EXPECT_EQ(EINVAL, dev->ops.modify_srq(**srq, {0, 0, 128}, IB_SRQ_LIMIT, nullptr).code());
  announce(db.p, 20);
  ASSERT_TRUE(dev->ops.modify_srq(**srq, {0, 0, 17}, IB_SRQ_LIMIT, nullptr).ok());
  ASSERT_TRUE(dev->ops.query_srq(**srq, q).ok());
  EXPECT_EQ(17u, q.srq_limit);
  EXPECT_TRUE(ib_destroy_srq(**srq).ok());
}

TEST_F(SrqTest, RefusalsLeaveNothing) {
  Pages buf(65536), db(64);
  std::size_t ranges = dev->mdev->domain().live_ranges();
  auto with = [&](ib_srq_init_attr a, auto change, std::size_t inlen = sizeof(mlx5_ib_create_srq)) {
    return make_srq(a, buf.p, db.p, change, inlen).code();
  };
  EXPECT_EQ(EINVAL, with(size(1u << 15, 1), as_is));
  EXPECT_EQ(EINVAL, with(size(16, 33), as_is));
  EXPECT_EQ(EINVAL, with(size(16, 1), as_is, 16)) << "no flags";
  EXPECT_EQ(EINVAL, with(size(16, 1), [](auto& in) { in.reserved0 = 1; }));
  EXPECT_EQ(EINVAL, with(size(16, 1), [](auto& in) { in.reserved1 = 1; }));
  EXPECT_EQ(EINVAL, with(size(16, 1), [](auto& in) { in.db_addr += 4; }));
  EXPECT_EQ(EFAULT, with(size(16, 1), [](auto& in) { in.buf_addr = 4096; }));
  EXPECT_EQ(EINVAL, with(size(16, 1), [](auto& in) { in.buf_addr += 8; })) << "not on 64 bytes";
  ib_srq_init_attr tm = size(16, 1);
  tm.srq_type = ib_srq_type::TM;
  EXPECT_EQ(EOPNOTSUPP, with(tm, as_is));
  ib_srq_init_attr xrc = size(16, 1);
  xrc.srq_type = ib_srq_type::XRC;
  EXPECT_EQ(EINVAL, with(xrc, as_is, offsetof(mlx5_ib_create_srq, uidx))) << "no user index";
  EXPECT_EQ(EINVAL, with(xrc, [](auto& in) { in.uidx = 1u << 24; }));
  // The firmware refuses: nothing stays pinned.
  dev->mdev->cmd().inject({0, static_cast<std::uint16_t>(prm::Opcode::CREATE_RMP), prm::CmdStatus::NO_RES});
  EXPECT_EQ(EAGAIN, with(size(16, 1), as_is));
  dev->mdev->cmd().clear_fault();
  EXPECT_EQ(ranges, dev->mdev->domain().live_ranges());
}

TEST_F(SrqTest, BufferAtAnyOffsetInItsPage) {
  Pages buf(65536), db(64);
  for (std::size_t offset : {64, 2048, 4032}) {
    ib_srq_init_attr a = size(15, 1);
    auto srq = make_srq(a, buf.p + offset, db.p, as_is);
    if (offset < 2048) {
      ASSERT_TRUE(srq.ok()) << offset;
      EXPECT_TRUE(ib_destroy_srq(**srq).ok());
    } else {
      // An RMP's page_offset has five bits: half a page.
      EXPECT_EQ(EINVAL, srq.code()) << offset;
    }
  }
}

TEST_F(SrqTest, XrcDomainSrqAndQps) {
  Pages buf(65536), db(4096), cqbuf(65536), qpbuf(65536);
  auto cq = make_cq(16, cqbuf.p, db.p);
  ASSERT_TRUE(cq.ok());
  auto xrcd = ib_alloc_xrcd(*dev, nullptr);
  ASSERT_TRUE(xrcd.ok());
  ib_srq_init_attr a = size(15, 1);
  a.srq_type = ib_srq_type::XRC;
  a.cq = cq->get();
  a.xrcd = xrcd->get();
  auto srq = make_srq(a, buf.p, db.p + 64, as_is);
  ASSERT_TRUE(srq.ok()) << srq.code();
  announce(db.p + 64, 5);
  ASSERT_TRUE(dev->ops.modify_srq(**srq, {0, 0, 3}, IB_SRQ_LIMIT, nullptr).ok());
  ib_srq_attr q;
  ASSERT_TRUE(dev->ops.query_srq(**srq, q).ok());
  EXPECT_EQ(3u, q.srq_limit);
  EXPECT_EQ(EBUSY, ib_dealloc_xrcd(**xrcd).code());

  ib_qp_init_attr ta;
  ta.qp_type = ib_qp_type::XRC_TGT;
  ta.xrcd = xrcd->get();
  auto target = ib_create_qp(*dev, nullptr, ta, nullptr);
  ASSERT_TRUE(target.ok()) << target.code();
  ib_qp_attr m;
  m.qp_state = ib_qp_state::INIT;
  m.port_num = 1;
  ASSERT_TRUE(ib_modify_qp(**target, m, IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, nullptr).ok());
  auto again = ib_open_qp(**xrcd, (*target)->qp_num, ib_qp_type::XRC_TGT);
  ASSERT_TRUE(again.ok());
  ib_qp_attr got;
  ib_qp_init_attr init;
  ASSERT_TRUE(ib_query_qp(**again, got, ~0u, init).ok());
  EXPECT_EQ(ib_qp_state::INIT, got.qp_state);

  mlx5_ib_create_qp in = qp_request(qpbuf.p, db.p + 128);
  in.rq_wqe_count = 0;
  Call<mlx5_ib_create_qp, mlx5_ib_create_qp_resp> call;
  call.in = in;
  ib_qp_init_attr ia;
  ia.send_cq = cq->get();
  ia.qp_type = ib_qp_type::XRC_INI;
  ia.cap.max_send_wr = 16;
  auto initiator = ib_create_qp(*pd, ia, &call.udata);
  ASSERT_TRUE(initiator.ok()) << initiator.code();

  EXPECT_TRUE(ib_destroy_qp(**initiator).ok());
  EXPECT_TRUE(ib_destroy_qp(**target).ok());
  EXPECT_TRUE(ib_destroy_qp(**again).ok());
  EXPECT_TRUE(ib_destroy_srq(**srq).ok());
  EXPECT_TRUE(ib_dealloc_xrcd(**xrcd).ok());
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(SrqTest, QpOnASharedQueue) {
  Pages buf(65536), db(4096), cqbuf(65536), qpbuf(65536);
  auto cq = make_cq(16, cqbuf.p, db.p);
  ASSERT_TRUE(cq.ok());
  ib_srq_init_attr a = size(15, 1);
  auto srq = make_srq(a, buf.p, db.p + 64, as_is);
  ASSERT_TRUE(srq.ok());
  for (ib_qp_type t : {ib_qp_type::RC, ib_qp_type::UD}) {
    Call<mlx5_ib_create_qp, mlx5_ib_create_qp_resp> call;
    call.in = qp_request(qpbuf.p, db.p + 128);
    call.in.rq_wqe_count = 0;
    ib_qp_init_attr qa;
    qa.send_cq = qa.recv_cq = cq->get();
    qa.srq = srq->get();
    qa.qp_type = t;
    qa.cap.max_send_wr = 16;
    auto qp = ib_create_qp(*pd, qa, &call.udata);
    ASSERT_TRUE(qp.ok()) << qp.code();
    EXPECT_EQ(EBUSY, ib_destroy_srq(**srq).code());
    EXPECT_TRUE(ib_destroy_qp(**qp).ok());
  }
  EXPECT_TRUE(ib_destroy_srq(**srq).ok());
  EXPECT_TRUE(ib_destroy_cq(**cq).ok());
}

TEST_F(SrqTest, DriverResourcesAreUndoneStepByStep) {
  for (std::uint64_t step = 0; step < 6; ++step) {
    DevResources r(*dev->mdev);
    std::size_t ranges = dev->mdev->domain().live_ranges();
    dev->mdev->cmd().inject({step, 0, prm::CmdStatus::NO_RES});
    EXPECT_EQ(EAGAIN, r.get().code()) << step;
    dev->mdev->cmd().clear_fault();
    EXPECT_EQ(ranges, dev->mdev->domain().live_ranges()) << step;
    EXPECT_TRUE(r.get().ok()) << "the next call tries again";
  }
}

}  // namespace
}  // namespace uhca::mlx5test
