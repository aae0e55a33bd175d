// SPDX-License-Identifier: MIT
#include "kernel/mm/trap_names.h"

#include <atomic>
#include <cstdint>

namespace uhca::kernel::mm {
namespace {

struct Trap {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // end 0: free
  std::atomic<const char*> meaning{nullptr};
};
constinit Trap traps[16]{};  // one a GPU; a further one's faults go unnamed

}  // namespace

void name_trap(const void* memory, std::size_t length, const char* meaning) {
  for (Trap& t : traps) {
    const char* none = nullptr;
    if (!t.meaning.compare_exchange_strong(none, meaning)) continue;
    t.begin.store(reinterpret_cast<std::uintptr_t>(memory), std::memory_order_relaxed);
    t.end.store(reinterpret_cast<std::uintptr_t>(memory) + length, std::memory_order_release);
    return;
  }
}

void forget_trap(const void* memory) {
  for (Trap& t : traps) {
    if (t.end.load() == 0 || t.begin.load() != reinterpret_cast<std::uintptr_t>(memory)) continue;
    t.end.store(0);
    t.meaning.store(nullptr);
  }
}

const char* trap_at(const void* memory) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  for (Trap& t : traps)
    if (at < t.end.load(std::memory_order_acquire) && at >= t.begin.load(std::memory_order_relaxed)) return t.meaning.load();
  return nullptr;
}

}  // namespace uhca::kernel::mm
