// SPDX-License-Identifier: MIT
// Dynamically connected transport: initiators that turn from target to target, sessions, access keys (case E11), loss.
#include "device/hca/caps.h"
#include "hca/srq_harness.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_vport.h"
#include "prm/qos.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::CqeOpcode;
using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;
using Events = std::vector<unsigned>;

constexpr std::uint64_t kKey = 0x0123456789abcdef;

struct DctHandle {
  std::uint32_t dctn = 0;
  CqHandle cq;
  std::uint32_t ci = 0;
  SrqHandle srq;
};

class DpDc : public SrqTest {
 protected:
  DctHandle x, y;
  Region src, dst;
  void setup() {
    base.type = QpType::kDci;
    base.rq_type = 3;
    for (PathSpec* p : {&path_a, &path_b}) p->log_sra_max = 2;
    a = make_end();
    b = make_end();
    bench.connect(a.qp, path_a);
    bench.connect(b.qp, path_b);
    x = create_dct(1);
    y = create_dct(2);
    src = region(16384);
    dst = region(16384);
    fill(src, 5);
    async_events();
  }
  DctHandle create_dct(std::uint32_t user_index) { return create_dct(user_index, bench.create_cq(6)); }
  DctHandle create_dct(std::uint32_t user_index, const CqHandle& cq) {
    DctHandle h;
    h.cq = cq;
    h.srq = create_rmp(4);
    Request<prm::create_dct_in> r(prm::Opcode::CREATE_DCT);
    void* c = r.at<prm::create_dct_in::dct_context_entry>();
    prm::set<prm::dctc::pd>(c, bench.pd);
    prm::set<prm::dctc::cqn>(c, h.cq.cqn);
    prm::set<prm::dctc::srqn_xrqn>(c, h.srq.srqn);
    prm::set<prm::dctc::user_index>(c, user_index);
    prm::set<prm::dctc::rre>(c, 1);
    prm::set<prm::dctc::rwe>(c, 1);
    prm::set<prm::dctc::rae>(c, 1);
    prm::set<prm::dctc::dc_access_key>(c, kKey);
    prm::set<prm::dctc::mtu>(c, 3);
    prm::set<prm::dctc::hop_limit>(c, 64);
    prm::set<prm::dctc::min_rnr_nak>(c, 12);
    Reply out = bench.cmd.exec(r);
    EXPECT_TRUE(out.ok());
    h.dctn = out.get<prm::create_dct_out::dctn>();
    return h;
  }
  void post_nop(End& e) {
    std::uint8_t raw[64] = {};
    prm::set<prm::wqe_ctrl_seg::wqe_index>(raw, e.sq_pi);
    prm::set<prm::wqe_ctrl_seg::opcode>(raw, static_cast<unsigned>(WqeOpcode::NOP));
    prm::set<prm::wqe_ctrl_seg::qpn>(raw, e.qp.qpn);
    prm::set<prm::wqe_ctrl_seg::ds>(raw, 1);
    prm::set<prm::wqe_ctrl_seg::fm_ce_se>(raw, prm::kWqeCtrlCqUpdate);
    post_raw(e, raw, 16, false);
  }
  Av to(const DctHandle& h, std::uint64_t key = kKey) {
    Av v;
    v.qpn = h.dctn;
    v.dc_key = key;
    v.dgid = Bench::ipv4_gid(10, 0, 0, 1);
    v.dmac = bench.config.mac;
    return v;
  }
  std::vector<Wc> received(DctHandle& h) {
    std::vector<Wc> v;
    while (auto w = poll(h.cq, h.ci)) v.push_back(*w);
    return v;
  }
  unsigned violations(const DctHandle& h) {
    Request<prm::query_dct_in> q(prm::Opcode::QUERY_DCT);
    q.set<prm::query_dct_in::dctn>(h.dctn);
    Reply r = bench.cmd.exec(q, prm::query_dct_out::kBytes);
    EXPECT_TRUE(r.ok());
    return prm::get<prm::dctc::dc_access_key_violation_count>(r.at<prm::query_dct_out::dct_context_entry>());
  }
  std::uint64_t word_at(const Region& r, std::uint64_t off) {
    std::uint64_t v;
    std::memcpy(&v, bench.bus.host(r.mem) + off, 8);
    return v;
  }
};

TEST_F(DpDc, EveryOperation) {
  setup();
  post_srq(x.srq, {sge(dst, 4000)});
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 3000)}, .imm = 7, .av = to(x)});
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 2000)}, .raddr = dst.va + 4096, .rkey = dst.key, .av = to(x)});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 2000, 8192)}, .raddr = dst.va + 4096, .rkey = dst.key, .av = to(x)});
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8, 12288)}, .raddr = dst.va + 16000, .rkey = dst.key, .swap_add = 3, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0, 0, 0}));
  auto v = received(x);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND_IMM);
  EXPECT_EQ(v[0].uidx, 1u);
  EXPECT_EQ(v[0].qpn, x.dctn);
  EXPECT_EQ(v[0].byte_cnt, 3000u);
  EXPECT_TRUE(same(src, dst, 3000));
  EXPECT_EQ(std::memcmp(bench.bus.host(src.mem) + 8192, bench.bus.host(src.mem), 2000), 0);
  EXPECT_EQ(word_at(dst, 16000), 3u);
  EXPECT_EQ(wire_log()[0], "DC_SEND_FIRST@16");
  EXPECT_EQ(bench.bus.faults(), 0u);
}

// With a driver for plain Ethernet, which takes what is for no QP of the device.
TEST_F(DpDc, ATargetGetsItsFramesBesideAnEthernetDriver) {
  setup();
  Request<prm::create_flow_table_in> t(prm::Opcode::CREATE_FLOW_TABLE);
  prm::set<prm::flow_table_context::level>(t.at<prm::create_flow_table_in::flow_table_context>(), 1);
  Reply table = bench.cmd.exec(t);
  ASSERT_TRUE(table.ok());
  Request<prm::set_flow_table_root_in> root(prm::Opcode::SET_FLOW_TABLE_ROOT);
  root.set<prm::set_flow_table_root_in::table_id>(table.get<prm::create_flow_table_out::table_id>());
  ASSERT_TRUE(bench.cmd.exec(root).ok());
  Request<prm::modify_nic_vport_context_in> roce(prm::Opcode::MODIFY_NIC_VPORT_CONTEXT);
  roce.set<prm::modify_nic_vport_context_in::field_select>(1 << 1);
  prm::set<prm::nic_vport_context::roce_en>(roce.at<prm::modify_nic_vport_context_in::nic_vport_context>(), 1);
  ASSERT_TRUE(bench.cmd.exec(roce).ok());
  post_srq(x.srq, {sge(dst, 4000)});
  post(a, {.sges = {sge(src, 3000)}, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), Syndromes{0});
  EXPECT_EQ(received(x).size(), 1u);
  EXPECT_TRUE(same(src, dst, 3000));
}

TEST_F(DpDc, InitiatorsTurnFromTargetToTarget) {
  setup();
  for (unsigned i = 0; i < 8; ++i) {
    post_srq(x.srq, {sge(dst, 1000)});
    post_srq(y.srq, {sge(dst, 1000)});
  }
  for (unsigned i = 0; i < 8; ++i) {
    post(a, {.sges = {sge(src, 10 + i)}, .av = to(i % 2 == 0 ? x : y)}, false);
    post(b, {.sges = {sge(src, 50 + i)}, .av = to(i % 2 == 0 ? y : x)}, false);
  }
  bench.hca.look_at_uar(bench.uar);
  run();
  EXPECT_EQ(sends(a).size(), 8u);
  EXPECT_EQ(sends(b).size(), 8u);
  EXPECT_EQ(received(x).size(), 8u);
  EXPECT_EQ(received(y).size(), 8u);
  // Each request waited until the one to the other target was done.
  std::vector<std::uint32_t> order;
  for (auto& p : packets())
    if (p.bth.dest_qp == x.dctn || p.bth.dest_qp == y.dctn)
      if (p.dc_eth.src_qp == a.qp.qpn) order.push_back(p.bth.dest_qp);
  EXPECT_EQ(order, (std::vector<std::uint32_t>{x.dctn, y.dctn, x.dctn, y.dctn, x.dctn, y.dctn, x.dctn, y.dctn}));
}

// A request that sends nothing belongs to no target: the message behind it may turn the initiator.
TEST_F(DpDc, LocalRequestsInFrontOfAMessage) {
  setup();
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  post_nop(a);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va + 64, .rkey = dst.key, .av = to(y)}, false);
  post_nop(a);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va + 128, .rkey = dst.key, .av = to(x)});
  run_for(1'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0, 0, 0}));
  EXPECT_EQ(word_at(dst, 64), word_at(src, 0));
  EXPECT_EQ(word_at(dst, 128), word_at(src, 0));
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

// The completion has nowhere to go: the peer must not be told that the message arrived.
TEST_F(DpDc, OverrunOfTheTargetsCqIsAnOperationalError) {
  setup();
  CqHandle small = bench.create_cq(0);
  x = create_dct(3, small);
  for (int i = 0; i < 3; ++i) post_srq(x.srq, {sge(dst, 1000)});
  async_events();
  for (int i = 0; i < 3; ++i) {
    post(a, {.sges = {sge(src, 8)}, .av = to(x)});
    run();
  }
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0x14, 0x05}));
  EXPECT_EQ(async_events().at(0), 0x04u) << "CQ error";
  // Others meet the same.
  post(b, {.sges = {sge(src, 8)}, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0x14}));
}

TEST_F(DpDc, LossOfEveryPacketIsMadeUp) {
  setup();
  for (unsigned lost = 0; lost < 12; ++lost) {
    SCOPED_TRACE(lost);
    post_srq(x.srq, {sge(dst, 4000)});
    on_packet([n = 0u, lost](const wire::Packet&) mutable { return n++ == lost ? FakePort::Verdict::kDrop : FakePort::Verdict::kDeliver; });
    std::uint64_t before = word_at(dst, 16000);
    post(a, {.sges = {sge(src, 3000)}, .av = to(x)}, false);
    post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 2000, 8192)}, .raddr = dst.va, .rkey = dst.key, .av = to(x)}, false);
    post(a,
         {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8, 12288)}, .raddr = dst.va + 16000, .rkey = dst.key, .swap_add = 1, .av = to(x)},
         false);
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va + 8192, .rkey = dst.key, .av = to(y)});
    run_for(2'000'000'000);
    EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0, 0, 0}));
    auto v = received(x);
    ASSERT_EQ(v.size(), 1u);
    free_srq(x.srq, static_cast<std::uint16_t>(v[0].wqe));
    EXPECT_EQ(word_at(dst, 16000), before + 1);
    EXPECT_TRUE(same(src, dst, 3000));
  }
}

TEST_F(DpDc, LatePacketsOfAnOldSessionDoNothing) {
  setup();
  std::vector<FakePort::Bytes> old;
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .swap_add = 1, .av = to(x)});
  run();
  old.push_back(bench.port.sent[0]);
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .swap_add = 1, .av = to(x)});
  run();
  ASSERT_EQ(sends(a).size(), 2u);
  bench.port.inject(old[0]);
  run();
  EXPECT_EQ(word_at(dst, 0), 2u);
}

TEST_F(DpDc, WrongKeyIsAnInvalidRequestAndAnEvent) {  // E11; pin: as IBTA's NAK for a request that may not come in
  setup();
  post_srq(x.srq, {sge(dst, 1000)});
  post(a, {.sges = {sge(src, 8)}, .av = to(x, kKey + 1)});
  post(a, {.sges = {sge(src, 8)}, .av = to(x)});
  run();
  auto s = sends(a);
  ASSERT_EQ(syndromes(s), (Syndromes{0x12, 0x05}));
  EXPECT_EQ(s[0].vendor, 0x8au);
  EXPECT_EQ(state(a), QpState::kErr);
  EXPECT_EQ(async_events(), (Events{0x1d}));
  EXPECT_EQ(violations(x), 1u);
  EXPECT_TRUE(received(x).empty());
  // Others are not affected.
  post(b, {.sges = {sge(src, 8)}, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(b)), (Syndromes{0}));
}

TEST_F(DpDc, DestroyedTargetIsAnInvalidRequest) {  // E11
  setup();
  EXPECT_FALSE(bench.simple(prm::Opcode::DESTROY_DCT, x.dctn).ok()) << "not drained";
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .av = to(x)});
  run();
  ASSERT_TRUE(bench.simple(prm::Opcode::DRAIN_DCT, x.dctn).ok());
  EXPECT_EQ(async_events(), (Events{0x1c}));
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_DCT, x.dctn).ok());
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0x12}));
  EXPECT_TRUE(bench.simple(prm::Opcode::DESTROY_RMP, x.srq.srqn).ok());
}

TEST_F(DpDc, RefusedRequestEndsTheSessionOnly) {
  setup();
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key ^ 1, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x13}));
  // The same initiator, brought up again.
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, a.qp.qpn).ok());
  a.sq_pi = 0;
  bench.bus.put_be32(a.qp.dbr + 4, 0);
  bench.connect(a.qp, path_a);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .av = to(x)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
}

TEST_F(DpDc, NoReceiveWqeIsAnRnrNak) {
  setup();
  post(a, {.sges = {sge(src, 8)}, .av = to(x)});
  run();
  EXPECT_TRUE(sends(a).empty());
  post_srq(x.srq, {sge(dst, 1000)});
  run_for(1'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(received(x).size(), 1u);
}

// ---- streams (rdma-core, mlx5dv_dci_stream_id_reset(3))

class DpDcStreams : public DpDc {
 protected:
  void streams(unsigned log_streams, unsigned log_errored) {
    base.log_streams = log_streams;
    base.log_errored = log_errored;
    setup();
  }
  Wr write(unsigned stream, bool good, const DctHandle& h, std::uint64_t at = 0) {
    return {.op = WqeOpcode::RDMA_WRITE,
            .sges = {sge(src, 8)},
            .raddr = dst.va + at,
            .rkey = good ? dst.key : dst.key ^ 1,
            .av = to(h),
            .stream = stream};
  }
  prm::CmdStatus reset(unsigned stream, std::uint32_t qpn) {
    Request<prm::rts2rts_qp_in> r(prm::Opcode::RTS2RTS_QP, 0, prm::qos::kExtendedQpInBytes - prm::rts2rts_qp_in::kBytes);
    r.set<prm::rts2rts_qp_in::qpn>(qpn);
    prm::set<prm::qos::qp_has_ext>(r.bytes.data(), 1);
    prm::set<prm::qos::qp_opt_mask_95_32>(r.bytes.data(), prm::qos::kOptDciStream);
    prm::set<prm::qos::qp_dci_stream>(r.bytes.data(), stream);
    return bench.cmd.exec(r).status();
  }
};

TEST_F(DpDcStreams, AnErrorEndsItsStreamOnly) {
  streams(3, 2);
  post(a, write(1, true, x), false);
  post(a, write(2, false, x), false);
  post(a, write(2, true, x, 64), false);   // of the failed stream: flushed
  post(a, write(1, true, x, 128), false);  // of another one: goes through
  post(a, write(3, true, y, 192));
  run_for(1'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0x13, 0x05, 0, 0}));
  EXPECT_EQ(state(a), QpState::kRts);
  EXPECT_EQ(word_at(dst, 64), 0u) << "flushed, but executed";
  for (std::uint64_t at : {0, 128, 192}) EXPECT_EQ(word_at(dst, at), word_at(src, 0)) << at;
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
  // Only what has failed can be reset; then the stream works again.
  EXPECT_EQ(reset(1, a.qp.qpn), prm::CmdStatus::BAD_PARAM);
  EXPECT_EQ(reset(2, a.qp.qpn), prm::CmdStatus::OK);
  EXPECT_EQ(reset(2, a.qp.qpn), prm::CmdStatus::BAD_PARAM);
  post(a, write(2, true, x, 64));
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(word_at(dst, 64), word_at(src, 0));
}

TEST_F(DpDcStreams, TheLastStreamThatMayFailTakesTheQpAlong) {
  streams(3, 1);
  Wr bad = write(7, true, x);
  bad.sges = {{src.va, 8, src.key ^ 1}};
  post(a, bad);
  post(a, write(7, false, x));
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x04, 0x05})) << "the same stream once more is flushed and counts once";
  EXPECT_EQ(state(a), QpState::kRts);
  post(a, write(8, false, x));
  post(a, write(9, true, x));
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x13, 0x05}));
  EXPECT_EQ(state(a), QpState::kErr);
  // A new life has no failed streams.
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, a.qp.qpn).ok());
  a.sq_pi = 0;
  bench.bus.put_be32(a.qp.dbr + 4, 0);
  bench.connect(a.qp, path_a);
  post(a, write(7, true, x));
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
}

// Whatever fails a stream: the target is gone, nobody answers, no receive. What follows in other streams is sent once.
TEST_F(DpDcStreams, OtherStreamsAreExecutedOnce) {
  path_a.retry = 1;
  path_a.rnr_retry = 0;
  streams(4, 4);
  auto add = [&](unsigned stream) {
    return Wr{.op = WqeOpcode::ATOMIC_FA,
              .sges = {sge(src, 8, 4096)},
              .raddr = dst.va,
              .rkey = dst.key,
              .swap_add = 1,
              .av = to(x),
              .stream = stream};
  };
  Wr lost = write(1, true, y);
  post(a, add(5), false);
  post(a, lost, false);
  post(a, add(5), false);
  Wr rnr{.sges = {sge(src, 8)}, .av = to(x), .stream = 2};
  post(a, rnr, false);
  post(a, add(5), false);
  Wr key = write(3, true, x);
  key.av.dc_key ^= 1;
  post(a, key, false);
  on_packet([&](const wire::Packet& p) { return p.bth.dest_qp == y.dctn ? FakePort::Verdict::kDrop : FakePort::Verdict::kDeliver; });
  post(a, add(6));
  run_for(60'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0, 0x15, 0, 0x16, 0, 0x12, 0}));
  EXPECT_EQ(word_at(dst, 0), 4u);
  EXPECT_EQ(state(a), QpState::kRts);
  for (unsigned s : {1, 2, 3}) EXPECT_EQ(reset(s, a.qp.qpn), prm::CmdStatus::OK) << s;
}

TEST_F(DpDcStreams, Limits) {
  setup();
  QpSpec s = a.qp.spec;
  QpHandle h;
  for (auto [streams, errored] : {std::pair{hca::kLogMaxDciStreams + 1, 0u}, {1u, hca::kLogMaxDciStreams + 1}}) {
    s.log_streams = streams;
    s.log_errored = errored;
    EXPECT_EQ(bench.cmd.exec(bench.qp_request(s, h)).status(), prm::CmdStatus::BAD_PARAM);
  }
  EXPECT_EQ(reset(0, a.qp.qpn), prm::CmdStatus::BAD_PARAM) << "no streams, no failed ones";
  Request<prm::rts2rts_qp_in> r(prm::Opcode::RTS2RTS_QP);
  r.set<prm::rts2rts_qp_in::qpn>(a.qp.qpn);
  prm::set<prm::qos::qp_opt_mask_95_32>(r.bytes.data(), prm::qos::kOptDciStream);
  EXPECT_EQ(bench.cmd.exec(r).status(), prm::CmdStatus::BAD_INP_LEN);
}

TEST_F(DpDc, AddressVectorsWithoutGidOrSource) {
  setup();
  Av av = to(x);
  av.sgid_index = 99;
  post(a, {.sges = {sge(src, 8)}, .av = av});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x02}));
  EXPECT_TRUE(packets().empty());
}

}  // namespace
}  // namespace uhca::hcatest
