// SPDX-License-Identifier: MIT
// The next definition of a function that we wrap (usually libc's).
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

#include "base/inside.h"

namespace uhca::sys {

// Resolved by a constructor for all entries; a call that comes before it (another library's constructor) resolves on its own.
template <class F>
struct Next {
  const char* name;
  mutable std::atomic<void*> fn;

  F* get() const {
    void* p = fn.load(std::memory_order_acquire);
    if (__builtin_expect(p == nullptr, 0)) {
      int saved = errno;
      p = dlsym(RTLD_NEXT, name);
      errno = saved;
      fn.store(p, std::memory_order_release);
    }
    return reinterpret_cast<F*>(p);
  }
  explicit operator bool() const { return get() != nullptr; }
  template <class... A>
  auto operator()(A... a) const {
    return get()(a...);
  }
};

struct NextEntry {
  const char* name;
  std::atomic<void*>* fn;
};

}  // namespace uhca::sys

// UHCA_NEXT(open, int(const char*, int, ...)): defines next_open in the current namespace and lists it for the constructor.
#define UHCA_NEXT(symbol, ...)                                                                   \
  constinit ::uhca::sys::Next<__VA_ARGS__> next_##symbol{#symbol, nullptr};                      \
  __attribute__((section("uhca_next"), used)) const ::uhca::sys::NextEntry next_entry_##symbol { \
#symbol, &next_##symbol.fn                                                                   \
  }

// A wrapper: default visibility, C linkage.
#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))
