// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/trace.h"

namespace uhca::log {
namespace {

// -1: not read yet; otherwise the highest level that is written, plus one (0: log off).
constinit std::atomic<int> threshold{-1};
constinit std::atomic<int> sink{-1};

int read_environment() {
  const char* where = std::getenv("UHCA_LOG");
  int limit = 0;
  if (where && *where) {
    const char* level = std::getenv("UHCA_LOG_LEVEL");
    std::string_view l = level ? level : "warn";
    limit = l == "error" ? 1 : l == "info" ? 3 : l == "debug" ? 4 : 2;
    int fd = std::strcmp(where, "stderr") == 0
                 ? 2
                 : static_cast<int>(syscall(SYS_openat, AT_FDCWD, where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    sink.store(fd);
    if (fd < 0) limit = 0;
  }
  threshold.store(limit);
  return limit;
}

constexpr const char* kNames[] = {"error", "warn", "info", "debug"};

}  // namespace

bool enabled(Level l) {
  int t = threshold.load(std::memory_order_relaxed);
  if (__builtin_expect(t < 0, 0)) t = read_environment();
  return static_cast<int>(l) < t;
}

void vwrite(Level l, fmt::string_view format, fmt::format_args args) {
  int saved = errno;
  char line[1024];
  auto head = fmt::format_to_n(line, sizeof line - 1, "uhca[{}] {}: ", static_cast<int>(syscall(SYS_getpid)), kNames[static_cast<int>(l)]);
  std::size_t n = head.size < sizeof line - 1 ? head.size : sizeof line - 1;
  auto body = fmt::vformat_to_n(line + n, sizeof line - 1 - n, format, args);
  n += body.size < sizeof line - 1 - n ? body.size : sizeof line - 1 - n;
  line[n++] = '\n';
  [[maybe_unused]] long r = syscall(SYS_write, sink.load(std::memory_order_relaxed), line, n);
  errno = saved;
}

void vrefuse(int err, fmt::string_view format, fmt::format_args args) {
  if (!enabled(Level::kWarn) && !trace::on()) return;
  int saved = errno;
  char line[768];
  auto body = fmt::vformat_to_n(line, sizeof line, format, args);
  std::string_view text{line, body.size < sizeof line ? body.size : sizeof line};
  if (enabled(Level::kWarn)) write(Level::kWarn, "refused ({}): {}", strerrorname_np(err) ? strerrorname_np(err) : "?", text);
  if (trace::on()) trace::Event("refuse", strerrorname_np(err) ? strerrorname_np(err) : "?").str("reason", text);
  errno = saved;
}

}  // namespace uhca::log
