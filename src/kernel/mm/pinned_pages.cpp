// SPDX-License-Identifier: MIT
#include "kernel/mm/pinned_pages.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <new>

#include "base/inside.h"
#include "base/log.h"
#include "base/trace.h"

namespace uhca::kernel::mm {
namespace {

constexpr std::uint64_t kPage = 4096;

constinit std::atomic<bool> on{false};
constinit std::mutex lock;
constinit std::uint64_t pages = 0;
// By where a piece begins: how many have taken it, up to where the next one begins. 0: nobody.
constinit std::map<std::uint64_t, unsigned>* takers = nullptr;

bool may_lock_all() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  return data[CAP_IPC_LOCK / 32].effective >> (CAP_IPC_LOCK % 32) & 1;
}

// A piece begins there; the number of its takers is that of the one it was part of.
std::map<std::uint64_t, unsigned>::iterator cut(std::uint64_t at) {
  auto it = takers->lower_bound(at);
  if (it != takers->end() && it->first == at) return it;
  const unsigned n = it == takers->begin() ? 0 : std::prev(it)->second;
  return takers->emplace_hint(it, at, n);
}

void join(std::uint64_t at) {
  auto it = takers->find(at);
  if (it == takers->end()) return;
  const unsigned before = it == takers->begin() ? 0 : std::prev(it)->second;
  if (before == it->second) takers->erase(it);
}

void let_go(std::uint64_t begin, std::uint64_t end) {
  auto it = cut(begin), last = cut(end);
  for (; it != last; ++it)
    if (--it->second == 0) syscall(SYS_munlock, it->first, std::next(it)->first - it->first);  // what was unmapped is unlocked
  pages -= (end - begin) / kPage;
  // Inside, pieces that two takings had cut may be alike now.
  for (it = takers->find(begin); it != takers->end() && it->first <= end;) {
    const std::uint64_t at = (it++)->first;
    join(at);
  }
}

}  // namespace

void PinnedPages::enable(bool yes) {
  on.store(yes);
}
bool PinnedPages::enabled() {
  return on.load(std::memory_order_relaxed);
}

Status PinnedPages::take(std::uint64_t begin, std::uint64_t end, std::string_view who) {
  inside::Guard guard;
  std::lock_guard g(lock);
  const std::uint64_t more = (end - begin) / kPage;
  rlimit limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_MEMLOCK, nullptr, &limit) != 0) return Errno{errno};
  if (limit.rlim_cur != RLIM_INFINITY && pages + more > limit.rlim_cur / kPage && !may_lock_all())
    return refuse(ENOMEM, "{}: {} pages more than the {} pinned ones: RLIMIT_MEMLOCK is {} KiB", who, more, pages, limit.rlim_cur / 1024);
  if (takers == nullptr) takers = new std::map<std::uint64_t, unsigned>;
  auto it = cut(begin), last = cut(end);
  for (; it != last; ++it) ++it->second;
  pages += more;
  if (trace::on()) trace::Event("mm", "pin_pages").hex("va", begin).unum("pages", more).unum("in_all", pages);
  if (syscall(SYS_mlock, begin, end - begin) == 0) return success();
  const int err = errno;
  let_go(begin, end);
  return refuse(err == EAGAIN ? EFAULT : err, "{}: [{:#x}, {:#x}) cannot be brought in", who, begin, end);
}

void PinnedPages::release(std::uint64_t begin, std::uint64_t end) {
  inside::Guard guard;
  const int saved = errno;
  std::lock_guard g(lock);
  let_go(begin, end);
  errno = saved;
}

std::uint64_t PinnedPages::counted() {
  std::lock_guard g(lock);
  return pages;
}

void PinnedPages::forget_after_fork() {
  new (&lock) std::mutex;
  takers = nullptr;  // leaked: locks of pages are the parent's
  pages = 0;
}

}  // namespace uhca::kernel::mm
