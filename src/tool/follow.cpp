// SPDX-License-Identifier: MIT
#include "tool/follow.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

namespace uhca::tool {
namespace {

// A QP of the trace: QPNs are unique on one host, the process tells the two ends of a QP number apart across hosts.
struct Picker {
  const std::vector<TraceEvent>& all;
  std::set<std::size_t> picked;

  // The first event at or after `from` that satisfies f; all.size(): none.
  template <class F>
  std::size_t first(std::size_t from, F f) const {
    while (from < all.size() && !f(all[from])) ++from;
    return from;
  }
  template <class F>
  std::size_t pick_first(std::size_t from, F f) {
    std::size_t i = first(from, f);
    if (i < all.size()) picked.insert(i);
    return i;
  }
};

bool is(const TraceEvent& e, const char* layer, const char* name) {
  return e.layer == layer && e.name == name;
}

bool is_response(const TraceEvent& e) {
  const std::string opcode = e.text("opcode");
  return opcode.find("ACKNOWLEDGE") != std::string::npos || opcode.find("READ_RESPONSE") != std::string::npos;
}

// What the call did on its own thread: the events since that thread's previous API event (an API event is written on return).
void pick_nested(Picker& p, std::size_t seed) {
  for (std::size_t i = seed; i-- > 0 && !(p.all[i].tid == p.all[seed].tid && p.all[i].layer == "api");)
    if (p.all[i].tid == p.all[seed].tid) p.picked.insert(i);
}

// The send WQE behind the call: the k-th post on a QP is its k-th distinct WQE (a retransmission fetches one again).
std::size_t send_wqe_of(const Picker& p, std::size_t seed) {
  const auto& call = p.all[seed];
  const auto qpn = call.number("qpn");
  std::size_t k = 0;
  for (std::size_t i = 0; i <= seed; ++i)
    if (is(p.all[i], "api", "ibv_post_send") && p.all[i].pid == call.pid && p.all[i].number("qpn") == qpn && p.all[i].text("ret") == "0")
      ++k;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  return p.first(0, [&](const TraceEvent& e) {
    if (!is(e, "wqe", "SEND_QUEUE") || e.pid != call.pid || e.number("qpn") != qpn) return false;
    return seen.emplace(e.number("wqe").value_or(0), e.number("psn").value_or(0)).second && seen.size() == k;
  });
}

void pick_request(Picker& p, std::size_t seed, std::size_t wqe) {
  const auto& call = p.all[seed];
  const TraceEvent& w = p.all[wqe];
  const auto qpn = call.number("qpn");
  const auto first_psn = w.number("psn").value_or(0);
  const auto psns = std::max<std::uint64_t>(w.number("psns").value_or(1), 1);
  auto in_range = [&](const TraceEvent& e) { return ((e.number("psn").value_or(0) - first_psn) & 0xffffff) < psns; };
  p.picked.insert(wqe);
  for (std::size_t i = wqe; i-- > 0;)
    if (is(p.all[i], "doorbell", "SQ") && p.all[i].pid == call.pid && p.all[i].number("qpn") == qpn) {
      p.picked.insert(i);
      break;
    }

  std::optional<std::uint64_t> peer;
  std::size_t arrived = p.all.size();
  for (std::size_t i = wqe; i < p.all.size(); ++i) {
    const TraceEvent& e = p.all[i];
    if (e.layer != "frame" || !in_range(e)) continue;
    const bool tx = e.name == "tx", response = is_response(e);
    const auto owner = e.number("qpn");
    if (tx && !response && e.pid == call.pid && owner == qpn) peer = e.number("dest_qpn");
    // Requests leave our QP and reach the peer's; responses the other way round.
    const bool ours = tx != response;
    if (owner == (ours ? qpn : peer)) p.picked.insert(i);
    if (!tx && !response && peer && owner == peer) arrived = std::min(arrived, i);
  }

  auto pick_completion = [&](std::size_t from, const char* queue, std::optional<std::uint64_t> on, std::optional<std::uint64_t> index,
                             bool receive) {
    std::size_t cqe =
        p.pick_first(from, [&](const TraceEvent& e) { return is(e, "cqe", queue) && e.number("qpn") == on && e.number("wqe") == index; });
    p.pick_first(cqe, [&](const TraceEvent& e) {
      return is(e, "api", "ibv_poll_cq") && e.number("qpn") == on && (e.text("opcode").rfind("RECV", 0) == 0) == receive;
    });
  };
  // A receive WQE belongs to the message if it was taken between the message's arrival and the next message's.
  if (w.text("opcode") == "0xa" || w.text("opcode") == "0xb" || w.text("opcode") == "0x9" || w.text("opcode") == "0x1") {
    std::size_t taken = p.pick_first(arrived, [&](const TraceEvent& e) { return is(e, "wqe", "RECV_QUEUE") && e.number("qpn") == peer; });
    if (taken < p.all.size()) pick_completion(taken, "RECV_QUEUE", peer, p.all[taken].number("wqe"), true);
  }
  pick_completion(wqe, "SEND_QUEUE", qpn, w.number("wqe"), false);
}

}  // namespace

std::vector<TraceEvent> follow(const std::vector<TraceEvent>& all, const std::string& what) {
  const std::size_t hash = what.find('#');
  const std::string call = what.substr(0, hash);
  int n = hash == std::string::npos ? 1 : std::atoi(what.c_str() + hash + 1);
  Picker p{all, {}};
  std::size_t seed = p.first(0, [&](const TraceEvent& e) { return is(e, "api", call.c_str()) && --n == 0; });
  if (seed == all.size()) return {};
  p.picked.insert(seed);
  if (call == "ibv_post_send") {
    std::size_t wqe = send_wqe_of(p, seed);
    if (wqe < all.size()) pick_request(p, seed, wqe);
  } else {
    pick_nested(p, seed);
  }
  std::vector<TraceEvent> out;
  for (std::size_t i : p.picked) out.push_back(all[i]);
  return out;
}

}  // namespace uhca::tool
