// SPDX-License-Identifier: MIT
#include "device/pci/msix.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "base/trace.h"

namespace uhca::pci {
namespace {

bool is_eventfd(int fd) {
  char path[64], target[64];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/self/fd/{}", fd).out = '\0';
  ssize_t n = readlink(path, target, sizeof target);
  return n > 0 && std::string_view(target, static_cast<std::size_t>(n)) == "anon_inode:[eventfd]";
}

void signal(int fd) {
  // A counter at its limit would block the writer; its reader is awake anyway.
  pollfd p{fd, POLLOUT, 0};
  if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) return;
  std::uint64_t one = 1;
  static_cast<void>(!write(fd, &one, sizeof one));
}

}  // namespace

void Msix::deliver() {
  std::uint64_t due = pending_ & ~held_back();
  if (due == 0) return;
  pending_ &= ~due;
  for (; due != 0; due &= due - 1) {
    auto vector = static_cast<unsigned>(__builtin_ctzll(due));
    int fd = eventfd_[vector];
    if (trace::on()) trace::Event("irq", "msix").unum("vector", vector).flag("connected", fd >= 0);
    if (fd >= 0) signal(fd);
  }
}

Status Msix::connect(unsigned vector, int eventfd) {
  if (eventfd >= 0 && !is_eventfd(eventfd)) {
    close(eventfd);
    return refuse(EINVAL, "vector {}: the descriptor is not an eventfd", vector);
  }
  if (eventfd_[vector] >= 0) close(eventfd_[vector]);
  eventfd_[vector] = eventfd;
  return success();
}

void Msix::set_client_mask(unsigned vector, bool masked) {
  std::uint64_t bit = std::uint64_t{1} << vector;
  client_mask_ = masked ? client_mask_ | bit : client_mask_ & ~bit;
}

void Msix::set_function_mask(bool masked) {
  function_mask_ = masked;
}

std::uint32_t Msix::read_table(std::uint64_t offset) const {
  std::size_t vector = offset / kEntryBytes, word = offset % kEntryBytes / 4;
  if (word < 3) return message_[vector][word];
  return static_cast<std::uint32_t>(table_control_ >> vector & 1);
}

void Msix::write_table(std::uint64_t offset, std::uint32_t value) {
  std::size_t vector = offset / kEntryBytes, word = offset % kEntryBytes / 4;
  std::uint64_t bit = std::uint64_t{1} << vector;
  if (word < 3) {
    message_[vector][word] = word == 0 ? value & ~3u : value;
    return;
  }
  table_control_ = (value & 1) ? table_control_ | bit : table_control_ & ~bit;
  table_mask_ = (value & 1) ? table_mask_ | bit : table_mask_ & ~bit;
}

void Msix::reset() {
  message_ = {};
  pending_ = 0;
  table_mask_ = 0;
  table_control_ = ~std::uint64_t{0};
  function_mask_ = false;
}

void Msix::forget_client() {
  for (int& fd : eventfd_) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
  client_mask_ = 0;
}

}  // namespace uhca::pci
