// SPDX-License-Identifier: MIT
// Memory windows and multicast attachments as uverbs sees them: who counts what, and what close undoes.
#include "uverbs/harness.h"

namespace uhca::kernel::test {
namespace {

class UverbsWindowMcast : public Uverbs {
 protected:
  std::uint32_t pd_h = 0, qp_h = 0;

  void SetUp() override {
    using D = FakeDevice;
    dev.ops.alloc_mw = [](ib_pd& p, std::uint8_t type, Udata*) -> Result<std::unique_ptr<ib_mw>> {
      UHCA_CHECK(D::of(*p.device).call("alloc_mw"));
      auto mw = std::make_unique<ib_mw>();
      mw->rkey = 0x300u + type;
      ++D::of(*p.device).live["mw"];
      return mw;
    };
    dev.ops.dealloc_mw = [](ib_mw& w) -> Status {
      UHCA_CHECK(D::of(*w.device).call("dealloc_mw"));
      --D::of(*w.device).live["mw"];
      return success();
    };
    dev.ops.attach_mcast = [](ib_qp& q, const ib_gid&, std::uint16_t) -> Status {
      UHCA_CHECK(D::of(*q.device).call("attach"));
      ++D::of(*q.device).live["mcast"];
      return success();
    };
    dev.ops.detach_mcast = [](ib_qp& q, const ib_gid&, std::uint16_t) -> Status {
      UHCA_CHECK(D::of(*q.device).call("detach"));
      --D::of(*q.device).live["mcast"];
      return success();
    };
    Uverbs::SetUp();
    ASSERT_EQ(context(), 0);
    pd_h = pd();
    qp_h = qp(pd_h, cq());
    dev.qps.back()->qp_type = ib_qp_type::UD;
  }
  int mw(std::uint32_t pd_handle, std::uint8_t type, std::uint32_t* handle, std::uint32_t* rkey) {
    ::ib_uverbs_alloc_mw req{};
    req.pd_handle = pd_handle;
    req.mw_type = type;
    ::ib_uverbs_alloc_mw_resp resp{};
    int e = invoke(IB_USER_VERBS_CMD_ALLOC_MW, req, resp);
    *handle = resp.mw_handle, *rkey = resp.rkey;
    return e;
  }
  int mcast(std::uint32_t command, std::uint32_t qp_handle, std::uint8_t first, std::uint16_t lid = 0) {
    ::ib_uverbs_attach_mcast req{};
    req.gid[0] = first, req.gid[15] = 7;
    req.qp_handle = qp_handle;
    req.mlid = lid;
    return invoke(command, req);
  }
  int attach(std::uint8_t first = 0xff, std::uint16_t lid = 0) { return mcast(IB_USER_VERBS_CMD_ATTACH_MCAST, qp_h, first, lid); }
  int detach(std::uint8_t first = 0xff, std::uint16_t lid = 0) { return mcast(IB_USER_VERBS_CMD_DETACH_MCAST, qp_h, first, lid); }
};

TEST_F(UverbsWindowMcast, WindowsHoldTheirPd) {
  std::uint32_t h = 0, rkey = 0;
  EXPECT_EQ(mw(99, 1, &h, &rkey), ENOENT);
  EXPECT_EQ(mw(qp_h, 1, &h, &rkey), EINVAL);
  for (std::uint8_t type : {0, 3}) EXPECT_EQ(mw(pd_h, type, &h, &rkey), EINVAL);
  dev.fail["alloc_mw"] = ENOMEM;
  EXPECT_EQ(mw(pd_h, 1, &h, &rkey), ENOMEM);
  EXPECT_EQ(dev.live["mw"], 0);
  ASSERT_EQ(mw(pd_h, 2, &h, &rkey), 0);
  EXPECT_EQ(rkey, 0x302u);
  EXPECT_EQ(dev.restrack[RDMA_RESTRACK_MW].load(), 1u);
  std::uint32_t lone = pd(), second = 0;
  ASSERT_EQ(mw(lone, 1, &second, &rkey), 0);
  Ioctl gone(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
  EXPECT_EQ(gone.obj(UVERBS_ATTR_DESTROY_PD_HANDLE, lone).run(*f), EBUSY);
  ::ib_uverbs_dealloc_mw req{};
  req.mw_handle = second;
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_DEALLOC_MW, req), 0);
  EXPECT_EQ(invoke(IB_USER_VERBS_CMD_DEALLOC_MW, req), ENOENT);
  EXPECT_EQ(gone.run(*f), 0);
  // The other one goes with the file (TearDown counts).
}

TEST_F(UverbsWindowMcast, AttachmentsAreCountedOnce) {
  EXPECT_EQ(attach(0xfe), EINVAL) << "no multicast GID";
  EXPECT_EQ(mcast(IB_USER_VERBS_CMD_ATTACH_MCAST, 99, 0xff), ENOENT);
  EXPECT_EQ(detach(), EINVAL) << "not attached";
  dev.fail["attach"] = ENOMEM;
  EXPECT_EQ(attach(), ENOMEM);
  EXPECT_EQ(attach(), 0);
  EXPECT_EQ(attach(), 0);
  EXPECT_EQ(dev.live["mcast"], 1);
  EXPECT_EQ(attach(0xff, 1), 0) << "another LID is another entry";
  EXPECT_EQ(dev.live["mcast"], 2);
  std::uint32_t events = 0;
  EXPECT_EQ(destroy_qp(qp_h, &events), EBUSY);
  EXPECT_EQ(detach(0xff, 1), 0);
  EXPECT_EQ(detach(), 0);
  EXPECT_EQ(detach(), EINVAL);
  EXPECT_EQ(destroy_qp(qp_h, &events), 0);
}

TEST_F(UverbsWindowMcast, FailedDetachCanBeTriedAgain) {
  ASSERT_EQ(attach(), 0);
  dev.fail["detach"] = EIO;
  EXPECT_EQ(detach(), EIO);
  std::uint32_t events = 0;
  EXPECT_EQ(destroy_qp(qp_h, &events), EBUSY) << "still attached";
  EXPECT_EQ(detach(), 0);
  EXPECT_EQ(dev.live["mcast"], 0);
  EXPECT_EQ(destroy_qp(qp_h, &events), 0);
}

// An attached QP is not destroyed; as long as something else goes away meanwhile, closing tries again.
TEST_F(UverbsWindowMcast, CloseTriesAFailedDetachAgain) {
  ASSERT_EQ(attach(), 0);
  pd();
  dev.fail["detach"] = EIO;
  f->release();
  EXPECT_EQ(dev.total(), 0);
}

TEST_F(UverbsWindowMcast, OnlyDatagramQps) {
  dev.qps.back()->qp_type = ib_qp_type::RC;
  EXPECT_EQ(attach(), EINVAL);
}

TEST_F(UverbsWindowMcast, CloseDetaches) {
  ASSERT_EQ(attach(), 0);
  ASSERT_EQ(attach(0xff, 1), 0);
  f->release();
  EXPECT_EQ(dev.total(), 0);
}

}  // namespace
}  // namespace uhca::kernel::test
