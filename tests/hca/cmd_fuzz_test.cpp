// SPDX-License-Identifier: MIT
// Commands that are nearly right: what a driver really sends with fields, lengths, chains and numbers changed, and the doorbells and
// frames that use what came of it. Every command must be answered and the device must survive; run it under the sanitizers.
// How long and which: fuzz_run.h.
#include <cstdio>
#include <random>

#include "device/hca/cmd_if.h"
#include "hca/eth_harness.h"
#include "hca/fuzz_run.h"

namespace uhca::hcatest {
namespace {

using Entry = prm::cmd_queue_entry;
using Box = prm::cmd_if_box;

class CmdFuzz : public EthTest {
 protected:
  static constexpr unsigned kBoxes = 24;
  static constexpr unsigned kCommandsPerDevice = 3000;

  // Known-good inputs and the numbers and addresses that are in them.
  std::vector<std::vector<std::uint8_t>> corpus;
  std::vector<std::uint64_t> numbers;
  std::vector<pci::DmaAddr> pages, boxes;
  CqHandle cq;
  std::mt19937 rng;
  std::uint64_t commands = 0, accepted = 0;

  std::uint32_t pick(std::uint32_t n) { return static_cast<std::uint32_t>(rng() % n); }

  // The command that was executed last.
  void learn() {
    const std::uint8_t* e = bench.bus.host(bench.cmd.entry(0));
    std::vector<std::uint8_t> in(prm::get<Entry::input_length>(e));
    std::memcpy(in.data(), e + 16, std::min<std::size_t>(16, in.size()));
    pci::DmaAddr box = load_be<std::uint64_t>(e + prm::byte_of<Entry::input_mailbox_pointer_63_32>);
    for (std::size_t at = 16; at < in.size(); at += 512) {
      const std::uint8_t* b = bench.bus.host(box);
      std::memcpy(in.data() + at, b, std::min<std::size_t>(512, in.size() - at));
      box = load_be<std::uint64_t>(b + prm::byte_of<Box::next_pointer_63_32>);
    }
    corpus.push_back(std::move(in));
  }
  void learn_number(std::uint64_t n) {
    if (numbers.size() < 256) {
      numbers.push_back(n);
    } else {
      numbers[pick(256)] = n;
    }
  }

  // A device with one object of each kind, as its drivers make them.
  void teach() {
    for (unsigned i = 0; i < kBoxes; ++i) boxes.push_back(bench.bus.alloc(prm::cmd_if_box::kBytes));
    for (unsigned i = 0; i < 64; ++i) pages.push_back(bench.bus.alloc(4096));
    bench.create_eq(4, 1, 0);
    learn();
    cq = bench.create_cq(6);
    learn();
    learn_number(cq.cqn);
    Request<prm::modify_cq_in> moderate(Op::MODIFY_CQ);
    moderate.set<prm::modify_cq_in::cqn>(cq.cqn).set<prm::modify_cq_in::modify_field_select_resize_field_select>(
        prm::kCqModifyPeriod | prm::kCqModifyCount | prm::kCqModifyPeriodMode);
    prm::set<prm::cqc::cq_period>(moderate.at<prm::modify_cq_in::cq_context>(), 500);
    prm::set<prm::cqc::cq_max_count>(moderate.at<prm::modify_cq_in::cq_context>(), 4);
    prm::set<prm::cqc::cq_period_mode>(moderate.at<prm::modify_cq_in::cq_context>(), 1);
    EXPECT_TRUE(bench.cmd.exec(moderate).ok());
    learn();
    learn_number(bench.create_mkey(0x10000, 0x8000, bench.bus.alloc(0x8000)));
    learn();
    for (auto type : {hca::QpType::kRc, hca::QpType::kUc, hca::QpType::kUd}) {
      QpSpec spec;
      spec.type = type;
      spec.send_cqn = spec.recv_cqn = cq.cqn;
      QpHandle qp = bench.create_qp(spec);
      learn();
      learn_number(qp.qpn);
      PathSpec path;
      path.remote_qpn = qp.qpn;
      path.dgid = Bench::ipv4_gid(10, 0, 0, 1);
      path.dmac = bench.config.mac;
      bench.set_roce_address(0, path.dgid);
      learn();
      EXPECT_TRUE(bench.to_init(qp, path).ok());
      learn();
      EXPECT_TRUE(bench.to_rtr(qp, path).ok());
      learn();
      EXPECT_TRUE(bench.to_rts(qp, path).ok());
      learn();
    }
    for (std::uint64_t n : {std::uint64_t{bench.pd}, std::uint64_t{bench.uar}, std::uint64_t{td}, std::uint64_t{tisn}, std::uint64_t{lkey}})
      learn_number(n);
    bench.port.connect(&bench.port);
  }

  std::uint64_t value() {
    static constexpr std::uint64_t kEdges[] = {0,    1,    2,     3,      7,      8,       15,       31,         63,         64,
                                               0xff, 4096, 0xfff, 0xffff, 0x8000, 0x10000, 0xffffff, 0x7fffffff, 0xffffffff, ~0ull};
    switch (pick(6)) {
      case 0: return rng();
      case 1: return std::uint64_t{rng()} << 32 | rng();
      case 2: return numbers[pick(static_cast<std::uint32_t>(numbers.size()))];
      case 3: return pages[pick(static_cast<std::uint32_t>(pages.size()))];
      case 4: return pick(40);
      default: return kEdges[pick(std::size(kEdges))];
    }
  }

  void change_field(std::vector<std::uint8_t>& in, const prm::LayoutInfo& layout) {
    const prm::Field& f = layout.fields[pick(static_cast<std::uint32_t>(layout.nfields))].field;
    std::uint32_t count = f.count != 0 ? f.count : 4;
    if (f.width > 64 || (f.width > 32 && f.width < 64)) {
      change_word(in, f.offset / 8, f.width / 8 * count);
      return;
    }
    std::uint32_t i = pick(count);
    std::size_t last = (f.offset + (i + 1) * f.width + 31) / 32 * 4;
    if (last <= in.size()) prm::set(in.data(), f, value(), i);
  }
  // Some of one of the big-endian words from here on.
  void change_word(std::vector<std::uint8_t>& in, std::size_t from, std::size_t len) {
    if (from >= in.size()) return;
    len = std::min(len, in.size() - from);
    if (len < 8) return;
    std::uint8_t* w = in.data() + from + pick(static_cast<std::uint32_t>(len / 4 - 1)) * 4;
    switch (pick(4)) {
      case 0: store_be<std::uint32_t>(w, static_cast<std::uint32_t>(value())); break;
      case 1: store_be<std::uint64_t>(w, value()); break;
      case 2: w[pick(4)] = static_cast<std::uint8_t>(value()); break;
      default: w[pick(4)] ^= static_cast<std::uint8_t>(1u << pick(8));
    }
  }

  std::vector<std::uint8_t> make_input() {
    auto commands_known = hca::all_commands();
    std::vector<std::uint8_t> in;
    const hca::CommandInfo* info = nullptr;
    if (pick(3) != 0) {
      in = corpus[pick(static_cast<std::uint32_t>(corpus.size()))];
      info = hca::find_command(load_be<std::uint16_t>(in.data()));
      if (pick(8) == 0)
        store_be<std::uint16_t>(in.data(),
                                static_cast<std::uint16_t>(commands_known[pick(static_cast<std::uint32_t>(commands_known.size()))].opcode));
    } else {
      info = &commands_known[pick(static_cast<std::uint32_t>(commands_known.size()))];
      // Only now and then what ends everything.
      bool end = info->opcode == Op::TEARDOWN_HCA || info->opcode == Op::DISABLE_HCA;
      if (end && pick(50) != 0) info = hca::find_command(static_cast<std::uint16_t>(Op::NOP));
      in.resize(info->min_in + (pick(3) == 0 ? pick(64) * 8 : 0));
      store_be<std::uint16_t>(in.data(), static_cast<std::uint16_t>(pick(40) == 0 ? rng() : static_cast<std::uint32_t>(info->opcode)));
      if (pick(4) == 0) store_be<std::uint16_t>(in.data() + 6, static_cast<std::uint16_t>(pick(16)));
      for (unsigned n = pick(6); n > 0; --n) change_field(in, *info->in);
      if (in.size() >= 12 && pick(2) == 0) store_be<std::uint32_t>(in.data() + 8, static_cast<std::uint32_t>(value()));
    }
    for (unsigned n = pick(4); n > 0; --n) {
      if (pick(2) == 0 && info != nullptr) {
        change_field(in, *info->in);
      } else {
        change_word(in, 4, in.size());
      }
    }
    if (pick(12) == 0) in.resize(pick(2) == 0 ? pick(static_cast<std::uint32_t>(in.size() + 1)) : in.size() + pick(1024));
    return in;
  }

  // Entry and chains out of the same few mailboxes, and in one of ten something about them that a driver would not do.
  void issue() {
    std::vector<std::uint8_t> in = make_input();
    std::size_t out_len = pick(6) == 0 ? value() & 0x1fff : 16 + pick(4) * 512;
    std::uint8_t* e = bench.bus.host(bench.cmd.entry(0));
    auto token = static_cast<std::uint8_t>(1 + pick(255));
    std::memset(e, 0, 64);
    unsigned box = 0;
    auto chain = [&](const std::uint8_t* data, std::size_t len) {
      pci::DmaAddr head = 0, next = 0;
      std::size_t n = std::min<std::size_t>((len + 511) / 512, kBoxes - box);
      for (std::size_t i = n; i > 0; --i, next = head) {
        head = boxes[box++];
        std::uint8_t* b = bench.bus.host(head);
        std::memset(b, 0, Box::kBytes);
        if (data != nullptr) std::memcpy(b, data + (i - 1) * 512, std::min<std::size_t>(512, len - (i - 1) * 512));
        prm::set<Box::block_number>(b, i - 1);
        prm::set<Box::token>(b, token);
        store_be<std::uint64_t>(b + prm::byte_of<Box::next_pointer_63_32>, next);
      }
      return head;
    };
    std::memcpy(e + 16, in.data(), std::min<std::size_t>(16, in.size()));
    pci::DmaAddr in_box = in.size() > 16 ? chain(in.data() + 16, in.size() - 16) : 0;
    pci::DmaAddr out_box = out_len > 16 ? chain(nullptr, out_len - 16) : 0;
    prm::set<Entry::type>(e, 7);
    prm::set<Entry::input_length>(e, in.size());
    prm::set<Entry::output_length>(e, out_len);
    prm::set<Entry::token>(e, token);
    store_be<std::uint64_t>(e + prm::byte_of<Entry::input_mailbox_pointer_63_32>, in_box);
    store_be<std::uint64_t>(e + prm::byte_of<Entry::output_mailbox_pointer_63_32>, out_box);
    if (pick(10) == 0) {
      switch (pick(5)) {
        case 0: e[pick(16)] ^= static_cast<std::uint8_t>(1u << pick(8)); break;
        case 1: e[48 + pick(15)] ^= static_cast<std::uint8_t>(1u << pick(8)); break;
        case 2: bench.bus.host(boxes[pick(kBoxes)])[512 + pick(64)] ^= static_cast<std::uint8_t>(1u << pick(8)); break;
        case 3: store_be<std::uint64_t>(bench.bus.host(boxes[0]) + prm::byte_of<Box::next_pointer_63_32>, boxes[pick(kBoxes)]); break;
        default: prm::set<Entry::output_length>(e, value() & 0xffffffff);
      }
    }
    prm::set<Entry::ownership>(e, 1);
    bench.cmd.ring(1);
    ++commands;
    ASSERT_EQ(prm::get<Entry::ownership>(e), 0u) << "never answered";
    bool ok = prm::get<Entry::status>(e) == 0 && e[32] == 0;
    if (ok) {
      ++accepted;
      std::uint32_t n = load_be<std::uint32_t>(e + 40) & 0xffffff;  // where creates answer their number
      if (n != 0) learn_number(n);
      if (pick(64) == 0 && in.size() >= 16) corpus[pick(static_cast<std::uint32_t>(corpus.size()))] = in;
    }
  }

  // What the objects, such as they are now, are used for.
  void use() {
    auto number = static_cast<std::uint32_t>(numbers[pick(static_cast<std::uint32_t>(numbers.size()))]);
    std::uint8_t* page = bench.bus.host(pages[pick(static_cast<std::uint32_t>(pages.size()))]);
    for (unsigned i = 0; i < 16; ++i) store_be<std::uint32_t>(page + pick(1024) * 4, static_cast<std::uint32_t>(value()));
    switch (pick(5)) {
      case 0: {
        std::uint64_t uar = std::uint64_t{bench.uar} * 4096;
        bench.hca.mmio_write(uar + (pick(2) == 0 ? 0x800 : 0x20), byteswap(std::uint64_t{pick(0x10000)} << 32 | number << 8 | pick(16)), 8);
        break;
      }
      case 1: bench.hca.look_at_send_queue(number); break;
      case 2: bench.hca.look_at_cq(number); break;
      case 3:
        bench.bus.put_be32(cq.dbr + 4, static_cast<std::uint32_t>(value()));
        bench.hca.look_at_cq(cq.cqn);
        break;
      default:
        bench.port.inject(
            ipv4_frame(pick(2) == 0 ? 6 : 17, pick(2) == 0 ? tcp(counting(pick(600))) : udp(counting(pick(600)), "11 11 12 b7")));
    }
    bench.clock.advance(pick(1'000'000));
    for (unsigned i = 0; i < 4; ++i) bench.hca.drive(true);
    bench.port.sent.clear();
    bench.bus.take_raised();
  }
};

TEST_F(CmdFuzz, NearlyRightCommands) {
  FuzzRun fuzz(rng);
  SCOPED_TRACE(fuzz.name());
  teach();
  const std::vector<std::vector<std::uint8_t>> lessons = corpus;
  const std::size_t memory = bench.bus.mark();
  unsigned devices = 0;
  while (!fuzz.over() && !HasFatalFailure()) {
    ++devices;
    for (unsigned i = 0; i < kCommandsPerDevice && !HasFatalFailure() && !fuzz.over(); ++i) {
      issue();
      if (pick(3) == 0) use();
    }
    // As after power-on, whatever was left.
    bench.hca.reset();
    EXPECT_EQ(bench.hca.live_objects(), 0u);
    EXPECT_EQ(bench.hca.held_pages(), 0u);
    corpus = lessons;
    bench.bus.rewind(memory);
    bench.cmd.attach();
    bench.bring_up();
  }
  EXPECT_TRUE(bench.cmd.exec(Request<prm::nop_in>(Op::NOP)).ok());
  EXPECT_GT(accepted, commands / 50) << "too little gets through to mean anything";
  std::printf("%lu commands, %lu accepted, %u devices\n", static_cast<unsigned long>(commands), static_cast<unsigned long>(accepted),
              devices);
}

}  // namespace
}  // namespace uhca::hcatest
