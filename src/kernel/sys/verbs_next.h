// SPDX-License-Identifier: MIT
// The libibverbs/libmlx5 behind us. Usually the next definition in the global scope; where a plugin brought the library into a
// scope of its own (dlopen with RTLD_LOCAL), the loaded copy is asked by name.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace uhca::sys {

template <class F>
struct VerbsNext {
  const char* library;
  const char* name;
  std::atomic<void*> fn;

  F* get() {
    void* p = fn.load(std::memory_order_acquire);
    if (__builtin_expect(p != nullptr, 1)) return reinterpret_cast<F*>(p);
    int saved = errno;
    p = dlsym(RTLD_NEXT, name);
    if (!p) {
      if (void* handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY)) {
        p = dlsym(handle, name);
        dlclose(handle);
      }
    }
    errno = saved;
    fn.store(p, std::memory_order_release);
    return reinterpret_cast<F*>(p);
  }
};

}  // namespace uhca::sys

// UHCA_VERBS_NEXT(ibv_open_device, "libibverbs.so.1", ibv_context*(ibv_device*))
#define UHCA_VERBS_NEXT(symbol, library, ...)                   \
  constinit ::uhca::sys::VerbsNext<__VA_ARGS__> next_##symbol { \
    library, #symbol, nullptr                                   \
  }
