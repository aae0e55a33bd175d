// SPDX-License-Identifier: MIT
// The function behind ours.
#pragma once

#include <dlfcn.h>

#include <atomic>

namespace uhca::check {

template <class F>
class Next {
 public:
  constexpr Next(const char* library, const char* name) : library_(library), name_(name) {}
  F* get() {
    void* p = fn_.load(std::memory_order_acquire);
    if (__builtin_expect(p != nullptr, 1)) return reinterpret_cast<F*>(p);
    p = dlsym(RTLD_NEXT, name_);
    // A library that a plugin has brought into a scope of its own.
    if (!p && library_)
      if (void* handle = dlopen(library_, RTLD_NOLOAD | RTLD_LAZY)) p = dlsym(handle, name_);
    fn_.store(p, std::memory_order_release);
    return reinterpret_cast<F*>(p);
  }
  template <class... A>
  auto operator()(A... a) {
    return get()(a...);
  }

 private:
  const char* library_;
  const char* name_;
  std::atomic<void*> fn_{nullptr};
};

}  // namespace uhca::check

#define CHECK_EXPORT extern "C" __attribute__((visibility("default")))
