// SPDX-License-Identifier: MIT
#include "device/pci/irq.h"

#include <sched.h>

#include "base/trace.h"

namespace uhca::pci {

void IrqTable::run(unsigned vector) {
  Vector& v = vectors_[vector];
  const std::uint64_t bit = std::uint64_t{1} << vector;
  for (;;) {
    if (v.running.exchange(true, std::memory_order_acquire)) {
      // Its owner looks at the pending bit again after it clears `running`.
      pending_.fetch_or(bit, std::memory_order_release);
      if (v.running.load(std::memory_order_acquire)) return;
      if (!(pending_.fetch_and(~bit, std::memory_order_acquire) & bit)) return;
      continue;
    }
    if (Endpoint::IrqHandler handler = v.handler.load(std::memory_order_acquire)) {
      if (trace::on()) trace::Event("irq", "msix").unum("vector", vector);
      handler(v.context.load(std::memory_order_acquire));
    }
    v.running.store(false, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!(pending_.load(std::memory_order_acquire) & bit)) return;
    if (!(pending_.fetch_and(~bit, std::memory_order_acquire) & bit)) return;
  }
}

void IrqTable::dispatch() {
  std::uint64_t bits = pending_.load(std::memory_order_relaxed);
  if (bits == 0) return;
  bits = pending_.exchange(0, std::memory_order_acquire);
  while (bits) {
    auto vector = static_cast<unsigned>(__builtin_ctzll(bits));
    bits &= bits - 1;
    run(vector);
  }
}

void IrqTable::request(unsigned vector, Endpoint::IrqHandler handler, void* context) {
  if (vector >= kVectors) return;
  vectors_[vector].context.store(context, std::memory_order_release);
  vectors_[vector].handler.store(handler, std::memory_order_release);
}

void IrqTable::free(unsigned vector) {
  if (vector >= kVectors) return;
  Vector& v = vectors_[vector];
  v.handler.store(nullptr, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (v.running.load(std::memory_order_acquire)) sched_yield();
}

}  // namespace uhca::pci
