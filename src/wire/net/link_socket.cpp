// SPDX-License-Identifier: MIT
#include "wire/net/link_socket.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "base/fd.h"
#include "wire/net/ring.h"

namespace uhca::wire {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

SlotName::SlotName(const std::string& prefix, unsigned slot) {
  address.sun_family = AF_UNIX;
  int n = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s%u", prefix.c_str(), slot);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(n));
}

int seqpacket() {
  return fd::adopt(static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
}

void* map_ring(int memfd, void* at) {
  void* p = mmap(at, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), memfd, 0);
  if (p == MAP_FAILED) return nullptr;
  // A child has no business in the parent's rings.
  madvise(p, kRingBytes, MADV_DONTFORK);
  return p;
}

void send_wake(int fd) {
  syscall(SYS_sendto, fd, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

long receive_with_fd(int socket, void* buffer, std::size_t bytes, int* fd, unsigned* fds) {
  iovec iov{buffer, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  *fd = -1;
  *fds = 0;
  long n = syscall(SYS_recvmsg, socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int got;
      std::memcpy(&got, CMSG_DATA(c) + i * sizeof(int), sizeof got);
      if ((*fds)++ == 0) {
        *fd = got;
      } else {
        ::close(got);
      }
    }
  }
  if (m.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) *fds = 2;  // not what anybody of us sends
  return n;
}

bool send_with_fd(int socket, const void* message, std::size_t bytes, int fd) {
  iovec iov{const_cast<void*>(message), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&m);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &fd, sizeof(int));
  return syscall(SYS_sendmsg, socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<long>(bytes);
}

const char* unfit(int memfd, std::size_t bytes) {
  struct stat st {};
  int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
    return "the descriptor is not a memfd with the seals SHRINK, GROW and SEAL alone";
  if (fstat(memfd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size != static_cast<off_t>(bytes)) return "the memfd has the wrong size";
  return nullptr;
}

}  // namespace uhca::wire
