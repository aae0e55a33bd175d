// SPDX-License-Identifier: MIT
// Runs a program with a pipe for its trace events and prints them.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tool/commands.h"
#include "tool/follow.h"
#include "tool/trace_event.h"

namespace uhca::tool {
namespace {

// Events that are younger than this against the newest one wait for stragglers from other threads and processes.
constexpr std::uint64_t kReorderWindow = 20'000'000;

class Printer {
 public:
  Printer(const TraceOptions& o, std::FILE* out) : options_(o), out_(out) {
    std::string rest = o.layers;
    while (!rest.empty()) {
      std::size_t comma = rest.find(',');
      layers_.insert(rest.substr(0, comma));
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    }
  }

  void add(TraceEvent e) {
    newest_ = std::max(newest_, e.t);
    waiting_.push_back(std::move(e));
    // Following a request needs everything at once; otherwise print what is old enough.
    if (options_.only.empty() && waiting_.size() > 512) flush(newest_ > kReorderWindow ? newest_ - kReorderWindow : 0);
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

  const TraceOptions& options_;
  std::FILE* out_;
  std::set<std::string> layers_;
  std::vector<TraceEvent> waiting_;
  std::uint64_t newest_ = 0;
  std::uint64_t t0_ = 0;
};

bool create_pcap(const std::string& path) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    std::fprintf(stderr, "uhca: %s: %s\n", path.c_str(), std::strerror(errno));
    return false;
  }
  // libpcap file header: nanosecond magic, version 2.4, snap length, link type 1 (Ethernet).
  const std::uint32_t head[6] = {0xa1b23c4d, 2 | 4u << 16, 0, 0, 65535, 1};
  bool ok = write(fd, head, sizeof head) == static_cast<ssize_t>(sizeof head);
  close(fd);
  return ok;
}

}  // namespace

int trace(const TraceOptions& options) {
  std::FILE* out = stderr;
  if (!options.output.empty() && !(out = std::fopen(options.output.c_str(), "we"))) {
    std::fprintf(stderr, "uhca: %s: %s\n", options.output.c_str(), std::strerror(errno));
    return 1;
  }
  if (!options.launch.pcap.empty() && !create_pcap(options.launch.pcap)) return 1;

  int p[2];
  if (pipe2(p, O_CLOEXEC) != 0) {
    std::perror("uhca: pipe");
    return 1;
  }
  fcntl(p[0], F_SETPIPE_SZ, 1 << 20);
  pid_t child = fork();
  if (child < 0) {
    std::perror("uhca: fork");
    return 1;
  }
  if (child == 0) {
    LaunchOptions launch = options.launch;
    launch.trace_fd = fcntl(p[1], F_DUPFD, 400);
    std::_Exit(exec_program(launch));
  }
  close(p[1]);
  signal(SIGINT, SIG_IGN);  // the program decides; we print to the end

  Printer printer(options, out);
  std::string pending;
  std::vector<char> buf(1 << 16);
  for (;;) {
    ssize_t n = read(p[0], buf.data(), buf.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buf.data(), static_cast<std::size_t>(n));
    std::size_t start = 0;
    for (std::size_t nl; (nl = pending.find('\n', start)) != std::string::npos; start = nl + 1)
      if (auto e = TraceEvent::parse(pending.substr(start, nl - start))) printer.add(std::move(*e));
    pending.erase(0, start);
  }
  bool found = printer.finish();
  if (out != stderr) std::fclose(out);

  int status = 0;
  waitpid(child, &status, 0);
  if (!found) {
    std::fprintf(stderr, "uhca: the program made no call '%s'\n", options.only.c_str());
    return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace uhca::tool
