// SPDX-License-Identifier: MIT
// Ethernet send queues, from WQE and doorbell to frames on the port and CQEs.
#include "hca/eth_harness.h"

namespace uhca::hcatest {
namespace {

using prm::CqeOpcode;
using prm::WqeOpcode;

constexpr unsigned kL3 = 1 << 6, kL4 = 1 << 7;

class EthSend : public EthTest {
 protected:
  void SetUp() override {
    EthTest::SetUp();
    set_local_loopback(false);
  }
  const std::vector<Bytes>& sent() { return bench.port.sent; }
};

TEST_F(EthSend, HeadersInlinedAndDataGathered) {
  RawQueueHandle sq = create_sq();
  Bytes frame = ipv4_frame(17, udp(counting(200)));
  post_send(sq, {.inlined = part(frame, 0, 18), .data = {part(frame, 18, 100), part(frame, 118, frame.size() - 118)}});
  ASSERT_EQ(sent().size(), 1u);
  EXPECT_EQ(sent()[0], frame);
  auto c = poll(sq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::REQ);
  EXPECT_EQ(c->get<prm::cqe64::qpn>(), sq.number);
  EXPECT_EQ(c->get<prm::cqe64::srqn_uidx>(), 0xabcu);
  EXPECT_EQ(c->get<prm::cqe64::wqe_counter>(), 0u);
  EXPECT_EQ(c->get<prm::cqe64::sop>(), static_cast<unsigned>(WqeOpcode::SEND));
}

// More frames than one turn sends: whoever looks before he drives must see that there is work.
TEST_F(EthSend, WhatIsLeftOfALongQueueIsSeen) {
  RawQueueHandle sq = create_sq(true, 8);
  pci::IdleWatch watch;
  bench.hca.set_idle_watch(&watch);
  bench.hca.drive(false);
  EXPECT_TRUE(watch.nothing_came());
  Bytes frame = ipv4_frame(17, udp(counting(60)));
  for (int i = 0; i < 200; ++i)
    post_send(sq, {.inlined = part(frame, 0, 18), .data = {part(frame, 18, frame.size() - 18)}, .signaled = false}, i == 199);
  EXPECT_LT(sent().size(), 200u);
  EXPECT_FALSE(watch.nothing_came());
  while (!watch.nothing_came()) bench.hca.drive(false);
  EXPECT_EQ(sent().size(), 200u);
}

TEST_F(EthSend, OnlySignaledOnesComplete) {
  RawQueueHandle sq = create_sq();
  Bytes frame = ipv4_frame(17, udp(counting(60)));
  for (int i = 0; i < 3; ++i)
    post_send(sq, {.inlined = part(frame, 0, 18), .data = {part(frame, 18, frame.size() - 18)}, .signaled = i == 2}, i == 2);
  EXPECT_EQ(sent().size(), 3u);
  auto c = poll(sq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<prm::cqe64::wqe_counter>(), 2u);
  EXPECT_FALSE(poll(sq));
}

TEST_F(EthSend, ShortFramesArePadded) {
  RawQueueHandle sq = create_sq();
  Bytes arp = hex("ff ff ff ff ff ff" + kMyMac + "08 06 0001 0800 06 04 0001");
  post_send(sq, {.inlined = arp});
  ASSERT_EQ(sent().size(), 1u);
  EXPECT_EQ(sent()[0], arp + Bytes(60 - arp.size()));
}

TEST_F(EthSend, ChecksumsAreFilledIn) {
  RawQueueHandle sq = create_sq();
  Bytes v4 = ipv4_frame(6, tcp(counting(101)));
  store_be<std::uint16_t>(v4.data() + 14 + 10, 0xdead);  // what software left there does not matter
  store_be<std::uint16_t>(v4.data() + 34 + 16, 0xbeef);
  post_send(sq, {.inlined = part(v4, 0, 18), .data = {part(v4, 18, v4.size() - 18)}, .cs_flags = kL3 | kL4});
  Bytes v6 = ipv6_frame(17, udp(counting(33)));
  post_send(sq, {.inlined = part(v6, 0, 18), .data = {part(v6, 18, v6.size() - 18)}, .cs_flags = kL3 | kL4});
  Bytes tagged = ipv4_frame(17, udp(counting(50)), "81 00 20 05");
  post_send(sq, {.inlined = part(tagged, 0, 18), .data = {part(tagged, 18, tagged.size() - 18)}, .cs_flags = kL4});
  ASSERT_EQ(sent().size(), 3u);
  EXPECT_EQ(plain_sum(part(sent()[0], 14, 20)), 0xffff);
  EXPECT_EQ(l4_check(sent()[0], 14, 34, 6), 0xffff);
  EXPECT_EQ(l4_check(sent()[1], 14, 54, 17, true), 0xffff);
  EXPECT_EQ(l4_check(sent()[2], 18, 38, 17), 0xffff);
}

TEST_F(EthSend, UdpChecksumZeroBecomesOnes) {
  RawQueueHandle sq = create_sq();
  // Data that makes the sum 0xffff without the field: found from the sum of the rest.
  Bytes f = ipv4_frame(17, udp(Bytes(2)));
  std::uint16_t rest = l4_check(f, 14, 34, 17);
  store_be<std::uint16_t>(f.data() + 42, static_cast<std::uint16_t>(0xffff - rest));
  post_send(sq, {.inlined = f, .cs_flags = kL4});
  ASSERT_EQ(sent().size(), 1u);
  EXPECT_EQ(u16(sent()[0], 40), 0xffffu);
}

TEST_F(EthSend, TsoCutsTcpIntoSegments) {
  RawQueueHandle sq = create_sq();
  Bytes data = counting(3000);
  Bytes head = part(ipv4_frame(6, tcp({}, "99")), 0, 54);  // CWR, ACK, PSH, FIN
  post_send(
      sq,
      {.op = WqeOpcode::TSO, .inlined = head, .data = {part(data, 0, 1111), part(data, 1111, 1889)}, .cs_flags = kL3 | kL4, .mss = 1400});
  ASSERT_EQ(sent().size(), 3u);
  Bytes got;
  for (unsigned i = 0; i < 3; ++i) {
    const Bytes& f = sent()[i];
    std::size_t payload = i < 2 ? 1400 : 200;
    ASSERT_EQ(f.size(), 54 + payload);
    EXPECT_EQ(u16(f, 16), 40 + payload);
    EXPECT_EQ(u16(f, 18), 0x1234 + i) << "identification";
    EXPECT_EQ(u32(f, 38), 100 + i * 1400) << "sequence number";
    EXPECT_EQ(u8(f, 47), i == 0 ? 0x90u : i == 1 ? 0x10u : 0x19u) << "flags: CWR first, FIN and PSH last";
    EXPECT_EQ(plain_sum(part(f, 14, 20)), 0xffff);
    EXPECT_EQ(l4_check(f, 14, 34, 6), 0xffff);
    got = got + part(f, 54, payload);
  }
  EXPECT_EQ(got, data);
  ASSERT_TRUE(poll(sq));
  EXPECT_FALSE(poll(sq)) << "one WQE, one CQE";
}

TEST_F(EthSend, TsoOfIpv6AndOfUdp) {
  RawQueueHandle sq = create_sq();
  Bytes data = counting(2500);
  post_send(sq, {.op = WqeOpcode::TSO, .inlined = ipv6_frame(6, tcp({})), .data = {data}, .cs_flags = kL3 | kL4, .mss = 1000});
  post_send(sq, {.op = WqeOpcode::TSO, .inlined = ipv4_frame(17, udp({})), .data = {data}, .cs_flags = kL3 | kL4, .mss = 1000});
  ASSERT_EQ(sent().size(), 6u);
  for (unsigned i = 0; i < 3; ++i) {
    std::size_t payload = i < 2 ? 1000 : 500;
    const Bytes& v6 = sent()[i];
    EXPECT_EQ(u16(v6, 18), 20 + payload);
    EXPECT_EQ(u32(v6, 58), 100 + i * 1000);
    EXPECT_EQ(l4_check(v6, 14, 54, 6, true), 0xffff);
    const Bytes& u = sent()[3 + i];
    EXPECT_EQ(u16(u, 38), 8 + payload) << "UDP length";
    EXPECT_EQ(l4_check(u, 14, 34, 17), 0xffff);
  }
}

TEST_F(EthSend, ABusyPortGoesOnWhereItStopped) {
  RawQueueHandle sq = create_sq();
  Bytes data = counting(5000);
  unsigned room = 2;
  bench.port.on_send = [&](Bytes&) { return room == 0 ? FakePort::Verdict::kBusy : (--room, FakePort::Verdict::kDeliver); };
  post_send(sq, {.op = WqeOpcode::TSO, .inlined = ipv4_frame(6, tcp({})), .data = {data}, .mss = 1000});
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_FALSE(poll(sq));
  EXPECT_NE(bench.hca.next_deadline(), kNever) << "somebody must come back";
  room = 1;
  bench.hca.drive(false);
  EXPECT_EQ(sent().size(), 3u);
  room = 100;
  bench.hca.drive(false);
  ASSERT_EQ(sent().size(), 5u);
  for (unsigned i = 0; i < 5; ++i) EXPECT_EQ(u32(sent()[i], 38), 100 + i * 1000);
  EXPECT_TRUE(poll(sq));
}

TEST_F(EthSend, VlanTagsAreInserted) {
  RawQueueHandle sq = create_sq();
  Bytes frame = ipv4_frame(17, udp(counting(60)));
  post_send(sq, {.data = {frame}, .cs_flags = kL3 | kL4, .insert = 0x8000, .tci = 0x6005});
  post_send(sq, {.data = {frame}, .insert = 0x8001, .tci = 0x0007});
  ASSERT_EQ(sent().size(), 2u);
  EXPECT_EQ(part(sent()[0], 12, 6), hex("81 00 60 05 08 00"));
  EXPECT_EQ(l4_check(sent()[0], 18, 38, 17), 0xffff);
  EXPECT_EQ(part(sent()[1], 12, 6), hex("88 a8 00 07 08 00"));
}

TEST_F(EthSend, NopsOnAQueueWithoutTis) {
  RawQueueHandle icosq = create_sq(false);
  post_send(icosq, {.op = WqeOpcode::NOP});
  auto c = poll(icosq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::REQ);
  EXPECT_EQ(c->get<prm::cqe64::sop>(), 0u);
  // But no packets.
  post_send(icosq, {.inlined = ipv4_frame(17, udp(counting(60)))});
  c = poll(icosq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::REQ_ERR);
  EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::LOCAL_QP_OP));
  EXPECT_TRUE(sent().empty());
}

TEST_F(EthSend, AFaultStopsTheQueueAndFlushesIt) {
  RawQueueHandle sq = create_sq();
  Bytes frame = ipv4_frame(17, udp(counting(100)));
  SendSpec good{.inlined = part(frame, 0, 18), .data = {part(frame, 18, frame.size() - 18)}};
  SendSpec bad = good;
  bad.lkey = 0xdead00;
  post_send(sq, good, false);
  post_send(sq, bad, false);
  post_send(sq, good, true);
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_EQ(poll(sq)->opcode, CqeOpcode::REQ);
  auto c = poll(sq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::REQ_ERR);
  EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::LOCAL_PROT));
  EXPECT_EQ(c->get<prm::err_cqe::qpn>(), sq.number);
  c = poll(sq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::WR_FLUSH));
  EXPECT_FALSE(poll(sq));
  // What comes later is flushed, too; after RST the queue starts anew.
  post_send(sq, good);
  ASSERT_TRUE(c = poll(sq));
  EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::WR_FLUSH));
  EXPECT_EQ(modify_sq(sq, 1, 0), S::BAD_RES_STATE) << "it is in ERR";
  EXPECT_EQ(modify_sq(sq, 3, 0), S::OK);
  sq.pi = 0;
  bench.bus.put_be32(sq.dbr + 4, 0);
  EXPECT_EQ(modify_sq(sq, 0, 1), S::OK);
  post_send(sq, good);
  EXPECT_EQ(sent().size(), 2u);
  EXPECT_EQ(poll(sq)->opcode, CqeOpcode::REQ);
}

TEST_F(EthSend, MalformedWqes) {
  struct Case {
    const char* what;
    std::function<void(std::uint8_t*, std::size_t&)> damage;
  };
  Bytes frame = ipv4_frame(17, udp(counting(30)));
  const Case cases[] = {
      {"opcode", [](std::uint8_t* w, std::size_t&) { prm::set<prm::wqe_ctrl_seg::opcode>(w, 0x10); }},
      {"inlined headers beyond the WQE", [](std::uint8_t* w, std::size_t&) { store_be<std::uint16_t>(w + 28, 400); }},
      {"no Ethernet segment", [](std::uint8_t* w, std::size_t&) { prm::set<prm::wqe_ctrl_seg::ds>(w, 1); }},
      {"no frame", [](std::uint8_t* w, std::size_t&) { store_be<std::uint16_t>(w + 28, 4); }},
      {"TSO without mss", [](std::uint8_t* w, std::size_t&) { prm::set<prm::wqe_ctrl_seg::opcode>(w, 0x0e); }},
      {"tunnel checksums", [](std::uint8_t* w, std::size_t&) { w[20] = 1 << 4; }},
      {"software parsing", [](std::uint8_t* w, std::size_t&) { w[21] = 1; }},
      {"another SQ", [](std::uint8_t* w, std::size_t&) { prm::set<prm::wqe_ctrl_seg::qpn>(w, 0x999); }},
      {"ds of 0", [](std::uint8_t* w, std::size_t&) { prm::set<prm::wqe_ctrl_seg::ds>(w, 0); }},
  };
  for (const Case& k : cases) {
    RawQueueHandle sq = create_sq();
    post_send(sq, {.inlined = frame}, false);
    std::size_t bytes = 0;
    k.damage(bench.bus.host(sq.buf), bytes);
    bench.hca.look_at_send_queue(sq.number);
    auto c = poll(sq);
    ASSERT_TRUE(c) << k.what;
    EXPECT_EQ(c->opcode, CqeOpcode::REQ_ERR) << k.what;
    EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::LOCAL_QP_OP)) << k.what;
  }
  EXPECT_TRUE(sent().empty());
}

TEST_F(EthSend, TooLongFramesAreLostAndComplete) {
  RawQueueHandle sq = create_sq();
  post_send(sq, {.inlined = ipv4_frame(17, udp({})), .data = {Bytes(9000)}});
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(poll(sq)->opcode, CqeOpcode::REQ);
  EXPECT_EQ(bench.hca.data_path().counters().tx_discards, 1u);
}

TEST_F(EthSend, ADestroyedQueueIsForgotten) {
  RawQueueHandle sq = create_sq();
  bench.port.on_send = [](Bytes&) { return FakePort::Verdict::kBusy; };
  post_send(sq, {.inlined = ipv4_frame(17, udp(counting(60)))});
  Request<prm::destroy_sq_in> d(Op::DESTROY_SQ);
  EXPECT_TRUE(bench.cmd.exec(d.set<prm::destroy_sq_in::sqn>(sq.number)).ok());
  bench.port.on_send = nullptr;
  bench.hca.drive(true);
  EXPECT_TRUE(sent().empty());
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
}

}  // namespace
}  // namespace uhca::hcatest
