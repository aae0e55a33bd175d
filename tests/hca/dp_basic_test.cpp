// SPDX-License-Identifier: MIT
// Every RC operation, at sizes around the borders of the path MTU, from doorbell to CQE.
#include "device/hca/counters.h"
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::CqeOpcode;
using prm::WqeOpcode;

constexpr std::uint32_t kMtu = 1024;

class DpBasic : public DpTest {};
class DpSizes : public DpTest, public ::testing::WithParamInterface<std::uint32_t> {};

TEST_F(DpBasic, SendCompletesOnBothSides) {
  connect();
  Region src = region(256), dst = region(256);
  fill(src, 1);
  std::uint16_t r = post_recv(b, {sge(dst, 256)});
  std::uint16_t w = post(a, {.sges = {sge(src, 100)}, .solicited = true});
  run();
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].opcode, CqeOpcode::REQ);
  EXPECT_EQ(s[0].wqe_opcode, static_cast<unsigned>(WqeOpcode::SEND));
  EXPECT_EQ(s[0].wqe, w);
  EXPECT_EQ(s[0].qpn, a.qp.qpn);
  EXPECT_EQ(s[0].uidx, a.qp.spec.user_index);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND);
  EXPECT_EQ(v[0].byte_cnt, 100u);
  EXPECT_EQ(v[0].wqe, r);
  EXPECT_EQ(v[0].qpn, b.qp.qpn);
  EXPECT_EQ(v[0].uidx, b.qp.spec.user_index);
  EXPECT_TRUE(v[0].se);
  EXPECT_TRUE(same(src, dst, 100));
  EXPECT_EQ(bench.bus.host(dst.mem)[100], 0);
  EXPECT_EQ(bench.bus.faults(), 0u);
  EXPECT_EQ(wire_log(), (std::vector<std::string>{"RC_SEND_ONLY@16", "RC_ACKNOWLEDGE@16"}));
}

// With a v1 source GID the QP speaks RoCE v1, and only that.
TEST_F(DpBasic, RoceVersionFollowsTheSourceGid) {
  wire::Gid local = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 1};
  bench.set_roce_address(4, local, true, 0);
  bench.set_roce_address(5, local, true, 2);
  path_a.dgid = path_b.dgid = local;
  path_a.sgid_index = path_b.sgid_index = 4;
  path_a.hop_limit = 1;
  connect();
  Region src = region(3000), dst = region(3000);
  fill(src, 9);
  post_recv(b, {sge(dst, 3000)});
  post(a, {.sges = {sge(src, 3000)}});
  run();
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok());
  ASSERT_EQ(v.size(), 1u);
  EXPECT_TRUE(same(src, dst, 3000));
  auto sent = packets();
  ASSERT_EQ(sent.size(), 4u);  // 3 of the message, 1 acknowledge
  for (auto& p : sent) {
    EXPECT_TRUE(p.net.roce_v1);
    EXPECT_EQ(p.net.sgid, local);
  }
  EXPECT_EQ(sent[0].net.hop_limit, 1);

  // The same GIDs, but one end's are RoCE v2: each end drops the other's frames.
  path_b.sgid_index = 5;
  path_a.ack_timeout = 8;
  path_a.retry = 1;
  connect();
  post_recv(b, {sge(dst, 3000)});
  post(a, {.sges = {sge(src, 3000)}});
  run_for(1'000'000'000);
  s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].syndrome, static_cast<unsigned>(prm::CqeSyndrome::TRANSPORT_RETRY_EXC));
  EXPECT_TRUE(recvs(b).empty());
}

TEST_P(DpSizes, SendWriteReadMoveTheBytes) {
  connect();
  std::uint32_t n = GetParam();
  Region src = region(n + 64, {}, 0x7f0000000123), dst = region(n + 64, {}, 0x7e0000000ffd);
  fill(src, 3);
  std::uint32_t packets_each = std::max(1u, (n + kMtu - 1) / kMtu);
  // SEND, scattered over two segments of different length.
  std::uint32_t half = n / 3;
  post_recv(b, {sge(dst, half), sge(dst, n - half + 10, half)});
  post(a, {.sges = {sge(src, n / 2), sge(src, n - n / 2, n / 2)}});
  run();
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 1u);
  ASSERT_TRUE(s[0].ok());
  ASSERT_EQ(v.size(), 1u);
  ASSERT_TRUE(v[0].ok()) << v[0].syndrome;
  EXPECT_EQ(v[0].byte_cnt, n);
  EXPECT_TRUE(same(src, dst, n));
  std::size_t data = 0;
  for (auto& p : packets()) data += wire::has(wire::info(p.bth.opcode).props, wire::Prop::kSend);
  EXPECT_EQ(data, packets_each);

  // WRITE.
  std::memset(bench.bus.host(dst.mem), 0, dst.len);
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, n)}, .raddr = dst.va, .rkey = n == 0 ? 0 : dst.key});
  run();
  s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  ASSERT_TRUE(s[0].ok()) << s[0].syndrome;
  EXPECT_TRUE(same(src, dst, n));
  EXPECT_EQ(bench.bus.host(dst.mem)[n], 0);
  EXPECT_TRUE(recvs(b).empty());

  // READ: the bytes of B's region come to A's.
  fill(dst, 77);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, n)}, .raddr = dst.va, .rkey = n == 0 ? 0 : dst.key});
  run();
  s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  ASSERT_TRUE(s[0].ok()) << s[0].syndrome;
  EXPECT_EQ(s[0].byte_cnt, n);
  EXPECT_TRUE(same(src, dst, n));
  // One PSN per packet of every message.
  Request<prm::query_qp_in> q(prm::Opcode::QUERY_QP);
  q.set<prm::query_qp_in::qpn>(a.qp.qpn);
  Reply r = bench.cmd.exec(q, prm::query_qp_out::kBytes);
  EXPECT_EQ(prm::get<prm::qpc::next_send_psn>(r.at<prm::query_qp_out::qpc>()), 0x10 + 3 * packets_each);
  EXPECT_EQ(bench.bus.faults(), 0u);
}

INSTANTIATE_TEST_SUITE_P(MtuBorders, DpSizes,
                         ::testing::Values(0, 1, 3, 4, 63, 64, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 10 * 1024 + 1, 300 * 1024 + 7));

TEST_F(DpBasic, ImmediateTravelsBitExactAndConsumesOneReceive) {  // C8
  connect();
  Region src = region(512), dst = region(512);
  fill(src, 9);
  post_recv(b, {});
  post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(src, 300)}, .raddr = dst.va, .rkey = dst.key, .imm = 0x89abcdef});
  run();
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_WR_IMM);
  EXPECT_EQ(v[0].byte_cnt, 300u);
  EXPECT_EQ(v[0].imm, 0x89abcdefu);
  EXPECT_TRUE(same(src, dst, 300));
  ASSERT_EQ(sends(a).size(), 1u);

  // The next one finds no receive WQE: RNR, until one is posted.
  post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .sges = {sge(src, 440)}, .raddr = dst.va, .rkey = dst.key, .imm = 5});
  run();
  EXPECT_TRUE(sends(a).empty());
  EXPECT_EQ(prm::get<hca::Qc::rnr_nak_retry_err>(bench.hca.data_path().counters().totals.raw.data()), 1u);
  post_recv(b, {});
  run_for(10'000'000);
  EXPECT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 1u);

  post_recv(b, {sge(dst, 512)});
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 8)}, .imm = 0x01020304});
  run();
  v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].opcode, CqeOpcode::RESP_SEND_IMM);
  EXPECT_EQ(v[0].imm, 0x01020304u);
}

TEST_F(DpBasic, ZeroLengthOperationsUseOnePsnAndNoKey) {  // C7
  connect();
  post_recv(b, {});
  post_recv(b, {});
  post_recv(b, {});
  post(a, {});
  post(a, {.sges = {{0, 0, 0xdead}}});
  post(a, {.op = WqeOpcode::RDMA_WRITE});
  post(a, {.op = WqeOpcode::RDMA_WRITE_IMM, .imm = 7});
  post(a, {.op = WqeOpcode::RDMA_READ});
  run();
  auto s = sends(a), v = recvs(b);
  ASSERT_EQ(s.size(), 5u);
  for (auto& w : s) EXPECT_TRUE(w.ok()) << w.syndrome;
  ASSERT_EQ(v.size(), 3u);
  for (auto& w : v) EXPECT_EQ(w.byte_cnt, 0u);
  std::vector<std::uint32_t> psns;
  for (auto& p : packets())
    if (p.bth.dest_qp == b.qp.qpn) psns.push_back(p.bth.psn);
  EXPECT_EQ(psns, (std::vector<std::uint32_t>{16, 17, 18, 19, 20}));
}

TEST_F(DpBasic, AtomicsReturnWhatWasThere) {
  connect();
  Region src = region(64), dst = region(64);
  std::uint64_t v = 100;
  std::memcpy(bench.bus.host(dst.mem) + 8, &v, 8);
  auto local = [&] {
    std::uint64_t x;
    std::memcpy(&x, bench.bus.host(src.mem), 8);
    return bench.hca.atomics_in_host_order() ? x : byteswap(x);
  };
  auto remote = [&] {
    std::uint64_t x;
    std::memcpy(&x, bench.bus.host(dst.mem) + 8, 8);
    return x;
  };
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8)}, .raddr = dst.va + 8, .rkey = dst.key, .swap_add = 5});
  run();
  auto s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  ASSERT_TRUE(s[0].ok()) << s[0].syndrome;
  EXPECT_EQ(local(), 100u);
  EXPECT_EQ(remote(), 105u);
  post(a, {.op = WqeOpcode::ATOMIC_CS, .sges = {sge(src, 8)}, .raddr = dst.va + 8, .rkey = dst.key, .swap_add = 1, .compare = 105});
  run();
  EXPECT_EQ(local(), 105u);
  EXPECT_EQ(remote(), 1u);
  post(a, {.op = WqeOpcode::ATOMIC_CS, .sges = {sge(src, 8)}, .raddr = dst.va + 8, .rkey = dst.key, .swap_add = 9, .compare = 105});
  run();
  EXPECT_EQ(local(), 1u);
  EXPECT_EQ(remote(), 1u);
  EXPECT_EQ(sends(a).size(), 2u);
}

TEST_F(DpBasic, InlineDataIsTakenFromTheWqe) {  // C5
  connect();
  Region dst = region(512);
  std::vector<std::uint8_t> data(200);
  std::iota(data.begin(), data.end(), std::uint8_t{1});
  post_recv(b, {sge(dst, 512)});
  post(a, {.inl = data});
  run();
  ASSERT_EQ(sends(a).size(), 1u);
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].byte_cnt, 200u);
  EXPECT_EQ(std::memcmp(bench.bus.host(dst.mem), data.data(), 200), 0);
}

TEST_F(DpBasic, WqesWrapAtTheRingsEnd) {
  connect();
  Region dst = region(4096);
  // WQEs of 4 basic blocks (200 bytes inline) in a ring of 64, offset by one: some lie across the end.
  post(a, {.op = WqeOpcode::NOP});
  run();
  for (unsigned i = 0; i < 40; ++i) {
    std::vector<std::uint8_t> data(200, static_cast<std::uint8_t>(i + 1));
    post(a, {.op = WqeOpcode::RDMA_WRITE, .inl = data, .raddr = dst.va + i * 8, .rkey = dst.key});
    run();
    ASSERT_EQ(bench.bus.host(dst.mem)[i * 8], i + 1);
    ASSERT_EQ(bench.bus.host(dst.mem)[i * 8 + 199], i + 1);
  }
  auto s = sends(a);
  ASSERT_EQ(s.size(), 41u);
  for (auto& w : s) EXPECT_TRUE(w.ok());
}

TEST_F(DpBasic, LostDoorbellsAreMadeUpByTheRecord) {
  connect();
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 3; ++i) post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 8)}}, false);
  post(a, {.sges = {sge(src, 8)}}, false);
  run();
  EXPECT_TRUE(sends(a).empty());
  bench.hca.look_at_uar(bench.uar);
  run();
  EXPECT_EQ(sends(a).size(), 2u);
  // Rung twice: nothing is sent twice.
  post(a, {.sges = {sge(src, 8)}});
  bench.hca.look_at_send_queue(a.qp.qpn);
  bench.hca.look_at_send_queue(a.qp.qpn);
  run();
  EXPECT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(recvs(b).size(), 3u);
}

TEST_F(DpBasic, UnsignaledWorkCompletesSilently) {
  connect();
  Region src = region(64), dst = region(64);
  for (int i = 0; i < 5; ++i)
    post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .signaled = i == 4});
  run();
  auto s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_EQ(s[0].wqe, 4u);
}

TEST_F(DpBasic, ReadsInFlightAreLimitedAndFenceWaits) {
  path_a.log_sra_max = 1;  // two
  connect();
  Region src = region(8192), dst = region(8192);
  on_packet([&](const wire::Packet& p) {
    return wire::has(wire::info(p.bth.opcode).props, wire::Prop::kReadResponse) ? FakePort::Verdict::kDrop : FakePort::Verdict::kDeliver;
  });
  for (int i = 0; i < 4; ++i) post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 100)}, .raddr = dst.va, .rkey = dst.key});
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key, .fence = true});
  run();
  auto count = [&](wire::Op op) {
    unsigned n = 0;
    for (auto& p : packets()) n += wire::op_of(p.bth.opcode) == op;
    return n;
  };
  EXPECT_EQ(count(wire::Op::kReadRequest), 2u);
  EXPECT_EQ(count(wire::Op::kWriteOnly), 0u);
  bench.port.on_send = nullptr;
  run_for(500'000'000);
  EXPECT_EQ(sends(a).size(), 5u);
  EXPECT_EQ(count(wire::Op::kWriteOnly), 1u);
}

TEST_F(DpBasic, BusyPortIsRetriedAtTheNextDrive) {
  connect();
  Region src = region(64 * 1024), dst = region(64 * 1024);
  fill(src, 5);
  unsigned credit = 0;
  bench.port.on_send = [&](FakePort::Bytes&) {
    if (credit == 0) return FakePort::Verdict::kBusy;
    --credit;
    return FakePort::Verdict::kDeliver;
  };
  post(a, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 20000)}, .raddr = dst.va, .rkey = dst.key});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 20000, 32768)}, .raddr = dst.va, .rkey = dst.key});
  for (int i = 0; i < 300; ++i) {
    credit = 1;
    EXPECT_LE(bench.hca.next_deadline(), bench.clock.now() + 2'000'000'000);
    bench.hca.drive(false);
  }
  auto s = sends(a);
  ASSERT_EQ(s.size(), 2u);
  EXPECT_TRUE(s[0].ok() && s[1].ok());
  EXPECT_TRUE(same(src, dst, 20000));
  EXPECT_EQ(std::memcmp(bench.bus.host(src.mem), bench.bus.host(src.mem) + 32768, 20000), 0);
  EXPECT_GT(bench.hca.data_path().counters().tx_busy, 0u);
}

TEST_F(DpBasic, CommunicationEstablishedIsReportedInRtr) {
  a = make_end();
  b = make_end();
  path_a.remote_qpn = b.qp.qpn;
  path_b.remote_qpn = a.qp.qpn;
  bench.connect(a.qp, path_a);
  ASSERT_TRUE(bench.to_init(b.qp, path_b).ok());
  ASSERT_TRUE(bench.to_rtr(b.qp, path_b).ok());
  async_events();
  Region src = region(64), dst = region(64);
  post_recv(b, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 8)}});
  run();
  EXPECT_EQ(sends(a).size(), 1u);
  EXPECT_EQ(async_events(), (std::vector<unsigned>{0x02}));
}

// B19: hardware sets BTH.MigReq in all that it sends; nobody insists on it.
TEST_F(DpBasic, MigReqIsSetAndNotAskedFor) {
  connect();
  Region src = region(4096), dst = region(4096);
  fill(src, 1);
  bench.port.on_send = [this](FakePort::Bytes& bytes) {
    wire::Packet p;
    EXPECT_EQ(wire::parse(bytes, p), wire::ParseError::kNone);
    EXPECT_TRUE(p.bth.mig_req);
    p.bth.mig_req = false;
    FakePort::Bytes changed(wire::frame_size(p));
    changed.resize(wire::emit(p, changed));
    bench.port.inject(changed);
    return FakePort::Verdict::kDrop;
  };
  post_recv(b, {sge(dst, 4096)});
  post(a, {.sges = {sge(src, 3000)}});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 1000)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_EQ(syndromes(sends(a)), (std::vector<unsigned>{0, 0}));
  EXPECT_EQ(recvs(b).size(), 1u);
}

TEST(Traffic, SizeClassesAreTheTables) {
  for (std::size_t size = 0; size < 20000; ++size) {
    auto want = static_cast<std::size_t>(std::lower_bound(hca::Traffic::kSizes.begin(), hca::Traffic::kSizes.end(), size) -
                                         hca::Traffic::kSizes.begin());
    ASSERT_EQ(hca::Traffic::size_class(size), want) << size;
  }
}

}  // namespace
}  // namespace uhca::hcatest
