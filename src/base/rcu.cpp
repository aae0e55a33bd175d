// SPDX-License-Identifier: MIT
#include "base/rcu.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace uhca::rcu {
namespace detail {

constinit thread_local Self self{nullptr, 0};
constinit std::atomic<bool> expedited{false};

namespace {

constexpr unsigned kSlots = 512;
constinit Slot slots[kSlots]{};
constinit std::atomic<unsigned> used{0};
constinit std::atomic<std::int32_t> shared{0};  // sections of threads without a slot
constinit std::atomic<bool> registered{false};

// Before the first section of the process: every later one knows which barrier orders it. A thread that does not see `expedited` yet
// uses the full barrier, which is right with either.
void register_once() {
  if (registered.load(std::memory_order_acquire)) return;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0) expedited.store(true);
  registered.store(true, std::memory_order_release);
}

bool alive(std::int32_t tid) {
  return syscall(SYS_tgkill, static_cast<int>(syscall(SYS_getpid)), tid, 0) == 0 || errno != ESRCH;
}

Slot* find(std::int32_t tid) {
  unsigned n = used.load();
  while (n < kSlots) {
    if (!used.compare_exchange_weak(n, n + 1)) continue;
    slots[n].owner.store(tid);
    return &slots[n];
  }
  // All given out. Threads leave no word when they end, so that the first section of a thread need not allocate: look who is gone.
  for (Slot& s : slots) {
    std::int32_t owner = s.owner.load();
    if (owner == 0 || (owner != tid && alive(owner))) continue;
    if (s.owner.compare_exchange_strong(owner, tid)) return &s;
  }
  return nullptr;
}

}  // namespace

void claim() {
  int saved = errno;
  register_once();
  self.slot = find(static_cast<std::int32_t>(syscall(SYS_gettid)));
  errno = saved;
}

void enter_shared() {
  shared.fetch_add(1, std::memory_order_seq_cst);
}
void leave_shared() {
  shared.fetch_sub(1, std::memory_order_release);
}

}  // namespace detail

void synchronize() {
  using namespace detail;
  int saved = errno;
  // A read-modify-write on purpose: it orders what the caller stored before the looks at the slots, and tools understand it.
  shared.fetch_add(0, std::memory_order_seq_cst);
  if (expedited.load()) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  unsigned n = used.load();
  for (unsigned i = 0; i < n; ++i) {
    Slot& s = slots[i];
    std::uint32_t seen = s.seq.load(std::memory_order_seq_cst);
    if ((seen & 1) == 0 || &s == self.slot) continue;
    while (s.seq.load(std::memory_order_acquire) == seen) sched_yield();
  }
  std::int32_t own = self.slot == nullptr && self.depth != 0 ? 1 : 0;
  while (shared.load(std::memory_order_acquire) > own) sched_yield();
  errno = saved;
}

void after_fork() {
  using namespace detail;
  for (Slot& s : slots) {
    s.seq.store(0);
    s.owner.store(0);
  }
  used.store(0);
  shared.store(0);
  registered.store(false);
  expedited.store(false);
  self = {nullptr, 0};
}

}  // namespace uhca::rcu
