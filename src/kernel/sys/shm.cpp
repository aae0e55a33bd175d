// SPDX-License-Identifier: MIT
// System V shared memory: segments that are detached, or attached over something.
#include <sys/shm.h>

#include <mutex>
#include <new>

#include "kernel/sys/instance.h"
#include "kernel/sys/memory.h"
#include "kernel/sys/next.h"
#include "kernel/sys/pointer_map.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(shmat, void*(int, const void*, int));
UHCA_NEXT(shmdt, int(const void*));

// Sizes of what is attached: shmdt() names only where a segment begins.
constinit std::mutex lock;
constinit PointerMap<size_t, 1024> segments;

}  // namespace

void shm_after_fork() {
  new (&lock) std::mutex;
}

}  // namespace uhca::sys

using namespace uhca::sys;

UHCA_EXPORT void* shmat(int id, const void* addr, int flags) noexcept {
  int saved = errno;
  shmid_ds ds{};
  size_t size = shmctl(id, IPC_STAT, &ds) == 0 ? ds.shm_segsz : 0;
  errno = saved;
  if (flags & SHM_REMAP) memory_going(const_cast<void*>(addr), size, "replaced (shmat SHM_REMAP)");
  void* p = next_shmat(id, addr, flags);
  if (p != reinterpret_cast<void*>(-1) && size != 0 && own_process()) {
    uhca::inside::Guard guard;
    std::lock_guard l(lock);
    segments.insert(p, size);
  }
  return p;
}

UHCA_EXPORT int shmdt(const void* addr) noexcept {
  const size_t* size = segments.find(addr);
  // Where it is not known: at least what begins there.
  memory_going(const_cast<void*>(addr), size ? *size : 1, "detached (shmdt)");
  int r = next_shmdt(addr);
  if (r == 0 && size && own_process()) {
    uhca::inside::Guard guard;
    std::lock_guard l(lock);
    segments.remove(addr);
  }
  return r;
}
