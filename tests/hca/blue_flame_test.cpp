// SPDX-License-Identifier: MIT
// WQEs that come with their doorbell: what is in the 64 bytes counts, where a driver is allowed to rely on it.
#include "hca/dp_harness.h"
#include "hca/eth_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Words = std::array<std::uint64_t, 8>;

// The block at `index` of a ring, as a copy that a driver stores to a register.
Words copy_of(Bench& bench, pci::DmaAddr ring, std::uint16_t index, unsigned log_size) {
  Words w;
  std::memcpy(w.data(), bench.bus.host(ring) + (index & ((1u << log_size) - 1)) * 64, sizeof w);
  return w;
}
// Asks for a CQE, in the copy only: Linux tells by this whether write combining works (wc.c: mlx5_wc_post_nop).
void signal(Words& w) {
  auto* raw = reinterpret_cast<std::uint8_t*>(w.data());
  prm::set<prm::wqe_ctrl_seg::fm_ce_se>(raw, prm::kWqeCtrlCqUpdate);
}

class DpBlueFlame : public DpTest {
 protected:
  std::uint64_t reg(std::uint64_t offset = 0x800) { return std::uint64_t{bench.uar} * 4096 + offset; }
  Words copy(std::uint16_t index) { return copy_of(bench, a.qp.sq, index, a.qp.spec.log_sq); }
};

TEST_F(DpBlueFlame, TheCopyIsExecutedNotTheMemory) {
  connect();
  Region dst = region(64);
  for (std::uint64_t offset : {0x800, 0x900}) {
    std::uint16_t i = post(a, {.op = WqeOpcode::NOP, .signaled = false}, false);
    Words w = copy(i);
    signal(w);
    bench.hca.mmio_write_line(reg(offset), w);
    run();
    auto s = sends(a);
    ASSERT_EQ(s.size(), 1u);
    EXPECT_EQ(s[0].wqe, i);
  }
  // With data: other bytes in the copy than in memory.
  post_recv(b, {sge(dst, 64)});
  std::uint16_t i = post(a, {.inl = {1, 2, 3, 4}}, false);
  Words w = copy(i);
  w[2] ^= std::uint64_t{0xff} << 32;  // the first inline byte
  bench.hca.mmio_write_line(reg(), w);
  run();
  EXPECT_EQ(sends(a).size(), 1u);
  ASSERT_EQ(recvs(b).size(), 1u);
  EXPECT_EQ(bench.bus.host(dst.mem)[0], 1 ^ 0xff);
  EXPECT_EQ(bench.bus.host(dst.mem)[1], 2);
}

TEST_F(DpBlueFlame, WhatIsNotNextComesFromMemory) {
  connect();
  std::uint16_t first = post(a, {.op = WqeOpcode::NOP}, false);
  Words old = copy(first);
  std::uint16_t second = post(a, {.op = WqeOpcode::NOP, .signaled = false}, false);
  Words w = copy(second);
  signal(w);
  // Two posts, one doorbell: the first comes from memory, the second from the copy.
  bench.hca.mmio_write_line(reg(), w);
  run();
  auto s = sends(a);
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].wqe, first);
  EXPECT_EQ(s[1].wqe, second);
  // A copy of what was executed long ago.
  bench.hca.mmio_write_line(reg(), old);
  run();
  EXPECT_TRUE(sends(a).empty());
  // One that does not fit into the register: a doorbell.
  Region src = region(64), dst = region(64);
  fill(src, 5);
  for (int i = 0; i < 4; ++i) post_recv(b, {sge(dst, 64)});
  std::uint16_t big = post(a, {.sges = {sge(src, 8), sge(src, 8), sge(src, 8), sge(src, 8)}}, false);
  w = copy(big);
  w[2] = 0;
  bench.hca.mmio_write_line(reg(), w);
  run();
  s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok());
}

// The second line of a long copy is inline data, which may look like a WQE.
TEST_F(DpBlueFlame, DataBehindTheFirstLineIsNoWqe) {
  connect();
  std::uint16_t i = post(a, {.op = WqeOpcode::NOP, .signaled = false}, false);
  Words forged = copy(i);
  signal(forged);
  for (std::uint64_t offset : {0x840, 0x880, 0x8c0, 0x940}) bench.hca.mmio_write_line(reg(offset), forged);
  run();
  EXPECT_TRUE(sends(a).empty());
  bench.hca.mmio_write_line(reg(0x900), forged);
  run();
  EXPECT_EQ(sends(a).size(), 1u);
}

TEST_F(DpBlueFlame, AWrongCopyFailsAsAWrongWqe) {
  connect();
  std::uint16_t i = post(a, {.op = WqeOpcode::NOP}, false);
  Words w = copy(i);
  auto* raw = reinterpret_cast<std::uint8_t*>(w.data());
  raw[3] = 0x3f;  // opcode
  bench.hca.mmio_write_line(reg(), w);
  run();
  auto s = sends(a);
  ASSERT_EQ(s.size(), 1u);
  EXPECT_FALSE(s[0].ok());
  // Numbers of nothing, registers of other UARs, places that are no register.
  connect();
  i = post(a, {.op = WqeOpcode::NOP}, false);
  w = copy(i);
  bench.hca.mmio_write_line(reg() + 4096, w);
  bench.hca.mmio_write_line(reg(0x40), w);
  bench.hca.mmio_write_line(0, Words{});
  bench.hca.mmio_write_line(hca::Hca::kBar0Size - 64, w);
  Words nothing{};
  bench.hca.mmio_write_line(reg(), nothing);
  run();
  EXPECT_TRUE(sends(a).empty());
  bench.hca.mmio_write_line(reg(), w);
  run();
  EXPECT_EQ(sends(a).size(), 1u);
}

class EthBlueFlame : public EthTest {};

TEST_F(EthBlueFlame, SendQueuesTakeThemToo) {
  RawQueueHandle sq = create_sq();
  std::uint16_t i = sq.pi;
  post_send(sq, {.op = WqeOpcode::NOP, .signaled = false}, false);
  Words w = copy_of(bench, sq.buf, i, sq.log_size);
  signal(w);
  bench.hca.mmio_write_line(std::uint64_t{bench.uar} * 4096 + 0x800, w);
  auto c = poll(sq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<prm::cqe64::wqe_counter>(), i);
}

}  // namespace
}  // namespace uhca::hcatest
