// SPDX-License-Identifier: MIT
// Unreliable connection: nothing comes back, what is lost is lost as a whole message, errors of one's own stay at one's own side.
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;

class DpUc : public DpTest {
 protected:
  Region src, dst;
  void SetUp() override {
    DpTest::SetUp();
    base.type = QpType::kUc;
    connect();
    src = region(16384);
    dst = region(16384);
    fill(src, 5);
  }
  void inject_uc(wire::Op op, std::uint32_t psn, std::size_t len) {
    injected = wire::Service::kUC;
    inject_to_b({}, op, psn, std::vector<std::byte>(len));
  }
  void drop_nth(unsigned n) {
    on_packet([n, seen = 0u](const wire::Packet&) mutable { return seen++ == n ? FakePort::Verdict::kDrop : FakePort::Verdict::kDeliver; });
  }
};

TEST_F(DpUc, SendAndWriteCompleteWithoutAcknowledge) {
  post_recv(b, {sge(dst, 4000)});
  post_recv(b, {});
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 3000)}, .imm = 5});
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 2000)}, .raddr = dst.va + 4096, .rkey = dst.key});
  post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(src, 8)}, .raddr = dst.va + 8192, .rkey = dst.key, .imm = 9});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0, 0}));
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 2u);
  EXPECT_EQ(v[0].byte_cnt, 3000u);
  EXPECT_EQ(v[0].imm, 5u);
  EXPECT_EQ(v[1].imm, 9u);
  EXPECT_TRUE(same(src, dst, 3000));
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem) + 4096, bench.bus.host(src.mem), 2000), 0);
  for (auto& p : packets()) {
    EXPECT_EQ(wire::service_of(p.bth.opcode), wire::Service::kUC);
    EXPECT_FALSE(p.bth.ack_req);
  }
  EXPECT_EQ(packets().size(), 6u);
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

TEST_F(DpUc, EveryLossOfOnePacketLosesThatMessageOnly) {
  for (unsigned lost = 0; lost < 4; ++lost) {
    SCOPED_TRACE(lost);
    std::uint16_t first = post_recv(b, {sge(dst, 8192)});
    post_recv(b, {sge(dst, 8192)});
    drop_nth(lost);
    post(a, {.sges = {sge(src, 4000)}});
    post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 100)}, .imm = lost});
    run();
    EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0}));
    auto v = recvs(b);
    ASSERT_EQ(v.size(), 1u);
    EXPECT_EQ(v[0].wqe, first) << "the receive WQE of the lost message serves the next one";
    EXPECT_EQ(v[0].imm, lost);
    EXPECT_EQ(v[0].byte_cnt, 100u);
    bench.port.on_send = nullptr;
    post(a, {.sges = {sge(src, 1)}});  // uses the second
    run();
    EXPECT_EQ(recvs(b).size(), 1u);
    sends(a);
  }
}

TEST_F(DpUc, ReorderedOrDuplicatedPacketsLoseTheMessage) {
  post_recv(b, {sge(dst, 8192)});
  inject_uc(wire::Op::kSendFirst, 0x10, 1024);
  inject_uc(wire::Op::kSendMiddle, 0x12, 1024);
  inject_uc(wire::Op::kSendMiddle, 0x11, 1024);
  inject_uc(wire::Op::kSendLast, 0x13, 10);
  run();
  EXPECT_TRUE(recvs(b).empty());
  inject_uc(wire::Op::kSendOnly, 0x20, 10);
  inject_uc(wire::Op::kSendOnly, 0x20, 10);  // the second finds no WQE
  run();
  EXPECT_EQ(recvs(b).size(), 1u);
  EXPECT_EQ(state(b), QpState::kRts);
}

TEST_F(DpUc, NoReceiveWqeIsASilentLoss) {
  post(a, {.sges = {sge(src, 3000)}});
  run();
  post_recv(b, {sge(dst, 4000)});
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0}));
  EXPECT_EQ(recvs(b).size(), 1u);
  EXPECT_GT(prm::get<prm::query_q_counter_out::out_of_buffer>(bench.hca.data_path().counters().totals.raw.data()), 0u);
}

TEST_F(DpUc, BadRemoteKeyIsASilentLoss) {
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 2000)}, .raddr = dst.va, .rkey = dst.key ^ 1});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(state(b), QpState::kRts);
  EXPECT_EQ(bench.bus.host(dst.mem)[0], 0);
}

TEST_F(DpUc, TooLongForTheReceiveWqeIsTheReceiversError) {
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 128)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(syndromes(recvs(b)), (Syndromes{0x01}));
  EXPECT_EQ(state(b), QpState::kErr);
}

TEST_F(DpUc, SendQueueErrorLeavesTheReceiveQueueAlive) {  // SQE, IBTA 10.3.1
  post_recv(a, {sge(dst, 64)});
  post(a, {.sges = {{src.va, 8, src.key ^ 1}}}, false);
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x04, 0x05}));
  EXPECT_EQ(state(a), QpState::kSqErr);
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x05}));
  post(b, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(recvs(a)), (Syndromes{0}));
  // Back to work.
  Request<prm::rtr2rts_qp_in> r(prm::Opcode::SQERR2RTS_QP);
  r.set<prm::rtr2rts_qp_in::qpn>(a.qp.qpn);
  ASSERT_TRUE(bench.cmd.exec(r).ok());
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(syndromes(recvs(b)), (Syndromes{0}));
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

TEST_F(DpUc, ReadsAndAtomicsAreRefused) {
  for (WqeOpcode op : {WqeOpcode::RDMA_READ, WqeOpcode::ATOMIC_FA, WqeOpcode::SEND_INVAL}) {
    post(a, {.op = op, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
    run();
    EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x02}));
    Request<prm::rtr2rts_qp_in> r(prm::Opcode::SQERR2RTS_QP);
    r.set<prm::rtr2rts_qp_in::qpn>(a.qp.qpn);
    ASSERT_TRUE(bench.cmd.exec(r).ok());
  }
  EXPECT_TRUE(packets().empty());
}

// More packets at once than a reliable QP may have outstanding: there is nobody to acknowledge any of them.
TEST_F(DpUc, ALongQueueIsSentToItsEnd) {
  constexpr std::uint32_t kLong = 64 * 1024;
  Region from = region(kLong), to = region(kLong);
  fill(from, 4);
  for (unsigned i = 0; i < 24; ++i)
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(from, kLong)}, .raddr = to.va, .rkey = to.key}, i == 23);
  run();
  EXPECT_EQ(sends(a).size(), 24u);
  EXPECT_TRUE(same(from, to, kLong));
}

}  // namespace
}  // namespace uhca::hcatest
