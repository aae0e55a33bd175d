// SPDX-License-Identifier: MIT
#include "tool/trace_printer.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "tool/follow.h"
#include "tool/trace_event.h"
#include "tool/traced_run.h"

namespace uhca::tool {
namespace {

// Events that are younger than this against the newest one wait for stragglers from other threads and processes.
constexpr std::uint64_t kReorderWindow = 20'000'000;
constexpr std::size_t kBatch = 512;

class Printer {
 public:
  Printer(const TraceFormat& o, std::FILE* out) : options_(o), out_(out) {
    std::string rest = o.layers;
    while (!rest.empty()) {
      std::size_t comma = rest.find(',');
      layers_.insert(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }

  void add(TraceEvent e) {
    if (options_.at_once) {
      print(e);
      return;
    }
    newest_ = std::max(newest_, e.t);
    waiting_.push_back(std::move(e));
    // Following a request needs everything at once; otherwise print what is old enough.
    if (!options_.only.empty() || waiting_.size() < enough_) return;
    flush(newest_ > kReorderWindow ? newest_ - kReorderWindow : 0);
    enough_ = 2 * waiting_.size() + kBatch;  // each event is sorted a few times, however many fall into the window
  }

  // Returns false when --only named a call that never happened.
  bool finish() {
    if (!options_.only.empty()) {
      std::stable_sort(waiting_.begin(), waiting_.end(), [](auto& a, auto& b) { return a.t < b.t; });
      auto followed = follow(waiting_, options_.only);
      if (followed.empty()) return false;
      waiting_ = std::move(followed);
    }
    flush(~std::uint64_t{0});
    std::fflush(out_);
    return true;
  }

 private:
  void flush(std::uint64_t until) {
    std::stable_sort(waiting_.begin(), waiting_.end(), [](auto& a, auto& b) { return a.t < b.t; });
    std::size_t n = 0;
    for (; n < waiting_.size() && waiting_[n].t <= until; ++n) print(waiting_[n]);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  void print(const TraceEvent& e) {
    if (t0_ == 0) t0_ = e.t;
    if (!layers_.empty() && !layers_.count(e.layer)) return;
    std::string text = options_.json ? e.line : render(e, t0_, true);
    std::fprintf(out_, "%s\n", text.c_str());
  }

  const TraceFormat& options_;
  std::FILE* out_;
  std::set<std::string> layers_;
  std::vector<TraceEvent> waiting_;
  std::size_t enough_ = kBatch;
  std::uint64_t newest_ = 0;
  std::uint64_t t0_ = 0;
};

}  // namespace

bool print_trace(int fd, const TraceFormat& format, std::FILE* out) {
  Printer printer(format, out);
  for_each_event(
      fd, [&](TraceEvent e) { printer.add(std::move(e)); },
      [&] {
        if (format.at_once) std::fflush(out);
      });
  return printer.finish();
}

bool print_events(const std::vector<TraceEvent>& events, const TraceFormat& format, std::FILE* out) {
  Printer printer(format, out);
  for (const TraceEvent& e : events) printer.add(e);
  return printer.finish();
}

}  // namespace uhca::tool
