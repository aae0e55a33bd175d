// SPDX-License-Identifier: MIT
// Refusals: keys, lengths, malformed packets and WQEs, and what flushes behind them (cases A4, A5, A7, A8, A11, A14, B5, E4, E8, E14).
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::CqeOpcode;
using prm::WqeOpcode;
using wire::Op;
using Synd = std::vector<unsigned>;

class DpError : public DpTest {
 protected:
  // Requests of A that reached the wire.
  unsigned requests() {
    unsigned n = 0;
    for (auto& p : packets()) n += wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest);
    return n;
  }
  unsigned last_nak() {
    unsigned s = 0;
    for (auto& p : packets())
      if (wire::op_of(p.bth.opcode) == Op::kAcknowledge && (p.aeth.syndrome & 0x60) == 0x60) s = p.aeth.syndrome;
    return s;
  }
};

enum class Bad { kOneByteBeyond, kVariant, kOtherPd, kDestroyed, kWrap, kNoKey, kBefore };
class DpLocalKey : public DpError, public ::testing::WithParamInterface<Bad> {};

TEST_P(DpLocalKey, SendGivesLocalProtectionAndNothingOnTheWire) {  // A7, A14
  connect();
  Region src = region(4096);
  Sge s = sge(src, 100);
  switch (GetParam()) {
    case Bad::kOneByteBeyond: s.addr = src.va + 4096 - 99; break;
    case Bad::kVariant: s.lkey ^= 1; break;
    case Bad::kOtherPd: s.lkey = bench.create_mkey_in_pd(bench.alloc_pd(), src.va, src.len, src.mem, {}); break;
    case Bad::kDestroyed: {
      Request<prm::destroy_mkey_in> d(prm::Opcode::DESTROY_MKEY);
      d.set<prm::destroy_mkey_in::mkey_index>(src.key >> 8);
      ASSERT_TRUE(bench.cmd.exec(d).ok());
      break;
    }
    case Bad::kWrap: s.addr = ~std::uint64_t{0} - 8; break;
    case Bad::kNoKey: s.lkey = 0xdead00; break;
    case Bad::kBefore: s.addr = src.va - 1; break;
  }
  post(a, {.sges = {sge(src, GetParam() == Bad::kDestroyed ? 0u : 50u), s}});
  post(a, {.op = WqeOpcode::NOP, .signaled = false});
  run();
  auto c = sends(a);
  ASSERT_EQ(syndromes(c), (Synd{0x04, 0x05}));
  EXPECT_TRUE(c[0].vendor == 0x51 || c[0].vendor == 0x52);
  EXPECT_EQ(c[0].opcode, CqeOpcode::REQ_ERR);
  EXPECT_EQ(c[0].wqe_opcode, static_cast<unsigned>(WqeOpcode::SEND));
  EXPECT_EQ(c[1].vendor, 0xf9u);
  EXPECT_EQ(state(a), hca::QpState::kErr);
  EXPECT_EQ(state(b), hca::QpState::kRts);
  EXPECT_EQ(requests(), 0u);
  EXPECT_EQ(bench.bus.faults(), 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, DpLocalKey,
                         ::testing::Values(Bad::kOneByteBeyond, Bad::kVariant, Bad::kOtherPd, Bad::kDestroyed, Bad::kWrap, Bad::kNoKey,
                                           Bad::kBefore));

TEST_F(DpError, SumsOfSegmentsDoNotOverflow) {  // A14
  connect();
  Region src = region(4096);
  post(a, {.sges = {{src.va, 1u << 30, src.key}, {src.va, 1u << 30, src.key}, {src.va, 1u << 30, src.key}, {src.va, 1u << 30, src.key}}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x04}));
  EXPECT_EQ(requests(), 0u);
}

TEST_F(DpError, ErrorWaitsForTheWorkBefore) {
  connect();
  Region src = region(8192), dst = region(8192);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8192)}, .raddr = dst.va, .rkey = dst.key}, false);
  post(a, {.sges = {{src.va, 10, 0xbad00}}}, false);
  post(a, {.sges = {sge(src, 8)}});
  run();
  auto c = sends(a);
  EXPECT_EQ(syndromes(c), (Synd{0, 0x04, 0x05}));
  EXPECT_TRUE(c[0].ok());
  EXPECT_EQ(c[1].wqe, 1u);
  EXPECT_EQ(c[2].wqe, 2u);
}

TEST_F(DpError, UnmappedMemoryIsAProtectionErrorNotACrash) {
  connect();
  Region src = region(8192), dst = region(8192);
  bench.bus.set_access(src.mem + 4096, 4096, FakeBus::kNone);
  post_recv(b, {sge(dst, 8192)});
  post(a, {.sges = {sge(src, 8192)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x04}));
  EXPECT_GT(bench.bus.faults(), 0u);
}

TEST_F(DpError, ReceiveBufferWithoutWriteRight) {  // A8a
  connect();
  Region src = region(64), dst = region(64, {.lw = false});
  post_recv(b, {sge(dst, 64)});
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 64)}});
  run();
  EXPECT_EQ(syndromes(recvs(b)), (Synd{0x04, 0x05}));
  auto c = sends(a);
  EXPECT_EQ(syndromes(c), (Synd{0x14}));
  EXPECT_EQ(last_nak(), 0x63u);
  EXPECT_EQ(state(a), hca::QpState::kErr);
  EXPECT_EQ(state(b), hca::QpState::kErr);
}

TEST_F(DpError, ReadIntoBufferWithoutWriteRight) {  // A8b
  connect();
  Region src = region(64, {.lw = false}), dst = region(64);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 64)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x04}));
}

TEST_F(DpError, SendLongerThanTheReceive) {  // A11
  connect();
  Region src = region(4096), dst = region(4096);
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 128)}});
  run();
  EXPECT_EQ(syndromes(recvs(b)), (Synd{0x01}));
  auto c = sends(a);
  EXPECT_EQ(syndromes(c), (Synd{0x12}));
  EXPECT_EQ(c[0].vendor, 0x8au);
  EXPECT_EQ(bench.bus.host(dst.mem)[64], 0);
}

enum class BadR { kVariant, kOtherPd, kBeyond, kWrap, kNoRight, kQpRight };
class DpRemoteKey : public DpError, public ::testing::WithParamInterface<std::tuple<BadR, WqeOpcode>> {};

TEST_P(DpRemoteKey, IsRefusedByTheResponder) {
  auto [bad, op] = GetParam();
  bool read = op == WqeOpcode::RDMA_READ, atomic = op == WqeOpcode::ATOMIC_FA;
  if (bad == BadR::kQpRight) (read ? path_b.rre : atomic ? path_b.rae : path_b.rwe) = false;
  connect();
  Region src = region(4096),
         dst = region(4096, bad == BadR::kNoRight ? Bench::Access{.rr = false, .rw = false, .a = false} : Bench::Access{});
  fill(src, 1);
  std::uint64_t va = dst.va;
  std::uint32_t key = dst.key, len = atomic ? 8 : 16;
  if (bad == BadR::kVariant) key ^= 1;
  if (bad == BadR::kOtherPd) key = bench.create_mkey_in_pd(bench.alloc_pd(), dst.va, dst.len, dst.mem, {});
  if (bad == BadR::kBeyond) va += atomic ? 4096 : 4096 - 15;
  if (bad == BadR::kWrap) va = ~std::uint64_t{7};
  async_events();
  post(a, {.op = op, .sges = {sge(src, len)}, .raddr = va, .rkey = key});
  post(a, {.sges = {sge(src, 8)}}, false);
  post(a, {.sges = {sge(src, 8)}, .signaled = false});
  run();
  auto c = sends(a);
  bool invalid = bad == BadR::kQpRight;
  EXPECT_EQ(syndromes(c), (Synd{invalid ? 0x12u : 0x13u, 0x05, 0x05}));  // A4
  EXPECT_EQ(c[0].vendor, invalid ? 0x8au : 0x88u);
  EXPECT_EQ(last_nak(), invalid ? 0x61u : 0x62u);
  EXPECT_EQ(state(b), hca::QpState::kErr);
  EXPECT_EQ(async_events(), (Synd{invalid ? 0x10u : 0x11u}));
  for (unsigned i = 0; i < 4096; ++i) ASSERT_EQ(bench.bus.host(dst.mem)[i], 0);
  EXPECT_EQ(bench.bus.faults(), 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, DpRemoteKey,
                         ::testing::Combine(::testing::Values(BadR::kVariant, BadR::kOtherPd, BadR::kBeyond, BadR::kWrap, BadR::kNoRight,
                                                              BadR::kQpRight),
                                            ::testing::Values(WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_READ, WqeOpcode::ATOMIC_FA)));

TEST_F(DpError, MisalignedAtomicIsAnInvalidRequest) {  // E8
  connect();
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va + 4, .rkey = dst.key, .swap_add = 1});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x12}));
}

TEST_F(DpError, AtomicNeedsEightLocalBytes) {  // E8; pin: the HCA reads the WQE's own byte count, and 4 is no atomic
  connect();
  Region src = region(64), dst = region(64);
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 4)}, .raddr = dst.va, .rkey = dst.key, .swap_add = 1});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x02}));
  EXPECT_EQ(requests(), 0u);
}

TEST_F(DpError, MtuOfTheEndsDiffers) {  // B5
  path_a.mtu = 5;
  connect();
  Region src = region(16384), dst = region(16384);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8192)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x12}));
}

TEST_F(DpError, MtuOfTheEndsDiffersForReads) {  // B5
  path_a.mtu = 5;
  connect();
  Region src = region(16384), dst = region(16384);
  post(b, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 8192)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(b)), (Synd{0x01}));
}

TEST_F(DpError, MessageBeyondTheLimit) {  // E14
  connect();
  // 2^30 + 1 bytes through a PA key: the memory behind need not exist, the length alone decides.
  std::uint32_t key = bench.create_pa_mkey();
  Region dst = region(64);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {{0x1000, (1u << 30) + 1, key}}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x01}));
  EXPECT_EQ(requests(), 0u);
}

// ---- malformed WQEs

struct RawWqe {
  const char* name;
  unsigned ds, opcode;
  std::uint32_t qpn_xor, first_word_of_data;
};
class DpMalformedWqe : public DpError, public ::testing::WithParamInterface<RawWqe> {};

TEST_P(DpMalformedWqe, IsALocalQpOperationError) {
  connect();
  const RawWqe& w = GetParam();
  std::uint8_t raw[64] = {};
  prm::set<prm::wqe_ctrl_seg::opcode>(raw, w.opcode);
  prm::set<prm::wqe_ctrl_seg::qpn>(raw, a.qp.qpn ^ w.qpn_xor);
  prm::set<prm::wqe_ctrl_seg::ds>(raw, w.ds);
  store_be<std::uint32_t>(raw + 16, w.first_word_of_data);
  post_raw(a, raw, 64, false);
  bench.hca.look_at_send_queue(a.qp.qpn);
  run();
  auto c = sends(a);
  EXPECT_EQ(syndromes(c), (Synd{0x02}));
  EXPECT_EQ(requests(), 0u);
}
INSTANTIATE_TEST_SUITE_P(Kinds, DpMalformedWqe,
                         ::testing::Values(RawWqe{"ds 0", 0, 0x0a, 0, 0}, RawWqe{"ds beyond the producer", 5, 0x0a, 0, 0},
                                           RawWqe{"ds 63", 63, 0x0a, 0, 0}, RawWqe{"opcode", 2, 0x77, 0, 0},
                                           RawWqe{"other QPN", 1, 0x0a, 3, 0}, RawWqe{"WRITE without address", 1, 0x08, 0, 0},
                                           RawWqe{"atomic without operands", 2, 0x12, 0, 0},
                                           RawWqe{"inline beyond the WQE", 2, 0x0a, 0, 0x8000000d},
                                           RawWqe{"inline of 2 GiB", 2, 0x0a, 0, 0xffffffff}));

TEST_F(DpError, ImpossibleProducerIndexIsIgnored) {
  connect();
  bench.bus.put_be32(a.qp.dbr + 4, 0x8000);
  bench.bus.put_be32(b.qp.dbr, 0x8000);
  bench.hca.look_at_send_queue(a.qp.qpn);
  run();
  EXPECT_TRUE(sends(a).empty());
  EXPECT_EQ(state(a), hca::QpState::kRts);
}

// ---- malformed packets (E4)

class DpScript : public DpError {
 protected:
  std::vector<std::byte> bytes(std::size_t n) { return std::vector<std::byte>(n, std::byte{0x5a}); }
  void SetUp() override {
    DpError::SetUp();
    connect();
    dst = region(16384);
    post_recv(b, {sge(dst, 16384)});
    w.reth = {dst.va, dst.key, 3000};
    async_events();
  }
  void expect_invalid() {
    run();
    EXPECT_EQ(last_nak(), 0x61u);
    EXPECT_EQ(state(b), hca::QpState::kErr);
  }
  Region dst;
  wire::Packet w;
};

TEST_F(DpScript, MiddleShorterThanMtu) {
  inject_to_b(w, Op::kSendFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kSendMiddle, 0x11, bytes(1020));
  expect_invalid();
  EXPECT_EQ(syndromes(recvs(b)), (Synd{0x12}));
}
TEST_F(DpScript, LastWithoutData) {
  inject_to_b(w, Op::kSendFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kSendLast, 0x11, {});
  expect_invalid();
}
TEST_F(DpScript, OnlyLongerThanMtu) {
  inject_to_b(w, Op::kSendOnly, 0x10, bytes(1028));
  expect_invalid();
}
TEST_F(DpScript, WriteShorterThanItsReth) {
  inject_to_b(w, Op::kWriteFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kWriteLast, 0x11, bytes(100));
  expect_invalid();
  EXPECT_EQ(async_events(), (Synd{0x10}));
}
TEST_F(DpScript, WriteLongerThanItsReth) {
  w.reth.length = 1000;
  inject_to_b(w, Op::kWriteFirst, 0x10, bytes(1024));
  expect_invalid();
}
TEST_F(DpScript, WriteOnlyThatIsNotItsReth) {
  inject_to_b(w, Op::kWriteOnly, 0x10, bytes(1000));
  expect_invalid();
}
TEST_F(DpScript, MiddleWithoutFirst) {
  inject_to_b(w, Op::kWriteMiddle, 0x10, bytes(1024));
  expect_invalid();
}
TEST_F(DpScript, FirstInsideOfAMessage) {
  inject_to_b(w, Op::kWriteFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kWriteFirst, 0x11, bytes(1024));
  expect_invalid();
}
TEST_F(DpScript, SendMiddleInsideOfAWrite) {
  inject_to_b(w, Op::kWriteFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kSendMiddle, 0x11, bytes(1024));
  expect_invalid();
}
TEST_F(DpScript, ReadInsideOfAMessage) {
  inject_to_b(w, Op::kWriteFirst, 0x10, bytes(1024));
  inject_to_b(w, Op::kReadRequest, 0x11, {});
  expect_invalid();
}
TEST_F(DpScript, ReadOfMoreThanTwoGiB) {
  w.reth.length = 0xffffffff;
  inject_to_b(w, Op::kReadRequest, 0x10, {});
  expect_invalid();
}
TEST_F(DpScript, MoreReadsThanAllowedAtATime) {
  bench.port.on_send = [](FakePort::Bytes&) { return FakePort::Verdict::kBusy; };
  w.reth.length = 3000;
  for (unsigned i = 0; i < 5; ++i) inject_to_b(w, Op::kReadRequest, 0x10 + i * 3, {});
  run();
  bench.port.on_send = nullptr;
  expect_invalid();
}
TEST_F(DpScript, ReadAskedForAgainWhileItIsAnsweredStartsOver) {
  unsigned sent = 0;
  bench.port.on_send = [&](FakePort::Bytes&) { return ++sent <= 2 ? FakePort::Verdict::kDrop : FakePort::Verdict::kBusy; };
  inject_to_b(w, Op::kReadRequest, 0x10, {});
  run();
  EXPECT_EQ(wire_log(), (std::vector<std::string>{"RC_READ_RESPONSE_FIRST@16", "RC_READ_RESPONSE_MIDDLE@17"}));
  // Only what is missing: from the second packet on.
  wire::Packet again = w;
  again.reth.va += 1024;
  again.reth.length -= 1024;
  inject_to_b(again, Op::kReadRequest, 0x11, {});
  run();
  std::size_t from = bench.port.sent.size();
  bench.port.on_send = [](FakePort::Bytes&) { return FakePort::Verdict::kDrop; };
  run();
  EXPECT_EQ(wire_log(from), (std::vector<std::string>{"RC_READ_RESPONSE_FIRST@17", "RC_READ_RESPONSE_LAST@18"}));
}
TEST_F(DpScript, FrameFromAnotherAddressIsDropped) {
  wire::Packet p = w;
  p.net.smac = p.net.dmac = bench.config.mac;
  p.net.sgid = Bench::ipv4_gid(10, 0, 0, 9);
  p.net.dgid = Bench::ipv4_gid(10, 0, 0, 1);
  p.bth.opcode = wire::make_opcode(wire::Service::kRC, Op::kSendOnly);
  p.bth.dest_qp = b.qp.qpn;
  p.bth.psn = 0x10;
  FakePort::Bytes out(wire::frame_size(p));
  out.resize(wire::emit(p, out));
  bench.port.inject(out);
  run();
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_TRUE(packets().empty());
  EXPECT_EQ(bench.hca.data_path().counters().rx_wrong_path, 1u);
}
TEST_F(DpScript, AnswersToNothingAreIgnored) {
  w.aeth = {0x62, 0};
  w.payload = {};
  for (Op op : {Op::kAcknowledge, Op::kReadResponseOnly, Op::kAtomicAcknowledge})
    for (std::uint32_t psn : {0u, 0x1fu, 0x20u, 0x21u, 0xffffffu}) inject_to_b(w, op, psn, {});
  run();
  EXPECT_EQ(state(b), hca::QpState::kRts);
  EXPECT_TRUE(sends(b).empty());
}
TEST_F(DpScript, RandomBytesDoNoHarm) {
  std::uint32_t x = 12345;
  auto random = [&] { return x = x * 1664525u + 1013904223u, x >> 8; };
  wire::Packet p = w;
  for (int i = 0; i < 20000; ++i) {
    p.reth = {dst.va + random() % 20000, random() % 4 ? dst.key : random(), random() % 3 ? random() % 20000 : random() << 10};
    p.atomic_eth = {dst.va + random() % 20000, dst.key, random(), random()};
    p.ieth = random() % 2 ? dst.key : random();
    p.aeth.syndrome = static_cast<std::uint8_t>(random());
    auto op = static_cast<Op>(random() % 24);
    if (wire::info(wire::make_opcode(wire::Service::kRC, op)).name == nullptr) continue;
    bool has_data = wire::has(wire::info(wire::make_opcode(wire::Service::kRC, op)).props, wire::Prop::kPayload);
    inject_to_b(p, op, 0x10 + random() % 8, bytes(has_data ? (random() % 3 ? 1024 : random() % 1100) : 0));
    run();
    if (state(b) == hca::QpState::kErr) {
      run_for(1'000'000);
      recvs(b);
      ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, b.qp.qpn).ok());
      b.rq_pi = b.sq_pi = 0;
      bench.bus.put_be32(b.qp.dbr, 0);
      bench.bus.put_be32(b.qp.dbr + 4, 0);
      bench.connect(b.qp, path_b);
      post_recv(b, {sge(dst, 16384)});
      post(b, {.op = WqeOpcode::RDMA_READ, .sges = {sge(dst, 5000)}, .raddr = dst.va, .rkey = dst.key});
    }
    recvs(b);
    sends(b);
  }
  EXPECT_EQ(bench.bus.faults(), 0u);
}

// ---- flushing

// Receives that are posted in the error state ring no doorbell: who sleeps for their completions depends on the engine's look at them, and
// that it is due must be seen after the command.
TEST_F(DpError, ACommandThatLeavesWorkIsSeen) {
  connect();
  pci::IdleWatch watch;
  bench.hca.set_idle_watch(&watch);
  bench.hca.drive(false);
  EXPECT_TRUE(watch.nothing_came());
  EXPECT_EQ(watch.deadline(), kNever);
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, a.qp.qpn).ok());
  EXPECT_TRUE(watch.closed());
  EXPECT_NE(bench.hca.next_deadline(), kNever);
}

TEST_F(DpError, ModifyToErrorFlushesBothQueuesAndLaterPosts) {  // A5
  connect();
  on_packet([](const wire::Packet&) { return FakePort::Verdict::kDrop; });
  Region src = region(64), dst = region(64);
  post(a, {.sges = {sge(src, 8)}});
  post(a, {.sges = {sge(src, 8)}, .signaled = false});
  post_recv(a, {sge(dst, 64)});
  post_recv(a, {sge(dst, 64)});
  run();
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, a.qp.qpn).ok());
  auto s = sends(a), r = recvs(a);
  EXPECT_EQ(syndromes(s), (Synd{5, 5}));
  EXPECT_EQ(syndromes(r), (Synd{5, 5}));
  EXPECT_EQ(s[1].wqe, 1u);
  EXPECT_EQ(r[1].wqe, 1u);
  post(a, {.sges = {sge(src, 8)}});
  EXPECT_EQ(syndromes(sends(a)), (Synd{5}));
  post_recv(a, {sge(dst, 64)});  // rings no doorbell
  EXPECT_LE(bench.hca.next_deadline(), bench.clock.now() + 2'000'000'000);
  run();
  EXPECT_EQ(syndromes(recvs(a)), (Synd{5}));
  run_for(1'000'000'000);
  EXPECT_TRUE(sends(a).empty());
  EXPECT_TRUE(recvs(a).empty());
}

TEST_F(DpError, ResetForgetsEverythingAndTheQpWorksAgain) {
  connect();
  on_packet([](const wire::Packet&) { return FakePort::Verdict::kDrop; });
  Region src = region(64), dst = region(64);
  post(a, {.sges = {sge(src, 8)}});
  run();
  for (End* e : {&a, &b}) {
    ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, e->qp.qpn).ok());
    e->sq_pi = e->rq_pi = 0;
    bench.bus.put_be32(e->qp.dbr, 0);
    bench.bus.put_be32(e->qp.dbr + 4, 0);
  }
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
  EXPECT_TRUE(sends(a).empty());
  bench.port.on_send = nullptr;
  bench.connect(a.qp, path_a);
  bench.connect(b.qp, path_b);
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 1u);
}

TEST_F(DpError, PeerInErrorDropsSilently) {
  path_a.ack_timeout = 10;
  path_a.retry = 1;
  connect();
  Region src = region(64);
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, b.qp.qpn).ok());
  post(a, {.sges = {sge(src, 8)}});
  run_for(1'000'000'000);
  EXPECT_EQ(syndromes(sends(a)), (Synd{0x15}));
  EXPECT_EQ(last_nak(), 0u);
}

}  // namespace
}  // namespace uhca::hcatest
