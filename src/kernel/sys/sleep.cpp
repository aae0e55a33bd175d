// SPDX-License-Identifier: MIT
// Calls that may block on an event descriptor: a hint to the device that this thread is about to sleep. Nothing else changes.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

#include "kernel/mm/uaccess.h"
#include "kernel/sys/cm_channel.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/uverbs/file.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(read, ssize_t(int, void*, size_t));
UHCA_NEXT(__read_chk, ssize_t(int, void*, size_t, size_t));
UHCA_NEXT(poll, int(pollfd*, nfds_t, int));
UHCA_NEXT(__poll_chk, int(pollfd*, nfds_t, int, size_t));
UHCA_NEXT(ppoll, int(pollfd*, nfds_t, const timespec*, const sigset_t*));
UHCA_NEXT(select, int(int, fd_set*, fd_set*, fd_set*, timeval*));
UHCA_NEXT(pselect, int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*));
UHCA_NEXT(epoll_wait, int(int, epoll_event*, int, int));
UHCA_NEXT(epoll_pwait, int(int, epoll_event*, int, int, const sigset_t*));

bool concerned() {
  return __builtin_expect(any_event_files() || kernel::cm::rdma_cm_any_open(), 0) && !inside::active();
}

void going_to_sleep() {
  Instance* i = instance();
  if (!i) return;
  int saved = errno;
  i->device->going_to_sleep();
  errno = saved;
}

bool is_event(int fd) {
  int saved = errno;
  struct stat st;
  bool r = raw::fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && (kernel::uverbs_is_event_fd(fd) || cm_channel_is(st));
  errno = saved;
  return r;
}

void before_poll(pollfd* fds, nfds_t n) {
  if (!concerned()) return;
  for (nfds_t i = 0; i < n && i < 64; ++i) {
    pollfd p;
    if (!kernel::copy_from_user(&p, reinterpret_cast<kernel::UserPtr>(fds + i), sizeof p)) return;
    if ((p.events & (POLLIN | POLLRDNORM)) && is_event(p.fd)) return going_to_sleep();
  }
}

void before_select(int n, const fd_set* in) {
  if (!concerned() || !in) return;
  fd_set set;
  FD_ZERO(&set);
  std::size_t bytes = static_cast<std::size_t>(n < 0 ? 0 : n > FD_SETSIZE ? FD_SETSIZE : n) / 8 + 1;
  if (bytes > sizeof set) bytes = sizeof set;
  if (!kernel::copy_from_user(&set, reinterpret_cast<kernel::UserPtr>(in), bytes)) return;
  for (int fd = 0; fd < n && fd < FD_SETSIZE; ++fd)
    if (FD_ISSET(fd, &set) && is_event(fd)) return going_to_sleep();
}

// Event records are 8 and 16 bytes; large reads are other files. 0, or the errno that the event file answers before it would block.
int before_read(int fd, std::size_t n) {
  if (!concerned() || n > 4096 || !is_event(fd)) return 0;
  int saved = errno;
  Status s = [&] {
    KernelEntry entry;
    return kernel::uverbs_event_read_check(fd, n);
  }();
  errno = saved;
  if (s.code() == EBADF) return EINVAL;  // an rdma_cm channel has no read
  if (!s) return s.code();
  going_to_sleep();
  return 0;
}

ssize_t fail(int err) {
  errno = err;
  return -1;
}

// What a read that before_read let through has brought: the end of an event file, seen by who waited for it, is EIO.
ssize_t after_read(int fd, std::size_t n, ssize_t got) {
  if (got != 0 || n == 0) return got;
  int err = before_read(fd, n);
  return err == EIO ? fail(err) : got;
}

// Files of messages are read through us, whatever the size. -2: not one of them.
ssize_t message_read(int fd, void* buf, std::size_t n) {
  if (!concerned()) return -2;
  int saved = errno;
  if (!kernel::uverbs_is_message_fd(fd)) {
    errno = saved;
    return -2;
  }
  going_to_sleep();
  auto r = kernel::uverbs_message_read(fd, reinterpret_cast<kernel::UserPtr>(buf), n);
  errno = r ? saved : r.code();
  return r ? static_cast<ssize_t>(*r) : -1;
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT ssize_t read(int fd, void* buf, size_t n) {
  if (ssize_t r = message_read(fd, buf, n); r != -2) return r;
  if (int err = before_read(fd, n)) return fail(err);
  return after_read(fd, n, next_read(fd, buf, n));
}
UHCA_EXPORT ssize_t __read_chk(int fd, void* buf, size_t n, size_t room) {
  if (n <= room) {
    if (ssize_t r = message_read(fd, buf, n); r != -2) return r;
  }
  if (int err = before_read(fd, n)) return fail(err);
  return after_read(fd, n, next___read_chk(fd, buf, n, room));
}
UHCA_EXPORT int poll(pollfd* fds, nfds_t n, int timeout) {
  if (timeout != 0) before_poll(fds, n);
  return next_poll(fds, n, timeout);
}
UHCA_EXPORT int __poll_chk(pollfd* fds, nfds_t n, int timeout, size_t room) {
  if (timeout != 0) before_poll(fds, n);
  return next___poll_chk(fds, n, timeout, room);
}
UHCA_EXPORT int ppoll(pollfd* fds, nfds_t n, const timespec* timeout, const sigset_t* mask) {
  before_poll(fds, n);
  return next_ppoll(fds, n, timeout, mask);
}
UHCA_EXPORT int select(int n, fd_set* in, fd_set* out, fd_set* err, timeval* timeout) {
  before_select(n, in);
  return next_select(n, in, out, err, timeout);
}
UHCA_EXPORT int pselect(int n, fd_set* in, fd_set* out, fd_set* err, const timespec* timeout, const sigset_t* mask) {
  before_select(n, in);
  return next_pselect(n, in, out, err, timeout, mask);
}
// What the epoll set holds is not known here: while a device file is open, any waiting may be for it.
UHCA_EXPORT int epoll_wait(int fd, epoll_event* events, int n, int timeout) {
  if (timeout != 0 && concerned()) going_to_sleep();
  return next_epoll_wait(fd, events, n, timeout);
}
UHCA_EXPORT int epoll_pwait(int fd, epoll_event* events, int n, int timeout, const sigset_t* mask) {
  if (timeout != 0 && concerned()) going_to_sleep();
  return next_epoll_pwait(fd, events, n, timeout, mask);
}
