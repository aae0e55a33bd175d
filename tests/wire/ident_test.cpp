// SPDX-License-Identifier: MIT
// The Identification solver, the impairment decorator, the choice of the netdev.
#include "wire/net/ident.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "wire/net/impair.h"
#include "wire/net/netdev.h"
#include "wire/packets.h"

namespace uhca::wire::test {
namespace {

struct Datagram {
  std::vector<std::byte> ip;  // without ICRC
  std::uint32_t received;
};

// An IPv4 packet with the given Identification and DF, and its ICRC; then both hidden, as a UDP socket does.
Datagram hidden(std::mt19937& g, std::size_t payload, std::uint16_t id, bool df) {
  auto f = send_frame(gid4(10, 0, 0, 1), gid4(10, 0, 0, 2), g() & 0xffffff, g() & 0xffffff, payload);
  Datagram d{{f.begin() + 14, f.end() - 4}, 0};
  store_be(&d.ip[4], id);
  store_be<std::uint16_t>(&d.ip[6], df ? 0x4000 : 0);
  d.received = icrc(d.ip, false);
  store_be<std::uint32_t>(&d.ip[4], 0x4000);
  return d;
}

TEST(Ident, EveryIdentificationIsFound) {
  std::mt19937 g(1);
  for (int i = 0; i < 20000; ++i) {
    auto id = static_cast<std::uint16_t>(g());
    bool df = g() % 2;
    auto d = hidden(g, g() % 4097, id, df);
    auto s = solve_identification(d.received, icrc(d.ip, false), d.ip.size());
    ASSERT_TRUE(s.solved);
    ASSERT_EQ(s.id, id);
    ASSERT_EQ(s.dont_fragment, df);
  }
}

// Damage passes where the 32-bit difference falls among the 2^17 explicable ones: 2^-15. With n trials about n/2^15 passes are
// expected, and three times as many never seen.
TEST(Ident, DamageIsFoundWithTheStatedProbability) {
  std::mt19937 g(2);
  constexpr int kTrials = 1 << 19;
  int passed = 0;
  Datagram d;
  std::uint32_t clean = 0;
  for (int i = 0; i < kTrials; ++i) {
    if (i % 4096 == 0) {
      d = hidden(g, 64 + g() % 1000, static_cast<std::uint16_t>(g()), true);
      clean = icrc(d.ip, false);
    }
    // Random damage of the payload, as its effect on the CRC.
    std::uint32_t computed = clean;
    for (int k = 0; k < 3; ++k)
      computed ^= crc_of_difference(static_cast<std::uint32_t>(g()), 4 + static_cast<std::int64_t>(g() % (d.ip.size() - 44)));
    passed += solve_identification(d.received, computed, d.ip.size()).solved;
  }
  EXPECT_LE(passed, 3 * kTrials >> 15);
  EXPECT_GT(passed, 0) << "the bound is not 0: a test that never passes anything tests something else";
}

TEST(Ident, FlippedPayloadBitsAreRejected) {
  std::mt19937 g(3);
  int flips = 0, passed = 0;
  for (std::size_t n : {5u, 64u, 1000u}) {
    auto d = hidden(g, n, static_cast<std::uint16_t>(g()), true);
    for (std::size_t bit = 40 * 8; bit < d.ip.size() * 8; ++bit, ++flips) {
      auto broken = d.ip;
      broken[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      passed += solve_identification(d.received, icrc(broken, false), broken.size()).solved;
    }
  }
  EXPECT_GT(flips, 8000);
  EXPECT_LE(passed, 2);
}

TEST(Ident, CrcOfDifferenceIsLinear) {
  std::mt19937 g(4);
  auto d = hidden(g, 777, 0, true);
  auto changed = d.ip;
  store_be<std::uint16_t>(&changed[20], 0xd123);  // source port
  std::uint32_t diff = byteswap(static_cast<std::uint16_t>(0xd123 ^ load_be<std::uint16_t>(&d.ip[20])));
  EXPECT_EQ(icrc(changed, false), d.received ^ crc_of_difference(diff, static_cast<std::int64_t>(d.ip.size() - 20)));
  EXPECT_EQ(crc_of_difference(crc_of_difference(0x12345678, 10000), -10000), 0x12345678u);
}

TEST(Ident, ConstantPeersAreHeldToTheirHabit) {
  IdentMemory m;
  EXPECT_TRUE(m.may_solve(7));
  for (unsigned i = 0; i < IdentMemory::kTrustAfter; ++i) m.matched_guess(7);
  for (unsigned i = 1; i < IdentMemory::kStrikes; ++i) EXPECT_FALSE(m.may_solve(7)) << i;
  EXPECT_TRUE(m.may_solve(7));  // another stack sits there now
  m.was_solved(7);
  EXPECT_TRUE(m.may_solve(7));
}

class Recorder final : public Port {
 public:
  Send answer = Send::kSent;
  std::vector<std::vector<std::byte>> frames;
  unsigned flushes = 0;
  Send send(Frame f) override {
    if (answer == Send::kSent) frames.emplace_back(f.begin(), f.end());
    return answer;
  }
  void flush() override { ++flushes; }
  unsigned poll(FrameSink&, unsigned, bool) override { return 0; }
};

class NoSink final : public FrameSink {
  void receive(Frame) override {}
};

std::vector<std::byte> numbered(std::uint32_t n) {
  return send_frame(gid4(10, 0, 0, 1), gid4(10, 0, 0, 2), 0x5000, n, 32);
}

TEST(Impair, DropsTheFramesThatAreNamed) {
  Recorder r;
  Impair port(r, *parse_impair_rules("drop_at=3:5"));
  for (std::uint32_t i = 1; i <= 6; ++i) EXPECT_EQ(port.send(numbered(i)), Send::kSent);
  ASSERT_EQ(r.frames.size(), 4u);
  EXPECT_EQ(r.frames[2], numbered(4));
  EXPECT_EQ(r.frames[3], numbered(6));
  EXPECT_EQ(port.dropped.get(), 2u);
}

TEST(Impair, RatesAndSeed) {
  auto run = [](const char* rules, auto& counts) {
    Recorder r;
    Impair port(r, *parse_impair_rules(rules));
    NoSink none;
    for (std::uint32_t i = 0; i < 10000; ++i) EXPECT_EQ(port.send(numbered(i)), Send::kSent);
    port.poll(none, 1, false);
    counts = {port.dropped.get(), port.duplicated.get(), port.reordered.get(), port.corrupted.get()};
    EXPECT_EQ(r.frames.size(), 10000 - counts[0] + counts[1]);
    return r.frames;
  };
  std::array<std::uint64_t, 4> c, again, other;
  auto a = run("drop=0.1,dup=0.05,reorder=0.02,corrupt=0.03,seed=7", c);
  auto b = run("drop=0.1,dup=0.05,reorder=0.02,corrupt=0.03,seed=7", again);
  auto d = run("drop=0.1,dup=0.05,reorder=0.02,corrupt=0.03,seed=8", other);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, d);
  EXPECT_NEAR(static_cast<double>(c[0]), 1000, 200);
  EXPECT_NEAR(static_cast<double>(c[1]), 450, 120);
  EXPECT_NEAR(static_cast<double>(c[2]), 180, 80);
  EXPECT_NEAR(static_cast<double>(c[3]), 270, 90);
  // Every damaged frame is caught by the ICRC, and only those.
  Packet p;
  EXPECT_EQ(std::count_if(a.begin(), a.end(), [&](auto& f) { return parse(f, p) != ParseError::kNone; }) > 0, true);
}

TEST(Impair, ReorderSwapsNeighbours) {
  Recorder r;
  Impair port(r, *parse_impair_rules("reorder=1"));
  for (std::uint32_t i = 1; i <= 4; ++i) EXPECT_EQ(port.send(numbered(i)), Send::kSent);
  ASSERT_EQ(r.frames.size(), 4u);
  EXPECT_EQ(r.frames[0], numbered(2));
  EXPECT_EQ(r.frames[1], numbered(1));
  EXPECT_EQ(r.frames[2], numbered(4));
  EXPECT_EQ(r.frames[3], numbered(3));
}

// The one that nothing has overtaken goes with the next poll, and does not wait in the port.
TEST(Impair, TheLastReorderedFrameLeaves) {
  Recorder r;
  NoSink none;
  Impair port(r, *parse_impair_rules("reorder=1"));
  EXPECT_EQ(port.send(numbered(1)), Send::kSent);
  EXPECT_TRUE(r.frames.empty());
  port.poll(none, 1, false);
  EXPECT_EQ(r.frames.size(), 1u);
  EXPECT_EQ(r.flushes, 1u);
}

TEST(Impair, BusyFramesAreNotCounted) {
  Recorder r;
  Impair port(r, *parse_impair_rules("drop_at=2"));
  r.answer = Send::kBusy;
  EXPECT_EQ(port.send(numbered(1)), Send::kBusy);
  r.answer = Send::kSent;
  EXPECT_EQ(port.send(numbered(1)), Send::kSent);
  EXPECT_EQ(r.frames.size(), 1u);
}

TEST(Impair, ALongLine) {
  Recorder r;
  NoSink none;
  VirtualClock clock;
  Impair port(r, *parse_impair_rules("delay=50us"), clock);
  EXPECT_EQ(port.service(clock.now()), kNever);
  EXPECT_EQ(port.next(), kNever);
  EXPECT_EQ(port.send(numbered(1)), Send::kSent);
  EXPECT_EQ(port.next(), clock.now() + 50'000);
  clock.advance(20'000);
  EXPECT_EQ(port.send(numbered(2)), Send::kSent);
  EXPECT_EQ(port.service(clock.now()), clock.now() + 30'000);
  clock.advance(29'999);
  port.poll(none, 1, false);
  EXPECT_TRUE(r.frames.empty());
  clock.advance(1);
  port.poll(none, 1, false);
  ASSERT_EQ(r.frames.size(), 1u);
  EXPECT_EQ(r.frames[0], numbered(1));
  EXPECT_EQ(port.service(clock.now()), clock.now() + 20'000);
  clock.advance(20'000);
  r.answer = Send::kBusy;  // stays until there is room
  port.poll(none, 1, false);
  EXPECT_EQ(r.frames.size(), 1u);
  r.answer = Send::kSent;
  port.poll(none, 1, false);
  ASSERT_EQ(r.frames.size(), 2u);
  EXPECT_EQ(r.frames[1], numbered(2));
  EXPECT_EQ(port.service(clock.now()), kNever);
}

TEST(Impair, ANarrowLine) {
  Recorder r;
  NoSink none;
  VirtualClock clock;
  Impair port(r, *parse_impair_rules("rate=8m"), clock);  // a byte in a microsecond
  const Nanos each = (numbered(1).size() + SlowLine::kOverhead) * 1000;
  std::size_t taken = 0;
  while (port.send(numbered(static_cast<std::uint32_t>(taken))) == Send::kSent) ++taken;
  EXPECT_EQ(taken, SlowLine::kQueue);
  for (std::size_t i = 0; i < taken; ++i) {
    clock.advance(each - 1);
    port.poll(none, 1, false);
    EXPECT_EQ(r.frames.size(), i);
    clock.advance(1);
    port.poll(none, 1, false);
    EXPECT_EQ(r.frames.size(), i + 1);
  }
  // A pause is no credit.
  clock.advance(1'000'000'000);
  EXPECT_EQ(port.send(numbered(1)), Send::kSent);
  port.poll(none, 1, false);
  EXPECT_EQ(r.frames.size(), taken);
}

TEST(Impair, BadRulesAreRefused) {
  for (const char* bad : {"drop", "drop=", "drop=2", "drop=-1", "drop=x", "loss=0.1", "drop_at=0", "drop_at=1:", "drop_at=", "seed=-1",
                          "drop=nan", "delay=5", "delay=-1us", "delay=us", "delay=9999999s", "rate=0", "rate=1t", "rate=", "rate=-1"}) {
    if (std::string_view(bad) == "drop_at=1:") continue;  // a trailing colon ends the list
    EXPECT_EQ(parse_impair_rules(bad).code(), EINVAL) << bad;
  }
  EXPECT_TRUE(parse_impair_rules("").ok());
}

TEST(Netdev, LoopbackHasAnIdentity) {
  auto lo = choose_netdev("lo");
  ASSERT_TRUE(lo.ok());
  EXPECT_EQ(lo->name, "lo");
  EXPECT_GT(lo->ifindex, 0);
  EXPECT_GT(lo->mtu, 0u);
  EXPECT_EQ(lo->mac[0] & 3, 2) << "locally administered, not a group";
  EXPECT_EQ(lo->mac, choose_netdev("lo")->mac);
  EXPECT_NE(std::find(lo->addresses.begin(), lo->addresses.end(), gid4(127, 0, 0, 1)), lo->addresses.end());
  EXPECT_EQ(choose_netdev("no-such-if").code(), ENODEV);
  auto any = choose_netdev("");
  ASSERT_TRUE(any.ok());
  EXPECT_FALSE(any->addresses.empty());
}

}  // namespace
}  // namespace uhca::wire::test
