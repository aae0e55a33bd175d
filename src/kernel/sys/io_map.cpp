// SPDX-License-Identifier: MIT
#include "kernel/sys/io_map.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "base/inside.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/mmio_decode.h"

namespace uhca::sys {
namespace {

// A fault takes the lock, but never on a thread that holds it: those are inside of our floors.
constinit std::mutex lock;
constinit std::vector<IoRange>* ranges = nullptr;
constinit std::atomic<std::size_t> count{0};

std::uintptr_t end_of(std::uintptr_t va, std::size_t length) {
  return va + length < va ? ~std::uintptr_t{0} : (va + length + 4095) & ~std::uintptr_t{4095};
}

}  // namespace

IoRanges::~IoRanges() {
  if (all.empty()) return;
  inside::Guard guard;
  all.clear();
}

void io_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, bool trapped, std::shared_ptr<void> hold) {
  inside::Guard guard;
  std::lock_guard l(lock);
  if (ranges == nullptr) ranges = new std::vector<IoRange>;
  ranges->push_back({va, va + length, bar_offset, trapped, std::move(hold)});
  count.store(ranges->size(), std::memory_order_release);
}

IoRanges io_map_take(std::uintptr_t va, std::size_t length) {
  IoRanges taken;
  if (count.load(std::memory_order_acquire) == 0) return taken;
  inside::Guard guard;
  std::lock_guard l(lock);
  const std::uintptr_t end = end_of(va, length);
  std::vector<IoRange> left;
  for (IoRange& r : *ranges) {
    if (r.end <= va || r.begin >= end) {
      left.push_back(std::move(r));
      continue;
    }
    auto part = [&r](std::uintptr_t from, std::uintptr_t to) {
      return IoRange{from, to, r.bar_offset + (from - r.begin), r.trapped, r.hold};
    };
    if (r.begin < va) left.push_back(part(r.begin, va));
    if (r.end > end) left.push_back(part(end, r.end));
    taken.all.push_back(part(std::max(r.begin, va), std::min(r.end, end)));
  }
  *ranges = std::move(left);
  count.store(ranges->size(), std::memory_order_release);
  return taken;
}

void io_map_put(IoRanges moved, std::uintptr_t from, std::uintptr_t to, std::size_t length) {
  const std::uintptr_t end = end_of(to, length);
  for (IoRange& r : moved.all) {
    r.begin += to - from;
    r.end = std::min(r.end + (to - from), end);
    if (r.begin < r.end) io_map_add(r.begin, r.end - r.begin, r.bar_offset, r.trapped, r.hold);
  }
}

bool io_map_touches(std::uintptr_t va, std::size_t length) {
  if (count.load(std::memory_order_acquire) == 0) return false;
  inside::Guard guard;
  std::lock_guard l(lock);
  return std::any_of(ranges->begin(), ranges->end(), [&](const IoRange& r) { return r.end > va && r.begin < end_of(va, length); });
}

bool io_map_fault(const siginfo_t& info, void* ucontext) {
  if (count.load(std::memory_order_acquire) == 0 || inside::active()) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(info.si_addr);
  KernelEntry entry;
  std::uint64_t bar = 0, room = 0;
  {
    std::lock_guard l(lock);
    for (const IoRange& r : *ranges) {
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
