// SPDX-License-Identifier: MIT
// The mlx5dv functions that exist only so that programs load: each answers EOPNOTSUPP in its own way. They are defined without
// parameters, from the table; the C calling conventions of the supported machines let a caller pass arguments that are not looked at.
#include <cerrno>
#include <cstddef>
#include <cstring>

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

#define ANSWER_INT(name)       \
  UHCA_EXPORT int name() {     \
    return errno = EOPNOTSUPP; \
  }
#define ANSWER_NEGATIVE(name)     \
  UHCA_EXPORT int name() {        \
    return -(errno = EOPNOTSUPP); \
  }
#define ANSWER_MINUS_ONE(name) \
  UHCA_EXPORT long name() {    \
    errno = EOPNOTSUPP;        \
    return -1;                 \
  }
#define ANSWER_POINTER(name) \
  UHCA_EXPORT void* name() { \
    errno = EOPNOTSUPP;      \
    return nullptr;          \
  }
#define ANSWER_VOID(name) \
  UHCA_EXPORT void name() {}
#define ANSWER_EXPORT_SIZES(name)                       \
  UHCA_EXPORT void name(void* sizes, std::size_t len) { \
    std::memset(sizes, 0, len);                         \
  }
#define DEFINE_SUPPORTED(name, answer)
#define DEFINE_UNSUPPORTED(name, answer) ANSWER_##answer(name)
#define UHCA_MLX5DV(name, node, status, answer) DEFINE_##status(name, answer)

#include "user/mlx5/support.inc"
