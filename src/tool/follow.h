// SPDX-License-Identifier: MIT
// The way of one request through the events of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

// Looks at every event once, so that many requests of a long trace can be followed. The events must be in order of time and outlive it.
class Follower {
 public:
  explicit Follower(const std::vector<TraceEvent>& all);

  // Where requests begin, in order: posts of a send queue (the fetched WQE itself where no call was seen: ibv_wr_*, mlx5dv) and all other
  // calls of the Verbs API but polls and what makes a queue ready for others' requests.
  const std::vector<std::size_t>& seeds() const { return seeds_; }

  // The events of what began at `seed`, in order of time: of a request all that it led to at both ends, up to the polled completions; of
  // another call what it did on its own thread.
  std::vector<std::size_t> path(std::size_t seed) const;

 private:
  enum class Kind { kOther, kPost, kPostCall, kReady, kPoll, kDoorbell, kSendWqe, kRecvWqe, kTx, kRx, kSendCqe, kRecvCqe };
  struct Fields {
    Kind kind = Kind::kOther;
    std::optional<std::uint64_t> qpn, wqe, psn, psns, dest_qpn;
    bool response = false;  // of a frame
    bool recv = false;      // of a polled completion: a receive's
  };
  using Picked = std::vector<std::size_t>;
  using QpKey = std::pair<int, std::uint64_t>;  // process, QPN

  static Fields fields_of(const TraceEvent& e);
  const std::vector<std::size_t>& of_qp(std::optional<std::uint64_t> qpn) const;
  std::optional<std::size_t> first_of_qp(std::optional<std::uint64_t> qpn, std::size_t from, Kind kind,
                                         std::optional<std::uint64_t> wqe = std::nullopt) const;
  void pick_nested(std::size_t seed, Picked* out) const;
  void pick_request(std::size_t wqe, Picked* out) const;
  void pick_completion(std::size_t from, std::optional<std::uint64_t> qpn, std::optional<std::uint64_t> wqe, bool recv, Picked* out) const;

  const std::vector<TraceEvent>& all_;
  std::vector<Fields> fields_;
  std::map<std::uint64_t, std::vector<std::size_t>> by_qpn_;
  std::map<int, std::vector<std::size_t>> by_tid_;
  std::map<std::size_t, std::size_t> wqe_of_post_;
  std::vector<std::size_t> seeds_;
};

// What `call#n` led to ("ibv_post_send#1": the first call of that name); empty: there was no such call.
std::vector<TraceEvent> follow(const std::vector<TraceEvent>& all, const std::string& what);

}  // namespace uhca::tool
