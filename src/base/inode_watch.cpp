// SPDX-License-Identifier: MIT
#include "base/inode_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>

#include "base/fd.h"

namespace uhca {

int InodeWatch::watch(int fd) {
  if (fd_ < 0) fd_ = fd::adopt(static_cast<int>(syscall(SYS_inotify_init1, IN_NONBLOCK | IN_CLOEXEC)));
  if (fd_ < 0) return -1;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return static_cast<int>(syscall(SYS_inotify_add_watch, fd_, path, IN_DELETE_SELF));
}

std::size_t InodeWatch::read(char* buf, std::size_t n) const {
  const long r = fd_ < 0 ? -1 : syscall(SYS_read, fd_, buf, n);
  return r > 0 ? static_cast<std::size_t>(r) : 0;
}

}  // namespace uhca
