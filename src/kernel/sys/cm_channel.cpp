// SPDX-License-Identifier: MIT
#include "kernel/sys/cm_channel.h"

#include <fcntl.h>
#include <rdma/rdma_user_cm.h>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/mm/uaccess.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

namespace cm = kernel::cm;

// A kernel closes the files of a process that ends, so that its peers hear of it.
__attribute__((destructor)) void exits() {
  if (!own_process() || !cm::rdma_cm_any_open()) return;
  KernelEntry entry;
  cm::rdma_cm_exit();
}

ssize_t fail(int err) {
  errno = err;
  return -1;
}

// A descriptor that another thread closes meanwhile is the one that was blocking when the call began.
bool blocking(int fd) {
  long flags = raw::call(SYS_fcntl, fd, F_GETFL);
  return flags < 0 || !(flags & O_NONBLOCK);
}

}  // namespace

int cm_channel_open(int flags) {
  auto opened = [&] {
    KernelEntry entry;
    cm::rdma_cm_reap();
    return cm::rdma_cm_open(flags & O_CLOEXEC, flags & O_NONBLOCK);
  }();
  return opened ? opened->fd : -opened.code();
}

bool cm_channel_write(int fd, const void* buf, std::size_t count, ssize_t* result) {
  struct stat st;
  if (raw::fstat(fd, &st) < 0 || !S_ISFIFO(st.st_mode)) return false;
  auto f = cm::rdma_cm_file_of(fd);
  if (!f) {
    if (!cm::rdma_cm_inherited(st.st_ino)) return false;
    KernelEntry entry;
    *result = fail(refuse(EIO, "write: this rdma_cm descriptor was opened by the parent process, whose function it belongs to").value);
    return true;
  }
  auto user = reinterpret_cast<kernel::UserPtr>(buf);
  std::uint32_t command = ~0u;
  if (count >= sizeof command) (void)kernel::copy_from_user(&command, user, sizeof command);
  bool waits = command == RDMA_USER_CM_CMD_GET_EVENT && blocking(fd);
  for (;;) {
    auto r = [&] {
      KernelEntry entry;
      return f->write(user, count);
    }();
    if (r.code() == EAGAIN && waits) {
      // Not inside the kernel floor: signals are delivered while it sleeps.
      if (Status s = f->wait_event(); !s) {
        *result = fail(s.code());
        return true;
      }
      continue;
    }
    if (trace::on() && !(r.code() == EAGAIN))
      trace::Event("syscall", "write")
          .num("fd", fd)
          .str("command", cm::rdma_cm_command_name(command))
          .unum("count", count)
          .num("errno", r.code());
    *result = r ? static_cast<ssize_t>(*r) : fail(r.code());
    return true;
  }
}

bool cm_channel_is(const struct stat& st) {
  if (!cm_channel_plausible(st)) return false;
  return cm::rdma_cm_is_channel(st.st_ino);
}

void cm_channel_reap() {
  int saved = errno;
  {
    KernelEntry entry;
    cm::rdma_cm_reap();
  }
  errno = saved;
}

}  // namespace uhca::sys
