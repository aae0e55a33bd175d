// SPDX-License-Identifier: MIT
// Deferred interrupts (DESIGN, decision 3): raising a vector sets a bit; whoever drove the device dispatches after it has
// dropped all device locks, as a softirq would.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "device/pci/bus.h"

namespace uhca::pci {

class IrqTable {
 public:
  static constexpr unsigned kVectors = 64;

  // Wait-free; from any context.
  void raise(unsigned vector) {
    if (vector < kVectors) pending_.fetch_or(std::uint64_t{1} << vector, std::memory_order_release);
  }
  bool any_pending() const { return pending_.load(std::memory_order_relaxed) != 0; }

  // Runs the handlers of all pending vectors. One vector never runs on two threads at once: the second thread leaves its
  // request with the first.
  void dispatch();

  void request(unsigned vector, Endpoint::IrqHandler handler, void* context);
  // Returns when no handler of the vector runs.
  void free(unsigned vector);

 private:
  struct Vector {
    std::atomic<Endpoint::IrqHandler> handler{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<bool> running{false};
  };
  void run(unsigned vector);

  std::atomic<std::uint64_t> pending_{0};
  std::array<Vector, kVectors> vectors_;
};

}  // namespace uhca::pci
