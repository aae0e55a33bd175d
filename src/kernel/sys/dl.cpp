// SPDX-License-Identifier: MIT
// dlopen without RTLD_DEEPBIND, which would bypass us. A tail jump: the C library looks at the caller's address (RUNPATH, namespace).
#include <dlfcn.h>

#include "kernel/sys/next.h"

namespace uhca::sys {
namespace {
UHCA_NEXT(dlopen, void*(const char*, int));
}
}  // namespace uhca::sys

static_assert(RTLD_DEEPBIND == 8);

extern "C" __attribute__((visibility("hidden"), used)) void* uhca_next_dlopen() {
  return reinterpret_cast<void*>(uhca::sys::next_dlopen.get());
}

UHCA_EXPORT __attribute__((naked)) void* dlopen(const char*, int) noexcept {
  __asm__(
      "push %rdi\n"
      "push %rsi\n"
      "sub $8, %rsp\n"
      "call uhca_next_dlopen\n"
      "add $8, %rsp\n"
      "pop %rsi\n"
      "pop %rdi\n"
      "andl $~8, %esi\n"
      "jmp *%rax\n");
}
