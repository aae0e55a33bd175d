// SPDX-License-Identifier: MIT
// Unreliable datagrams: network header in front of the data (case E10), Q_Keys, address vectors, QP1, multicast.
#include "hca/srq_harness.h"

namespace uhca::hcatest {
namespace {

using hca::QpState;
using hca::QpType;
using prm::CqeOpcode;
using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;

constexpr std::uint32_t kQkey = 0x11111111;

class DpUd : public SrqTest {
 protected:
  Region src, dst;
  void setup(QpType type = QpType::kUd) {
    base.type = type;
    path_a.qkey = path_b.qkey = kQkey;
    path_a.mtu = path_b.mtu = 5;
    connect();
    src = region(8192);
    dst = region(8192);
    fill(src, 5);
  }
  Av to(const End& e) {
    Av v;
    v.qpn = e.qp.qpn;
    v.qkey = kQkey;
    v.dgid = Bench::ipv4_gid(10, 0, 0, 1);
    v.dmac = bench.config.mac;
    return v;
  }
  const std::uint8_t* received() { return bench.bus.host(dst.mem); }
};

TEST_F(DpUd, DataLieBehindTheIpv4Header) {
  setup();
  post_recv(b, {sge(dst, 200)});
  Av av = to(b);
  av.tclass = 0x2a;
  av.hop_limit = 9;
  av.udp_sport = 0xc123;
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 100)}, .imm = 0x01020304, .solicited = true, .av = av});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND_IMM);
  EXPECT_EQ(v[0].byte_cnt, 140u);
  EXPECT_EQ(v[0].imm, 0x01020304u);
  EXPECT_TRUE(v[0].se);
  EXPECT_EQ(v[0].flags_rqpn, 0x12000000u | a.qp.qpn) << "GRH, IPv4, source QPN";
  for (unsigned i = 0; i < 20; ++i) EXPECT_EQ(received()[i], 0);
  const std::uint8_t* ip = received() + 20;
  EXPECT_EQ(ip[0], 0x45);
  EXPECT_EQ(ip[1], 0x2a);
  EXPECT_EQ(ip[8], 9);
  EXPECT_EQ(ip[9], 17);
  EXPECT_EQ(load_be<std::uint16_t>(ip + 2), 20 + 8 + 12 + 12 + 100 + 4);
  std::uint32_t sum = 0;
  for (unsigned i = 0; i < 20; i += 2) sum += load_be<std::uint16_t>(ip + i);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
  EXPECT_EQ(load_be<std::uint32_t>(ip + 16), 0x0a000001u);
  EXPECT_EQ(std::memcmp(received() + 40, bench.bus.host(src.mem), 100), 0);
  auto sent = packets();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(wire_name(sent[0]), "UD_SEND_ONLY_IMM");
  EXPECT_EQ(sent[0].net.udp_sport, 0xc123);
  EXPECT_EQ(sent[0].deth.src_qp, a.qp.qpn);
  EXPECT_EQ(sent[0].deth.qkey, kQkey);
  EXPECT_EQ(bench.bus.faults(), 0u);
}

TEST_F(DpUd, Ipv6HeaderFillsAllForty) {
  setup();
  wire::Gid gid{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7};
  bench.set_roce_address(3, gid, true);
  post_recv(b, {sge(dst, 200)});
  Av av = to(b);
  av.sgid_index = 3;
  av.dgid = gid;
  av.flow_label = 0x12345;
  post(a, {.sges = {sge(src, 1)}, .av = av});
  run();
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].flags_rqpn, 0x11000000u | a.qp.qpn);
  EXPECT_EQ(load_be<std::uint32_t>(received()), 0x60012345u);
  EXPECT_EQ(std::memcmp(received() + 24, gid.data(), 16), 0);
  EXPECT_EQ(v[0].byte_cnt, 41u);
}

TEST_F(DpUd, WrongQkeyIsDroppedAndCounted) {  // E10
  setup();
  post_recv(b, {sge(dst, 200)});
  Av av = to(b);
  av.qkey = kQkey + 1;
  post(a, {.sges = {sge(src, 8)}, .av = av});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_EQ(bench.hca.data_path().counters().rx_bad_qkey, 1u);
  Reply vport = bench.cmd.exec(Request<prm::query_nic_vport_context_in>(prm::Opcode::QUERY_NIC_VPORT_CONTEXT),
                               prm::query_nic_vport_context_out::kBytes);
  ASSERT_TRUE(vport.ok());
  EXPECT_EQ(prm::get<prm::nic_vport_context::qkey_violation_counter>(vport.at<prm::query_nic_vport_context_out::nic_vport_context>()), 1u);
}

TEST_F(DpUd, ControlledQkeyIsReplacedByTheQps) {
  setup();
  post_recv(b, {sge(dst, 200)});
  Av av = to(b);
  av.qkey = 0x80000000;
  post(a, {.sges = {sge(src, 8)}, .av = av});
  run();
  EXPECT_EQ(recvs(b).size(), 1u);
}

TEST_F(DpUd, RoomWithoutTheHeaderIsTooShort) {  // E10; pin: local length error, and the QP fails as IBTA 9.9.3 says
  setup();
  post_recv(b, {sge(dst, 100)});
  post_recv(b, {sge(dst, 100)});
  post(a, {.sges = {sge(src, 100)}, .av = to(b)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(syndromes(recvs(b)), (Syndromes{0x01, 0x05}));
  EXPECT_EQ(state(b), QpState::kErr);
}

TEST_F(DpUd, LongerThanTheMtuFailsAtTheSender) {  // E10
  setup();
  post(a, {.sges = {sge(src, 1025)}, .av = to(b)});
  run();
  auto s = sends(a);
  EXPECT_EQ(syndromes(s), (Syndromes{0x01}));
  EXPECT_EQ(state(a), QpState::kSqErr);
  EXPECT_TRUE(packets().empty());
}

TEST_F(DpUd, UnsetSourceAddressFailsAtTheSender) {
  setup();
  Av av = to(b);
  av.sgid_index = 200;
  post(a, {.sges = {sge(src, 8)}, .av = av});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x02}));
}

TEST_F(DpUd, ForeignDestinationAddressIsDropped) {
  setup();
  post_recv(b, {sge(dst, 200)});
  Av av = to(b);
  av.dgid = Bench::ipv4_gid(10, 0, 0, 99);
  post(a, {.sges = {sge(src, 8)}, .av = av});
  run();
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_EQ(bench.hca.data_path().counters().rx_wrong_path, 1u);
}

TEST_F(DpUd, NoReceiveWqeLosesTheDatagram) {
  setup();
  post(a, {.sges = {sge(src, 8)}, .av = to(b)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  post_recv(b, {sge(dst, 200)});
  run();
  EXPECT_TRUE(recvs(b).empty());
}

TEST_F(DpUd, OnlyDatagramsReachIt) {
  setup();
  post_recv(b, {sge(dst, 200)});
  inject_to_b({}, wire::Op::kSendOnly, 0x10, std::vector<std::byte>(8));  // RC
  run();
  EXPECT_TRUE(recvs(b).empty());
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .av = to(b)});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0x02}));
}

TEST_F(DpUd, SharedReceiveQueue) {
  SrqHandle srq = create_rmp(4);
  base.rq_type = 1;
  base.srqn = srq.srqn;
  setup();
  post_srq(srq, {sge(dst, 30), sge(dst, 100, 30)});
  post(a, {.sges = {sge(src, 50)}, .av = to(b)});
  run();
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].byte_cnt, 90u);
  EXPECT_EQ(std::memcmp(received() + 40, bench.bus.host(src.mem), 50), 0);
}

TEST_F(DpUd, GsiIsQpOne) {
  path_a.qkey = path_b.qkey = 0x80010000;
  base.type = QpType::kQp1;
  End gsi = make_end();
  bench.connect(gsi.qp, path_a);
  QpHandle second;
  EXPECT_EQ(bench.cmd.exec(bench.qp_request(gsi.qp.spec, second)).status(), prm::CmdStatus::BAD_RES_STATE);
  base.type = QpType::kUd;
  base.deth_sqpn = 1;  // as mlx5_ib's send QPs of the GSI
  End tx = make_end();
  bench.connect(tx.qp, path_b);
  src = region(256), dst = region(512);
  post_recv(gsi, {sge(dst, 512)});
  Av av = to(gsi);
  av.qpn = 1;
  av.qkey = 0x80010000;
  post(tx, {.sges = {sge(src, 256)}, .av = av});
  run();
  EXPECT_EQ(syndromes(sends(tx)), (Syndromes{0}));
  auto v = recvs(gsi);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].flags_rqpn & 0xffffff, 1u);
  EXPECT_EQ(v[0].imm, 0xffffu) << "P_Key";
  EXPECT_EQ(v[0].qpn, gsi.qp.qpn);
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, gsi.qp.qpn).ok());
  post(tx, {.sges = {sge(src, 256)}, .av = av});
  run();
  EXPECT_EQ(bench.hca.data_path().counters().rx_no_qp, 1u);
}

class DpMulticast : public DpUd {
 protected:
  wire::Gid group = Bench::ipv4_gid(239, 1, 2, 3);
  void attach(const End& e, prm::Opcode op = prm::Opcode::ATTACH_TO_MCG) {
    Request<prm::attach_to_mcg_in> r(op);
    r.set<prm::attach_to_mcg_in::qpn>(e.qp.qpn);
    std::memcpy(r.at<prm::attach_to_mcg_in::multicast_gid>(), group.data(), 16);
    ASSERT_TRUE(bench.cmd.exec(r).ok());
  }
  Av to_group() {
    Av v;
    v.qpn = 0xffffff;
    v.qkey = kQkey;
    v.dgid = group;
    v.dmac = {0x01, 0x00, 0x5e, 1, 2, 3};
    return v;
  }
  // A wire does not bring back what it was given.
  void other_end_of_the_wire() { bench.port.connect(nullptr); }
};

TEST_F(DpMulticast, EveryMemberGetsACopyTheSenderToo) {
  setup();
  other_end_of_the_wire();
  for (End* e : {&a, &b}) {
    attach(*e);
    post_recv(*e, {sge(dst, 200, e == &a ? 0 : 4096)});
  }
  post(a, {.sges = {sge(src, 64)}, .av = to_group()});
  run();
  EXPECT_EQ(recvs(a).size(), 1u);
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].flags_rqpn & 0xffffff, a.qp.qpn);
  EXPECT_EQ(std::memcmp(received() + 40, bench.bus.host(src.mem), 64), 0);
  EXPECT_EQ(std::memcmp(received() + 4096 + 40, bench.bus.host(src.mem), 64), 0);
  EXPECT_EQ(packets().size(), 1u) << "one copy goes to the wire";
  attach(b, prm::Opcode::DETACH_FROM_MCG);
  post_recv(b, {sge(dst, 200)});
  post(a, {.sges = {sge(src, 64)}, .av = to_group()});
  run();
  EXPECT_TRUE(recvs(b).empty());
}

TEST_F(DpMulticast, SenderThatBlocksLoopbackGetsNone) {
  base.block_lb_mc = true;
  setup();
  other_end_of_the_wire();
  for (End* e : {&a, &b}) {
    attach(*e);
    post_recv(*e, {sge(dst, 200)});
  }
  post(a, {.sges = {sge(src, 64)}, .av = to_group()});
  run();
  EXPECT_TRUE(recvs(a).empty());
  EXPECT_EQ(recvs(b).size(), 1u);
}

TEST_F(DpMulticast, FramesFromTheWireReachTheMembersWithTheRightQkey) {
  setup();
  attach(a);
  attach(b);
  post_recv(a, {sge(dst, 200)});
  post_recv(b, {sge(dst, 200)});
  wire::Packet p;
  p.net.sgid = Bench::ipv4_gid(10, 0, 0, 2);
  p.net.dgid = group;
  p.bth.opcode = wire::make_opcode(wire::Service::kUD, wire::Op::kSendOnly);
  p.bth.dest_qp = 0xffffff;
  p.deth = {kQkey, 0x77};
  std::vector<std::byte> data(10);
  p.payload = data;
  FakePort::Bytes out(wire::frame_size(p));
  wire::emit(p, out);
  bench.port.inject(out);
  run();
  EXPECT_EQ(recvs(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 1u);
  p.deth.qkey = 1;
  wire::emit(p, out);
  bench.port.inject(out);
  run();
  EXPECT_TRUE(recvs(a).empty());
  EXPECT_EQ(bench.hca.data_path().counters().rx_bad_qkey, 2u);
}

}  // namespace
}  // namespace uhca::hcatest
