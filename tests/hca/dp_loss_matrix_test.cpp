// SPDX-License-Identifier: MIT
// A SEND, a WRITE and a READ of ten packets (case E5). Each frame of the exchange in turn, whichever way it goes, is lost, comes twice, or
// changes places with the next one of its direction. Data are exact, effects come once, and exactly so many packets are sent again as the
// rules demand: from the gap on where a NAK or the next response shows it, else all that is not acknowledged, by the timer.
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using prm::WqeOpcode;
using Verdict = FakePort::Verdict;

constexpr unsigned kPackets = 10;
constexpr std::uint32_t kBytes = kPackets * 1024;

enum class Harm : std::uint8_t { kNone, kLost, kTwice, kSwapped };
const char* const kHarms[] = {"unharmed", "lost", "twice", "swapped"};

struct Expected {
  unsigned requests = 0, responses = 0;  // sent more often than without harm: packets A to B, B to A but for acknowledges
  unsigned timeouts = 0, naks = 0, gaps = 0;
};

class DpLossMatrix : public DpTest, public ::testing::WithParamInterface<WqeOpcode> {
 protected:
  Region src, dst;
  Harm harm = Harm::kNone;
  unsigned victim = 0, number = 0;  // frames since the beginning of this exchange
  bool request_held = false;
  std::optional<FakePort::Bytes> held;
  struct Seen {
    bool request = false, nak = false, ack = false;
    std::uint32_t index = 0;  // packet of the message
  };
  std::vector<Seen> seen;

  static bool is_request(const wire::Packet& p) { return wire::has(wire::info(p.bth.opcode).props, wire::Prop::kRequest); }
  Verdict decide(FakePort::Bytes& bytes, std::uint32_t first_psn) {
    wire::Packet p;
    if (wire::parse(bytes, p) != wire::ParseError::kNone) return Verdict::kDrop;
    Seen s;
    s.request = is_request(p);
    s.ack = wire::op_of(p.bth.opcode) == wire::Op::kAcknowledge;
    s.nak = s.ack && (p.aeth.syndrome & 0x60) == wire::kAethNak;
    s.index = (p.bth.psn - first_psn) & wire::kPsnMask;
    seen.push_back(s);
    if (held && request_held == s.request) {
      bench.port.inject(bytes);
      bench.port.inject(*std::exchange(held, {}));
      return Verdict::kDrop;  // delivered by hand
    }
    if (number++ == victim) {
      if (harm == Harm::kLost) return Verdict::kDrop;
      if (harm == Harm::kTwice) bench.port.inject(bytes);
      if (harm == Harm::kSwapped) {
        held = bytes;
        request_held = s.request;
        return Verdict::kDrop;
      }
    }
    return Verdict::kDeliver;
  }
  std::uint32_t counter(prm::Field f) {
    return static_cast<std::uint32_t>(prm::get(bench.hca.data_path().counters().totals.raw.data(), f));
  }

  // One exchange with `victim` harmed; all that may be expected whatever happens. What was seen stays in `seen`.
  void exchange(Harm h, unsigned frame) {
    harm = h;
    victim = frame;
    number = 0;
    held.reset();
    seen.clear();
    bench.port.sent.clear();
    WqeOpcode op = GetParam();
    bool read = op == WqeOpcode::RDMA_READ, send = op == WqeOpcode::SEND;
    fill(src, static_cast<std::uint8_t>(3 * frame + static_cast<unsigned>(h)));
    std::memset(bench.bus.host(dst.mem), 0xaa, dst.len);
    if (read) std::swap(src, dst);  // what is read lies at B
    if (send) post_recv(b, {sge(dst, kBytes)});
    std::uint32_t psn = psn_;
    bench.port.on_send = [this, psn](FakePort::Bytes& bytes) { return decide(bytes, psn); };
    std::uint32_t writes = counter(hca::Qc::rx_write_requests);
    post(a, {.op = op, .sges = {sge(src, kBytes)}, .raddr = dst.va, .rkey = dst.key});
    run_for(1'000'000'000);
    psn_ = wire::psn_add(psn_, kPackets);
    EXPECT_EQ(syndromes(sends(a)), std::vector<unsigned>{0});
    auto received = recvs(b);
    EXPECT_EQ(received.size(), send ? 1u : 0u);
    for (const Wc& w : received) EXPECT_EQ(w.byte_cnt, kBytes);
    EXPECT_EQ(counter(hca::Qc::rx_write_requests) - writes, op == WqeOpcode::RDMA_WRITE ? 1u : 0u) << "executed twice";
    EXPECT_TRUE(same(src, dst, kBytes));
    if (read) std::swap(src, dst);
    EXPECT_EQ(bench.hca.next_deadline(), kNever) << "nothing is left to wait for";
  }
  unsigned count(bool (*what)(const Seen&)) const { return static_cast<unsigned>(std::count_if(seen.begin(), seen.end(), what)); }

  Expected expected(Harm h, const Seen& s) const {
    const unsigned left = kPackets - s.index;
    const bool last = s.index + 1 == kPackets;
    if (GetParam() == WqeOpcode::RDMA_READ) {
      if (s.request) {
        if (h == Harm::kLost) return {.requests = 1, .timeouts = 1};
        return {};  // the answer to the first one has not begun: it is the answer to both
      }
      if (h == Harm::kTwice) return {};
      if (h == Harm::kLost && last) return {.requests = 1, .responses = 1, .timeouts = 1};
      // Swapped: the missing one comes right behind, before it is asked for again.
      if (h == Harm::kSwapped) return {.requests = 1, .responses = left - 1, .gaps = left == 2 ? 1u : 2u};
      return {.requests = 1, .responses = left, .gaps = 1};
    }
    if (s.request) {
      if (h == Harm::kTwice) return {};
      if (h == Harm::kLost && last) return {.requests = kPackets, .timeouts = 1};  // nothing was acknowledged
      // Swapped: the missing one comes right behind, before the NAK is sent, which then names the one that had come too early.
      return {.requests = h == Harm::kSwapped ? left - 1 : left, .naks = 1};
    }
    if (h == Harm::kLost) return {.requests = kPackets, .timeouts = 1};  // the acknowledge
    return {};
  }

 private:
  std::uint32_t psn_ = 0x10;
};

TEST_P(DpLossMatrix, EveryFrame) {
  connect();
  src = region(kBytes);
  dst = region(kBytes);
  exchange(Harm::kNone, 0);
  const std::vector<Seen> clean = seen;
  ASSERT_EQ(clean.size(), kPackets + 1u) << "ten packets one way, an acknowledge or a request the other";
  unsigned cases = 0;
  for (Harm h : {Harm::kLost, Harm::kTwice, Harm::kSwapped}) {
    for (unsigned i = 0; i < clean.size() && !HasFailure(); ++i) {
      bool followed = i + 1 < clean.size() && clean[i + 1].request == clean[i].request;
      if (h == Harm::kSwapped && !followed) continue;
      SCOPED_TRACE(::testing::Message() << "frame " << i << " " << kHarms[static_cast<unsigned>(h)]);
      ++cases;
      std::uint32_t timeouts = counter(hca::Qc::local_ack_timeout_err), naks = counter(hca::Qc::packet_seq_err);
      std::uint32_t gaps = counter(hca::Qc::implied_nak_seq_err);
      exchange(h, i);
      Expected e = expected(h, clean[i]);
      auto is_request = [](const Seen& s) { return s.request; };
      auto is_response = [](const Seen& s) { return !s.request && !s.ack; };
      auto in_clean = [&](auto what) { return static_cast<unsigned>(std::count_if(clean.begin(), clean.end(), what)); };
      EXPECT_EQ(count(is_request), in_clean(is_request) + e.requests) << "requests";
      EXPECT_EQ(count(is_response), in_clean(is_response) + e.responses) << "responses";
      EXPECT_EQ(count([](const Seen& s) { return s.nak; }), e.naks) << "NAKs: one for each gap";
      EXPECT_EQ(counter(hca::Qc::local_ack_timeout_err) - timeouts, e.timeouts) << "timeouts";
      EXPECT_EQ(counter(hca::Qc::packet_seq_err) - naks, e.naks);
      EXPECT_EQ(counter(hca::Qc::implied_nak_seq_err) - gaps, e.gaps);
    }
  }
  EXPECT_EQ(cases, 2 * clean.size() + kPackets - 1) << "each lost, each twice, each pair of neighbours swapped";
}

INSTANTIATE_TEST_SUITE_P(Operations, DpLossMatrix, ::testing::Values(WqeOpcode::SEND, WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_READ),
                         [](const ::testing::TestParamInfo<WqeOpcode>& i) {
                           return i.param == WqeOpcode::SEND ? "Send" : i.param == WqeOpcode::RDMA_WRITE ? "Write" : "Read";
                         });

}  // namespace
}  // namespace uhca::hcatest
