// SPDX-License-Identifier: MIT
// A NETLINK_RDMA socket is a NETLINK_USERSOCK socket, with one of ours as the kernel's end: bind, recvmsg, poll, dup are native,
// only what the program sends is taken here. The mark of such a socket is its priority, which survives dup and fork.
#include <linux/netlink.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "kernel/mm/uaccess.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/netlink.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(socket, int(int, int, int));
UHCA_NEXT(send, ssize_t(int, const void*, size_t, int));
UHCA_NEXT(sendto, ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t));
UHCA_NEXT(sendmsg, ssize_t(int, const msghdr*, int));

constexpr int kNetlinkRdma = 20;  // <linux/netlink.h> NETLINK_RDMA
constexpr int kMark = 5;          // SO_PRIORITY; 0 is the default, 0-6 need no privilege

constinit std::atomic<bool> any{false};  // a socket of ours was made in this process or its parent
constinit std::mutex lock;
constinit int kernel_end = -1;

int option(int fd, int name) {
  int value = -1;
  socklen_t n = sizeof value;
  return raw::call(SYS_getsockopt, fd, SOL_SOCKET, name, raw::arg(&value), raw::arg(&n)) < 0 ? -1 : value;
}

bool is_ours(int fd) {
  return option(fd, SO_PRIORITY) == kMark && option(fd, SO_DOMAIN) == AF_NETLINK && option(fd, SO_PROTOCOL) == NETLINK_USERSOCK;
}

int the_kernel_end() {
  std::lock_guard l(lock);
  if (kernel_end < 0) {
    int fd = static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_USERSOCK));
    kernel_end = fd::adopt(fd);
  }
  return kernel_end;
}

struct Target {
  int from;
  sockaddr_nl to;
};

void deliver(void* context, const void* data, std::size_t n) {
  auto* t = static_cast<Target*>(context);
  // Never blocking: a reader that does not read loses answers, as the kernel's would (ENOBUFS).
  if (raw::call(SYS_sendto, t->from, raw::arg(data), static_cast<long>(n), MSG_DONTWAIT, raw::arg(&t->to), sizeof t->to) < 0)
    log::warn("netlink: an answer of {} bytes did not fit the program's receive buffer", n);
}

ssize_t sent(int fd, std::string request) {
  Instance* i = hint();
  if (!i) {
    errno = ECONNREFUSED;
    return -1;
  }
  auto n = static_cast<ssize_t>(request.size());
  KernelEntry entry;
  Target t{the_kernel_end(), {}};
  socklen_t len = sizeof t.to;
  raw::call(SYS_getsockname, fd, raw::arg(&t.to), raw::arg(&len));
  if (t.to.nl_pid == 0) {
    sockaddr_nl automatic{};
    automatic.nl_family = AF_NETLINK;
    raw::call(SYS_bind, fd, raw::arg(&automatic), sizeof automatic);
    len = sizeof t.to;
    raw::call(SYS_getsockname, fd, raw::arg(&t.to), raw::arg(&len));
  }
  netlink_answer(*i->device, request, t.to.nl_pid, deliver, &t);
  return n;
}

bool mine(int fd) {
  return __builtin_expect(any.load(std::memory_order_relaxed), 0) && !inside::active() && is_ours(fd);
}

ssize_t fail(int err) {
  errno = err;
  return -1;
}

// The program's bytes, or EFAULT.
bool gather(std::string* out, const void* p, size_t n) {
  if (n > 1 << 20) return false;
  std::size_t at = out->size();
  out->resize(at + n);
  return kernel::copy_from_user(out->data() + at, reinterpret_cast<kernel::UserPtr>(p), n).ok();
}

}  // namespace

void netlink_after_fork() {
  new (&lock) std::mutex;
  kernel_end = -1;
}

}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int socket(int domain, int type, int protocol) noexcept {
  if (__builtin_expect(domain != AF_NETLINK || protocol != kNetlinkRdma || inside::active() || !hint(), 1))
    return next_socket(domain, type, protocol);
  int fd = next_socket(AF_NETLINK, type, NETLINK_USERSOCK);
  if (fd < 0) return fd;
  int mark = kMark;
  raw::call(SYS_setsockopt, fd, SOL_SOCKET, SO_PRIORITY, raw::arg(&mark), sizeof mark);
  any.store(true);
  return fd;
}
UHCA_EXPORT ssize_t send(int fd, const void* buf, size_t n, int flags) {
  if (!mine(fd)) return next_send(fd, buf, n, flags);
  std::string request;
  return gather(&request, buf, n) ? sent(fd, std::move(request)) : fail(EFAULT);
}
UHCA_EXPORT ssize_t sendto(int fd, const void* buf, size_t n, int flags, const sockaddr* to, socklen_t len) {
  if (!mine(fd)) return next_sendto(fd, buf, n, flags, to, len);
  std::string request;
  return gather(&request, buf, n) ? sent(fd, std::move(request)) : fail(EFAULT);
}
UHCA_EXPORT ssize_t sendmsg(int fd, const msghdr* msg, int flags) {
  if (!mine(fd)) return next_sendmsg(fd, msg, flags);
  std::string request;
  for (size_t i = 0; i < msg->msg_iovlen; ++i)
    if (!gather(&request, msg->msg_iov[i].iov_base, msg->msg_iov[i].iov_len)) return fail(EFAULT);
  return sent(fd, std::move(request));
}
