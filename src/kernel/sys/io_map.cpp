// SPDX-License-Identifier: MIT
#include "kernel/sys/io_map.h"

#include <atomic>
#include <mutex>
#include <new>
#include <vector>

#include "base/inside.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/mmio_decode.h"

namespace uhca::sys {
namespace {

struct Range {
  std::uintptr_t begin, end;
  std::uint64_t bar_offset;
  bool trapped;
  std::shared_ptr<void> hold;
};

// A fault takes the lock, but never on a thread that holds it: those are inside of our floors.
constinit std::mutex lock;
constinit std::vector<Range>* ranges = nullptr;
constinit std::atomic<std::size_t> count{0};

}  // namespace

void io_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, bool trapped, std::shared_ptr<void> hold) {
  inside::Guard guard;
  std::lock_guard l(lock);
  if (ranges == nullptr) ranges = new std::vector<Range>;
  ranges->push_back({va, va + length, bar_offset, trapped, std::move(hold)});
  count.store(ranges->size(), std::memory_order_release);
}

void io_map_remove(std::uintptr_t va, std::size_t length) {
  if (count.load(std::memory_order_acquire) == 0) return;
  inside::Guard guard;
  std::vector<std::shared_ptr<void>> dropped;  // what they hold may issue commands when it goes: not under the lock
  std::lock_guard l(lock);
  const std::uintptr_t end = va + length < va ? ~std::uintptr_t{0} : (va + length + 4095) & ~std::uintptr_t{4095};
  std::vector<Range> left;
  for (Range& r : *ranges) {
    if (r.end <= va || r.begin >= end) {
      left.push_back(std::move(r));
      continue;
    }
    if (r.begin < va) left.push_back({r.begin, va, r.bar_offset, r.trapped, r.hold});
    if (r.end > end) left.push_back({end, r.end, r.bar_offset + (end - r.begin), r.trapped, r.hold});
    dropped.push_back(std::move(r.hold));
  }
  *ranges = std::move(left);
  count.store(ranges->size(), std::memory_order_release);
}

bool io_map_fault(const siginfo_t& info, void* ucontext) {
  if (count.load(std::memory_order_acquire) == 0 || inside::active()) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(info.si_addr);
  KernelEntry entry;
  std::uint64_t bar = 0, room = 0;
  {
    std::lock_guard l(lock);
    for (const Range& r : *ranges) {
      if (!r.trapped || at < r.begin || at >= r.end) continue;
      bar = r.bar_offset + (at - r.begin);
      room = r.end - at;
    }
  }
  Instance* i = instance();
  MmioAccess a;
  if (room == 0 || i == nullptr || !mmio_decode(ucontext, &a) || a.size > room) return false;
  std::uint64_t value = 0;
  if (a.write)
    i->device->bar_store(bar, a.value, a.size);
  else
    value = i->device->bar_load(bar, a.size);
  mmio_complete(ucontext, a, value);
  return true;
}

void io_map_forget_after_fork() {
  new (&lock) std::mutex;
  ranges = nullptr;  // leaked: what it holds is the parent's
  count.store(0);
}

}  // namespace uhca::sys
