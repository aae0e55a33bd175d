// SPDX-License-Identifier: MIT
// Congestion: marks are answered by CNPs, notified QPs send more slowly for a while, and all of it can be switched off.
#include "device/hca/lane.h"
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Verdict = FakePort::Verdict;

constexpr std::uint32_t kLen = 64 * 1024;

class DpCongestion : public DpTest {
 protected:
  Region src, dst;
  bool mark = true;  // all packets with data

  void setup() {
    connect();
    src = region(kLen);
    dst = region(kLen);
    fill(src, 3);
    // A switch on the way. The ICRC does not cover these bits.
    bench.port.on_send = [this](FakePort::Bytes& bytes) {
      wire::Packet p;
      if (wire::parse(bytes, p) == wire::ParseError::kNone && mark && (p.net.traffic_class & 3) != 0 && !p.payload.empty()) {
        p.net.traffic_class |= 3;
        FakePort::Bytes marked(wire::frame_size(p));
        marked.resize(wire::emit(p, marked));
        bytes = marked;
      }
      return Verdict::kDeliver;
    };
  }
  const hca::Counters& counters() { return bench.hca.data_path().counters(); }
  hca::FlowRate& rate(const End& e) { return bench.hca.objects().qp(e.qp.qpn)->transport->flow; }
  std::vector<wire::Packet> notifications() {
    std::vector<wire::Packet> v;
    for (auto& p : packets())
      if (p.bth.opcode == wire::kCnp) v.push_back(p);
    return v;
  }
  // How long (virtual) until it has completed.
  Nanos took(End& e, WqeOpcode op) {
    Nanos begin = bench.clock.now();
    post(e, {.op = op, .sges = {sge(src, kLen)}, .raddr = dst.va, .rkey = dst.key});
    run();
    for (int i = 0; i < 10000; ++i) {
      if (auto s = sends(e); !s.empty()) {
        EXPECT_TRUE(s[0].ok()) << s[0].syndrome;
        break;
      }
      pass(1);
    }
    return bench.clock.now() - begin;
  }
};

TEST_F(DpCongestion, MarksAreAnswered) {
  setup();
  EXPECT_EQ(took(a, WqeOpcode::RDMA_WRITE), 0);
  for (auto& p : packets()) {
    if (p.bth.opcode == wire::kCnp) continue;
    EXPECT_EQ(p.net.traffic_class & 3, p.payload.empty() ? 0 : 3) << wire_name(p);
  }
  auto cnps = notifications();
  ASSERT_EQ(cnps.size(), 1u) << "no time has passed between the marks";
  EXPECT_EQ(cnps[0].bth.dest_qp, a.qp.qpn);
  EXPECT_TRUE(cnps[0].bth.becn);
  EXPECT_EQ(cnps[0].net.traffic_class, 48 << 2 | 2);
  EXPECT_EQ(cnps[0].net.dgid, Bench::ipv4_gid(10, 0, 0, 1));
  EXPECT_EQ(counters().np_ecn_marked, kLen / 1024);
  EXPECT_EQ(counters().np_cnp_sent, 1u);
  EXPECT_EQ(counters().rp_cnp_handled, 1u);
  EXPECT_GT(rate(a).current, 0u);
  EXPECT_EQ(rate(b).current, 0u);
}

TEST_F(DpCongestion, NotifiedQpsSlowDownAndRecover) {
  setup();
  Nanos last = 0;
  for (int i = 0; i < 30; ++i) {
    bench.clock.set(bench.clock.now() + 10'000);
    last = took(a, WqeOpcode::RDMA_WRITE);
  }
  EXPECT_TRUE(same(src, dst, kLen));
  std::uint64_t slow = rate(a).current;
  EXPECT_LT(slow, 1'000'000'000u);
  EXPECT_GT(last, 60'000);
  EXPECT_GT(counters().rp_cnp_handled, 30u);
  EXPECT_EQ(rate(b).current, 0u) << "the receiver's own direction is free";

  mark = false;
  bench.clock.set(bench.clock.now() + 1'500'000);
  took(a, WqeOpcode::RDMA_WRITE);
  EXPECT_GT(rate(a).current, slow);
  for (int i = 0; i < 100 && rate(a).current != 0; ++i) {
    bench.clock.set(bench.clock.now() + 1'000'000'000);
    took(a, WqeOpcode::RDMA_WRITE);
  }
  EXPECT_EQ(rate(a).current, 0u);
  EXPECT_EQ(took(a, WqeOpcode::RDMA_WRITE), 0);
  run_for(1'000'000'000);
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

TEST_F(DpCongestion, AnswersToReadsAreSlowedDownToo) {
  setup();
  fill(dst, 99);
  Nanos last = 0;
  for (int i = 0; i < 30; ++i) {
    bench.clock.set(bench.clock.now() + 10'000);
    last = took(a, WqeOpcode::RDMA_READ);
  }
  EXPECT_TRUE(same(src, dst, kLen));
  EXPECT_GT(last, 100'000);
  EXPECT_GT(rate(b).current, 0u);
  EXPECT_EQ(rate(a).current, 0u);
}

TEST_F(DpCongestion, SwitchedOff) {
  bench.hca.data_path().switch_congestion({false, false});
  setup();
  took(a, WqeOpcode::RDMA_WRITE);
  for (auto& p : packets()) EXPECT_EQ(p.net.traffic_class & 3, 0) << "not ECN-capable";
  // Marks and notifications that come all the same do nothing.
  wire::Packet p;
  p.net.traffic_class = 3;
  p.reth = {dst.va, dst.key, 8};
  inject_to_b(p, wire::Op::kWriteOnly, 0x10 + kLen / 1024, std::vector<std::byte>(8));
  run();
  EXPECT_TRUE(notifications().empty());
  EXPECT_EQ(counters().np_ecn_marked, 0u);
  wire::Packet cnp;
  cnp.net.smac = cnp.net.dmac = bench.config.mac;
  cnp.net.sgid = cnp.net.dgid = Bench::ipv4_gid(10, 0, 0, 1);
  cnp.bth.opcode = wire::kCnp;
  cnp.bth.dest_qp = a.qp.qpn;
  FakePort::Bytes out(wire::frame_size(cnp));
  out.resize(wire::emit(cnp, out));
  bench.port.inject(out);
  run();
  EXPECT_EQ(counters().rp_cnp_ignored, 1u);
  EXPECT_EQ(rate(a).current, 0u);
}

TEST_F(DpCongestion, QpsThatWaitMayGo) {
  setup();
  for (int i = 0; i < 30; ++i) {
    bench.clock.set(bench.clock.now() + 10'000);
    took(a, WqeOpcode::RDMA_WRITE);
  }
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, kLen)}, .raddr = dst.va, .rkey = dst.key});
  run();
  ASSERT_TRUE(rate(a).paced);
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, a.qp.qpn).ok());
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, a.qp.qpn).ok());
  run_for(1'000'000'000);
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

}  // namespace
}  // namespace uhca::hcatest
