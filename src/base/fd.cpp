// SPDX-License-Identifier: MIT
#include "base/fd.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace uhca::fd {
namespace {

constexpr int kMax = 65536;
constinit std::atomic<std::uint64_t> bitmap[kMax / 64]{};

int floor_for_limit() {
  rlimit rl{};
  if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur < static_cast<rlim_t>(kFloor) + 256) {
    return static_cast<int>(rl.rlim_cur > 64 ? rl.rlim_cur * 3 / 4 : 3);
  }
  return kFloor;
}

}  // namespace

int adopt(int fd) {
  if (fd < 0) return fd;
  int high = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor_for_limit()));
  if (high < 0 || high >= kMax) {
    // The table is full up there: keep the number that we have, protected all the same.
    if (high >= 0) syscall(SYS_close, high);
    syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
    high = fd;
    if (high >= kMax) return high;
  } else {
    syscall(SYS_close, fd);
  }
  bitmap[high / 64].fetch_or(std::uint64_t{1} << (high % 64));
  return high;
}

Result<int> sealed_memfd(const char* name, std::size_t bytes) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr unsigned kNoexecSeal = 8;  // MFD_NOEXEC_SEAL, Linux 6.3
  int m = static_cast<int>(syscall(SYS_memfd_create, name, kFlags | kNoexecSeal));
  if (m < 0 && errno == EINVAL) m = static_cast<int>(syscall(SYS_memfd_create, name, kFlags));
  if (m < 0) return Errno{errno};
  m = adopt(m);
  if (ftruncate(m, static_cast<off_t>(bytes)) != 0 || fcntl(m, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    Errno e{errno};
    close(m);
    return e;
  }
  return m;
}

void close(int fd) {
  if (fd < 0) return;
  int saved = errno;
  if (fd < kMax) bitmap[fd / 64].fetch_and(~(std::uint64_t{1} << (fd % 64)));
  syscall(SYS_close, fd);
  errno = saved;
}

bool is_internal(int fd) {
  return fd >= 0 && fd < kMax && (bitmap[fd / 64].load(std::memory_order_relaxed) >> (fd % 64) & 1);
}

int next_internal(int fd) {
  if (fd < 0) fd = 0;
  for (int word = fd / 64; word < kMax / 64; ++word) {
    std::uint64_t bits = bitmap[word].load(std::memory_order_relaxed);
    if (word == fd / 64) bits &= ~std::uint64_t{0} << (fd % 64);
    if (bits) return word * 64 + __builtin_ctzll(bits);
  }
  return -1;
}

void abandon_all() {
  for (int fd = next_internal(0); fd >= 0; fd = next_internal(fd + 1)) close(fd);
}

}  // namespace uhca::fd
