// SPDX-License-Identifier: MIT
// "Trace Event Format" (the document of that name by the Chromium project): ph M names tracks, X is a slice, s/t/f are a flow's begin,
// steps and end, which bind to the slice at the same time on the same track. ts is in microseconds.
#include "tool/perfetto.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "tool/follow.h"

namespace uhca::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kOrder{"api",      "syscall", "cm",    "mad",   "mm",  "dmabuf", "cmd", "wake",
                            "doorbell", "wqe",     "state", "frame", "cqe", "eqe",    "irq", "refuse"};

// The format knows processes and threads; a layer takes the place of a thread.
int track_of(const TraceEvent& e) {
  return static_cast<int>(std::find(kOrder.begin(), kOrder.end(), e.layer) - kOrder.begin()) + 1;
}

double microseconds(std::uint64_t ns) {
  return static_cast<double>(ns) / 1000.0;
}

}  // namespace

std::string perfetto_json(const std::vector<TraceEvent>& events) {
  const std::uint64_t t0 = events.empty() ? 0 : events.front().t;
  Json out = Json::array();
  std::set<std::pair<int, int>> tracks;
  for (const TraceEvent& e : events) {
    const int track = track_of(e);
    if (tracks.insert({e.pid, track}).second) {
      out.push_back({{"ph", "M"}, {"name", "thread_name"}, {"pid", e.pid}, {"tid", track}, {"args", {{"name", e.layer}}}});
      out.push_back({{"ph", "M"}, {"name", "thread_sort_index"}, {"pid", e.pid}, {"tid", track}, {"args", {{"sort_index", track}}}});
    }
    Json args = e.fields;
    args["thread"] = e.tid;
    out.push_back({{"ph", "X"},
                   {"name", e.name},
                   {"cat", e.layer},
                   {"pid", e.pid},
                   {"tid", track},
                   {"ts", microseconds(e.t - t0)},
                   {"dur", 0},
                   {"args", std::move(args)}});
  }
  const Follower follower(events);
  int id = 0;
  for (std::size_t seed : follower.seeds()) {
    const auto path = follower.path(seed);
    if (path.size() < 2) continue;
    ++id;
    for (std::size_t k = 0; k < path.size(); ++k) {
      const TraceEvent& e = events[path[k]];
      Json arrow{{"ph", k == 0                 ? "s"
                        : k + 1 == path.size() ? "f"
                                               : "t"},
                 {"name", events[seed].name},
                 {"cat", "request"},
                 {"id", id},
                 {"pid", e.pid},
                 {"tid", track_of(e)},
                 {"ts", microseconds(e.t - t0)}};
      if (k + 1 == path.size()) arrow["bp"] = "e";
      out.push_back(std::move(arrow));
    }
  }
  return Json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(out)}}.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace uhca::tool
