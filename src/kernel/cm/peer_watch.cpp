// SPDX-License-Identifier: MIT
#include "kernel/cm/peer_watch.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/log.h"
#include "kernel/cm/host_names.h"

namespace uhca::kernel::cm {

PeerWatch::~PeerWatch() {
  while (!functions_.empty()) hang_up(functions_.begin()->first);
  while (!listeners_.empty()) hang_up(*listeners_.begin());
}

void PeerWatch::hang_up(int fd) {
  auto it = functions_.find(fd);
  if (it != functions_.end()) {
    lines_.erase(it->second);
    functions_.erase(it);
  }
  listeners_.erase(fd);
  watch_(context_, fd, false);
  fd::close(fd);
}

void PeerWatch::add(std::uint32_t function) {
  if (lines_.count(function) != 0) return;
  std::uint32_t greeting = kGreeting;
  auto line = call_and_stay(prefix_ + std::to_string(function), {reinterpret_cast<const std::uint8_t*>(&greeting), sizeof greeting});
  if (line.code() == ECONNREFUSED) {
    dead_.push_back(function);
    return;
  }
  if (!line) {
    (void)refuse(line.code(), "cm: the death of function {} would not be noticed", function);
    return;
  }
  int fd = fd::adopt(*line);
  lines_.emplace(function, fd);
  functions_.emplace(fd, function);
  watch_(context_, fd, true);
}

void PeerWatch::stays(int caller_fd) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  // The descriptors are the program's; whoever is on this host can call.
  if (listeners_.size() >= std::min<std::size_t>(kMostListeners, files.rlim_cur / 4)) {
    std::uint8_t no = 0;
    syscall(SYS_sendto, caller_fd, &no, sizeof no, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
    watch_(context_, caller_fd, false);
    fd::close(caller_fd);
    return;
  }
  listeners_.insert(caller_fd);
  watch_(context_, caller_fd, true);
}

bool PeerWatch::readable(int fd) {
  auto it = functions_.find(fd);
  bool ours = it != functions_.end();
  if (!ours && listeners_.count(fd) == 0) return false;
  std::uint8_t byte;
  long n = syscall(SYS_recvfrom, fd, &byte, sizeof byte, MSG_DONTWAIT, nullptr, nullptr);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (ours && n <= 0) dead_.push_back(it->second);
  if (ours || n <= 0) hang_up(fd);
  return true;
}

std::vector<std::uint32_t> PeerWatch::dead() {
  return std::exchange(dead_, {});
}

}  // namespace uhca::kernel::cm
