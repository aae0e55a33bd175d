// SPDX-License-Identifier: MIT
// Forms of CQEs: data inside (32 and 64 bytes), collapsed queues, resizing under traffic.
#include <array>

#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Syndromes = std::vector<unsigned>;

class DpCqe : public DpTest {
 protected:
  Region src, dst;
  void setup(unsigned size, unsigned cs_req, unsigned cs_res) {
    cqe_size = size;
    base.cs_req = cs_req;
    base.cs_res = cs_res;
    connect();
    src = region(4096);
    dst = region(4096);
    fill(src, 5);
  }
  const std::uint8_t* entry(const CqHandle& cq, unsigned i) { return bench.bus.host(cq.buf) + i * cq.cqe_size; }
};

TEST_F(DpCqe, ShortReceivesLieInTheCqe) {
  setup(64, 0x11, 1);
  post_recv(b, {sge(dst, 64)});
  post_recv(b, {sge(dst, 64)});
  post_recv(b, {sge(dst, 16)});
  post(a, {.sges = {sge(src, 32)}});
  run();
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].format, 1u);
  EXPECT_EQ(v[0].byte_cnt, 32u);
  EXPECT_EQ(std::memcmp(entry(b.rcq, 0), bench.bus.host(src.mem), 32), 0);
  EXPECT_EQ(bench.bus.host(dst.mem)[0], 0) << "not in memory";
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 33)}, .imm = 3});
  run();
  v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].format, 0u);
  EXPECT_TRUE(same(src, dst, 33));
  // Too long is too long.
  post(a, {.sges = {sge(src, 20)}});
  run();
  EXPECT_EQ(syndromes(recvs(b)), (Syndromes{0x01}));
}

TEST_F(DpCqe, LargeEntriesTakeSixtyFourBytes) {
  setup(128, 0x22, 2);
  post_recv(b, {sge(dst, 64)});
  post(a, {.op = WqeOpcode::SEND_IMM, .sges = {sge(src, 64)}, .imm = 9});
  run();
  auto v = recvs(b);
  ASSERT_EQ(v.size(), 1u);
  EXPECT_EQ(v[0].format, 2u);
  EXPECT_EQ(v[0].imm, 9u);
  EXPECT_EQ(std::memcmp(entry(b.rcq, 0), bench.bus.host(src.mem), 64), 0);
}

// The CQ's memory starts half an entry before the end of a page: data in one page, the CQE64 in the next, which lies elsewhere.
TEST_F(DpCqe, HalvesOfALargeEntryInTwoPages) {
  setup(128, 0x22, 2);
  CqHandle h;
  auto req = bench.cq_request(2, h, 128);
  std::array<pci::DmaAddr, 2> pages{bench.bus.alloc(4096), 0};
  bench.bus.alloc(4096);
  pages[1] = bench.bus.alloc(4096);
  Request<prm::create_cq_in> two(prm::Opcode::CREATE_CQ, 0, 16);
  std::copy_n(req.bytes.begin(), prm::create_cq_in::kBytes, two.bytes.begin());
  prm::set<prm::cqc::page_offset>(two.at<prm::create_cq_in::cq_context>(), 63);
  for (std::size_t i = 0; i < 2; ++i) store_be<std::uint64_t>(two.bytes.data() + prm::create_cq_in::kBytes + i * 8, pages[i]);
  Reply out = bench.cmd.exec(two);
  ASSERT_TRUE(out.ok());
  h.cqn = out.get<prm::create_cq_out::cqn>();
  QpSpec s = b.qp.spec;
  s.recv_cqn = h.cqn;
  End c = b;
  c.qp = bench.create_qp(s);
  c.rq_pi = 0;
  PathSpec pa = path_a, pc = path_b;
  pa.remote_qpn = c.qp.qpn;
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, a.qp.qpn).ok());
  bench.connect(a.qp, pa);
  bench.connect(c.qp, pc);
  post_recv(c, {sge(dst, 64)});
  post(a, {.sges = {sge(src, 64)}});
  run();
  EXPECT_EQ(syndromes(sends(a)), (Syndromes{0}));
  EXPECT_EQ(std::memcmp(bench.bus.host(pages[0]) + 4096 - 64, bench.bus.host(src.mem), 64), 0);
  const std::uint8_t* cqe = bench.bus.host(pages[1]);
  EXPECT_EQ(prm::get<prm::cqe64::byte_cnt>(cqe), 64u);
  EXPECT_EQ(prm::get<prm::cqe64::format>(cqe), 2u);
}

TEST_F(DpCqe, ReadsAndAtomicsAnswerInTheCqe) {
  setup(64, 0x11, 0);
  fill(dst, 77);
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 24)}, .raddr = dst.va, .rkey = dst.key});
  post(a, {.op = WqeOpcode::RDMA_READ, .sges = {sge(src, 24, 1024)}, .raddr = dst.va, .rkey = dst.key, .signaled = false});
  post(a, {.op = WqeOpcode::ATOMIC_FA, .sges = {sge(src, 8, 2048)}, .raddr = dst.va + 64, .rkey = dst.key, .swap_add = 1});
  std::vector<std::uint8_t> before(bench.bus.host(src.mem), bench.bus.host(src.mem) + 4096);
  std::uint64_t word;
  std::memcpy(&word, bench.bus.host(dst.mem) + 64, 8);
  run();
  auto s = sends(a);
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].format, 1u);
  EXPECT_EQ(std::memcmp(entry(a.scq, 0), bench.bus.host(dst.mem), 24), 0);
  EXPECT_EQ(std::memcmp(before.data(), bench.bus.host(src.mem), 24), 0);
  EXPECT_EQ(std::memcmp(bench.bus.host(src.mem) + 1024, bench.bus.host(dst.mem), 24), 0) << "no CQE, so into memory";
  std::uint64_t found;
  std::memcpy(&found, entry(a.scq, 1), 8);
  EXPECT_EQ(bench.hca.atomics_in_host_order() ? found : byteswap(found), word);
}

TEST_F(DpCqe, CollapsedQueueKeepsTheLastOnly) {
  connect();
  CqHandle h;
  auto req = bench.cq_request(2, h);
  prm::set<prm::cqc::cc>(req.at<prm::create_cq_in::cq_context>(), 1);
  Reply out = bench.cmd.exec(req);
  ASSERT_TRUE(out.ok());
  h.cqn = out.get<prm::create_cq_out::cqn>();
  QpSpec s = a.qp.spec;
  s.send_cqn = h.cqn;
  End c = a;
  c.qp = bench.create_qp(s);
  c.sq_pi = 0;
  PathSpec pc = path_a, pb = path_b;
  pb.remote_qpn = c.qp.qpn;
  ASSERT_TRUE(bench.simple(prm::Opcode::TO_2RST_QP, b.qp.qpn).ok());
  bench.connect(c.qp, pc);
  bench.connect(b.qp, pb);
  src = region(64), dst = region(64);
  async_events();
  for (int i = 0; i < 7; ++i) post(c, {.op = WqeOpcode::RDMA_WRITE, .sges = {sge(src, 8)}, .raddr = dst.va, .rkey = dst.key});
  run();
  EXPECT_TRUE(async_events().empty());
  EXPECT_EQ(prm::get<prm::cqe64::wqe_counter>(bench.bus.host(h.buf)), 6u);
  EXPECT_EQ(bench.bus.host(h.buf)[127], prm::kCqeOwnerInitial) << "entry 1 was never written";
}

}  // namespace
}  // namespace uhca::hcatest
