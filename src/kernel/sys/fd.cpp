// SPDX-License-Identifier: MIT
// Descriptors: close and its family (internal descriptors are out of the program's reach), write (on its failure path).
#include "base/fd.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/uaccess.h"
#include "kernel/sys/cm_channel.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/verbs_names.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(close, int(int));
UHCA_NEXT(dup2, int(int, int));
UHCA_NEXT(dup3, int(int, int, int));
UHCA_NEXT(write, ssize_t(int, const void*, size_t));
UHCA_NEXT(writev, ssize_t(int, const iovec*, int));

int fail(int err) {
  errno = err;
  return -1;
}

// Asked before a descriptor goes away: can its going be a last close?
class Leaving {
 public:
  explicit Leaving(int fd) {
    struct stat st;
    if (!any_cmd_files() && !kernel::cm::rdma_cm_any_open() && !kernel::mm::dma_buf_any_files() && !any_gpu_files()) return;
    if (inside::active() || raw::fstat(fd, &st) != 0) return;
    verbs_ = vfd::plausible(st);
    buffers_ = kernel::mm::dma_buf_plausible(st);
    channel_ = cm_channel_plausible(st);
  }
  // After the descriptor is gone.
  void done() const {
    if (verbs_) cmdfile_reap();
    if (verbs_) gpu_file_reap();
    if (channel_) cm_channel_reap();
    if (buffers_) kernel::mm::dma_buf_reap();
  }

 private:
  bool verbs_ = false, channel_ = false, buffers_ = false;
};

// Closes [first, last] except what is ours.
int close_range_around(unsigned first, unsigned last, int flags) {
  bool reap = any_cmd_files(), reap_channels = kernel::cm::rdma_cm_any_open();
  long r = 0;
  unsigned at = first;
  while (at <= last) {
    int mine = at <= 0x7fffffff ? fd::next_internal(static_cast<int>(at)) : -1;
    unsigned stop = mine >= 0 && static_cast<unsigned>(mine) <= last ? static_cast<unsigned>(mine) : 0;
    if (mine < 0 || static_cast<unsigned>(mine) > last) {
      r = raw::call(SYS_close_range, at, last, flags);
      break;
    }
    if (stop > at) r = raw::call(SYS_close_range, at, stop - 1, flags);
    if (r < 0) break;
    at = stop + 1;
  }
  if (r == -ENOSYS && flags == 0) {
    // Before Linux 5.9: one by one.
    for (unsigned fd = first; fd <= last && fd < 65536; ++fd)
      if (!fd::is_internal(static_cast<int>(fd))) raw::close(static_cast<int>(fd));
    r = 0;
  }
  if (reap) cmdfile_reap();
  if (reap_channels) cm_channel_reap();
  gpu_file_reap();
  kernel::mm::dma_buf_reap();
  return r < 0 ? fail(static_cast<int>(-r)) : 0;
}

// A write that the kernel refused: was it meant for a uverbs file?
ssize_t refused_write(int fd, const void* buf, size_t count) {
  bool foreign = false;
  auto f = cmdfile_of(fd, &foreign);
  if (!f && !foreign) return fail(EPERM);
  if (!f || f->inherited.load()) {
    KernelEntry entry;
    auto e = refuse(EIO, "write: this uverbs descriptor was opened by another process, whose function it belongs to");
    errno = e.value;
    return fail(EIO);
  }
  auto r = [&] {
    KernelEntry entry;
    return f->file->write(reinterpret_cast<kernel::UserPtr>(buf), count);
  }();
  if (trace::on()) {
    std::uint32_t command = 0;
    if (count >= 4) (void)kernel::copy_from_user(&command, reinterpret_cast<kernel::UserPtr>(buf), 4);
    trace::Event("syscall", "write").num("fd", fd).str("command", write_command_name(command)).unum("count", count).num("errno", r.code());
  }
  if (!r) return fail(r.code());
  return static_cast<ssize_t>(*r);
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int close(int fd) {
  if (inside::active()) return next_close(fd);
  if (__builtin_expect(fd::is_internal(fd), 0)) return fail(EBADF);
  Leaving leaving(fd);
  int r = next_close(fd);
  leaving.done();
  return r;
}
UHCA_EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if (inside::active() || first > last) {
    long r = raw::call(SYS_close_range, first, last, flags);
    return r < 0 ? fail(static_cast<int>(-r)) : 0;
  }
  return close_range_around(first, last, flags);
}
UHCA_EXPORT void closefrom(int low) {
  close_range_around(low < 0 ? 0 : static_cast<unsigned>(low), ~0u, 0);
}
UHCA_EXPORT int dup2(int from, int to) {
  if (inside::active()) return next_dup2(from, to);
  if (__builtin_expect(from != to && fd::is_internal(to), 0)) return fail(EBUSY);
  Leaving leaving(from != to ? to : -1);
  int r = next_dup2(from, to);
  leaving.done();
  return r;
}
UHCA_EXPORT int dup3(int from, int to, int flags) {
  if (inside::active()) return next_dup3(from, to, flags);
  if (__builtin_expect(from != to && fd::is_internal(to), 0)) return fail(EBUSY);
  Leaving leaving(from != to ? to : -1);
  int r = next_dup3(from, to, flags);
  leaving.done();
  return r;
}

UHCA_EXPORT ssize_t write(int fd, const void* buf, size_t count) {
  ssize_t r = next_write(fd, buf, count);
  // A sealed memfd refuses with EPERM; with a count of 0 it does not look.
  if (__builtin_expect(r < 0 && errno == EPERM && !inside::active(), 0)) return refused_write(fd, buf, count);
  // The read end of a pipe, which an event channel of rdma_cm is, refuses with EBADF.
  if (__builtin_expect(r < 0 && errno == EBADF && !inside::active(), 0) && !cm_channel_write(fd, buf, count, &r)) errno = EBADF;
  return r;
}
UHCA_EXPORT ssize_t writev(int fd, const iovec* iov, int n) {
  ssize_t r = next_writev(fd, iov, n);
  if (__builtin_expect(r < 0 && errno == EPERM && !inside::active(), 0)) {
    // The uverbs file takes one buffer a call (Linux: write, no write_iter): a vector of one is that; more are taken one by one.
    ssize_t total = 0;
    for (int i = 0; i < n; ++i) {
      ssize_t one = refused_write(fd, iov[i].iov_base, iov[i].iov_len);
      if (one < 0) return total ? total : one;
      total += one;
      if (static_cast<size_t>(one) < iov[i].iov_len) break;
    }
    return total;
  }
  if (__builtin_expect(r < 0 && errno == EBADF && n == 1 && !inside::active(), 0) &&
      !cm_channel_write(fd, iov[0].iov_base, iov[0].iov_len, &r))
    errno = EBADF;
  return r;
}
