// SPDX-License-Identifier: MIT
// Fork protection: pages that a device writes must not be copied away from under it when a child is forked. Kernels since 5.12 copy such
// pages for the child, and nothing need be done; older ones need madvise(MADV_DONTFORK) on every registered range, with a count per page
// range, because ranges overlap. The count is kept in a sorted list of disjoint ranges.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

// [start, end) is registered `count` > 0 times.
struct Range {
  Range* next;
  std::uintptr_t start, end;
  unsigned count;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
constinit Range* ranges = nullptr;
constinit bool enabled = false;
constinit bool huge_pages = false;
constinit bool too_late = false;  // something was registered before ibv_fork_init

std::uintptr_t base_page_size() {
  return static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
}

// KernelPageSize of the mapping that holds p, for RDMAV_HUGEPAGES_SAFE.
std::uintptr_t page_size_at(const void* p) {
  std::uintptr_t size = base_page_size();
  FILE* f = std::fopen("/proc/self/smaps", "re");
  if (!f) return size;
  char line[1024];
  bool inside = false;
  while (std::fgets(line, sizeof line, f)) {
    std::uintptr_t lo, hi;
    unsigned long kb;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &lo, &hi) == 2) {
      inside = reinterpret_cast<std::uintptr_t>(p) >= lo && reinterpret_cast<std::uintptr_t>(p) < hi;
    } else if (inside && std::sscanf(line, "KernelPageSize: %lu kB", &kb) == 1) {
      size = kb * 1024;
      break;
    }
  }
  std::fclose(f);
  return size;
}

Range* new_range(Range* next, std::uintptr_t start, std::uintptr_t end, unsigned count) {
  auto* r = static_cast<Range*>(std::malloc(sizeof(Range)));
  if (r) *r = Range{next, start, end, count};
  return r;
}

// Makes `at` a border, so that no range straddles it. False when out of memory.
bool cut(std::uintptr_t at) {
  for (Range* r = ranges; r && r->start < at; r = r->next) {
    if (r->end <= at) continue;
    Range* upper = new_range(r->next, at, r->end, r->count);
    if (!upper) return false;
    r->end = at;
    r->next = upper;
  }
  return true;
}

void merge() {
  for (Range** p = &ranges; *p;) {
    Range* r = *p;
    if (r->count == 0) {
      *p = r->next;
      std::free(r);
      continue;
    }
    if (r->next && r->next->start == r->end && r->next->count == r->count) {
      Range* gone = r->next;
      r->end = gone->end;
      r->next = gone->next;
      std::free(gone);
      continue;
    }
    p = &r->next;
  }
}

int advise(std::uintptr_t start, std::uintptr_t end, int advice) {
  return madvise(reinterpret_cast<void*>(start), end - start, advice);
}

// Counts [start, end) once more. On failure everything is as before, and errno says why.
int protect(std::uintptr_t start, std::uintptr_t end) {
  if (!cut(start) || !cut(end)) {
    errno = ENOMEM;
    return -1;
  }
  // Fill the gaps first with ranges of count 0, then advise those; a failure takes the advice back.
  std::uintptr_t at = start;
  for (Range** p = &ranges; at < end;) {
    Range* r = *p;
    if (r && r->end <= at) {
      p = &r->next;
      continue;
    }
    const std::uintptr_t gap_end = r && r->start < end ? r->start : end;
    if (gap_end > at) {
      Range* gap = new_range(r, at, gap_end, 0);
      if (!gap) {
        merge();
        errno = ENOMEM;
        return -1;
      }
      *p = gap;
      at = gap_end;
      p = &gap->next;
    } else {
      at = r->end;
      p = &r->next;
    }
  }
  for (Range* r = ranges; r; r = r->next) {
    if (r->start < start || r->end > end || r->count != 0) continue;
    if (advise(r->start, r->end, MADV_DONTFORK)) {
      int saved = errno;
      for (Range* q = ranges; q != r; q = q->next)
        if (q->start >= start && q->end <= end && q->count == 0) advise(q->start, q->end, MADV_DOFORK);
      merge();
      errno = saved;
      return -1;
    }
  }
  for (Range* r = ranges; r; r = r->next)
    if (r->start >= start && r->end <= end) ++r->count;
  merge();
  return 0;
}

int unprotect(std::uintptr_t start, std::uintptr_t end) {
  if (!cut(start) || !cut(end)) {
    errno = ENOMEM;
    return -1;
  }
  for (Range* r = ranges; r; r = r->next) {
    if (r->start < start || r->end > end || r->count == 0) continue;
    if (--r->count == 0) advise(r->start, r->end, MADV_DOFORK);  // pages that are already unmapped have nothing to undo
  }
  merge();
  return 0;
}

int change(void* base, std::size_t size, int (*f)(std::uintptr_t, std::uintptr_t)) {
  pthread_mutex_lock(&lock);
  int ret = 0;
  if (!enabled) {
    too_late = true;
  } else if (base && size) {
    const std::uintptr_t page = huge_pages ? page_size_at(base) : base_page_size();
    const auto start = reinterpret_cast<std::uintptr_t>(base);
    ret = f(start & ~(page - 1), (start + size + page - 1) & ~(page - 1));
  }
  pthread_mutex_unlock(&lock);
  return ret;
}

}  // namespace

UHCA_EXPORT int ibv_fork_init() {
  if (std::getenv("RDMAV_HUGEPAGES_SAFE")) huge_pages = true;
  if (enabled || kernel_copies_on_fork()) return 0;
  pthread_mutex_lock(&lock);
  int ret = too_late ? EINVAL : 0;
  if (!ret) {
    // Does this kernel have the advice at all?
    const std::uintptr_t page = base_page_size();
    void* probe = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (probe == MAP_FAILED) {
      ret = ENOMEM;
    } else {
      if (madvise(probe, page, MADV_DONTFORK) || madvise(probe, page, MADV_DOFORK)) ret = ENOSYS;
      munmap(probe, page);
    }
  }
  if (!ret) enabled = true;
  pthread_mutex_unlock(&lock);
  return ret;
}

UHCA_EXPORT enum ibv_fork_status ibv_is_fork_initialized() {
  if (kernel_copies_on_fork()) return IBV_FORK_UNNEEDED;
  return enabled ? IBV_FORK_ENABLED : IBV_FORK_DISABLED;
}

UHCA_EXPORT int ibv_dontfork_range(void* base, std::size_t size) {
  return change(base, size, protect);
}
UHCA_EXPORT int ibv_dofork_range(void* base, std::size_t size) {
  return change(base, size, unprotect);
}
