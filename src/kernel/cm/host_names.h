// SPDX-License-Identifier: MIT
// What Linux keeps once per host is agreed between functions through the kernel's table of abstract unix names, as QPN blocks are
// (docs/decisions/0001): a name is bound by one process at a time and freed by its death. docs/decisions/0002 says why.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace uhca::kernel::cm {

// Owns a bound name.
inline constexpr int kBacklog = 4096;  // callers that wait at a name

class HostName {
 public:
  HostName() = default;
  ~HostName() { release(); }
  HostName(HostName&& o) noexcept;
  HostName& operator=(HostName&& o) noexcept;

  // EADDRINUSE: somebody has it.
  static Result<HostName> bind(std::string name);
  // From now on others may call. EADDRINUSE, EINVAL as listen(2).
  Status listen();
  void release();
  bool held() const { return fd_ >= 0; }
  const std::string& name() const { return name_; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::string name_;
};

// Hands one message to whoever listens on that name, and hangs up. Never blocks. ECONNREFUSED: nobody listens; EAGAIN: too many
// callers wait there.
Status call(const std::string& name, std::span<const std::uint8_t> message);
// The same, and stays: the descriptor is the caller's, non-blocking.
Result<int> call_and_stay(const std::string& name, std::span<const std::uint8_t> message);
// The next caller on a listening name: its descriptor, or -1.
int accept_call(int listening_fd);
// The message of a caller: its size, 0 when it hung up without one (or with a longer one), -1: not yet.
long read_call(int fd, std::span<std::uint8_t> message);

// All bound names that begin with the prefix (without it), each once; from /proc/net/unix.
std::vector<std::string> bound_names(std::string_view prefix);

}  // namespace uhca::kernel::cm
