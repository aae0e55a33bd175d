// SPDX-License-Identifier: MIT
// Host packets (host_packet.h): what goes between two QPs of one host without frames must end as it would have with frames.
#include "device/hca/host_packet.h"

#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;

class HostPacket : public DpTest {
 protected:
  wire::PeerFunction near;

  HostPacket() : DpTest(true) {}
  void SetUp() override {
    DpTest::SetUp();
    near.pid = getpid();
    near.area = mmap(nullptr, pci::SharedArea::bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, bench.area->fd(), 0);
    ASSERT_NE(near.area, MAP_FAILED);
    near.number = bench.area->take_hold(getpid());
    near.access = wire::PeerFunction::Access::kYes;
    bench.area->range_states()[FakeBus::kRange] = 5;
    bench.port.near = &near;
  }
  void TearDown() override { munmap(near.area, pci::SharedArea::bytes()); }

  // What both ends see of a script.
  struct Outcome {
    std::vector<unsigned> a, b;          // syndromes of A's send and B's receive completions
    std::vector<std::uint32_t> lengths;  // of B's
    std::vector<unsigned> events;
    hca::QpState state_a{}, state_b{};
    std::uint32_t next_psn = 0, expected_psn = 0;
    std::uint64_t frames = 0;  // packets that the port has counted
    bool operator==(const Outcome&) const = default;
  };
  Outcome outcome() {
    Outcome o;
    o.a = syndromes(sends(a));
    for (const Wc& w : recvs(b)) o.b.push_back(w.syndrome), o.lengths.push_back(w.ok() ? w.byte_cnt : 0);
    o.events = async_events();
    o.state_a = state(a), o.state_b = state(b);
    o.next_psn = field<prm::qpc::next_send_psn>(a), o.expected_psn = field<prm::qpc::next_rcv_psn>(b);
    o.frames = bench.hca.data_path().counters().port_tx.all_packets();
    return o;
  }
  template <prm::Field F>
  std::uint32_t field(const End& e) {
    Request<prm::query_qp_in> q(prm::Opcode::QUERY_QP);
    q.set<prm::query_qp_in::qpn>(e.qp.qpn);
    Reply r = bench.cmd.exec(q, prm::query_qp_out::kBytes);
    return static_cast<std::uint32_t>(prm::get<F>(r.at<prm::query_qp_out::qpc>()));
  }
  // B's answer to a first message tells A that B reaches its memory.
  void acquaint() {
    Region r = region(64);
    post_recv(b, {sge(r, 64)});
    post(a, {.sges = {sge(r, 8)}});
    run();
    ASSERT_EQ(sends(a).size(), 1u);
    ASSERT_EQ(recvs(b).size(), 1u);
  }
  void move_to_error(End& e) { ASSERT_TRUE(bench.simple(prm::Opcode::TO_2ERR_QP, e.qp.qpn).ok()); }
  void destroy(End& e) {
    ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, e.qp.qpn).ok());
    for (const CqHandle* cq : {&e.scq, &e.rcq}) ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_CQ, cq->cqn).ok());
  }
  void memory_goes_away() { ++bench.area->range_states()[FakeBus::kRange]; }
};

TEST_F(HostPacket, EverySizeArrivesWithoutFrames) {
  connect();
  acquaint();
  Region src = region(1 << 21), dst = region(1 << 21, {}, 0x7e0000000000);
  std::uint8_t seed = 1;
  for (std::uint32_t n : {0u, 1u, 8u, 1023u, 1024u, 1025u, 3000u, 8191u, 8192u, 8193u, 65536u, 1u << 20, (1u << 21) - 5}) {
    SCOPED_TRACE(n);
    fill(src, ++seed);
    fill(dst, 0);
    post_recv(b, {sge(dst, 1 << 21)});
    post(a, {.sges = {sge(src, n)}});
    run();
    ASSERT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
    auto got = recvs(b);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_TRUE(got[0].ok());
    EXPECT_EQ(got[0].byte_cnt, n);
    EXPECT_TRUE(same(src, dst, n));
    EXPECT_FALSE(same(src, dst, 4, n)) << "written beyond the message";

    fill(dst, 0);
    post_recv(b, {});
    post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(src, n)}, .raddr = dst.va, .rkey = dst.key, .imm = n});
    run();
    ASSERT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
    got = recvs(b);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].imm, n);
    EXPECT_TRUE(same(src, dst, n));
  }
  EXPECT_TRUE(bench.port.sent.empty()) << "frames were sent";
  EXPECT_LE(bench.port.longest_record, hca::kMaxHostValue + 64);
}

TEST_F(HostPacket, LongPayloadIsFetchedFromScatteredMemoryIntoScatteredMemory) {
  connect();
  acquaint();
  Region src = region(1 << 20), dst = region(1 << 20, {}, 0x7e0000000000);
  fill(src, 3);
  bench.port.longest_record = 0;
  // Three pieces on each side, cut differently; the order of the pieces is the message's.
  post_recv(b, {sge(dst, 10000), sge(dst, 70001, 10000), sge(dst, 200000, 80001)});
  post(a, {.sges = {sge(src, 50000), sge(src, 3, 50000), sge(src, 90000, 50003)}});
  run();
  ASSERT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
  ASSERT_EQ(recvs(b).size(), 1u);
  EXPECT_TRUE(same(src, dst, 140003));
  EXPECT_LE(bench.port.longest_record, 32 + 4 + hca::kMaxFetchPieces * sizeof(hca::RangePiece)) << "the payload was carried";
  // More pieces than a host packet names: by value.
  Wr many;
  for (unsigned i = 0; i < 12; ++i) many.sges.push_back(sge(src, 1000, i * 2000));
  post_recv(b, {sge(dst, 20000)});
  post(a, many);
  run();
  ASSERT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
  ASSERT_EQ(recvs(b).size(), 1u);
  for (unsigned i = 0; i < 12; ++i)
    EXPECT_EQ(std::memcmp(bench.bus.host(src.mem) + i * 2000, bench.bus.host(dst.mem) + i * 1000, 1000), 0) << i;
}

// Right and wrong requests end the same with frames and with host packets: completions, events, states, PSNs, counted packets.
TEST_F(HostPacket, EndsAsFramesDo) {
  struct Script {
    const char* name;
    std::function<void()> play;
  };
  auto src = [&] { return region(1 << 17); };
  const Script scripts[] = {
      {"messages of several packets",
       [&] {
         Region s = src();
         for (std::uint32_t n : {1u, 5000u, 1u << 16}) post_recv(b, {sge(s, 1 << 17)}), post(a, {.sges = {sge(s, n)}});
       }},
      {"receive WQE too short",
       [&] {
         Region s = src();
         post_recv(b, {sge(s, 100)});
         post(a, {.sges = {sge(s, 101)}});
       }},
      {"receive WQE too short for a long message",
       [&] {
         Region s = src();
         post_recv(b, {sge(s, 20000)});
         post(a, {.sges = {sge(s, 1 << 16)}});
       }},
      {"no receive WQE, then one",
       [&] {
         Region s = src();
         post(a, {.sges = {sge(s, 3000)}});
         run();
         post_recv(b, {sge(s, 1 << 17)});
         pass(3);
       }},
      {"bad lkey at the receiver",
       [&] {
         Region s = src();
         Sge bad = sge(s, 100);
         bad.lkey ^= 1;
         post_recv(b, {bad});
         post(a, {.sges = {sge(s, 100)}});
       }},
      {"bad lkey at the sender",
       [&] {
         Region s = src();
         Sge bad = sge(s, 60000);
         bad.lkey ^= 1;
         post(a, {.sges = {bad}});
       }},
      {"bad rkey of a WRITE with immediate",
       [&] {
         Region s = src();
         post_recv(b, {});
         post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(s, 20000)}, .raddr = s.va, .rkey = s.key ^ 1});
       }},
      {"atomics",
       [&] {
         Region s = src();
         post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(s, 8, 64)}, .raddr = s.va, .rkey = s.key, .swap_add = 3});
         post(a, {.op = WqeOpcode::ATOMIC_CS, .sges = {sge(s, 8, 72)}, .raddr = s.va + 4, .rkey = s.key});
       }},
      {"immediate and invalidate of a key that does not allow it",
       [&] {
         Region s = src();
         post_recv(b, {sge(s, 100)}), post_recv(b, {sge(s, 100)});
         post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(s, 9)}, .imm = 77});
         post(a, {.op = WqeOpcode::SEND_INVAL, .sges = {sge(s, 9)}, .imm = s.key});
       }},
  };
  for (const Script& s : scripts) {
    SCOPED_TRACE(s.name);
    Outcome seen[2];
    for (int way = 0; way < 2; ++way) {
      bench.port.near = way == 0 ? nullptr : &near;
      std::uint64_t before = bench.port.records_sent;
      connect();
      acquaint();
      std::uint64_t frames = bench.hca.data_path().counters().port_tx.all_packets();
      s.play();
      run();
      seen[way] = outcome();
      seen[way].frames -= frames;
      EXPECT_EQ(bench.port.records_sent != before, way == 1);
    }
    EXPECT_EQ(seen[0].a, seen[1].a);
    EXPECT_EQ(seen[0].b, seen[1].b);
    EXPECT_EQ(seen[0].lengths, seen[1].lengths);
    EXPECT_EQ(seen[0].events, seen[1].events);
    EXPECT_EQ(seen[0].state_a, seen[1].state_a);
    EXPECT_EQ(seen[0].state_b, seen[1].state_b);
    EXPECT_EQ(seen[0].next_psn, seen[1].next_psn);
    // A message that is refused whole moves nothing on; of one that came in packets, those before the refusal did.
    if (seen[0].state_b != hca::QpState::kErr) {
      EXPECT_EQ(seen[0].expected_psn, seen[1].expected_psn);
    }
    // Acknowledges come in other numbers: one answers a whole run of packets.
    EXPECT_GE(seen[0].frames, seen[1].frames);
  }
}

// What is to be fetched is not there any more: the message comes by value, at no cost of a retry; where that fails, the sender is told why.
TEST_F(HostPacket, MemoryThatMovesIsSentByValue) {
  path_a.retry = 0;
  connect();
  acquaint();
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  fill(src, 9);
  bench.port.on_record = [&](FakePort::Bytes&) {
    if (bench.port.records_sent == 3) memory_goes_away();  // 1, 2: acquaint()
  };
  post_recv(b, {sge(dst, 1 << 17)});
  post(a, {.sges = {sge(src, 1 << 17)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
  EXPECT_EQ(syndromes(recvs(b)), std::vector<unsigned>{0});
  EXPECT_TRUE(same(src, dst, 1 << 17));
  EXPECT_GT(bench.port.longest_record, 1024u) << "nothing was carried";
}

// The sender has failed while its packet lies unread: its memory is its program's again. Nothing of the message may arrive.
TEST_F(HostPacket, AFailedSendersMemoryIsNotFetched) {
  connect();
  acquaint();
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  fill(src, 9);
  bench.port.hold_records = true;
  post_recv(b, {sge(dst, 1 << 17)});
  post(a, {.sges = {sge(src, 100000)}});
  run();
  ASSERT_FALSE(bench.port.records.empty());
  move_to_error(a);
  fill(src, 77);
  bench.port.hold_records = false;
  run();
  EXPECT_EQ(syndromes(sends(a)).size(), 1u);
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_FALSE(same(src, dst, 64)) << "memory of the program was read";
}

// A receiver that stands still for longer than the sender's timeout, and then runs again, takes every message once.
TEST_F(HostPacket, RepeatedWhileTheReceiverStandsStill) {
  connect();
  acquaint();
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  fill(src, 9);
  for (std::uint32_t n : {100u, 8192u, 100000u}) {
    SCOPED_TRACE(n);
    bench.port.hold_records = true;
    post_recv(b, {sge(dst, 1 << 17)});
    post_recv(b, {sge(dst, 1 << 17)});
    post(a, {.sges = {sge(src, n)}});
    pass(2);
    EXPECT_GT(bench.port.records.size(), 1u) << "nothing was sent again";
    bench.port.hold_records = false;
    run();
    EXPECT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
    EXPECT_EQ(recvs(b).size(), 1u);
    EXPECT_TRUE(same(src, dst, n));
    post(a, {.sges = {sge(src, 1)}});  // takes the second receive WQE
    run();
    EXPECT_EQ(sends(a).size(), 1u);
    EXPECT_EQ(recvs(b).size(), 1u);
  }
}

TEST_F(HostPacket, NoRoomIsWaitedFor) {
  connect();
  acquaint();
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  fill(src, 9);
  bench.port.record_room = 1;
  for (unsigned i = 0; i < 8; ++i) post_recv(b, {sge(dst, 1 << 17)});
  for (unsigned i = 0; i < 8; ++i) post(a, {.sges = {sge(src, 8192)}});
  pass(40);
  EXPECT_EQ(sends(a).size(), 8u);
  EXPECT_EQ(recvs(b).size(), 8u);
  EXPECT_TRUE(same(src, dst, 8192));
  EXPECT_GT(bench.hca.data_path().counters().tx_busy, 0u);
}

// A peer that dies, or a trace that begins, at any moment: the next packet is a frame of at most the path MTU.
TEST_F(HostPacket, TheWayEndsAtAnyMoment) {
  connect();
  acquaint();
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  std::uint8_t seed = 9;
  for (std::uint32_t n : {100u, 8192u, 100000u}) {
    for (unsigned asked = 0; asked < 12; ++asked) {
      SCOPED_TRACE(::testing::Message() << n << " bytes, gone when asked for the time " << asked);
      fill(src, ++seed);
      bench.port.asked_before_gone = asked;
      post_recv(b, {sge(dst, 1 << 17)});
      post(a, {.sges = {sge(src, n)}});
      run();
      pass(2);
      EXPECT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
      EXPECT_EQ(syndromes(recvs(b)), std::vector<unsigned>{0});
      EXPECT_TRUE(same(src, dst, n));
      bench.port.asked_before_gone = ~0u;
    }
  }
  for (const auto& frame : bench.port.sent) EXPECT_LE(frame.size(), 1024u + 100) << "longer than the path MTU";
}

TEST_F(HostPacket, AnotherPathIsDropped) {
  connect();
  acquaint();
  Region r = region(4096);
  bench.port.on_record = [&](FakePort::Bytes& x) { x[0] ^= std::byte{1}; };
  post_recv(b, {sge(r, 64)});
  post(a, {.sges = {sge(r, 8)}});
  run();
  EXPECT_TRUE(recvs(b).empty());
  EXPECT_EQ(bench.hca.data_path().counters().rx_wrong_path, 1u);
}

// Whatever a peer writes into its records: nothing breaks, and a connection beside it works on.
TEST_F(HostPacket, DamagedRecords) {
  connect();
  End c = a, d = b;  // stays whole
  std::mt19937 g(1);
  Region src = region(1 << 17), dst = region(1 << 17, {}, 0x7e0000000000);
  for (unsigned round = 0; round < 300; ++round) {
    a = make_end(), b = make_end();
    path_a.remote_qpn = b.qp.qpn, path_b.remote_qpn = a.qp.qpn;
    bench.connect(a.qp, path_a), bench.connect(b.qp, path_b);
    bench.port.on_record = nullptr;
    acquaint();
    bench.port.on_record = [&](FakePort::Bytes& x) {
      for (unsigned n = 1 + g() % 3; n > 0; --n) {
        if (g() % 4 == 0) {
          x.resize(g() % (x.size() + 40));
        } else if (!x.empty()) {
          x[g() % std::min<std::size_t>(x.size(), g() % 2 ? 32 : 256)] = static_cast<std::byte>(g() % 3 ? g() : 0xff);
        }
      }
    };
    post_recv(b, {sge(dst, 1 << 17)});
    const std::uint32_t sizes[] = {0, 8, 3000, 8192, 60000};
    switch (g() % 3) {
      case 0: post(a, {.sges = {sge(src, sizes[g() % 5])}}); break;
      case 1: post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(src, sizes[g() % 5])}, .raddr = dst.va, .rkey = dst.key}); break;
      default: post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key}); break;
    }
    run();
    pass(1);
    destroy(a), destroy(b);
  }
  EXPECT_GT(bench.hca.data_path().counters().rx_malformed, 20u);
  bench.port.on_record = nullptr;
  bench.port.records.clear();
  std::swap(a, c), std::swap(b, d);
  fill(src, 42);
  post_recv(b, {sge(dst, 1 << 17)});
  post(a, {.sges = {sge(src, 60000)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
  EXPECT_TRUE(same(src, dst, 60000));
}

}  // namespace
}  // namespace uhca::hcatest
