// SPDX-License-Identifier: MIT
// What the functions of this host count, live. Each function is asked (wire/net/inspect.h); those of other users answer root only.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tool/commands.h"
#include "wire/net/inspect.h"
#include "wire/net/switch.h"

namespace uhca::tool {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kPatience = 1000;  // ms for one function
constexpr int kAsk = 60;         // times, of a busy one
constexpr timespec kPause{0, 5'000'000};
constexpr std::size_t kMostLines = 40;

struct Function {
  unsigned slot = 0;
  int pid = 0;
  std::string program;
  Json report;         // an object, or null:
  std::string silent;  // why there is none
};

std::string program_of(int pid) {
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(in, name);
  return name;
}

// Whoever binds a function's name may answer anything.
bool sound(const Json& report) {
  auto numbers = [](const Json& group) {
    return group.is_object() && std::all_of(group.begin(), group.end(), [](const Json& v) { return v.is_number_unsigned(); });
  };
  auto word = [](const Json& v) {
    if (!v.is_string()) return false;
    const auto& text = v.get_ref<const std::string&>();
    return text.size() <= 16 && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 127; });
  };
  auto qp = [&](const Json& q) {
    if (!q.is_object()) return false;
    for (const auto& [name, v] : q.items())
      if (name == "type" || name == "state" ? !word(v) : !v.is_number_unsigned()) return false;
    return true;
  };
  return report.is_object() && report.contains("port") && numbers(report["port"]) && report.contains("hw_counters") &&
         numbers(report["hw_counters"]) && report.contains("qps") && report["qps"].is_array() &&
         std::all_of(report["qps"].begin(), report["qps"].end(), qp) && report.value("qps_in_all", Json(0u)).is_number_unsigned();
}

Function look_at(unsigned slot) {
  Function f;
  f.slot = slot;
  Errno e{EAGAIN};
  for (int i = 0; i < kAsk && e.value == EAGAIN; ++i) {
    if (i > 0) nanosleep(&kPause, nullptr);
    auto answer = wire::ask_function(slot, kPatience, &f.pid);
    e = answer.ok() ? Errno{0} : answer.error();
    if (answer.ok()) f.report = Json::parse(*answer, nullptr, false);
  }
  f.program = program_of(f.pid);
  std::replace_if(
      f.program.begin(), f.program.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  if (!f.report.is_null() && !sound(f.report)) {
    f.report = nullptr;
    f.silent = "not understood";
    return f;
  }
  if (!f.report.is_object()) {
    f.report = nullptr;
    f.silent = e.value == EACCES      ? "another user's"
               : e.value == ETIMEDOUT ? "no answer"
               : e.value == EAGAIN    ? "busy"
                                      : std::strerror(e.value);
  }
  return f;
}

// A function may have leased further blocks of QPNs: it is shown once, by its first.
std::vector<Function> look() {
  std::vector<Function> all;
  for (unsigned slot : wire::bound_slots()) {
    Function f = look_at(slot);
    if (f.pid == 0) continue;  // gone in between
    if (std::none_of(all.begin(), all.end(), [&](const Function& o) { return o.pid == f.pid; })) all.push_back(std::move(f));
  }
  return all;
}

std::uint64_t count(const Json& report, const char* group, const char* name) {
  return report.is_object() ? report[group].value(name, std::uint64_t{0}) : 0;
}

// What went wrong for somebody, of all that is counted.
std::uint64_t errors(const Json& report) {
  std::uint64_t n = 0;
  for (const char* name :
       {"out_of_buffer", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "resp_local_length_error", "resp_cqe_error",
        "req_cqe_error", "req_remote_invalid_request", "req_remote_access_errors", "resp_remote_access_errors"})
    n += count(report, "hw_counters", name);
  for (const char* name : {"rx_bad_icrc", "rx_malformed", "rx_no_qp", "rx_wrong_path", "rx_bad_qkey"}) n += count(report, "port", name);
  return n;
}

std::string scaled(double v) {
  const char* unit = "";
  for (const char* u : {"k", "M", "G", "T"}) {
    if (v < 10000) break;
    v /= 1000;
    unit = u;
  }
  return fmt::format("{:.0f}{}", v, unit);
}

class View {
 public:
  // One picture. Rates want a second one.
  std::string draw(const std::vector<Function>& now, Clock::time_point at) {
    const double seconds = std::chrono::duration<double>(at - before_at_).count();
    std::string out = fmt::format("{} function{} on this host\n\n", now.size(), now.size() == 1 ? "" : "s");
    const char* per = before_.empty() ? "" : "/s";
    out += fmt::format("{:>8}  {:<16} {:>5} {:>5}  {:>9} {:>9}  {:>9} {:>9}  {:>7}\n", "PID", "PROGRAM", "FUNC", "QPS",
                       fmt::format("TX pkt{}", per), fmt::format("TX B{}", per), fmt::format("RX pkt{}", per), fmt::format("RX B{}", per),
                       "ERRORS");
    std::array<double, 4> port{};
    std::uint64_t port_errors = 0;
    std::string qps;
    std::size_t lines = 0;
    std::map<Key, Json> seen;
    for (const Function& f : now) {
      out += fmt::format("{:>8}  {:<16} {:>5} ", f.pid, f.program.substr(0, 16), f.slot);
      if (f.report.is_null()) {
        out += fmt::format("       {}\n", f.silent);
        continue;
      }
      const Json& earlier = earlier_of({f.pid, 0});
      std::array<double, 4> rate;
      constexpr std::array kNames{"tx_packets", "tx_bytes", "rx_packets", "rx_bytes"};
      for (std::size_t i = 0; i < 4; ++i)
        port[i] += rate[i] = per_second(
            static_cast<double>(count(f.report, "port", kNames[i])) - static_cast<double>(count(earlier, "port", kNames[i])), seconds);
      port_errors += errors(f.report);
      out += fmt::format("{:>5}  {:>9} {:>9}  {:>9} {:>9}  {:>7}\n", f.report.value("qps_in_all", 0), scaled(rate[0]), scaled(rate[1]),
                         scaled(rate[2]), scaled(rate[3]), errors(f.report));
      for (const Json& q : f.report["qps"]) {
        const Key key{f.pid, q.value("qpn", 0u)};
        if (++lines <= kMostLines) qps += line_of(q, key, seconds);
        seen[key] = q;
      }
      seen[{f.pid, 0}] = f.report;
    }
    out += fmt::format("{:>8}  {:<16} {:>5} {:>5}  {:>9} {:>9}  {:>9} {:>9}  {:>7}\n", "", "port 1", "", "", scaled(port[0]),
                       scaled(port[1]), scaled(port[2]), scaled(port[3]), port_errors);
    out += fmt::format("\n{:>8}  {:<10} {:<4} {:<9} {:<10}  {:>9} {:>9} {:>9}  {:>6} {:>6}\n", "PID", "QP", "TYPE", "STATE", "PEER QP",
                       fmt::format("TX pkt{}", per), fmt::format("RX pkt{}", per), fmt::format("RX msg{}", per), "SQ", "RQ");
    out += qps;
    if (lines > kMostLines) out += fmt::format("          and {} more\n", lines - kMostLines);
    before_ = std::move(seen);
    before_at_ = at;
    return out;
  }

 private:
  using Key = std::pair<int, std::uint32_t>;  // process and QPN; 0: the function itself

  const Json& earlier_of(Key key) const {
    static const Json none;
    auto it = before_.find(key);
    return it == before_.end() ? none : it->second;
  }
  double per_second(double v, double seconds) const { return before_.empty() || seconds <= 0 ? v : v / seconds; }

  // PSNs and message numbers count modulo 2^24 from where the connection began: there is no total, only what came since the last look.
  std::string line_of(const Json& q, Key key, double seconds) const {
    const Json& earlier = earlier_of(key);
    auto moved = [&](const char* name) {
      if (!earlier.is_object()) return std::string("-");
      return scaled(per_second((q.value(name, 0u) - earlier.value(name, 0u)) & 0xffffff, seconds));
    };
    auto waiting = [&](const char* posted, const char* done) { return (q.value(posted, 0u) - q.value(done, 0u)) & 0xffff; };
    const std::uint32_t peer = q.value("remote_qpn", 0u);
    return fmt::format("{:>8}  {:<10} {:<4} {:<9} {:<10}  {:>9} {:>9} {:>9}  {:>6} {:>6}\n", key.first, fmt::format("{:#x}", key.second),
                       q.value("type", ""), q.value("state", ""), peer ? fmt::format("{:#x}", peer) : "-", moved("next_send_psn"),
                       moved("next_rcv_psn"), moved("msn"), waiting("sq_posted", "sq_done"), waiting("rq_posted", "rq_done"));
  }

  std::map<Key, Json> before_;
  Clock::time_point before_at_{};
};

Json as_json(const std::vector<Function>& functions) {
  Json out{{"t", std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count()},
           {"functions", Json::array()}};
  for (const Function& f : functions) {
    Json one{{"function", f.slot}, {"pid", f.pid}, {"program", f.program}};
    if (f.report.is_null()) one["silent"] = f.silent;
    if (f.report.is_object()) one.update(f.report);
    out["functions"].push_back(std::move(one));
  }
  return out;
}

}  // namespace

int top(const TopOptions& options) {
  // They end a nap; what is being drawn is drawn.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  const auto seconds = static_cast<time_t>(options.interval);
  const timespec nap{seconds, static_cast<long>((options.interval - static_cast<double>(seconds)) * 1e9)};
  const bool screen = !options.json && !options.once && isatty(STDOUT_FILENO);
  View view;
  for (unsigned n = 0;; ++n) {
    const auto functions = look();
    std::string text =
        options.json ? as_json(functions).dump(-1, ' ', true, Json::error_handler_t::replace) + "\n" : view.draw(functions, Clock::now());
    if (screen) text = "\033[H\033[J" + text;
    if (!options.json && !screen && n > 0) text = "\n" + text;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) return 1;
    if (options.once || (options.count != 0 && n + 1 == options.count)) break;
    if (sigtimedwait(&ends, nullptr, &nap) > 0) break;
  }
  return 0;
}

}  // namespace uhca::tool
