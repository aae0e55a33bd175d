// SPDX-License-Identifier: MIT
// When completion events come (case C11), what an overrun does (C10), how EQs are armed, what is counted.
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Numbers = std::vector<std::uint32_t>;

class DpEvent : public DpTest {
 protected:
  Region src, dst;
  void SetUp() override {
    DpTest::SetUp();
    connect();
    src = region(64);
    dst = region(64);
    for (int i = 0; i < 16; ++i) post_recv(b, {sge(dst, 64)});
    eq_arm(0);
    bench.bus.take_raised();
  }
  void eq_arm(std::uint32_t ci) {
    bench.hca.mmio_write(std::uint64_t{bench.uar} * 4096 + 0x40, byteswap(bench.comp_eq.eqn << 24 | (ci & 0xffffff)), 4);
  }
  void send(bool solicited = false) {
    post(a, {.sges = {sge(src, 8)}, .solicited = solicited});
    run();
  }
};

TEST_F(DpEvent, NothingArmedNothingFires) {
  send();
  EXPECT_TRUE(comp_events().empty());
  EXPECT_TRUE(bench.bus.take_raised().empty());
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
}

TEST_F(DpEvent, CqeThatWasPolledBeforeTheArmDoesNotFire) {  // C11 a
  send();
  ASSERT_EQ(recvs(b).size(), 1u);
  arm(b.rcq, b.rcq_ci, 0);
  EXPECT_TRUE(comp_events().empty());
  EXPECT_EQ(bench.hca.armed_cqs(), 1u);
}

TEST_F(DpEvent, CqeBetweenLastPollAndArmFiresAtOnce) {  // C11 b; pin: mlx5 compares the arm's consumer index with what it has produced
  send();
  arm(b.rcq, 0, 0);
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
  EXPECT_EQ(bench.bus.take_raised(), (std::vector<unsigned>{1}));
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
}

TEST_F(DpEvent, ThreeCqesAfterTheArmFireOnce) {  // C11 c
  arm(b.rcq, 0, 0);
  EXPECT_TRUE(comp_events().empty());
  for (int i = 0; i < 3; ++i) send();
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
  // The same sequence number again is stale: the event is on its way already.
  arm(b.rcq, 1, 0);
  EXPECT_TRUE(comp_events().empty());
  // The next one sees two CQEs that were not polled.
  arm(b.rcq, 1, 1);
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
  arm(b.rcq, 3, 2);
  EXPECT_TRUE(comp_events().empty());
  send();
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
}

TEST_F(DpEvent, SolicitedOnlyWaitsForSolicited) {
  arm(b.rcq, 0, 0, true);
  send();
  send();
  EXPECT_TRUE(comp_events().empty());
  send(true);
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
  // Between poll and arm: a plain CQE behind ci does not fire, a solicited one does.
  arm(b.rcq, 3, 1, true);
  send();
  arm(b.rcq, 3, 1, true);
  EXPECT_TRUE(comp_events().empty());
  send(true);
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
}

TEST_F(DpEvent, SolicitedOnlyWakesForErrors) {
  arm(b.rcq, 0, 0, true);
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, b.qp.qpn).ok());
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
}

TEST_F(DpEvent, LostArmDoorbellIsFoundInTheRecord) {
  arm(b.rcq, 0, 1, false, false);
  send();
  EXPECT_EQ(comp_events(), (Numbers{b.rcq.cqn}));
}

TEST_F(DpEvent, WhatTheRecordOfANewCqHoldsIsNoArm) {
  End e, peer = make_end();
  e.rcq = bench.create_cq(6);
  auto request = bench.cq_request(6, e.scq);
  store_be<std::uint32_t>(bench.bus.host(e.scq.dbr) + 4, prm::kCqInitCmdSn);
  Reply created = bench.cmd.exec(request);
  ASSERT_TRUE(created.ok());
  e.scq.cqn = created.get<prm::create_cq_out::cqn>();
  QpSpec s = base;
  s.log_sq = s.log_rq = 4;
  s.log_stride = 6;
  s.send_cqn = e.scq.cqn;
  s.recv_cqn = e.rcq.cqn;
  e.qp = bench.create_qp(s);
  path_a.remote_qpn = peer.qp.qpn;
  path_b.remote_qpn = e.qp.qpn;
  bench.connect(e.qp, path_a);
  bench.connect(peer.qp, path_b);
  // Nor what it holds a moment later: Linux writes it when the command has been answered.
  bench.bus.put_be32(e.rcq.dbr + 4, prm::kCqInitCmdSn);
  post_recv(peer, {sge(dst, 64)});
  post(e, {.sges = {sge(src, 8)}});
  post_recv(e, {sge(dst, 64)});
  post(peer, {.sges = {sge(src, 8)}});
  run();
  EXPECT_TRUE(comp_events().empty());
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
  arm(e.scq, 0, 0);
  EXPECT_EQ(comp_events(), (Numbers{e.scq.cqn}));
}

TEST_F(DpEvent, EqFiresOnceUntilArmedAgain) {
  arm(b.rcq, 0, 0);
  send();
  EXPECT_EQ(bench.bus.take_raised(), (std::vector<unsigned>{1}));
  arm(b.rcq, 1, 1);
  send();
  EXPECT_TRUE(bench.bus.take_raised().empty());
  EXPECT_EQ(comp_events().size(), 2u);
  // Armed behind the first of two: raised at once.
  eq_arm(1);
  EXPECT_EQ(bench.bus.take_raised(), (std::vector<unsigned>{1}));
  eq_arm(2);
  EXPECT_TRUE(bench.bus.take_raised().empty());
}

TEST_F(DpEvent, FullEqLosesTheEventAndCounts) {
  for (unsigned i = 0; i < 256 + 5; ++i) {
    arm(b.rcq, b.rcq_ci, i);
    send();
    recvs(b);
    sends(a);
    post_recv(b, {sge(dst, 64)});
  }
  EXPECT_EQ(bench.hca.data_path().counters().eq_overruns, 5u);
}

class DpOverrun : public DpTest {};

TEST_F(DpOverrun, FailsTheCqAndItsQps) {  // C10
  log_scq = 2;                            // 4 entries
  connect();
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 5; ++i) post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key}, false);
  async_events();
  bench.hca.look_at_send_queue(a.qp.qpn);
  run();
  EXPECT_EQ(async_events(), (Numbers{0x04, 0x05}));
  EXPECT_EQ(state(a), hca::QpState::kErr);
  EXPECT_EQ(state(b), hca::QpState::kRts);
  EXPECT_EQ(sends(a).size(), 4u);  // what was there is not overwritten
}

TEST_F(DpOverrun, ConsumerIndexInTheRecordMakesRoom) {
  log_scq = 2;
  connect();
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 50; ++i) {
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
    run();
    ASSERT_EQ(sends(a).size(), 1u);
  }
  EXPECT_TRUE(async_events().empty());
}

TEST_F(DpOverrun, IgnoredOverrunLosesTheOldest) {  // C10
  connect();
  CqHandle h;
  auto req = bench.cq_request(2, h);
  prm::set<prm::cqc::oi>(req.at<prm::create_cq_in::cq_context>(), 1);
  Reply out = bench.cmd.exec(req);
  ASSERT_TRUE(out.ok());
  h.cqn = out.get<prm::create_cq_out::cqn>();
  End c = a;
  c.scq = h;
  QpSpec s = a.qp.spec;
  s.send_cqn = h.cqn;
  c.qp = bench.create_qp(s);
  c.sq_pi = 0;
  PathSpec pc = path_a, pb = path_b;
  pc.remote_qpn = b.qp.qpn;
  pb.remote_qpn = c.qp.qpn;
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, b.qp.qpn).ok());
  bench.connect(c.qp, pc);
  bench.connect(b.qp, pb);
  Region src = region(64), dst = region(64);
  async_events();
  for (int i = 0; i < 6; ++i) post(c, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_TRUE(async_events().empty());
  EXPECT_EQ(state(c), hca::QpState::kRts);
  // Entries 4 and 5 lie where 0 and 1 were.
  c.scq_ci = 4;
  auto got = sends(c);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].wqe, 4u);
}

TEST_F(DpOverrun, Cqe128LiesInTheSecondHalf) {
  connect();
  CqHandle h = bench.create_cq(3, 128);
  QpSpec s = a.qp.spec;
  s.send_cqn = h.cqn;
  End c = a;
  c.scq = h;
  c.scq_ci = c.sq_pi = 0;
  c.qp = bench.create_qp(s);
  PathSpec pc = path_a, pb = path_b;
  pb.remote_qpn = c.qp.qpn;
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, b.qp.qpn).ok());
  bench.connect(c.qp, pc);
  bench.connect(b.qp, pb);
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 20; ++i) {
    post(c, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
    run();
    auto got = sends(c);
    ASSERT_EQ(got.size(), 1u);
    ASSERT_EQ(got[0].wqe, static_cast<unsigned>(i));
  }
}

TEST_F(DpEvent, TearDownWithEverythingArmedLeavesNothing) {
  arm(b.rcq, 0, 0);
  arm(a.scq, 0, 0);
  bench.port.on_send = [](FakePort::Bytes&) { return FakePort::Verdict::kBusy; };
  post(a, {.sges = {sge(src, 8)}});
  for (End* e : {&a, &b}) ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, e->qp.qpn).ok());
  for (End* e : {&a, &b}) {
    ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_CQ, e->scq.cqn).ok());
    ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_CQ, e->rcq.cqn).ok());
  }
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
  EXPECT_FALSE(bench.hca.drive(true));
}

TEST_F(DpEvent, ResetOfTheDeviceUnderTrafficIsClean) {
  arm(b.rcq, 0, 0);
  post(a, {.sges = {sge(src, 8)}});
  bench.hca.reset();
  run();
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

}  // namespace
}  // namespace uhca::hcatest
