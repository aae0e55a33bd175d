// SPDX-License-Identifier: MIT
// Memory that goes away while it is registered. The pages stay the device's until the MR is deregistered: it reads and writes what the
// program no longer sees.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>

#include "check/next.h"
#include "check/state.h"

extern "C" void __libc_free(void*);
extern "C" void* __libc_realloc(void*, size_t);

namespace uhca::check {
namespace {

constinit Next<int(void*, size_t)> next_munmap{nullptr, "munmap"};
constinit Next<void*(void*, size_t, size_t, int, ...)> next_mremap{nullptr, "mremap"};
constinit Next<int(void*, size_t, int)> next_madvise{nullptr, "madvise"};
constinit Next<void(void*)> next_free{nullptr, "free"};
constinit Next<void*(void*, size_t)> next_realloc{nullptr, "realloc"};

void going(const void* at, std::size_t length, const char* how) {
  if (registered.load(std::memory_order_relaxed) == 0 || Inside::active() || length == 0) return;
  const int saved = errno;
  {
    Inside inside;
    const Range r{reinterpret_cast<std::uint64_t>(at), length};
    std::vector<Mr> hit;
    {
      Lock lock(state().lock);
      State& s = state();
      auto it = s.by_address.lower_bound({r.addr > s.longest ? r.addr - s.longest : 0, 0});
      for (; it != s.by_address.end() && it->first < r.addr + r.length; ++it) {
        Mr& m = s.mrs[it->second];
        if (m.gone || !m.memory.meets(r)) continue;
        m.gone = true;
        hit.push_back(m);
      }
    }
    if (!hit.empty()) {
      const Site site = here();
      for (const Mr& m : hit)
        found("mr-memory-gone",
              fmt::format("{} takes memory away that is registered: MR with lkey {:#x}, {:#x}+{}; deregister it first", how, m.lkey,
                          m.memory.addr, m.memory.length),
              {{"taken away at", &site}, {"registered at", &m.made}});
    }
  }
  errno = saved;
}

}  // namespace
}  // namespace uhca::check

using namespace uhca::check;

CHECK_EXPORT int munmap(void* at, size_t length) noexcept {
  going(at, length, "munmap");
  return next_munmap(at, length);
}
CHECK_EXPORT void* mremap(void* at, size_t before, size_t after, int flags, ...) noexcept {
  va_list more;
  va_start(more, flags);
  void* to = (flags & MREMAP_FIXED) ? va_arg(more, void*) : nullptr;
  va_end(more);
  void* now = next_mremap(at, before, after, flags, to);
  if (now == MAP_FAILED) return now;
  if (now != at)
    going(at, before, "mremap");
  else if (after < before)
    going(static_cast<char*>(at) + after, before - after, "mremap");
  return now;
}
CHECK_EXPORT int madvise(void* at, size_t length, int advice) noexcept {
  if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) going(at, length, "madvise");
  return next_madvise(at, length, advice);
}
CHECK_EXPORT void free(void* p) noexcept {
  if (p && registered.load(std::memory_order_relaxed) != 0 && !Inside::active()) going(p, malloc_usable_size(p), "free");
  // dlsym may free.
  if (auto* next = Inside::active() ? nullptr : next_free.get()) return next(p);
  __libc_free(p);
}
CHECK_EXPORT void* realloc(void* p, size_t size) noexcept {
  const size_t before = p && registered.load(std::memory_order_relaxed) != 0 && !Inside::active() ? malloc_usable_size(p) : 0;
  auto* next = Inside::active() ? nullptr : next_realloc.get();
  void* now = next ? next(p, size) : __libc_realloc(p, size);
  if (before && now && now != p) going(p, before, "realloc");
  return now;
}
