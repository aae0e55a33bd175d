// SPDX-License-Identifier: MIT
#include "tool/traced_run.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace uhca::tool {

int traced_run(const LaunchOptions& launch, const std::function<void(int fd)>& consume) {
  int p[2];
  if (pipe2(p, O_CLOEXEC) != 0) {
    std::perror("uhca: pipe");
    return 1;
  }
  fcntl(p[0], F_SETPIPE_SZ, 1 << 20);
  pid_t child = fork();
  if (child < 0) {
    std::perror("uhca: fork");
    close(p[0]);
    close(p[1]);
    return 1;
  }
  if (child == 0) {
    LaunchOptions traced = launch;
    traced.trace_fd = fcntl(p[1], F_DUPFD, 400);
    std::_Exit(exec_program(traced));
  }
  close(p[1]);
  signal(SIGINT, SIG_IGN);  // the program decides; we read to the end
  consume(p[0]);
  close(p[0]);

  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void for_each_event(int fd, const std::function<void(TraceEvent)>& take, const std::function<void()>& after_read) {
  std::string pending;
  std::vector<char> buf(1 << 16);
  for (;;) {
    ssize_t n = read(fd, buf.data(), buf.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buf.data(), static_cast<std::size_t>(n));
    std::size_t start = 0;
    for (std::size_t nl; (nl = pending.find('\n', start)) != std::string::npos; start = nl + 1)
      if (auto e = TraceEvent::parse(pending.substr(start, nl - start))) take(std::move(*e));
    pending.erase(0, start);
    after_read();
  }
}

std::vector<TraceEvent> read_trace(int fd) {
  std::vector<TraceEvent> events;
  for_each_event(fd, [&](TraceEvent e) { events.push_back(std::move(e)); });
  std::stable_sort(events.begin(), events.end(), [](auto& a, auto& b) { return a.t < b.t; });
  return events;
}

}  // namespace uhca::tool
