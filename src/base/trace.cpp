// SPDX-License-Identifier: MIT
#include "base/trace.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace uhca::trace {
namespace detail {
constinit std::atomic<bool> enabled{false};
}
namespace {

constinit std::atomic<int> trace_fd{-1};
constinit std::atomic<int> pcap_fd{-1};

void write_all(int fd, const char* p, std::size_t n) {
  // One write a line: pipes keep lines up to PIPE_BUF whole even with several writers.
  while (n > 0) {
    long r = syscall(SYS_write, fd, p, n);
    if (r < 0) {
      if (errno == EINTR) continue;
      detail::enabled.store(false);  // the reader is gone
      return;
    }
    p += r;
    n -= static_cast<std::size_t>(r);
  }
}

}  // namespace

void init_from_environment() {
  if (const char* fd_text = std::getenv("UHCA_TRACE_FD")) {
    int n = std::atoi(fd_text);
    if (fcntl(n, F_GETFD) >= 0) set_fd(n);
  }
  if (const char* path = std::getenv("UHCA_PCAP")) {
    pcap_fd.store(static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0)));
  }
}

void set_fd(int n) {
  trace_fd.store(n);
  detail::enabled.store(n >= 0);
}

int fd() { return trace_fd.load(); }

Event::Event(std::string_view layer, std::string_view name) {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  raw("{\"t\":");
  char digits[24];
  auto decimal = [&](std::uint64_t v) {
    char* p = digits + sizeof digits;
    do *--p = static_cast<char>('0' + v % 10);
    while (v /= 10);
    raw({p, static_cast<std::size_t>(digits + sizeof digits - p)});
  };
  decimal(static_cast<std::uint64_t>(ts.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(ts.tv_nsec));
  raw(",\"pid\":");
  decimal(static_cast<std::uint64_t>(syscall(SYS_getpid)));
  raw(",\"tid\":");
  decimal(static_cast<std::uint64_t>(syscall(SYS_gettid)));
  raw(",\"layer\":");
  quoted(layer);
  raw(",\"name\":");
  quoted(name);
}

Event::~Event() {
  int saved = errno;
  if (cut_) std::memcpy(buf_ + len_, ",\"cut\":true", 11), len_ += 11;
  buf_[len_++] = '}';
  buf_[len_++] = '\n';
  int n = trace_fd.load(std::memory_order_relaxed);
  if (n >= 0) write_all(n, buf_, len_);
  errno = saved;
}

// Room for the closing `,"cut":true}\n` and one closing quote stays reserved.
void Event::raw(std::string_view s) {
  constexpr std::size_t kReserve = 16;
  if (cut_ || len_ + s.size() > kSize - kReserve) {
    cut_ = true;
    return;
  }
  std::memcpy(buf_ + len_, s.data(), s.size());
  len_ += s.size();
}

void Event::quoted(std::string_view s) {
  // Worst case six characters for one; a value that does not fit whole is dropped together with its key's colon by key().
  std::size_t start = len_;
  raw("\"");
  for (char c : s) {
    auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      char e[2] = {'\\', c};
      raw({e, 2});
    } else if (u < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      char e[6] = {'\\', 'u', '0', '0', kHex[u >> 4], kHex[u & 15]};
      raw({e, 6});
    } else {
      raw({&c, 1});
    }
  }
  raw("\"");
  if (cut_) {
    len_ = start;
    std::memcpy(buf_ + len_, "\"\"", 2);
    len_ += 2;
  }
}

void Event::key(std::string_view k) {
  if (cut_) return;
  // A field is all or nothing: if the key does not fit with a minimal value, cut here.
  if (len_ + k.size() + 32 > kSize - 16) {
    cut_ = true;
    return;
  }
  raw(",\"");
  raw(k);
  raw("\":");
}

Event& Event::num(std::string_view k, std::int64_t v) {
  if (v >= 0) return unum(k, static_cast<std::uint64_t>(v));
  key(k);
  if (cut_) return *this;
  char d[24];
  char* p = d + sizeof d;
  auto u = static_cast<std::uint64_t>(-(v + 1)) + 1;
  do *--p = static_cast<char>('0' + u % 10);
  while (u /= 10);
  *--p = '-';
  raw({p, static_cast<std::size_t>(d + sizeof d - p)});
  return *this;
}

Event& Event::unum(std::string_view k, std::uint64_t v) {
  key(k);
  if (cut_) return *this;
  char d[24];
  char* p = d + sizeof d;
  do *--p = static_cast<char>('0' + v % 10);
  while (v /= 10);
  raw({p, static_cast<std::size_t>(d + sizeof d - p)});
  return *this;
}

Event& Event::hex(std::string_view k, std::uint64_t v) {
  key(k);
  if (cut_) return *this;
  char d[24];
  char* p = d + sizeof d;
  *--p = '"';
  do *--p = "0123456789abcdef"[v & 15];
  while (v >>= 4);
  *--p = 'x';
  *--p = '0';
  *--p = '"';
  raw({p, static_cast<std::size_t>(d + sizeof d - p)});
  return *this;
}

Event& Event::str(std::string_view k, std::string_view v) {
  key(k);
  if (!cut_) quoted(v);
  return *this;
}

Event& Event::flag(std::string_view k, bool v) {
  key(k);
  if (!cut_) raw(v ? "true" : "false");
  return *this;
}

Event& Event::bytes(std::string_view k, std::span<const std::byte> v) {
  key(k);
  if (cut_) return *this;
  char text[512];
  std::size_t n = v.size() < 256 ? v.size() : 256;
  if (len_ + 2 * n + 2 > kSize - 16) n = (kSize - 18 - len_) / 2;
  for (std::size_t i = 0; i < n; ++i) {
    auto b = static_cast<unsigned>(v[i]);
    text[2 * i] = "0123456789abcdef"[b >> 4];
    text[2 * i + 1] = "0123456789abcdef"[b & 15];
  }
  raw("\"");
  raw({text, 2 * n});
  raw("\"");
  return *this;
}

bool capturing() { return pcap_fd.load(std::memory_order_relaxed) >= 0; }

void capture(std::span<const std::byte> frame) {
  int n = pcap_fd.load(std::memory_order_relaxed);
  if (n < 0) return;
  int saved = errno;
  timespec ts;
  clock_gettime(CLOCK_REALTIME, &ts);
  // pcap record header, host byte order (the file's magic says nanoseconds); see the libpcap file format.
  std::uint32_t head[4] = {static_cast<std::uint32_t>(ts.tv_sec), static_cast<std::uint32_t>(ts.tv_nsec),
                           static_cast<std::uint32_t>(frame.size()), static_cast<std::uint32_t>(frame.size())};
  iovec iov[2] = {{head, sizeof head}, {const_cast<std::byte*>(frame.data()), frame.size()}};
  [[maybe_unused]] long r = syscall(SYS_writev, n, iov, 2);  // one call: O_APPEND keeps records of several processes apart
  errno = saved;
}

}  // namespace uhca::trace
