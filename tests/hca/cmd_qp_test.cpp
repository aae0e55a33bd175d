// SPDX-License-Identifier: MIT
// QP states and contexts through the command interface.
#include "hca/harness.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using S = prm::CmdStatus;
using hca::QpState;

class CmdQp : public ::testing::Test {
 protected:
  Bench bench;
  CqHandle cq;
  PathSpec path;
  void SetUp() override {
    bench.bring_up();
    cq = bench.create_cq(6);
    bench.set_roce_address(2, Bench::ipv4_gid(10, 0, 0, 1));
    path.sgid_index = 2;
    path.dgid = Bench::ipv4_gid(10, 0, 0, 2);
    path.dmac = {2, 2, 3, 4, 5, 6};
    path.remote_qpn = 0x2345;
    path.rq_psn = 0x111111;
    path.sq_psn = 0x222222;
  }
  QpHandle make(hca::QpType type = hca::QpType::kRc) { return bench.create_qp({.type = type, .send_cqn = cq.cqn, .recv_cqn = cq.cqn}); }
  const hca::Qp& qp(const QpHandle& h) { return *bench.hca.objects().qp(h.qpn); }
  S move(Op op, const QpHandle& h, std::uint32_t mask = 0) {
    Request<prm::rst2init_qp_in> r(op);
    r.set<prm::rst2init_qp_in::qpn>(h.qpn).set<prm::rst2init_qp_in::opt_param_mask>(mask);
    void* qpc = r.at<prm::rst2init_qp_in::qpc>();
    prm::set<prm::qpc::mtu>(qpc, 3);
    Bench::put_path(qpc, path);
    return bench.cmd.exec(r).status();
  }
};

TEST_F(CmdQp, EveryTransitionFromEveryState) {
  // Rows: how to get there. Columns: what the command does then; X is refused.
  struct Row {
    QpState state;
    std::vector<Op> way;
  };
  const Row rows[] = {
      {QpState::kReset, {}},
      {QpState::kInit, {Op::RST2INIT_QP}},
      {QpState::kRtr, {Op::RST2INIT_QP, Op::INIT2RTR_QP}},
      {QpState::kRts, {Op::RST2INIT_QP, Op::INIT2RTR_QP, Op::RTR2RTS_QP}},
      {QpState::kErr, {Op::RST2INIT_QP, Op::TO_2ERR_QP}},
  };
  struct Column {
    Op op;
    std::vector<QpState> from;
    QpState to;
  };
  const Column columns[] = {
      {Op::RST2INIT_QP, {QpState::kReset}, QpState::kInit},
      {Op::INIT2INIT_QP, {QpState::kInit}, QpState::kInit},
      {Op::INIT2RTR_QP, {QpState::kInit}, QpState::kRtr},
      {Op::RTR2RTS_QP, {QpState::kRtr}, QpState::kRts},
      {Op::RTS2RTS_QP, {QpState::kRts}, QpState::kRts},
      {Op::SQERR2RTS_QP, {}, QpState::kRts},
      {Op::SQD_RTS_QP, {}, QpState::kRts},
      {Op::TO_2ERR_QP, {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts, QpState::kErr}, QpState::kErr},
      {Op::TO_2RST_QP, {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts, QpState::kErr}, QpState::kReset},
  };
  for (const Row& r : rows) {
    for (const Column& c : columns) {
      QpHandle h = make();
      for (Op op : r.way) ASSERT_EQ(move(op, h), S::OK);
      ASSERT_EQ(qp(h).state, r.state);
      bool allowed = std::find(c.from.begin(), c.from.end(), r.state) != c.from.end();
      EXPECT_EQ(move(c.op, h), allowed ? S::OK : S::BAD_QP_STATE)
          << prm::opcode_name(static_cast<std::uint16_t>(c.op)) << " in " << static_cast<int>(r.state);
      EXPECT_EQ(qp(h).state, allowed ? c.to : r.state);
      ASSERT_TRUE(bench.simple(Op::DESTROY_QP, h.qpn).ok());
    }
  }
}

TEST_F(CmdQp, ContextArrivesInTheQp) {
  QpHandle h = make();
  path.tclass = 0x28;
  path.hop_limit = 33;
  path.udp_sport = 0xd123;
  bench.connect(h, path);
  const hca::Qp& q = qp(h);
  EXPECT_EQ(q.remote_qpn, 0x2345u);
  EXPECT_EQ(q.mtu_bytes, 1024u);
  EXPECT_EQ(q.next_rcv_psn, 0x111111u);
  EXPECT_EQ(q.next_send_psn, 0x222222u);
  EXPECT_EQ(q.retry_count, 7u);
  EXPECT_EQ(q.rnr_retry, 7u);
  EXPECT_EQ(q.ack_timeout, 14u);
  EXPECT_EQ(q.min_rnr_nak, 12u);
  EXPECT_EQ(q.max_rd_atomic, 4u);
  EXPECT_EQ(q.max_dest_rd_atomic, 4u);
  EXPECT_TRUE(q.rre && q.rwe && q.rae);
  EXPECT_EQ(q.path.sgid, Bench::ipv4_gid(10, 0, 0, 1));
  EXPECT_EQ(q.path.dgid, path.dgid);
  EXPECT_EQ(q.path.smac, bench.config.mac);
  EXPECT_EQ(q.path.dmac, path.dmac);
  EXPECT_FALSE(q.path.ipv6);
  EXPECT_EQ(q.path.traffic_class, 0x28);
  EXPECT_EQ(q.path.hop_limit, 33);
  EXPECT_EQ(q.path.udp_sport, 0xd123);
  Reply r = bench.cmd.exec(Request<prm::query_qp_in>(Op::QUERY_QP).set<prm::query_qp_in::qpn>(h.qpn), 272 + 64);
  const void* c = r.at<prm::query_qp_out::qpc>();
  EXPECT_EQ(prm::get<prm::qpc::state>(c), 3u);
  EXPECT_EQ(prm::get<prm::qpc::remote_qpn>(c), 0x2345u);
  EXPECT_EQ(prm::get<prm::qpc::next_send_psn>(c), 0x222222u);
  EXPECT_EQ(prm::get<prm::qpc::next_rcv_psn>(c), 0x111111u);
  EXPECT_EQ(prm::get<prm::qpc::user_index>(c), 0x5a5a5u);
  EXPECT_EQ(prm::get<prm::ads::src_addr_index>(prm::at<prm::qpc::primary_address_path>(c)), 2u);
  EXPECT_EQ(r.get<prm::query_qp_out::pas>(0), h.buf);
  ASSERT_TRUE(bench.simple(Op::TO_2RST_QP, h.qpn).ok());
  EXPECT_EQ(qp(h).remote_qpn, 0u);
  EXPECT_FALSE(qp(h).rre);
}

TEST_F(CmdQp, SourcePortIsStableAndInRange) {
  QpHandle h = make();
  bench.connect(h, path);
  std::uint16_t port = qp(h).path.udp_sport;
  EXPECT_GE(port, 0xc000);
  ASSERT_TRUE(bench.simple(Op::TO_2RST_QP, h.qpn).ok());
  bench.connect(h, path);
  EXPECT_EQ(qp(h).path.udp_sport, port);
}

TEST_F(CmdQp, RtrNeedsAnAddressAndAnMtu) {
  QpHandle h = make();
  ASSERT_TRUE(bench.to_init(h, path).ok());
  PathSpec bad = path;
  bad.sgid_index = 9;
  EXPECT_EQ(bench.to_rtr(h, bad).status(), S::BAD_PARAM);
  bad = path;
  bad.mtu = 6;
  EXPECT_EQ(bench.to_rtr(h, bad).status(), S::BAD_PARAM);
  EXPECT_EQ(qp(h).state, QpState::kInit) << "a refusal changes nothing";
  EXPECT_EQ(qp(h).remote_qpn, 0u);
  EXPECT_TRUE(bench.to_rtr(h, path).ok());
  QpHandle ud = make(hca::QpType::kUd);  // no path in the QP: every WQE brings its own
  bad = path;
  bad.sgid_index = 9;
  bad.qkey = 0x11223344;
  bench.connect(ud, bad);
  EXPECT_EQ(qp(ud).qkey, 0x11223344u);
}

TEST_F(CmdQp, OptionalParametersNeedTheirBit) {
  QpHandle h = make();
  bench.connect(h, path);
  EXPECT_EQ(move(Op::RTS2RTS_QP, h), S::OK);  // rre, rwe, rae are 0 in this context, but no bit is set
  EXPECT_TRUE(qp(h).rre && qp(h).rwe && qp(h).rae);
  EXPECT_EQ(move(Op::RTS2RTS_QP, h, 1 << 3), S::OK);
  EXPECT_TRUE(qp(h).rre);
  EXPECT_FALSE(qp(h).rwe);
  EXPECT_EQ(move(Op::RTS2RTS_QP, h, 1 << 0), S::BAD_PARAM) << "path migration";
  EXPECT_EQ(move(Op::RTS2RTS_QP, h, 1 << 19), S::BAD_RES) << "no such receive CQ";
}

TEST_F(CmdQp, CreationRefusals) {
  auto with = [&](auto change) {
    QpHandle h;
    Request<prm::create_qp_in> r = bench.qp_request({.send_cqn = cq.cqn, .recv_cqn = cq.cqn}, h);
    change(r, r.at<prm::create_qp_in::qpc>());
    return bench.cmd.exec(r).status();
  };
  using R = Request<prm::create_qp_in>;
  std::size_t before = bench.hca.live_objects();
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::pd>(c, 0x999); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::pd>(c, 0); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::uar_page>(c, 1); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::cqn_snd>(c, 1); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::cqn_rcv>(c, 1); }), S::BAD_RES);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::st>(c, 0x7); }), S::BAD_PARAM) << "QP0";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::st>(c, 0xff); }), S::BAD_PARAM) << "the engine's own";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::st>(c, 0x3f); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::st>(c, 0x3); }), S::BAD_RES) << "XRC without a domain";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::rq_type>(c, 1); }), S::BAD_RES) << "no such SRQ";
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::rq_type>(c, 5); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::log_sq_size>(c, 15); }), S::BAD_INP_LEN);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::log_rq_stride>(c, 7); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::dbr_addr>(c, 4); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R& r, void*) { r.set<prm::create_qp_in::pas>(0x123); }), S::BAD_PARAM);
  EXPECT_EQ(with([](R&, void* c) { prm::set<prm::qpc::counter_set_id>(c, 9); }), S::BAD_RES);
  EXPECT_EQ(bench.hca.live_objects(), before);
  EXPECT_EQ(with([](R&, void*) {}), S::OK);
}

TEST_F(CmdQp, MulticastHoldsTheQp) {
  QpHandle rc = make(), ud = make(hca::QpType::kUd);
  auto attach = [&](Op op, std::uint32_t qpn, std::uint8_t first) {
    Request<prm::attach_to_mcg_in> r(op);
    r.set<prm::attach_to_mcg_in::qpn>(qpn);
    static_cast<std::uint8_t*>(r.at<prm::attach_to_mcg_in::multicast_gid>())[0] = first;
    return bench.cmd.exec(r).status();
  };
  EXPECT_EQ(attach(Op::ATTACH_TO_MCG, rc.qpn, 0xff), S::BAD_PARAM);
  EXPECT_EQ(attach(Op::ATTACH_TO_MCG, ud.qpn, 0xfe), S::BAD_PARAM);
  EXPECT_EQ(attach(Op::ATTACH_TO_MCG, ud.qpn, 0xff), S::OK);
  EXPECT_EQ(bench.simple(Op::DESTROY_QP, ud.qpn).status(), S::BAD_RES_STATE);
  EXPECT_EQ(attach(Op::DETACH_FROM_MCG, rc.qpn, 0xff), S::BAD_PARAM);
  EXPECT_EQ(attach(Op::DETACH_FROM_MCG, ud.qpn, 0xff), S::OK);
  EXPECT_TRUE(bench.simple(Op::DESTROY_QP, ud.qpn).ok());
}

}  // namespace
}  // namespace uhca::hcatest
