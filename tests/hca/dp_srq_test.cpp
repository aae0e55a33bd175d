// SPDX-License-Identifier: MIT
// Shared receive queues: order of WQEs, limit events (case C13), LAST_WQE_REACHED (C14), protection, failure; XRC.
#include "hca/srq_harness.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::CqeOpcode;
using prm::WqeOpcode;
using Events = std::vector<std::pair<unsigned, std::uint32_t>>;

class DpSrq : public SrqTest {
 protected:
  SrqHandle srq;
  Region src, dst;
  void setup(unsigned log_size = 4, std::uint32_t pd = 0) {
    srq = create_rmp(log_size, pd);
    base.rq_type = 1;
    base.srqn = srq.srqn;
    connect();
    src = region(4096);
    dst = region(16384);
    fill(src, 9);
    async_events();
  }
  void send(End& e, std::uint32_t len = 100) {
    post(e, {.sges = {sge(src, len)}});
    run();
  }
};

TEST_F(DpSrq, TwoQpsShareOneQueueInTheOrderOfTheLinks) {
  setup();
  for (unsigned i = 0; i < 4; ++i) post_srq(srq, {sge(dst, 1000, i * 1000)});
  send(a, 10);
  send(b, 20);
  send(a, 30);
  auto at_b = recvs(b), at_a = recvs(a);
  ASSERT_EQ(at_b.size(), 2u);
  ASSERT_EQ(at_a.size(), 1u);
  EXPECT_EQ(at_b[0].wqe, 0u);
  EXPECT_EQ(at_a[0].wqe, 1u);
  EXPECT_EQ(at_b[1].wqe, 2u);
  EXPECT_EQ(at_b[0].uidx, b.qp.spec.user_index);
  EXPECT_EQ(at_b[1].byte_cnt, 30u);
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem) + 2000, bench.bus.host(src.mem), 30), 0);
  // Freed out of order, the links say what comes next.
  free_srq(srq, 1);
  free_srq(srq, 0);
  free_srq(srq, 2);
  for (unsigned i = 0; i < 15; ++i) post_srq(srq, {sge(dst, 1000)});
  std::vector<unsigned> order;
  for (unsigned i = 0; i < 16; ++i) {
    send(a, 8);
    for (auto& w : recvs(b)) order.push_back(w.wqe);
  }
  EXPECT_EQ(order, (std::vector<unsigned>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1, 0, 2}));
  EXPECT_EQ(bench.bus.faults(), 0u);
}

TEST_F(DpSrq, CountersWrapAtSixteenBits) {
  setup(2);
  for (unsigned i = 0; i < 3; ++i) post_srq(srq, {sge(dst, 64)});
  for (unsigned i = 0; i < 66000; ++i) {
    post(a, {.sges = {sge(src, 4)}, .signaled = false});
    run();
    auto v = recvs(b);
    ASSERT_EQ(v.size(), 1u) << i;
    free_srq(srq, static_cast<std::uint16_t>(v[0].wqe));
    post_srq(srq, {sge(dst, 64)});
    bench.port.sent.clear();
  }
}

TEST_F(DpSrq, NoWqeIsAnRnrNak) {
  setup();
  send(a);
  EXPECT_TRUE(sends(a).empty());
  EXPECT_EQ(packets().back().aeth.syndrome & 0xe0, wire::kAethRnrNak);
  post_srq(srq, {sge(dst, 1000)});
  run_for(1'000'000'000);
  EXPECT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 1u);
}

TEST_F(DpSrq, LimitEventComesOnceAndAtOnceWhenArmedAbove) {  // C13; pin: an arm above what is there fires at once
  setup();
  for (unsigned i = 0; i < 10; ++i) post_srq(srq, {sge(dst, 1000)});
  ASSERT_TRUE(arm_rmp(srq, 8).ok());
  EXPECT_TRUE(affiliated_events().empty());
  EXPECT_EQ(queried_limit(srq), 8u);
  send(a);
  send(a);
  EXPECT_TRUE(affiliated_events().empty()) << "8 are left";
  send(a);
  EXPECT_EQ(affiliated_events(), (Events{{0x14, srq.srqn}}));
  EXPECT_EQ(queried_limit(srq), 0u);
  send(a);
  EXPECT_TRUE(affiliated_events().empty());
  ASSERT_TRUE(arm_rmp(srq, 8).ok());
  EXPECT_EQ(affiliated_events(), (Events{{0x14, srq.srqn}}));
}

TEST_F(DpSrq, LastWqeReachedOncePerQp) {  // C14
  setup();
  post_srq(srq, {sge(dst, 1000)});
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, b.qp.qpn).ok());
  EXPECT_EQ(affiliated_events(), (Events{{0x13, b.qp.qpn}}));
  run_for(10'000'000);
  EXPECT_TRUE(affiliated_events().empty());
  EXPECT_TRUE(recvs(b).empty()) << "WQEs of the SRQ are nobody's to flush";
}

TEST_F(DpSrq, HalfReceivedMessageGivesItsWqeBackFlushed) {
  setup();
  std::uint16_t w = post_srq(srq, {sge(dst, 4000)});
  inject_to_b({}, wire::Op::kSendFirst, 0x10, std::vector<std::byte>(1024));
  run();
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, b.qp.qpn).ok());
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].syndrome, 0x05u);
  EXPECT_EQ(v[0].wqe, w);
}

TEST_F(DpSrq, KeysAreThoseOfTheSrqsProtectionDomain) {
  std::uint32_t other = bench.alloc_pd();
  setup(4, other);
  Region theirs = dst;
  theirs.key = bench.create_mkey_in_pd(other, dst.va, dst.len, dst.mem, {});
  post_srq(srq, {sge(theirs, 1000)});
  send(a);
  EXPECT_EQ(syndromes(recvs(b)), (std::vector<unsigned>{0}));
  post_srq(srq, {sge(dst, 1000)});
  send(a);
  EXPECT_EQ(syndromes(recvs(b)), (std::vector<unsigned>{0x04}));
  EXPECT_EQ(sends(a).back().syndrome, 0x14u);
}

TEST_F(DpSrq, UnreadableWqeFailsTheSrqAndTheQp) {
  setup();
  post_srq(srq, {sge(dst, 1000)});
  bench.bus.set_access(srq.buf, 4096, FakeBus::kNone);
  send(a);
  EXPECT_EQ(affiliated_events(), (Events{{0x12, srq.srqn}, {0x05, b.qp.qpn}, {0x13, b.qp.qpn}, {0x13, a.qp.qpn}}))
      << "the sender receives from it, too";
  EXPECT_EQ(sends(a).back().syndrome, 0x14u);
  EXPECT_EQ(state(b), QpState::kErr);
}

TEST_F(DpSrq, LinkOutOfTheQueueFailsIt) {
  setup();
  std::uint16_t w = post_srq(srq, {sge(dst, 1000)});
  link(srq, w, 16);
  send(a);
  EXPECT_EQ(affiliated_events().front(), (Events::value_type{0x12, srq.srqn}));
}

TEST_F(DpSrq, RecordThatNoQueueCanHaveIsIgnored) {
  setup();
  bench.bus.put_be32(srq.dbr, 17);
  send(a);
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_EQ(state(b), QpState::kRts);
}

TEST_F(DpSrq, QpsKeepItAlive) {
  setup();
  EXPECT_FALSE(bench.simple(prm::Opcode::DESTROY_RMP, srq.srqn).ok());
  for (End* e : {&a, &b}) ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, e->qp.qpn).ok());
  EXPECT_TRUE(bench.simple(prm::Opcode::DESTROY_RMP, srq.srqn).ok());
}

class DpXrc : public SrqTest {
 protected:
  std::uint32_t xrcd = 0;
  CqHandle xcq;
  SrqHandle xsrq, unused;
  std::uint32_t xcq_ci = 0;
  Region src, dst;
  void setup() {
    xrcd = alloc_xrcd();
    xcq = bench.create_cq(6);
    xsrq = create_xrc_srq(4, xrcd, xcq.cqn, 0xabc);
    unused = create_xrc_srq(4, xrcd, xcq.cqn, 0xdef);  // as mlx5_ib's own
    base.type = QpType::kXrc;
    base.rq_type = 1;
    base.srqn = unused.srqn;
    base.xrcd = xrcd;
    connect();
    src = region(8192);
    dst = region(8192);
    fill(src, 3);
    async_events();
  }
  std::uint32_t alloc_xrcd() {
    Reply r = bench.cmd.exec(Request<prm::alloc_xrcd_in>(prm::Opcode::ALLOC_XRCD));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_xrcd_out::xrcd>();
  }
  std::vector<Wc> received() {
    std::vector<Wc> v;
    while (auto w = poll(xcq, xcq_ci)) v.push_back(*w);
    return v;
  }
};

TEST_F(DpXrc, SendsReachTheSrqThatTheyName) {
  setup();
  std::uint16_t w = post_srq(xsrq, {sge(dst, 8192)});
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 3000)}, .imm = 77, .xrc_srqn = xsrq.srqn});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0}));
  auto v = received();
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND_IMM);
  EXPECT_EQ(v[0].uidx, 0xabcu);
  EXPECT_EQ(v[0].wqe, w);
  EXPECT_EQ(v[0].qpn, b.qp.qpn);
  EXPECT_EQ(v[0].byte_cnt, 3000u);
  EXPECT_EQ(v[0].imm, 77u);
  EXPECT_TRUE(same(src, dst, 3000));
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_EQ(wire_log(),
            (std::vector<std::string>{"XRC_SEND_FIRST@16", "XRC_SEND_MIDDLE@17", "XRC_SEND_LAST_IMM@18", "XRC_ACKNOWLEDGE@18"}));
}

// The CQ is the SRQ's, not the target QP's: the initiator is told, nevertheless.
TEST_F(DpXrc, OverrunOfTheSrqsCqIsAnOperationalError) {
  setup();
  SrqHandle narrow = create_xrc_srq(4, xrcd, bench.create_cq(0).cqn, 0x111);
  for (int i = 0; i < 3; ++i) post_srq(narrow, {sge(dst, 64)});
  for (int i = 0; i < 3; ++i) {
    post(a, {.sges = {sge(src, 8)}, .xrc_srqn = narrow.srqn});
    run();
  }
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0, 0x14, 0x05}));
  EXPECT_EQ(state(b), hca::QpState::kErr);
}

TEST_F(DpXrc, WriteReadAndAtomics) {
  setup();
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 3000)}, .raddr = dst.va, .rkey = dst.key, .xrc_srqn = xsrq.srqn});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 3000, 4096)}, .raddr = dst.va, .rkey = dst.key, .xrc_srqn = xsrq.srqn});
  post(a, {.op = WqeOpcode::ATOMIC_FA,
           .sges = {sge(src, 8, 8000)},
           .raddr = dst.va + 8000,
           .rkey = dst.key,
           .swap_add = 1,
           .xrc_srqn = xsrq.srqn});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0, 0, 0}));
  EXPECT_TRUE(same(src, dst, 3000));
  EXPECT_EQ(std::memcmp(bench.bus.host(src.mem) + 4096, bench.bus.host(dst.mem), 3000), 0);
}

TEST_F(DpXrc, SrqOfAnotherDomainIsAnInvalidRequest) {
  setup();
  SrqHandle other = create_xrc_srq(4, alloc_xrcd(), xcq.cqn, 1);
  post_srq(other, {sge(dst, 100)});
  post(a, {.sges = {sge(src, 8)}, .xrc_srqn = other.srqn});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0x12}));
  EXPECT_EQ(state(b), QpState::kErr);
  EXPECT_TRUE(received().empty());
}

// A target QP of mlx5_ib is in the driver's own PD; what the peer may reach is its SRQ owner's.
TEST_F(DpXrc, TheSrqsProtectionDomainDecidesOnKeys) {
  setup();
  std::uint32_t qps = bench.pd;
  bench.pd = bench.alloc_pd();
  ASSERT_NE(bench.pd, qps);
  SrqHandle owners = create_xrc_srq(4, xrcd, xcq.cqn, 1);
  Region far = region(8192);
  bench.pd = qps;
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 3000)}, .raddr = far.va, .rkey = far.key, .xrc_srqn = owners.srqn});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 3000, 4096)}, .raddr = far.va, .rkey = far.key, .xrc_srqn = owners.srqn});
  post(a, {.op = WqeOpcode::ATOMIC_FA,
           .sges = {sge(src, 8, 8000)},
           .raddr = far.va + 8000,
           .rkey = far.key,
           .swap_add = 1,
           .xrc_srqn = owners.srqn});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0, 0, 0}));
  EXPECT_TRUE(same(src, far, 3000));
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .xrc_srqn = owners.srqn});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0x13})) << "the key is of the QP's own PD";
}

TEST_F(DpXrc, RdmaNeedsAnSrqOfTheDomainToo) {
  setup();
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .xrc_srqn = 0xfff});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0x12}));
  EXPECT_EQ(state(b), QpState::kErr);
}

TEST_F(DpXrc, SrqThatDiesInTheMiddleOfAMessageFailsTheTarget) {
  setup();
  post_srq(xsrq, {sge(dst, 8192)});
  wire::Packet p;
  p.xrc_srq = xsrq.srqn;
  injected = wire::Service::kXRC;
  inject_to_b(p, wire::Op::kSendFirst, 0x10, std::vector<std::byte>(1024));
  run();
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_XRC_SRQ, xsrq.srqn).ok());
  EXPECT_EQ(affiliated_events(), (Events{{0x05, b.qp.qpn}}));
  EXPECT_EQ(state(b), QpState::kErr);
}

}  // namespace
}  // namespace uhca::hcatest
