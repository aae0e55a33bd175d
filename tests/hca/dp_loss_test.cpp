// SPDX-License-Identifier: MIT
// Packets that get lost or doubled; PSNs that wrap; peers that are not there (cases A1, A2, E2, E7). Each packet of each operation:
// dp_loss_matrix_test.cpp.
#include "hca/dp_harness.h"
#include "prm/congestion.h"

namespace uhca::hcatest {
namespace {

using prm::CqeOpcode;
using prm::WqeOpcode;
using wire::has;
using wire::Op;
using wire::Prop;
using Verdict = FakePort::Verdict;

constexpr std::uint32_t kTen = 10 * 1024;

class DpLoss : public DpTest {
 protected:
  static bool request(const wire::Packet& p) { return has(wire::info(p.bth.opcode).props, Prop::kRequest); }
  static bool sequence_nak(const wire::Packet& p) { return wire::op_of(p.bth.opcode) == Op::kAcknowledge && p.aeth.syndrome == 0x60; }
  static bool plain_ack(const wire::Packet& p) { return wire::op_of(p.bth.opcode) == Op::kAcknowledge && (p.aeth.syndrome & 0x60) == 0; }
  unsigned count(bool (*what)(const wire::Packet&)) {
    unsigned n = 0;
    for (auto& p : packets()) n += what(p);
    return n;
  }
  std::uint32_t counter(prm::Field f) {
    return static_cast<std::uint32_t>(prm::get(bench.hca.data_path().counters().totals.raw.data(), f));
  }
  // A WRITE of ten packets from a filled region succeeds and is exact.
  void write_ten_and_check() {
    Region src = region(kTen), dst = region(kTen);
    fill(src, 21);
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, kTen)}, .raddr = dst.va, .rkey = dst.key});
    run_for(2'000'000'000);
    auto s = sends(a);
    ASSERT_EQ(s.size(), 1u);
    EXPECT_TRUE(s[0].ok()) << s[0].syndrome;
    EXPECT_TRUE(same(src, dst, kTen));
    EXPECT_EQ(state(a), hca::QpState::kRts);
    EXPECT_EQ(state(b), hca::QpState::kRts);
  }
};

TEST_F(DpLoss, LostNakIsMadeUpByTheTimer) {
  connect();
  unsigned requests = 0;
  bool nak_lost = false;
  on_packet([&](const wire::Packet& p) {
    if (request(p) && requests++ == 4) return Verdict::kDrop;
    if (sequence_nak(p) && !nak_lost) {
      nak_lost = true;
      return Verdict::kDrop;
    }
    return Verdict::kDeliver;
  });
  write_ten_and_check();
  EXPECT_TRUE(nak_lost);
  EXPECT_GE(counter(hca::Qc::local_ack_timeout_err), 1u);
}

TEST_F(DpLoss, LostAcknowledgeIsAnsweredAgainWithoutExecutingTwice) {
  connect();
  bool lost = false;
  on_packet([&](const wire::Packet& p) {
    if (plain_ack(p) && !lost) {
      lost = true;
      return Verdict::kDrop;
    }
    return Verdict::kDeliver;
  });
  Region src = region(3000), dst = region(3000);
  fill(src, 4);
  post_recv(b, {sge(dst, 3000)});
  post_recv(b, {sge(dst, 3000)});
  post(a, {.sges = {sge(src, 3000)}});
  run_for(2'000'000'000);
  EXPECT_TRUE(lost);
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok());
  EXPECT_EQ(v.size(), 1u);  // one message, one receive
  EXPECT_GE(counter(hca::Qc::duplicate_request), 1u);
}

// What happens to a QP is counted in its own counter set, and only there, beside the port's totals.
TEST_F(DpLoss, CountersOfTheQpsSet) {
  connect();
  auto alloc = [&] {
    Reply r = bench.cmd.exec(Request<prm::alloc_q_counter_in>(prm::Opcode::ALLOC_Q_COUNTER));
    EXPECT_TRUE(r.ok());
    return r.get<prm::alloc_q_counter_out::counter_set_id>();
  };
  auto give = [&](const End& e, std::uint32_t set) {
    Request<prm::rts2rts_qp_in> r(prm::Opcode::RTS2RTS_QP);
    r.set<prm::rts2rts_qp_in::qpn>(e.qp.qpn).set<prm::rts2rts_qp_in::opt_param_mask>(1 << 25);
    prm::set<prm::qpc::counter_set_id>(r.at<prm::rts2rts_qp_in::qpc>(), set);
    EXPECT_TRUE(bench.cmd.exec(r).ok());
  };
  auto read = [&](std::uint32_t set, prm::Field f) {
    Request<prm::query_q_counter_in> q(prm::Opcode::QUERY_Q_COUNTER);
    Reply r = bench.cmd.exec(q.set<prm::query_q_counter_in::counter_set_id>(set), prm::query_q_counter_out::kBytes);
    EXPECT_TRUE(r.ok());
    return prm::get(r.out.data(), f);
  };
  std::uint32_t of_a = alloc(), of_b = alloc();
  give(a, of_a);
  give(b, of_b);
  on_packet([n = 0](const wire::Packet&) mutable { return n++ == 4 ? Verdict::kDrop : Verdict::kDeliver; });
  write_ten_and_check();
  EXPECT_EQ(read(of_a, hca::Qc::packet_seq_err), 1u);
  EXPECT_EQ(read(of_a, hca::Qc::out_of_sequence), 0u);
  EXPECT_EQ(read(of_b, hca::Qc::out_of_sequence), 5u);
  EXPECT_EQ(read(of_b, hca::Qc::rx_write_requests), 1u);
  EXPECT_EQ(read(of_b, hca::Qc::packet_seq_err), 0u);
  // The sum over all QPs.
  Request<prm::query_q_counter_in> q(prm::Opcode::QUERY_Q_COUNTER);
  Reply all = bench.cmd.exec(q.set<prm::congestion::q_counter_aggregate>(1), prm::query_q_counter_out::kBytes);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.get<hca::Qc::packet_seq_err>(), 1u);
  EXPECT_EQ(all.get<hca::Qc::out_of_sequence>(), 5u);
}

// As drivers give a QP its set: with RST2INIT.
TEST_F(DpLoss, CounterSetFromTheStart) {
  Reply r = bench.cmd.exec(Request<prm::alloc_q_counter_in>(prm::Opcode::ALLOC_Q_COUNTER));
  ASSERT_TRUE(r.ok());
  std::uint32_t set = r.get<prm::alloc_q_counter_out::counter_set_id>();
  connect();
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, b.qp.qpn).ok());
  Request<prm::rst2init_qp_in> init(prm::Opcode::RST2INIT_QP);
  init.set<prm::rst2init_qp_in::qpn>(b.qp.qpn);
  void* c = init.at<prm::rst2init_qp_in::qpc>();
  prm::set<prm::qpc::rwe>(c, 1);
  prm::set<prm::qpc::counter_set_id>(c, set + 1);
  EXPECT_EQ(bench.cmd.exec(init).status(), prm::CmdStatus::BAD_RES) << "no such set";
  prm::set<prm::qpc::counter_set_id>(c, set);
  ASSERT_TRUE(bench.cmd.exec(init).ok());
  ASSERT_TRUE(bench.to_rtr(b.qp, path_b).ok());
  ASSERT_TRUE(bench.to_rts(b.qp, path_b).ok());
  write_ten_and_check();
  Request<prm::query_q_counter_in> q(prm::Opcode::QUERY_Q_COUNTER);
  Reply counted = bench.cmd.exec(q.set<prm::query_q_counter_in::counter_set_id>(set), prm::query_q_counter_out::kBytes);
  EXPECT_EQ(counted.get<hca::Qc::rx_write_requests>(), 1u);
}

// Something on the way takes the packets of this source port and gives them to nobody.
TEST_F(DpLoss, RetriesTakeAnotherWay) {
  connect();
  std::uint16_t broken = 0;
  on_packet([&](const wire::Packet& p) {
    if (broken == 0) broken = p.net.udp_sport;
    return p.net.udp_sport == broken ? Verdict::kDrop : Verdict::kDeliver;
  });
  write_ten_and_check();
  std::uint16_t request_port = 0, answer_port = 0;
  for (auto& p : packets()) (request(p) ? request_port : answer_port) = p.net.udp_sport;
  EXPECT_NE(request_port, broken);
  EXPECT_GE(request_port, 0xc000);
  EXPECT_NE(answer_port, broken) << "answers to what was sent again go another way, too";
  EXPECT_EQ(counter(hca::Qc::local_ack_timeout_err), 2u) << "one for the requests, one for the answers";
}

TEST_F(DpLoss, DoubledSendIsReceivedOnce) {
  connect();
  bench.port.on_send = [&](FakePort::Bytes& bytes) {
    bench.port.incoming.push_back(bytes);  // and once more by the verdict
    return Verdict::kDeliver;
  };
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 4; ++i) post_recv(b, {sge(dst, 64)});
  for (int i = 0; i < 2; ++i) post(a, {.sges = {sge(src, 64)}});
  run();
  EXPECT_EQ(sends(a).size(), 2u);
  EXPECT_EQ(recvs(b).size(), 2u);
  EXPECT_EQ(counter(hca::Qc::duplicate_request), 2u);
}

TEST_F(DpLoss, DoubledAtomicIsExecutedOnceAndAnsweredTwice) {
  connect();
  bool doubled = false;
  bench.port.on_send = [&](FakePort::Bytes& bytes) {
    wire::Packet p;
    if (!doubled && wire::parse(bytes, p) == wire::ParseError::kNone && wire::op_of(p.bth.opcode) == Op::kAtomicAcknowledge) {
      doubled = true;
      return Verdict::kDrop;  // the request will be sent again
    }
    return Verdict::kDeliver;
  };
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .swap_add = 1});
  run_for(2'000'000'000);
  auto s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok());
  std::uint64_t x;
  std::memcpy(&x, bench.bus.host(dst.mem), 8);
  EXPECT_EQ(x, 1u);
  EXPECT_EQ(counter(hca::Qc::rx_atomic_requests), 1u);
}

TEST_F(DpLoss, PsnsWrap) {  // E2
  path_a.sq_psn = path_b.rq_psn = 0xfffffe;
  connect();
  Region src = region(3000), dst = region(3000);
  fill(src, 8);
  unsigned n = 0;
  bench.port.on_send = [&](FakePort::Bytes& bytes) {
    wire::Packet p;
    if (wire::parse(bytes, p) == wire::ParseError::kNone && request(p) && n++ % 4 == 3) bench.port.incoming.push_back(bytes);
    return Verdict::kDeliver;
  };
  for (int i = 0; i < 5; ++i) post_recv(b, {sge(dst, 3000)});
  for (int i = 0; i < 5; ++i) post(a, {.sges = {sge(src, 3000)}});
  run_for(1'000'000'000);
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 5u);
  for (auto& w : s) EXPECT_TRUE(w.ok());
  EXPECT_EQ(v.size(), 5u);
  EXPECT_TRUE(same(src, dst, 3000));
  auto log = wire_log();
  EXPECT_EQ(log[0], "RC_SEND_FIRST@16777214");
  EXPECT_EQ(log[1], "RC_SEND_MIDDLE@16777215");
  EXPECT_EQ(log[2], "RC_SEND_LAST@0");
  EXPECT_EQ(log[3], "RC_SEND_FIRST@1");
  EXPECT_EQ(counter(hca::Qc::packet_seq_err), 0u);
}

class DpReadLoss : public DpLoss, public ::testing::WithParamInterface<unsigned> {};

TEST_P(DpReadLoss, LostReadResponseIsAskedForAgainFromThere) {  // E7
  connect();
  unsigned k = GetParam(), seen = 0;
  on_packet([&](const wire::Packet& p) {
    return has(wire::info(p.bth.opcode).props, Prop::kReadResponse) && seen++ == k ? Verdict::kDrop : Verdict::kDeliver;
  });
  Region src = region(8 * 1024), dst = region(8 * 1024);
  fill(dst, 33);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 8 * 1024)}, .raddr = dst.va, .rkey = dst.key});
  run_for(2'000'000'000);
  auto s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok()) << s[0].syndrome;
  EXPECT_TRUE(same(src, dst, 8 * 1024));
  std::vector<wire::Packet> reads;
  for (auto& p : packets())
    if (wire::op_of(p.bth.opcode) == Op::kReadRequest) reads.push_back(p);
  ASSERT_EQ(reads.size(), 2u);
  EXPECT_EQ(reads[1].bth.psn, 0x10 + k);
  EXPECT_EQ(reads[1].reth.va, dst.va + k * 1024);
  EXPECT_EQ(reads[1].reth.length, (8 - k) * 1024);
  EXPECT_EQ(counter(hca::Qc::implied_nak_seq_err), k < 7 ? 1u : 0u);
}
INSTANTIATE_TEST_SUITE_P(EachOfEight, DpReadLoss, ::testing::Range(0u, 8u));

TEST_F(DpLoss, RnrRetryZeroFailsAtOnce) {  // A1
  path_a.rnr_retry = 0;
  connect();
  Region src = region(64);
  post(a, {.sges = {sge(src, 64)}});
  post(a, {.sges = {sge(src, 64)}});
  run();
  auto s = sends(a);
  EXPECT_EQ(syndromes(s), (std::vector<unsigned>{0x16, 0x05}));
  EXPECT_EQ(state(a), hca::QpState::kErr);
  EXPECT_EQ(state(b), hca::QpState::kRts);
  EXPECT_TRUE(recvs(b).empty());
}

TEST_F(DpLoss, RnrRetrySevenWaitsForTheReceive) {  // A1
  path_b.min_rnr_nak = 14;                         // 1.28 ms
  connect();
  Region src = region(64), dst = region(64);
  fill(src, 2);
  post(a, {.sges = {sge(src, 64)}});
  run_for(50'000'000);
  EXPECT_TRUE(sends(a).empty());
  unsigned naks = 0;
  for (auto& p : packets()) {
    if (wire::op_of(p.bth.opcode) != Op::kAcknowledge) continue;
    EXPECT_EQ(p.aeth.syndrome, 0x20 | 14);
    ++naks;
  }
  EXPECT_GE(naks, 30u);
  EXPECT_LE(naks, 50'000'000u / 1'280'000u + 1);
  post_recv(b, {sge(dst, 64)});
  run_for(5'000'000);
  ASSERT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 1u);
  EXPECT_TRUE(same(src, dst, 64));
}

TEST_F(DpLoss, AbsentPeerExhaustsTheRetries) {  // A2
  path_a.ack_timeout = 10;
  path_a.retry = 3;
  connect();
  // B vanishes: the frames find no such QP.
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, b.qp.qpn).ok());
  Region src = region(64);
  Nanos begin = bench.clock.now();
  post(a, {.sges = {sge(src, 64)}});
  post(a, {.sges = {sge(src, 64)}, .signaled = false});
  Nanos end = 0;
  for (int i = 0; i < 100 && end == 0; ++i) {
    pass(1);
    if (state(a) == hca::QpState::kErr) end = bench.clock.now();
  }
  auto s = sends(a);
  EXPECT_EQ(syndromes(s), (std::vector<unsigned>{0x15, 0x05}));
  EXPECT_EQ(s[0].vendor, 0x81u);
  EXPECT_EQ(s[1].vendor, 0xf9u);
  unsigned tries = 0;
  for (auto& p : packets()) tries += p.bth.psn == 0x10;
  EXPECT_EQ(tries, 4u);
  // IBTA: each try waits one to four times 4.096 us * 2^10.
  EXPECT_GE(end - begin, 4u * 4'194'304u);
  EXPECT_LE(end - begin, 16u * 4'194'304u);
  EXPECT_EQ(bench.hca.data_path().counters().rx_no_qp, bench.hca.data_path().counters().rx_frames);
  EXPECT_EQ(counter(hca::Qc::req_transport_retries_exceeded), 1u);
}

TEST_F(DpLoss, BadIcrcIsDroppedAndHealed) {  // E1
  connect();
  bool flipped = false;
  bench.port.on_send = [&](FakePort::Bytes& bytes) {
    if (!flipped) bytes[bytes.size() - 20] ^= std::byte{1};
    flipped = true;
    return Verdict::kDeliver;
  };
  write_ten_and_check();
  EXPECT_EQ(bench.hca.data_path().counters().rx_bad_icrc, 1u);
}

// Everything at once, at random but repeatable: the data is exact and nothing is done twice.
TEST_F(DpLoss, RandomLossAndDoubling) {
  connect();
  std::uint64_t seed = 0x9e3779b97f4a7c15;
  auto random = [&] {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return static_cast<std::uint32_t>(seed >> 32);
  };
  bench.port.on_send = [&](FakePort::Bytes& bytes) {
    std::uint32_t x = random() % 100;
    if (x < 4) return Verdict::kDrop;
    if (x < 7) bench.port.incoming.push_back(bytes);
    if (x >= 97) return Verdict::kBusy;
    return Verdict::kDeliver;
  };
  Region src = region(64 * 1024), dst = region(64 * 1024), atomic = region(64);
  std::uint64_t adds = 0;
  for (int i = 0; i < 300; ++i) {
    fill(src, static_cast<std::uint8_t>(i));
    std::uint32_t n = random() % 6000;
    post_recv(b, {sge(dst, 6000)});
    post(a, {.sges = {sge(src, n)}, .signaled = false});
    std::uint32_t m = random() % 20000;
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, m)}, .raddr = dst.va + 8192, .rkey = dst.key, .signaled = false});
    post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, m, 32768)}, .raddr = dst.va + 8192, .rkey = dst.key, .signaled = false});
    post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8, 60000)}, .raddr = atomic.va, .rkey = atomic.key, .swap_add = 1});
    ++adds;
    for (int spin = 0; spin < 200 && a.scq_ci < adds; ++spin) {
      run();
      auto s = sends(a);
      for (auto& w : s) ASSERT_TRUE(w.ok()) << w.syndrome << " round " << i;
      if (!s.empty()) break;
      pass(1);
    }
    ASSERT_EQ(a.scq_ci, adds);
    auto v = recvs(b);
    ASSERT_EQ(v.size(), 1u);
    ASSERT_EQ(v[0].byte_cnt, n);
    ASSERT_TRUE(same(src, dst, n));
    ASSERT_EQ(std::memcmp(bench.bus.host(dst.mem) + 8192, bench.bus.host(src.mem), m), 0);
    ASSERT_EQ(std::memcmp(bench.bus.host(src.mem) + 32768, bench.bus.host(src.mem), m), 0);
    std::uint64_t x;
    std::memcpy(&x, bench.bus.host(atomic.mem), 8);
    ASSERT_EQ(x, adds);
  }
}

}  // namespace
}  // namespace uhca::hcatest
