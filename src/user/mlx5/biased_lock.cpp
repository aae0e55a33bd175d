// SPDX-License-Identifier: MIT
#include "user/mlx5/biased_lock.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace uhca::mlx5 {

constinit std::atomic<bool> BiasedLock::owners_{false};

void BiasedLock::prepare() {
  if (may_own()) return;
  int saved = errno;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) owners_.store(true);
  errno = saved;
}

void BiasedLock::revoke() {
  owner_.store(kShared);
  int saved = errno;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
    // Forbidden since prepare(): no new owners, and long enough that no processor holds a store back.
    owners_.store(false);
    const timespec millisecond{0, 1'000'000};
    syscall(SYS_nanosleep, &millisecond, nullptr);
  }
  errno = saved;
  for (unsigned spins = 0; owner_inside_.load(std::memory_order_acquire);)
    if (++spins % 64 == 0) sched_yield();
}

}  // namespace uhca::mlx5
