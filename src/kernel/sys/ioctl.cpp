// SPDX-License-Identifier: MIT
// ioctl: RDMA_VERBS_IOCTL on a uverbs file, and what a dma-buf of ours is asked for; everything else is one comparison.
#include <linux/dma-buf.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cstdarg>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/contexts.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/next.h"
#include "kernel/sys/verbs_names.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(ioctl, int(int, unsigned long, void*));

int verbs_ioctl(int fd, unsigned long request, void* arg) {
  bool foreign = false;
  auto f = cmdfile_of(fd, &foreign);
  if (!f && !foreign) return next_ioctl(fd, request, arg);
  if (!f || f->inherited.load()) {
    KernelEntry entry;
    auto e = refuse(EIO, "ioctl: this uverbs descriptor was opened by another process, whose function it belongs to");
    errno = e.value;
  }
  if (!f || f->inherited.load()) {
    errno = EIO;
    return -1;
  }
  auto user = reinterpret_cast<kernel::UserPtr>(arg);
  Status s = [&] {
    KernelEntry entry;
    return f->file->ioctl(request, user);
  }();
  contexts_handles_changed();
  if (trace::on()) trace_verbs_ioctl(fd, user, s.code());
  if (s.ok()) return 0;
  errno = s.code();
  return -1;
}

int dma_buf_ioctl(int fd, unsigned long request, void* arg) {
  auto buf = kernel::mm::dma_buf_of_fd(fd);
  if (!buf) return next_ioctl(fd, request, arg);
  Status s = [&] {
    KernelEntry entry;
    return kernel::mm::dma_buf_ioctl(*buf, request, reinterpret_cast<kernel::UserPtr>(arg));
  }();
  if (trace::on()) trace::Event("syscall", "ioctl").num("fd", fd).str("command", "DMA_BUF").hex("request", request).num("errno", s.code());
  if (s.ok()) return 0;
  errno = s.code();
  return -1;
}

int gpu_ioctl(int fd, unsigned long request, void* arg) {
  auto file = gpu_file_of(fd);
  if (!file) return next_ioctl(fd, request, arg);
  auto r = [&] {
    KernelEntry entry;
    return file->ioctl(request & 0xffffffff, reinterpret_cast<kernel::UserPtr>(arg));
  }();
  if (trace::on()) trace::Event("syscall", "ioctl").num("fd", fd).str("command", "GPU").hex("request", request).num("errno", r.code());
  if (r.ok()) return *r;
  errno = r.code();
  return -1;
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list ap;
  va_start(ap, request);
  void* arg = va_arg(ap, void*);
  va_end(ap);
  if (__builtin_expect((request & 0xffffffff) == RDMA_VERBS_IOCTL && !inside::active(), 0)) return verbs_ioctl(fd, request, arg);
  if (__builtin_expect(_IOC_TYPE(request) == DMA_BUF_BASE, 0) && kernel::mm::dma_buf_any_files() && !inside::active())
    return dma_buf_ioctl(fd, request, arg);
  if (__builtin_expect(any_gpu_files(), 0) && !inside::active()) return gpu_ioctl(fd, request, arg);
  return next_ioctl(fd, request, arg);
}
