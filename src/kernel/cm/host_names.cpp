// SPDX-License-Identifier: MIT
#include "kernel/cm/host_names.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fd.h"

namespace uhca::kernel::cm {
namespace {

struct Address {
  sockaddr_un un{};
  socklen_t len;
  explicit Address(const std::string& name) {
    un.sun_family = AF_UNIX;
    std::size_t n = std::min(name.size(), sizeof un.sun_path - 1);
    std::memcpy(un.sun_path + 1, name.data(), n);
    len = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + n);
  }
};

int seqpacket() {
  return static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

HostName::HostName(HostName&& o) noexcept : fd_(std::exchange(o.fd_, -1)), name_(std::move(o.name_)) {}

HostName& HostName::operator=(HostName&& o) noexcept {
  if (this != &o) {
    release();
    fd_ = std::exchange(o.fd_, -1);
    name_ = std::move(o.name_);
  }
  return *this;
}

Result<HostName> HostName::bind(std::string name) {
  HostName h;
  h.fd_ = fd::adopt(seqpacket());
  if (h.fd_ < 0) return Errno{errno};
  Address a(name);
  if (syscall(SYS_bind, h.fd_, &a.un, a.len) != 0) return Errno{errno};
  h.name_ = std::move(name);
  return h;
}

Status HostName::listen() {
  if (syscall(SYS_listen, fd_, kBacklog) != 0) return Errno{errno};
  return success();
}

void HostName::release() {
  if (fd_ >= 0) fd::close(std::exchange(fd_, -1));
}

Result<int> call_and_stay(const std::string& name, std::span<const std::uint8_t> message) {
  int s = seqpacket();
  if (s < 0) return Errno{errno};
  Address a(name);
  int err = 0;
  if (syscall(SYS_connect, s, &a.un, a.len) != 0 ||
      syscall(SYS_sendto, s, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0) < 0)
    err = errno;
  if (!err) return s;
  syscall(SYS_close, s);
  return Errno{err};
}

Status call(const std::string& name, std::span<const std::uint8_t> message) {
  int s = UHCA_TRY(call_and_stay(name, message));
  syscall(SYS_close, s);
  return success();
}

int accept_call(int listening_fd) {
  for (;;) {
    int s = static_cast<int>(syscall(SYS_accept4, listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (s >= 0 || (errno != EINTR && errno != ECONNABORTED)) return s;
  }
}

long read_call(int fd, std::span<std::uint8_t> message) {
  long n = syscall(SYS_recvfrom, fd, message.data(), message.size(), MSG_DONTWAIT | MSG_TRUNC, nullptr, nullptr);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
  return n > 0 && static_cast<std::size_t>(n) <= message.size() ? n : 0;
}

std::vector<std::string> bound_names(std::string_view prefix) {
  std::string text;
  int f = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/net/unix", O_RDONLY | O_CLOEXEC));
  if (f < 0) return {};
  char buf[16384];
  for (long n; (n = syscall(SYS_read, f, buf, sizeof buf)) > 0;) text.append(buf, static_cast<std::size_t>(n));
  syscall(SYS_close, f);
  std::vector<std::string> names;
  std::string key = "@" + std::string(prefix);
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos;) {
    at += key.size();
    names.push_back(text.substr(at, text.find('\n', at) - at));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace uhca::kernel::cm
