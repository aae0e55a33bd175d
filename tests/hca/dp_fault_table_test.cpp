// SPDX-License-Identifier: MIT
// WRITE, SEND and READ of ten packets; one thing goes wrong with one frame: every fault of every frame, either way. Frames arrive one at a
// time in the order sent, answers leave at once. For each case the exact number of requests that are sent again, the time that passes, and
// what may not happen twice (case E5).
#include <string>

#include "hca/dp_network.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;

constexpr unsigned kN = 10;
constexpr std::uint32_t kLen = kN * 1024;

enum class Fault : unsigned { kLost, kDoubled, kLate, kSwapped };  // kLate: a copy arrives when everything is over
constexpr const char* kFaultNames[] = {"Lost", "Doubled", "Late", "Swapped"};

struct Case {
  WqeOpcode op;
  bool request;  // which way the frame goes
  Fault fault;
  unsigned k;  // which frame of that way
};

std::vector<Case> all_cases() {
  std::vector<Case> v;
  for (WqeOpcode op : {WqeOpcode::RDMA_WRITE, WqeOpcode::SEND, WqeOpcode::RDMA_READ})
    for (bool request : {true, false})
      for (Fault f : {Fault::kLost, Fault::kDoubled, Fault::kLate, Fault::kSwapped}) {
        // The last packet of a WRITE or SEND asks for the one acknowledge; a READ is one packet, its answers are ten.
        unsigned frames = (op == WqeOpcode::RDMA_READ) == request ? 1 : kN;
        for (unsigned k = 0; k < frames - (f == Fault::kSwapped); ++k) v.push_back({op, request, f, k});
      }
  return v;
}

// What one fault costs.
struct Cost {
  unsigned again = 0;  // request packets sent again
  bool timeout = false;
};
Cost cost(const Case& c) {
  const unsigned rest = kN - c.k;
  if (c.fault == Fault::kDoubled || c.fault == Fault::kLate) return {};
  if (c.op == WqeOpcode::RDMA_READ) {
    if (c.request) return {1, true};
    if (c.fault == Fault::kLost) return {1, c.k == kN - 1};  // the next answer tells of the gap; behind the last there is none
    return {c.k < kN - 2 ? 2u : 1u, false};                  // one gap in front of the early one, another one behind the late one
  }
  if (!c.request) return {kN, true};  // nothing is acknowledged: all of it
  if (c.fault == Fault::kLost) return c.k < kN - 1 ? Cost{rest, false} : Cost{kN, true};
  // The early one makes the responder ask for the late one, the one behind it for the early one, which was dropped.
  return {c.k < kN - 2 ? rest + rest - 1 : rest, false};
}

class DpFaultTable : public NetworkTest, public ::testing::WithParamInterface<Case> {
 protected:
  Region src, dst;
  std::optional<FakePort::Bytes> late;
  unsigned seen = 0;

  void sent(Flying f) override {
    const Case& c = GetParam();
    bool hit = f.request == c.request && seen++ == c.k;
    bool swap = f.request == c.request && c.fault == Fault::kSwapped && seen == c.k + 2;
    if (hit && c.fault == Fault::kLost) return;
    if (hit && c.fault == Fault::kLate) late = f.bytes;
    network.push_back(f);
    if (hit && c.fault == Fault::kDoubled) network.push_back(f);
    if (swap) std::swap(network[network.size() - 1], network[network.size() - 2]);
  }
  void until_quiet() {
    while (!network.empty()) deliver_at(0);
  }
  bool all_there() { return same(src, dst, kLen); }
  std::uint32_t counter(prm::Field f) {
    return static_cast<std::uint32_t>(prm::get(bench.hca.data_path().counters().totals.raw.data(), f));
  }
};

TEST_P(DpFaultTable, IsHealedAndNothingIsDoneTwice) {
  const Case& c = GetParam();
  const Cost expected = cost(c);
  const bool read = c.op == WqeOpcode::RDMA_READ;
  connect();
  src = region(kLen);
  dst = region(kLen);
  fill(src, 21);
  Region& target = read ? src : dst;
  if (read) {
    std::memset(bench.bus.host(src.mem), 0, kLen);
    fill(dst, 21);
  }
  take_over();
  if (c.op == WqeOpcode::SEND)
    for (int i = 0; i < 2; ++i) post_recv(b, {sge(dst, kLen)});
  const Nanos begin = bench.clock.now();
  post(a, {.op = c.op, .sges = {sge(src, kLen)}, .raddr = dst.va, .rkey = dst.key});
  run();
  ASSERT_EQ(requests, read ? 1u : kN);
  until_quiet();

  const bool executed = all_there();
  const std::vector<std::uint8_t> scribble(kLen, 0xee);
  std::vector<Wc> s = sends(a);
  ASSERT_EQ(s.size(), expected.timeout ? 0u : 1u);
  // What a program writes after it was executed stays: nothing of it is executed again.
  if (executed) std::memcpy(bench.bus.host(target.mem), scribble.data(), kLen);
  if (expected.timeout) {
    pass(1);
    until_quiet();
    s = sends(a);
    EXPECT_EQ(bench.clock.now() - begin, Nanos{2} * 4096 << 14) << "one timeout";
  } else {
    EXPECT_EQ(bench.clock.now(), begin);
  }
  if (late) deliver(*late);
  until_quiet();

  ASSERT_EQ(s.size(), 1u);
  EXPECT_TRUE(s[0].ok()) << s[0].syndrome;
  if (executed) {
    EXPECT_EQ(std::memcmp(bench.bus.host(target.mem), scribble.data(), kLen), 0) << "executed twice";
  } else {
    EXPECT_TRUE(all_there());
  }
  std::vector<Wc> v = recvs(b);
  ASSERT_EQ(v.size(), c.op == WqeOpcode::SEND ? 1u : 0u);
  if (!v.empty()) {
    EXPECT_EQ(v[0].byte_cnt, kLen);
  }
  EXPECT_TRUE(sends(a).empty());
  EXPECT_EQ(requests, (read ? 1u : kN) + expected.again);
  EXPECT_EQ(counter(hca::Qc::local_ack_timeout_err), expected.timeout ? 1u : 0u);
  if (c.op == WqeOpcode::RDMA_WRITE) {
    EXPECT_EQ(counter(hca::Qc::rx_write_requests), 1u);
  }
  EXPECT_EQ(state(a), hca::QpState::kRts);
  EXPECT_EQ(state(b), hca::QpState::kRts);
  EXPECT_EQ(affiliated_events(), (std::vector<std::pair<unsigned, std::uint32_t>>{}));
  pass(3);
  EXPECT_TRUE(network.empty()) << "nothing is left to send";
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  const char* op = c.op == WqeOpcode::SEND ? "Send" : c.op == WqeOpcode::RDMA_READ ? "Read" : "Write";
  return std::string(op) + (c.request ? "Request" : "Answer") + kFaultNames[static_cast<unsigned>(c.fault)] + std::to_string(c.k);
}
INSTANTIATE_TEST_SUITE_P(OfTen, DpFaultTable, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace uhca::hcatest
