// SPDX-License-Identifier: MIT
// libefa.so.1 for programs that are linked against it: there is no such device here, and every function says so. Functions take no
// parameters: what the caller passes is not looked at.
#include <cerrno>

#define ANSWER_INT(name)                                         \
  extern "C" __attribute__((visibility("default"))) int name() { \
    return errno = EOPNOTSUPP;                                   \
  }
#define ANSWER_BOOL(name)                                         \
  extern "C" __attribute__((visibility("default"))) bool name() { \
    return false;                                                 \
  }
#define ANSWER_POINTER(name)                                       \
  extern "C" __attribute__((visibility("default"))) void* name() { \
    errno = EOPNOTSUPP;                                            \
    return nullptr;                                                \
  }
#define UHCA_STUB(name, node, answer) ANSWER_##answer(name)

#include "user/stubs/efa/support.inc"
