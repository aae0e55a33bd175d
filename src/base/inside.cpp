// SPDX-License-Identifier: MIT
#include "base/inside.h"

namespace uhca::inside {

constinit thread_local State state{};
constinit std::atomic<void (*)()> raise_deferred{nullptr};
constinit std::atomic<void (*)(bool)> hold_cancellation{nullptr};

namespace detail {

void hold() {
  if (auto* f = hold_cancellation.load(std::memory_order_acquire)) f(true);
}

void settle() {
  // Cancellation first: a handler that is raised may leave by longjmp.
  if (state.cancelable) {
    if (auto* f = hold_cancellation.load(std::memory_order_acquire)) f(false);
  }
  if (state.deferred) {
    if (auto* f = raise_deferred.load(std::memory_order_acquire)) f();
  }
}

}  // namespace detail

}  // namespace uhca::inside
