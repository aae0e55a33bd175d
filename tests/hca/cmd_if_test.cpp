// SPDX-License-Identifier: MIT
// The command queue against drivers that are wrong or malicious: lengths, pointers, chains, tokens, order, opcodes. Every case must end
// with an answer and leave the interface usable.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <random>

#include "base/trace.h"
#include "hca/harness.h"
#include "prm/hca_cap.h"
#include "prm/other_caps.h"

namespace uhca::hcatest {
namespace {

using Op = prm::Opcode;
using D = prm::DeliveryStatus;
using S = prm::CmdStatus;
using Entry = prm::cmd_queue_entry;
using Box = prm::cmd_if_box;

class CmdIf : public ::testing::Test {
 protected:
  Bench bench;
  void SetUp() override { bench.bring_up(); }

  std::uint8_t* entry() { return bench.bus.host(bench.cmd.entry(0)); }
  pci::DmaAddr in_box() { return load_be<std::uint64_t>(entry() + prm::byte_of<Entry::input_mailbox_pointer_63_32>); }
  void set_in_box(pci::DmaAddr a) { store_be<std::uint64_t>(entry() + prm::byte_of<Entry::input_mailbox_pointer_63_32>, a); }
  void set_out_box(pci::DmaAddr a) { store_be<std::uint64_t>(entry() + prm::byte_of<Entry::output_mailbox_pointer_63_32>, a); }
  void set_next(pci::DmaAddr box, pci::DmaAddr a) {
    store_be<std::uint64_t>(bench.bus.host(box) + prm::byte_of<Box::next_pointer_63_32>, a);
  }
  // A command with three input mailboxes (1552 bytes) and one output mailbox.
  void prepare() {
    Request<prm::create_cq_in> r(Op::CREATE_CQ, 0, 1280);
    bench.cmd.prepare(0, r.bytes, 64);
  }
  void expect_delivery(D d) {
    bench.cmd.ring(1);
    Reply r = bench.cmd.collect(0);
    EXPECT_TRUE(r.completed);
    EXPECT_EQ(static_cast<unsigned>(r.delivery), static_cast<unsigned>(d));
    EXPECT_TRUE(bench.cmd.exec(Request<prm::nop_in>(Op::NOP)).ok()) << "the interface is stuck";
  }
};

TEST_F(CmdIf, LengthsThatTheEntryCannotMean) {
  for (std::uint32_t len : {0u, 15u, 0x1000001u, 0xffffffffu}) {
    prepare();
    prm::set<Entry::input_length>(entry(), len);
    expect_delivery(D::IN_LENGTH_ERR);
  }
  for (std::uint32_t len : {0u, 7u, 0x100001u, 0xffffffffu}) {
    prepare();
    prm::set<Entry::output_length>(entry(), len);
    expect_delivery(D::OUT_LENGTH_ERR);
  }
}

TEST_F(CmdIf, ChainShorterThanTheLength) {
  prepare();
  prm::set<Entry::input_length>(entry(), 16 + 4 * 512);
  expect_delivery(D::IN_LENGTH_ERR);
  prepare();
  prm::set<Entry::output_length>(entry(), 16 + 2 * 512);
  expect_delivery(D::OUT_LENGTH_ERR);
  prepare();
  set_in_box(0);
  expect_delivery(D::IN_LENGTH_ERR);
}

TEST_F(CmdIf, MisalignedPointers) {
  prepare();
  set_in_box(in_box() + 64);
  expect_delivery(D::IN_PTR_ALIGN_ERR);
  prepare();
  set_next(in_box(), in_box() + 512);
  expect_delivery(D::IN_PTR_ALIGN_ERR);
  prepare();
  set_out_box(FakeBus::kBase + 8);
  expect_delivery(D::OUT_PTR_ALIGN_ERR);
}

TEST_F(CmdIf, PointersToNowhere) {
  for (pci::DmaAddr bad : {pci::DmaAddr{0x1000}, ~pci::DmaAddr{0} << 12, FakeBus::kBase, pci::DmaAddr{0xfffffffffffffe00}}) {
    prepare();
    set_in_box(bad);
    expect_delivery(D::CMD_DESCR_ERR);
    prepare();
    set_out_box(bad);
    expect_delivery(D::CMD_DESCR_ERR);
  }
}

TEST_F(CmdIf, LoopsEndAtTheRepeatedBlock) {
  prepare();
  set_next(in_box(), in_box());
  expect_delivery(D::BAD_BLK_NUM);
  // Even with a length that would follow it for 32768 rounds.
  prepare();
  prm::set<Entry::input_length>(entry(), 16u << 20);
  set_next(in_box(), in_box());
  expect_delivery(D::BAD_BLK_NUM);
  prepare();
  prm::set<Entry::output_length>(entry(), 1u << 20);
  pci::DmaAddr out = load_be<std::uint64_t>(entry() + prm::byte_of<Entry::output_mailbox_pointer_63_32>);
  set_next(out, out);
  expect_delivery(D::BAD_BLK_NUM);
}

TEST_F(CmdIf, TokensAndTransportType) {
  prepare();
  prm::set<Box::token>(bench.bus.host(in_box()), prm::get<Entry::token>(entry()) ^ 1);
  expect_delivery(D::TOK_ERR);
  prepare();
  prm::set<Entry::type>(entry(), 6);
  expect_delivery(D::CMD_DESCR_ERR);
}

TEST_F(CmdIf, SignaturesAreNotChecked) {
  bench.cmd.prepare(0, Request<prm::nop_in>(Op::NOP).bytes, 16);
  prm::set<Entry::signature>(entry(), 0xa5);
  bench.cmd.ring(1);
  EXPECT_TRUE(bench.cmd.collect(0).ok());
}

TEST_F(CmdIf, OutputThatCannotBeWrittenIsReported) {
  pci::DmaAddr box = bench.bus.alloc(4096);
  bench.cmd.prepare(0, Request<prm::query_adapter_in>(Op::QUERY_ADAPTER).bytes, 272);
  std::uint8_t token = static_cast<std::uint8_t>(prm::get<Entry::token>(entry()));
  prm::set<Box::token>(bench.bus.host(box), token);
  set_out_box(box);
  bench.bus.set_access(box, 4096, FakeBus::kRead);
  expect_delivery(D::CMD_DESCR_ERR);
}

TEST_F(CmdIf, SlotsAreIndependentAndIdleOnesAreIgnored) {
  for (unsigned slot : {0u, 7u, 31u}) bench.cmd.prepare(slot, Request<prm::alloc_pd_in>(Op::ALLOC_PD).bytes, 16);
  bench.cmd.ring(0xffffffff);  // all others: nothing to do
  std::vector<std::uint32_t> pds;
  for (unsigned slot : {0u, 7u, 31u}) {
    Reply r = bench.cmd.collect(slot);
    ASSERT_TRUE(r.ok());
    pds.push_back(r.get<prm::alloc_pd_out::pd>());
  }
  EXPECT_NE(pds[0], pds[1]);
  EXPECT_NE(pds[1], pds[2]);
  bench.cmd.ring(0xffffffff);  // completed ones are not executed again
  EXPECT_EQ(bench.cmd.collect(31).get<prm::alloc_pd_out::pd>(), pds[2]);
}

TEST_F(CmdIf, QueueThatIsNotThere) {
  bench.cmd.write_reg(0x10, 0xffff);
  bench.cmd.write_reg(0x14, 0xfffff000);
  bench.cmd.ring(1);
  EXPECT_GT(bench.bus.faults(), 0u);
  EXPECT_EQ(bench.cmd.read_reg(0x14), 0xfffff056u);
}

TEST_F(CmdIf, UnknownOpcodesAndShortCommands) {
  for (unsigned op : {0u, 0x3u, 0x106u, 0x208u, 0xa05u, 0xa0cu, 0xb00u, 0xffffu}) {
    Reply r = bench.cmd.exec(Request<prm::nop_in>(static_cast<Op>(op)), 64);
    ASSERT_EQ(r.delivery, D::OK);
    EXPECT_EQ(r.status(), S::BAD_OP) << std::hex << op;
    EXPECT_NE(r.syndrome(), 0u);
  }
  EXPECT_EQ(bench.cmd.exec(Request<prm::nop_in>(Op::CREATE_CQ)).status(), S::BAD_INP_LEN);
  EXPECT_EQ(bench.cmd.exec(Request<prm::query_adapter_in>(Op::QUERY_ADAPTER), 16).status(), S::BAD_OUTP_LEN);
}

TEST(CmdOrder, CommandsWaitForTheirState) {
  Bench bench;
  EXPECT_EQ(bench.cmd.exec(Request<prm::query_issi_in>(Op::QUERY_ISSI), 112).status(), S::BAD_SYS_STATE);
  ASSERT_TRUE(bench.cmd.exec(Request<prm::enable_hca_in>(Op::ENABLE_HCA), 12).ok());
  EXPECT_EQ(bench.cmd.exec(Request<prm::alloc_pd_in>(Op::ALLOC_PD)).status(), S::BAD_SYS_STATE);
  EXPECT_EQ(bench.cmd.exec(Request<prm::init_hca_in>(Op::INIT_HCA)).status(), S::BAD_SYS_STATE) << "without pages";
  bench.init();
  EXPECT_EQ(bench.cmd.exec(Request<prm::init_hca_in>(Op::INIT_HCA)).status(), S::BAD_SYS_STATE) << "twice";
  Request<prm::init_hca_in> brief(Op::INIT_HCA);
  brief.bytes.resize(16);
  EXPECT_EQ(bench.cmd.exec(brief).status(), S::BAD_SYS_STATE) << "the owner's id may be left out, as rdma-core does";
  EXPECT_EQ(bench.cmd.exec(Request<prm::disable_hca_in>(Op::DISABLE_HCA), 12).status(), S::BAD_SYS_STATE);
}

TEST(CmdPages, AreTrackedAndReturned) {
  Bench bench;
  bench.init();
  auto give = [&](pci::DmaAddr page, std::uint32_t announced) {
    Request<prm::manage_pages_in> r(Op::MANAGE_PAGES, 1, 8);
    r.set<prm::manage_pages_in::input_num_entries>(announced);
    r.set<prm::manage_pages_in::pas>(page);
    return bench.cmd.exec(r).status();
  };
  pci::DmaAddr page = bench.bus.alloc(4096);
  EXPECT_EQ(give(page, 2), S::BAD_INP_LEN);
  EXPECT_EQ(give(page + 8, 1), S::BAD_PARAM);
  EXPECT_EQ(give(page, 1), S::OK);
  EXPECT_EQ(give(page, 1), S::BAD_PARAM) << "given twice";
  EXPECT_EQ(bench.hca.held_pages(), 9u);
  auto take = [&](std::uint32_t n, std::size_t room) {
    return bench.cmd.exec(Request<prm::manage_pages_in>(Op::MANAGE_PAGES, 2).set<prm::manage_pages_in::input_num_entries>(n),
                          16 + room * 8);
  };
  Reply r = take(100, 100);  // while it runs, only what it can spare
  EXPECT_EQ(r.get<prm::manage_pages_out::output_num_entries>(), 1u);
  ASSERT_TRUE(bench.cmd.exec(Request<prm::teardown_hca_in>(Op::TEARDOWN_HCA)).ok());
  EXPECT_EQ(take(100, 3).get<prm::manage_pages_out::output_num_entries>(), 3u);
  EXPECT_EQ(take(2, 100).get<prm::manage_pages_out::output_num_entries>(), 2u);
  EXPECT_EQ(bench.cmd.exec(Request<prm::disable_hca_in>(Op::DISABLE_HCA), 12).status(), S::BAD_SYS_STATE);
  EXPECT_EQ(take(100, 100).get<prm::manage_pages_out::output_num_entries>(), 3u);
  EXPECT_EQ(take(100, 100).get<prm::manage_pages_out::output_num_entries>(), 0u);
  EXPECT_TRUE(bench.cmd.exec(Request<prm::disable_hca_in>(Op::DISABLE_HCA), 12).ok());
}

TEST(CmdCaps, LimitsAndTypes) {
  Bench bench;
  ASSERT_TRUE(bench.cmd.exec(Request<prm::enable_hca_in>(Op::ENABLE_HCA), 12).ok());
  for (std::uint16_t type : {0, 1, 3, 4, 7})
    EXPECT_TRUE(bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, type << 1), 4112).ok()) << type;
  EXPECT_EQ(bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, 2 << 1), 4112).status(), S::BAD_PARAM) << "ODP";
  Reply max = bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, 0), 4112);
  Request<prm::set_hca_cap_in> set(Op::SET_HCA_CAP);
  void* c = set.at<prm::set_hca_cap_in::capability>();
  std::memcpy(c, max.at<prm::query_hca_cap_out::capability>(), 4096);
  prm::set<prm::cmd_hca_cap::tag_matching>(c, 1);
  EXPECT_EQ(bench.cmd.exec(set).status(), S::BAD_PARAM);
  prm::set<prm::cmd_hca_cap::tag_matching>(c, 0);
  prm::set<prm::cmd_hca_cap::log_max_cq>(c, 10);
  EXPECT_TRUE(bench.cmd.exec(set).ok());
  auto now = [&](std::uint16_t mod) {
    Reply q = bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, mod), 4112);
    return prm::get<prm::cmd_hca_cap::log_max_cq>(q.at<prm::query_hca_cap_out::capability>());
  };
  EXPECT_EQ(now(1), 10u);
  EXPECT_EQ(now(0), 24u);
  bench.init();
  EXPECT_EQ(bench.cmd.exec(set).status(), S::BAD_SYS_STATE);
}

TEST(CmdCaps, AtomicTakesOnlyTheEndianness) {
  Bench bench;
  ASSERT_TRUE(bench.cmd.exec(Request<prm::enable_hca_in>(Op::ENABLE_HCA), 12).ok());
  constexpr std::uint16_t kSetAtomic = 3 << 1, kCurrentAtomic = 3 << 1 | 1;
  Request<prm::set_hca_cap_in> set(Op::SET_HCA_CAP, kSetAtomic);  // Linux leaves the rest zero
  prm::set<prm::atomic_caps::atomic_req_8B_endianness_mode>(set.at<prm::set_hca_cap_in::capability>(), 1);
  ASSERT_TRUE(bench.cmd.exec(set).ok());
  Reply q = bench.cmd.exec(Request<prm::query_hca_cap_in>(Op::QUERY_HCA_CAP, kCurrentAtomic), 4112);
  auto* caps = q.at<prm::query_hca_cap_out::capability>();
  EXPECT_EQ(prm::get<prm::atomic_caps::atomic_req_8B_endianness_mode>(caps), 1u);
  EXPECT_EQ(prm::get<prm::atomic_caps::atomic_operations>(caps), 3u);
}

TEST(CmdFaults, NthCommandFailsAndLeavesNothing) {
  Bench bench;
  bench.bring_up();
  std::size_t before = bench.hca.live_objects();
  bench.hca.fail_command({Op::CREATE_CQ, 2, S::LIM});
  CqHandle h;
  EXPECT_TRUE(bench.cmd.exec(bench.cq_request(4, h)).ok());
  EXPECT_EQ(bench.cmd.exec(bench.cq_request(4, h)).status(), S::LIM);
  EXPECT_TRUE(bench.cmd.exec(bench.cq_request(4, h)).ok()) << "fires once";
  EXPECT_EQ(bench.hca.live_objects(), before + 2);
}

TEST(CmdBar, RegistersAndReset) {
  Bench bench;
  EXPECT_EQ(bench.hca.mmio_read(0, 2), 0x2300u) << "a big-endian register, byte by byte";
  std::uint32_t health = bench.cmd.read_reg(0x1010), timer = bench.cmd.read_reg(0x1004);
  bench.clock.advance(1'000'000'000);
  EXPECT_GT(bench.cmd.read_reg(0x1010), health);
  EXPECT_EQ(bench.cmd.read_reg(0x1004) - timer, 1'000'000'000u);
  EXPECT_EQ(bench.hca.mmio_read(hca::Hca::kBar0Size - 4, 8), ~std::uint64_t{0}) << "beyond the BAR";
  bench.bring_up();
  bench.create_cq(4);
  EXPECT_GT(bench.hca.live_objects(), 0u);
  bench.hca.reset();
  EXPECT_EQ(bench.hca.live_objects(), 0u);
  EXPECT_EQ(bench.hca.held_pages(), 0u);
  EXPECT_EQ(bench.cmd.read_reg(0x14), 0x56u);
}

TEST(CmdBar, NicInterfaceStates) {
  Bench bench;
  bench.bring_up();
  std::uint32_t low = bench.cmd.read_reg(0x14);
  bench.cmd.write_reg(0x14, (low & 0xfffff000) | 1 << 8);  // disabled: commands are not executed
  bench.cmd.prepare(0, Request<prm::nop_in>(Op::NOP).bytes, 16);
  bench.cmd.ring(1);
  EXPECT_FALSE(bench.cmd.collect(0).completed);
  bench.cmd.write_reg(0x14, low & 0xfffff000);
  bench.cmd.ring(1);
  EXPECT_TRUE(bench.cmd.collect(0).ok());
  bench.cmd.write_reg(0x14, (low & 0xfffff000) | 7 << 8);  // software reset
  EXPECT_EQ(bench.cmd.read_reg(0x14) >> 8 & 7, 1u);
  EXPECT_EQ(bench.hca.live_objects(), 0u);
}

// Random bytes with a valid opcode in front: nothing but a status may come of it.
TEST_F(CmdIf, RandomInputs) {
  std::mt19937 rng(7);
  std::size_t refused = 0, accepted = 0;
  for (unsigned round = 0; round < 8; ++round) {
    for (unsigned op = 0x100; op < 0xb10; ++op) {
      if (prm::opcode_name(static_cast<std::uint16_t>(op)) == nullptr) continue;
      auto o = static_cast<Op>(op);
      if (o == Op::TEARDOWN_HCA) continue;
      std::vector<std::uint8_t> in(16 + rng() % 2200);
      for (auto& b : in) b = rng() % 4 == 0 ? static_cast<std::uint8_t>(rng()) : 0;
      prm::set<prm::cmd_in::opcode>(in.data(), op);
      prm::set<prm::cmd_in::op_mod>(in.data(), rng() % 4);
      bench.cmd.prepare(0, in, 16 + rng() % 1200);
      bench.cmd.ring(1);
      Reply r = bench.cmd.collect(0);
      ASSERT_TRUE(r.completed);
      ASSERT_EQ(r.delivery, D::OK);
      r.ok() ? ++accepted : ++refused;
    }
  }
  EXPECT_GT(refused, 500u);
  EXPECT_GT(accepted, 50u);
  bench.hca.reset();
  EXPECT_EQ(bench.hca.live_objects(), 0u);
}

TEST_F(CmdIf, TraceNamesFieldsAndNumbers) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_NONBLOCK), 0);
  trace::set_fd(fds[1]);
  CqHandle cq = bench.create_cq(4);
  bench.simple(Op::DESTROY_CQ, 0xabcdef);
  trace::set_fd(-1);
  std::string text(8192, 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(fds[0], text.data(), text.size()))));
  close(fds[0]);
  close(fds[1]);
  EXPECT_NE(text.find("\"CREATE_CQ\""), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("\"cqn\":\"{:#x}\"", cq.cqn)), std::string::npos) << text;
  EXPECT_NE(text.find("\"log_cq_size\":\"0x4\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"status\":\"BAD_RES\""), std::string::npos) << text;
  EXPECT_NE(text.find("no CQ 0xabcdef"), std::string::npos) << text;
}

}  // namespace
}  // namespace uhca::hcatest
