// SPDX-License-Identifier: MIT
// Congestion: marks are answered by CNPs, notified QPs send more slowly for a while, and all of it can be switched off.
#include "device/hca/lane.h"
#include "hca/dp_harness.h"
#include "prm/cmd_vport.h"
#include "prm/congestion.h"

namespace uhca::hcatest {
namespace {

namespace cong = prm::congestion;
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
  bench.hca.data_path().congestion().notify = bench.hca.data_path().congestion().react = 0;
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

class CmdCongestion : public DpCongestion {
 protected:
  Reply query(std::uint32_t protocol) {
    Request<prm::query_cong_params_in> r(prm::Opcode::QUERY_CONG_PARAMS);
    return bench.cmd.exec(r.set<prm::query_cong_params_in::cong_protocol>(protocol), prm::query_cong_params_out::kBytes);
  }
  std::uint64_t value(std::uint32_t protocol, const cong::Parameter& p) {
    Reply r = query(protocol);
    EXPECT_TRUE(r.ok());
    return prm::get(r.at<prm::query_cong_params_out::congestion_parameters>(), p.field);
  }
  prm::CmdStatus set(std::uint32_t protocol, std::initializer_list<std::pair<cong::Parameter, std::uint32_t>> values,
                     std::uint32_t more = 0) {
    Request<prm::modify_cong_params_in> r(prm::Opcode::MODIFY_CONG_PARAMS);
    std::uint32_t select = more;
    for (const auto& [p, v] : values) {
      select |= p.select;
      prm::set(r.at<prm::modify_cong_params_in::congestion_parameters>(), p.field, v);
    }
    r.set<prm::modify_cong_params_in::cong_protocol>(protocol).set<prm::modify_cong_params_in::field_select>(select);
    return bench.cmd.exec(r).status();
  }
  prm::CmdStatus enable(std::uint32_t protocol, std::uint32_t priority, bool on) {
    Request<prm::modify_cong_status_in> r(prm::Opcode::MODIFY_CONG_STATUS);
    r.set<prm::modify_cong_status_in::cong_protocol>(protocol).set<prm::modify_cong_status_in::priority>(priority);
    return bench.cmd.exec(r.set<prm::modify_cong_status_in::enable>(on)).status();
  }
  bool enabled(std::uint32_t protocol, std::uint32_t priority) {
    Request<prm::query_cong_status_in> r(prm::Opcode::QUERY_CONG_STATUS);
    r.set<prm::query_cong_status_in::cong_protocol>(protocol).set<prm::query_cong_status_in::priority>(priority);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    return out.get<prm::query_cong_status_out::enable>();
  }
  Reply statistics(bool clear) {
    Request<prm::query_cong_statistics_in> r(prm::Opcode::QUERY_CONG_STATISTICS);
    return bench.cmd.exec(r.set<prm::query_cong_statistics_in::clear>(clear), prm::query_cong_statistics_out::kBytes);
  }
};

TEST_F(CmdCongestion, ParametersAreKeptAndChecked) {
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_ai_rate), 5u);
  EXPECT_EQ(value(cong::kReactionPoint, cong::dce_tcp_g), 1019u);
  EXPECT_EQ(value(cong::kNotificationPoint, cong::cnp_dscp), 48u);
  EXPECT_EQ(set(cong::kReactionPoint, {{cong::rpg_ai_rate, 7}, {cong::rpg_min_rate, 100}}), prm::CmdStatus::OK);
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_ai_rate), 7u);
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_min_rate), 100u);
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_hai_rate), 50u) << "not selected";
  // One bad value, and none is taken.
  EXPECT_EQ(set(cong::kReactionPoint, {{cong::rpg_ai_rate, 9}, {cong::rpg_min_dec_fac, 101}}), prm::CmdStatus::BAD_PARAM);
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_ai_rate), 7u);
  EXPECT_EQ(set(cong::kReactionPoint, {{cong::rpg_byte_reset, 1}}), prm::CmdStatus::BAD_PARAM) << "no byte counter";
  EXPECT_EQ(set(cong::kNotificationPoint, {}, 1 << 4), prm::CmdStatus::BAD_PARAM) << "no priority of the CNPs' own";
  EXPECT_EQ(set(3, {}), prm::CmdStatus::BAD_PARAM);
  EXPECT_EQ(query(0).status(), prm::CmdStatus::BAD_PARAM);
}

TEST_F(CmdCongestion, AResetMakesThemThoseOfTheFactory) {
  EXPECT_EQ(set(cong::kReactionPoint, {{cong::rpg_ai_rate, 7}}), prm::CmdStatus::OK);
  EXPECT_EQ(enable(cong::kNotificationPoint, 2, false), prm::CmdStatus::OK);
  bench.hca.reset();
  bench.cmd.attach();
  bench.bring_up();
  EXPECT_EQ(value(cong::kReactionPoint, cong::rpg_ai_rate), 5u);
  EXPECT_TRUE(enabled(cong::kNotificationPoint, 2));
}

TEST_F(CmdCongestion, ParametersWork) {
  setup();
  // CNPs with another DSCP, at most once in a second of virtual time; the first one cuts to a chosen rate, nothing raises it again.
  ASSERT_EQ(set(cong::kNotificationPoint, {{cong::cnp_dscp, 10}, {cong::min_time_between_cnps, 1'000'000}}), prm::CmdStatus::OK);
  ASSERT_EQ(set(cong::kReactionPoint,
                {{cong::rate_to_set_on_first_cnp, 1000}, {cong::initial_alpha_value, 0}, {cong::rpg_time_reset, 1'000'000}}),
            prm::CmdStatus::OK);
  Nanos first = took(a, WqeOpcode::RDMA_WRITE);
  EXPECT_EQ(rate(a).current, 1000u * 125'000);
  ASSERT_EQ(notifications().size(), 1u);
  EXPECT_EQ(notifications()[0].net.traffic_class >> 2, 10);
  // 64 KiB at 1 Gb/s take 524 us.
  EXPECT_NEAR(static_cast<double>(took(a, WqeOpcode::RDMA_WRITE)), 524'288.0, 60'000.0) << first;
  EXPECT_EQ(notifications().size(), 1u) << "a second has not passed";
}

TEST_F(CmdCongestion, SwitchedByPriority) {
  for (std::uint32_t protocol : {cong::kReactionPoint, cong::kNotificationPoint})
    for (std::uint32_t priority : {0u, 7u}) EXPECT_TRUE(enabled(protocol, priority));
  EXPECT_EQ(enable(cong::kNotificationPoint, 0, false), prm::CmdStatus::OK);
  EXPECT_FALSE(enabled(cong::kNotificationPoint, 0));
  EXPECT_TRUE(enabled(cong::kNotificationPoint, 1));
  EXPECT_TRUE(enabled(cong::kReactionPoint, 0));
  EXPECT_EQ(enable(cong::kReactionPoint, 8, false), prm::CmdStatus::BAD_PARAM);
  EXPECT_EQ(enable(7, 0, false), prm::CmdStatus::BAD_PARAM);
  setup();
  took(a, WqeOpcode::RDMA_WRITE);
  EXPECT_TRUE(notifications().empty()) << "untagged frames have priority 0";
  EXPECT_EQ(enable(cong::kNotificationPoint, 0, true), prm::CmdStatus::OK);
  took(a, WqeOpcode::RDMA_WRITE);
  EXPECT_FALSE(notifications().empty());
}

TEST_F(CmdCongestion, Statistics) {
  setup();
  took(a, WqeOpcode::RDMA_WRITE);
  Reply r = statistics(true);
  ASSERT_TRUE(r.ok());
  using S = prm::query_cong_statistics_out;
  EXPECT_EQ(r.get<S::rp_cur_flows>(), 1u);
  EXPECT_EQ(r.get<S::sum_flows>(), 1u);
  EXPECT_EQ(r.get<S::np_ecn_marked_roce_packets>(), kLen / 1024);
  EXPECT_EQ(r.get<S::np_cnp_sent>(), notifications().size());
  EXPECT_EQ(r.get<S::rp_cnp_handled>(), notifications().size());
  EXPECT_EQ(r.get<S::rp_cnp_ignored>(), 0u);
  r = statistics(false);
  EXPECT_EQ(r.get<S::np_ecn_marked_roce_packets>() + r.get<S::rp_cnp_handled>(), 0u) << "cleared";
  EXPECT_EQ(r.get<S::rp_cur_flows>(), 1u) << "that is so now";
}

}  // namespace
}  // namespace uhca::hcatest
