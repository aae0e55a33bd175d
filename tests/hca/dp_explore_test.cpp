// SPDX-License-Identifier: MIT
// Small scope, every case: two requests, and for each of the first five frames on the wire (whichever way they go) every choice of: arrive,
// get lost, arrive twice, arrive behind the next one. Whatever happens, both requests complete, data are exact, effects come once.
#include <array>
#include <iterator>

#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Verdict = FakePort::Verdict;

constexpr unsigned kFrames = 5;
constexpr std::uint32_t kLen = 1500;  // two packets

struct Pair {
  WqeOpcode first, second;
};
constexpr Pair kPairs[] = {
    {WqeOpcode::SEND, WqeOpcode::SEND},           {WqeOpcode::RDMA_WRITE, WqeOpcode::ATOMIC_FA},
    {WqeOpcode::ATOMIC_FA, WqeOpcode::SEND},      {WqeOpcode::RDMA_READ, WqeOpcode::SEND},
    {WqeOpcode::SEND, WqeOpcode::RDMA_READ},      {WqeOpcode::RDMA_READ, WqeOpcode::RDMA_READ},
    {WqeOpcode::RDMA_READ, WqeOpcode::ATOMIC_FA}, {WqeOpcode::RDMA_WRITE_IMM, WqeOpcode::SEND},
};

class DpExplore : public DpTest, public ::testing::WithParamInterface<std::size_t> {
 protected:
  enum Choice : unsigned { kArrive, kLost, kTwice, kBehind, kChoices };
  Region src, dst;
  std::array<unsigned, kFrames> choices{};
  unsigned frame = 0;
  std::optional<FakePort::Bytes> held;

  Verdict decide(FakePort::Bytes& bytes) {
    unsigned c = frame < kFrames ? choices[frame] : kArrive;
    ++frame;
    if (c == kBehind && !held) {
      held = bytes;
      return Verdict::kDrop;
    }
    if (c == kLost) return Verdict::kDrop;
    bench.port.inject(bytes);
    if (c == kTwice) bench.port.inject(bytes);
    release();
    return Verdict::kDrop;  // delivered by hand
  }
  void release() {
    if (held) bench.port.inject(*std::exchange(held, {}));
  }
  Wr request(WqeOpcode op, std::uint64_t slot) {
    Wr w{.op = op, .sges = {sge(src, kLen, slot)}};
    w.raddr = dst.va + 4096 + slot;
    w.rkey = dst.key;
    if (op == WqeOpcode::ATOMIC_FA) {
      w.sges = {sge(src, 8, 12288)};
      w.raddr = dst.va + 16000;
      w.swap_add = 1;
    }
    if (op == WqeOpcode::RDMA_READ) w.sges = {sge(src, kLen, 8192 + slot)};
    return w;
  }
  static bool receives(WqeOpcode op) { return op == WqeOpcode::SEND || op == WqeOpcode::RDMA_WRITE_IMM; }
  std::uint64_t counter() {
    std::uint64_t v;
    std::memcpy(&v, bench.bus.host(dst.mem) + 16000, 8);
    return v;
  }
  void check_data(WqeOpcode op, std::uint64_t slot, const std::uint8_t* recv) {
    const std::uint8_t *s = bench.bus.host(src.mem), *d = bench.bus.host(dst.mem);
    const std::uint8_t *from = s + slot, *at = nullptr;
    if (op == WqeOpcode::SEND) at = recv;
    if (op == WqeOpcode::RDMA_WRITE || op == WqeOpcode::RDMA_WRITE_IMM) at = d + 4096 + slot;
    if (op == WqeOpcode::RDMA_READ) {
      from = d + 4096 + slot;
      at = s + 8192 + slot;
    }
    if (at != nullptr) {
      EXPECT_EQ(std::memcmp(at, from, kLen), 0);
    }
  }
};

TEST_P(DpExplore, BothRequestsComplete) {
  const Pair pair = kPairs[GetParam()];
  connect();
  src = region(16384);
  dst = region(20480);
  Region into = region(8192);
  bench.port.on_send = [this](FakePort::Bytes& bytes) { return decide(bytes); };
  unsigned cases = 1;
  for (unsigned i = 0; i < kFrames; ++i) cases *= kChoices;
  for (unsigned n = 0; n < cases && !HasFailure(); ++n) {
    for (unsigned i = 0, left = n; i < kFrames; ++i, left /= kChoices) choices[i] = left % kChoices;
    SCOPED_TRACE(::testing::Message() << "choices " << choices[0] << choices[1] << choices[2] << choices[3] << choices[4]);
    frame = 0;
    fill(src, static_cast<std::uint8_t>(n));
    std::uint64_t before = counter();
    unsigned expected = receives(pair.first) + receives(pair.second);
    for (unsigned i = 0; i < expected; ++i) post_recv(b, {sge(into, 4096, i * 4096)});
    post(a, request(pair.first, 0), false);
    post(a, request(pair.second, 2048));
    run_for(600'000'000);
    release();
    run_for(600'000'000);
    auto s = sends(a), v = recvs(b);
    ASSERT_EQ(syndromes(s), (std::vector<unsigned>{0, 0}));
    ASSERT_EQ(v.size(), expected);
    for (auto& w : v) EXPECT_TRUE(w.ok());
    unsigned atomics = (pair.first == WqeOpcode::ATOMIC_FA) + (pair.second == WqeOpcode::ATOMIC_FA);
    EXPECT_EQ(counter(), before + atomics);
    const std::uint8_t* recv = bench.bus.host(into.mem);
    check_data(pair.first, 0, recv);
    check_data(pair.second, 2048, recv + (receives(pair.first) ? 4096 : 0));
    EXPECT_EQ(bench.hca.next_deadline(), kNever) << "nothing is left to wait for";
    bench.port.sent.clear();
  }
}

INSTANTIATE_TEST_SUITE_P(Pairs, DpExplore, ::testing::Range(std::size_t{0}, std::size(kPairs)));

}  // namespace
}  // namespace uhca::hcatest
