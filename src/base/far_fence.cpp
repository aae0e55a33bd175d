// SPDX-License-Identifier: MIT
#include "base/far_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace uhca::far_fence {

namespace detail {
constinit std::atomic<bool> registered{false};
}

bool join() {
  if (joined()) return true;
  int saved = errno;
  // Both, so that who may leave fences out can also be the rare side.
  bool ok = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 && heavy();
  if (ok) detail::registered.store(true);
  errno = saved;
  return ok;
}

void after_fork() {
  detail::registered.store(false);
}

bool heavy() {
  int saved = errno;
  bool ok = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  errno = saved;
  return ok;
}

}  // namespace uhca::far_fence
