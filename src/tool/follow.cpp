// SPDX-License-Identifier: MIT
#include "tool/follow.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace uhca::tool {

Follower::Fields Follower::fields_of(const TraceEvent& e) {
  Fields f;
  f.qpn = e.number("qpn");
  f.wqe = e.number("wqe");
  if (e.layer == "api") {
    if (e.name == "ibv_post_send" && e.text("ret") == "0") f.kind = Kind::kPost;
    if (e.name == "ibv_wr_complete") f.kind = Kind::kPostCall;
    if (e.name == "ibv_post_recv" || e.name == "ibv_post_srq_recv" || e.name == "ibv_req_notify_cq") f.kind = Kind::kReady;
    if (e.name.rfind("ibv_poll_cq", 0) == 0) f.kind = Kind::kPoll, f.recv = e.text("opcode").rfind("RECV", 0) == 0;
  } else if (e.layer == "doorbell") {
    if (e.name == "SQ") f.kind = Kind::kDoorbell;
  } else if (e.layer == "wqe" || e.layer == "cqe") {
    const bool wqe = e.layer == "wqe";
    if (e.name == "SEND_QUEUE") f.kind = wqe ? Kind::kSendWqe : Kind::kSendCqe;
    if (e.name == "RECV_QUEUE") f.kind = wqe ? Kind::kRecvWqe : Kind::kRecvCqe;
    f.psn = e.number("psn");
    f.psns = e.number("psns");
  } else if (e.layer == "frame") {
    f.kind = e.name == "tx" ? Kind::kTx : Kind::kRx;
    f.psn = e.number("psn");
    f.dest_qpn = e.number("dest_qpn");
    const std::string opcode = e.text("opcode");
    f.response = opcode.find("ACKNOWLEDGE") != std::string::npos || opcode.find("READ_RESPONSE") != std::string::npos;
  }
  return f;
}

Follower::Follower(const std::vector<TraceEvent>& all) : all_(all) {
  fields_.reserve(all.size());
  // The k-th post on a QP is its k-th distinct WQE (a retransmission fetches one again). QPNs are unique on one host; the process tells the
  // two ends of a QP number apart across hosts.
  std::map<QpKey, std::vector<std::size_t>> posts, wqes;
  std::map<QpKey, std::set<std::pair<std::uint64_t, std::uint64_t>>> seen;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Fields& f = fields_.emplace_back(fields_of(all[i]));
    by_tid_[all[i].tid].push_back(i);
    if (f.qpn) by_qpn_[*f.qpn].push_back(i);
    const QpKey qp{all[i].pid, f.qpn.value_or(0)};
    if (f.kind == Kind::kPost) posts[qp].push_back(i);
    if (f.kind == Kind::kSendWqe && seen[qp].emplace(f.wqe.value_or(0), f.psn.value_or(0)).second) wqes[qp].push_back(i);
    if (all[i].layer == "api" && f.kind != Kind::kPoll && f.kind != Kind::kPostCall && f.kind != Kind::kReady) seeds_.push_back(i);
  }
  for (const auto& [qp, fetched] : wqes) {
    const auto& calls = posts[qp];
    for (std::size_t k = 0; k < fetched.size(); ++k)
      if (k < calls.size()) {
        wqe_of_post_[calls[k]] = fetched[k];
      } else if (calls.empty()) {
        seeds_.push_back(fetched[k]);
      }
  }
  std::sort(seeds_.begin(), seeds_.end());
}

const std::vector<std::size_t>& Follower::of_qp(std::optional<std::uint64_t> qpn) const {
  static const std::vector<std::size_t> none;
  auto it = qpn ? by_qpn_.find(*qpn) : by_qpn_.end();
  return it == by_qpn_.end() ? none : it->second;
}

std::optional<std::size_t> Follower::first_of_qp(std::optional<std::uint64_t> qpn, std::size_t from, Kind kind,
                                                 std::optional<std::uint64_t> wqe) const {
  const auto& events = of_qp(qpn);
  for (auto it = std::lower_bound(events.begin(), events.end(), from); it != events.end(); ++it)
    if (fields_[*it].kind == kind && (!wqe || fields_[*it].wqe == wqe)) return *it;
  return std::nullopt;
}

// What the call did on its own thread: the events since that thread's previous API event (an API event is written on return).
void Follower::pick_nested(std::size_t seed, Picked* out) const {
  const auto& events = by_tid_.at(all_[seed].tid);
  auto it = std::lower_bound(events.begin(), events.end(), seed);
  while (it != events.begin() && all_[*--it].layer != "api") out->push_back(*it);
}

void Follower::pick_completion(std::size_t from, std::optional<std::uint64_t> qpn, std::optional<std::uint64_t> wqe, bool recv,
                               Picked* out) const {
  auto cqe = first_of_qp(qpn, from, recv ? Kind::kRecvCqe : Kind::kSendCqe, wqe);
  if (!cqe) return;
  out->push_back(*cqe);
  const auto& events = of_qp(qpn);
  for (auto it = std::lower_bound(events.begin(), events.end(), *cqe); it != events.end(); ++it)
    if (fields_[*it].kind == Kind::kPoll && fields_[*it].recv == recv) {
      out->push_back(*it);
      return;
    }
}

void Follower::pick_request(std::size_t wqe, Picked* out) const {
  const Fields& w = fields_[wqe];
  const int pid = all_[wqe].pid;
  const auto first_psn = w.psn.value_or(0);
  const auto psns = std::max<std::uint64_t>(w.psns.value_or(1), 1);
  auto in_range = [&](const Fields& f) { return ((f.psn.value_or(0) - first_psn) & 0xffffff) < psns; };
  out->push_back(wqe);
  const auto& own = of_qp(w.qpn);
  auto here = std::lower_bound(own.begin(), own.end(), wqe);
  for (auto it = here; it != own.begin();)
    if (fields_[*--it].kind == Kind::kDoorbell && all_[*it].pid == pid) {
      out->push_back(*it);
      break;
    }

  // Requests leave our QP and reach the peer's; responses the other way round.
  std::optional<std::uint64_t> peer;
  for (auto it = here; it != own.end(); ++it) {
    const Fields& f = fields_[*it];
    if ((f.kind != Kind::kTx && f.kind != Kind::kRx) || !in_range(f)) continue;
    if ((f.kind == Kind::kTx) == f.response) continue;
    if (!peer && f.kind == Kind::kTx && all_[*it].pid == pid) peer = f.dest_qpn;
    out->push_back(*it);
  }
  std::optional<std::size_t> arrived;
  const auto& other = of_qp(peer);
  for (auto it = std::lower_bound(other.begin(), other.end(), wqe); it != other.end(); ++it) {
    const Fields& f = fields_[*it];
    if ((f.kind != Kind::kTx && f.kind != Kind::kRx) || !in_range(f) || (f.kind == Kind::kTx) != f.response) continue;
    out->push_back(*it);
    if (f.kind == Kind::kRx && !arrived) arrived = *it;
  }

  // A receive WQE belongs to the message if it was taken between the message's arrival and the next message's.
  const std::string opcode = all_[wqe].text("opcode");
  if (arrived && (opcode == "0xa" || opcode == "0xb" || opcode == "0x9" || opcode == "0x1"))
    if (auto taken = first_of_qp(peer, *arrived, Kind::kRecvWqe)) {
      out->push_back(*taken);
      pick_completion(*taken, peer, fields_[*taken].wqe, true, out);
    }
  pick_completion(wqe, w.qpn, w.wqe, false, out);
}

std::vector<std::size_t> Follower::path(std::size_t seed) const {
  Picked out{seed};
  if (fields_[seed].kind == Kind::kSendWqe) {
    pick_request(seed, &out);
    // The call that handed it over returns later; without a doorbell in the trace it cannot be told from another.
    if (auto call = first_of_qp(fields_[seed].qpn, seed, Kind::kPostCall)) out.push_back(*call);
  } else if (all_[seed].name == "ibv_post_send") {
    if (auto it = wqe_of_post_.find(seed); it != wqe_of_post_.end()) pick_request(it->second, &out);
  } else {
    pick_nested(seed, &out);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<TraceEvent> follow(const std::vector<TraceEvent>& all, const std::string& what) {
  const std::size_t hash = what.find('#');
  const std::string call = what.substr(0, hash);
  int n = hash == std::string::npos ? 1 : std::atoi(what.c_str() + hash + 1);
  auto seed = std::find_if(all.begin(), all.end(), [&](const TraceEvent& e) { return e.layer == "api" && e.name == call && --n == 0; });
  std::vector<TraceEvent> out;
  if (seed == all.end()) return out;
  for (std::size_t i : Follower(all).path(static_cast<std::size_t>(seed - all.begin()))) out.push_back(all[i]);
  return out;
}

}  // namespace uhca::tool
