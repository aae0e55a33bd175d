// SPDX-License-Identifier: MIT
// Small scope, every order: two requests on a network that may do what a network may do. At each step the test chooses which frame arrives,
// either way; a few times per run something else happens: a frame is lost, arrives and stays in the network as well, overtakes, or the
// requester's timer runs out although something is on its way. All sequences of choices are tried, one after the other. Invariants after
// every step: completions come in order, succeed, and never before the effect; at the end: all completed, every effect came once, nothing
// is left to wait for. Two such things per run where both requests are one packet, else one; UHCA_LONG in the environment: one more (ten
// minutes).
#include <cstdlib>

#include "hca/dp_network.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;

struct Message {
  WqeOpcode op;
  std::uint32_t len;
};
struct Pair {
  Message first, second;
};
constexpr std::uint32_t kOne = 600, kTwo = 1500;  // bytes of one packet, of two
constexpr Pair kPairs[] = {
    {{WqeOpcode::SEND, kOne}, {WqeOpcode::SEND, kOne}},
    {{WqeOpcode::SEND, kOne}, {WqeOpcode::SEND, kTwo}},
    {{WqeOpcode::SEND, kTwo}, {WqeOpcode::RDMA_READ, kOne}},
    {{WqeOpcode::RDMA_READ, kTwo}, {WqeOpcode::SEND, kOne}},
    {{WqeOpcode::RDMA_READ, kOne}, {WqeOpcode::RDMA_READ, kTwo}},
    {{WqeOpcode::ATOMIC_FA, 8}, {WqeOpcode::ATOMIC_FA, 8}},
    {{WqeOpcode::ATOMIC_FA, 8}, {WqeOpcode::RDMA_WRITE_IMM, kOne}},
    {{WqeOpcode::RDMA_WRITE, kTwo}, {WqeOpcode::ATOMIC_FA, 8}},
    {{WqeOpcode::RDMA_READ, kTwo}, {WqeOpcode::ATOMIC_FA, 8}},
};

class DpInterleave : public NetworkTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  enum Kind : unsigned { kArrive, kLose, kKeep, kOvertake, kTimer };
  struct Choice {
    Kind kind;
    bool request;  // which way
  };
  struct Point {
    std::size_t taken = 0, of = 0;
  };
  Region src, dst, into;
  std::vector<Point> path;  // of this run
  std::size_t at = 0;
  unsigned faults = 0;
  std::array<Message, 2> messages;
  unsigned sent_done = 0, received = 0, expected = 0;
  std::uint64_t before = 0;

  std::optional<std::size_t> nth(bool request, std::size_t n) {
    for (std::size_t i = 0; i < network.size(); ++i)
      if (network[i].request == request && n-- == 0) return i;
    return {};
  }
  std::size_t choose(std::size_t of) {
    if (at == path.size()) path.push_back({0, of});
    EXPECT_EQ(path[at].of, of) << "the same choices led elsewhere";
    return path[at++].taken;
  }
  // To the next sequence of choices; false: there is none.
  bool next_path() {
    while (!path.empty() && path.back().taken + 1 == path.back().of) path.pop_back();
    if (path.empty()) return false;
    ++path.back().taken;
    return true;
  }

  static bool receives(WqeOpcode op) { return op == WqeOpcode::SEND || op == WqeOpcode::RDMA_WRITE_IMM; }
  static std::uint64_t slot(unsigned i) { return i * 2048u; }
  Wr request_of(unsigned i) {
    const Message& m = messages[i];
    Wr w{.op = m.op, .sges = {sge(src, m.len, slot(i))}, .raddr = dst.va + slot(i), .rkey = dst.key};
    if (m.op == WqeOpcode::RDMA_READ) w.sges = {sge(src, m.len, 4096 + slot(i))};
    if (m.op == WqeOpcode::ATOMIC_FA) {
      w.sges = {sge(src, 8, 8192 + slot(i))};
      w.raddr = dst.va + 8192;
      w.swap_add = 1;
    }
    return w;
  }
  std::uint64_t word(const Region& r, std::uint64_t off) {
    std::uint64_t v;
    std::memcpy(&v, bench.bus.host(r.mem) + off, 8);
    return v;
  }
  unsigned atomics(unsigned upto) {
    unsigned n = 0;
    for (unsigned i = 0; i < upto; ++i) n += messages[i].op == WqeOpcode::ATOMIC_FA;
    return n;
  }
  // What message `i` does has been done.
  void check_effect(unsigned i) {
    const Message& m = messages[i];
    const std::uint8_t *s = bench.bus.host(src.mem), *d = bench.bus.host(dst.mem);
    switch (m.op) {
      case WqeOpcode::RDMA_READ: EXPECT_EQ(std::memcmp(s + 4096 + slot(i), d + slot(i), m.len), 0); break;
      case WqeOpcode::RDMA_WRITE:
      case WqeOpcode::RDMA_WRITE_IMM: EXPECT_EQ(std::memcmp(s + slot(i), d + slot(i), m.len), 0); break;
      case WqeOpcode::ATOMIC_FA:
        EXPECT_EQ(byteswap(word(src, 8192 + slot(i))), before + atomics(i)) << "what the atomic found";
        EXPECT_GE(word(dst, 8192), before + atomics(i + 1));
        break;
      default: break;  // its receive tells
    }
  }
  void look() {
    for (const Wc& w : recvs(b)) {
      ASSERT_LT(received, expected);
      EXPECT_TRUE(w.ok()) << w.syndrome;
      unsigned i = received > 0 || !receives(messages[0].op) ? 1 : 0;
      EXPECT_EQ(w.byte_cnt, messages[i].len);
      if (messages[i].op == WqeOpcode::SEND) {
        EXPECT_EQ(std::memcmp(bench.bus.host(into.mem) + received * 4096, bench.bus.host(src.mem) + slot(i), messages[i].len), 0);
      }
      ++received;
    }
    for (const Wc& w : sends(a)) {
      ASSERT_LT(sent_done, 2u);
      ASSERT_TRUE(w.ok()) << w.syndrome;
      EXPECT_EQ(w.wqe, static_cast<std::uint16_t>(first_wqe + sent_done));
      check_effect(sent_done);
      unsigned must = receives(messages[0].op) + (sent_done == 1 && receives(messages[1].op));
      if (receives(messages[sent_done].op)) {
        EXPECT_GE(received, must);
      }
      ++sent_done;
    }
  }
  std::uint16_t first_wqe = 0;

  void step() {
    std::vector<Choice> choices;
    for (bool way : {true, false}) {
      if (!nth(way, 0)) continue;
      choices.push_back({kArrive, way});
      if (faults == 0) continue;
      choices.push_back({kLose, way});
      choices.push_back({kKeep, way});
      if (nth(way, 1)) choices.push_back({kOvertake, way});
    }
    if (faults > 0 && timer_runs()) choices.push_back({kTimer, false});
    const Choice c = choices[choose(choices.size())];
    if (c.kind != kArrive) --faults;
    switch (c.kind) {
      case kArrive: return deliver_at(*nth(c.request, 0));
      case kLose: network.erase(network.begin() + static_cast<std::ptrdiff_t>(*nth(c.request, 0))); return;
      case kKeep: {
        Flying copy = network[*nth(c.request, 0)];
        network.push_back(copy);
        return deliver_at(*nth(c.request, 0));
      }
      case kOvertake: return deliver_at(*nth(c.request, 1));
      case kTimer: return fire_timer();
    }
  }
  void one_run(unsigned limit) {
    at = sent_done = received = 0;
    faults = limit;
    transport(a).req.next_seq = 0;  // which packets ask for an acknowledge is the same in every run
    before = word(dst, 8192);
    for (unsigned i = 0; i < expected; ++i) post_recv(b, {sge(into, 4096, i * 4096)});
    first_wqe = post(a, request_of(0), false);
    post(a, request_of(1));
    run();
    for (unsigned steps = 0; !HasFailure(); ++steps) {
      ASSERT_LT(steps, 500u) << "no end";
      look();
      if (!network.empty()) {
        step();
      } else if (timer_runs()) {
        fire_timer();
      } else {
        break;
      }
    }
    EXPECT_EQ(sent_done, 2u);
    EXPECT_EQ(received, expected);
    EXPECT_EQ(word(dst, 8192), before + atomics(2)) << "executed twice";
    for (const End* e : {&a, &b}) EXPECT_EQ(bench.hca.objects().qp(e->qp.qpn)->state, hca::QpState::kRts);
    bench.port.sent.clear();
  }
};

TEST_P(DpInterleave, EveryOrderEndsWell) {
  messages = {kPairs[GetParam()].first, kPairs[GetParam()].second};
  expected = receives(messages[0].op) + receives(messages[1].op);
  const unsigned limit = (messages[0].len <= kOne && messages[1].len <= kOne ? 2 : 1) + (std::getenv("UHCA_LONG") != nullptr);
  connect();
  src = region(16384);
  dst = region(16384);
  into = region(8192);
  take_over();
  unsigned runs = 0;
  do {
    fill(src, static_cast<std::uint8_t>(runs));
    fill({dst.va, 8192, dst.mem, dst.key}, static_cast<std::uint8_t>(runs * 3 + 1));
    one_run(limit);
    ++runs;
    if (HasFailure()) {
      std::string chosen;
      for (const Point& p : path) chosen += std::to_string(p.taken) + "/" + std::to_string(p.of) + " ";
      FAIL() << "run " << runs << ", choices " << chosen;
    }
  } while (next_path());
  RecordProperty("runs", static_cast<int>(runs));
  EXPECT_GT(runs, 50u);
}

INSTANTIATE_TEST_SUITE_P(Pairs, DpInterleave, ::testing::Range(std::size_t{0}, std::size(kPairs)));

}  // namespace
}  // namespace uhca::hcatest
