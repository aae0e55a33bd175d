// SPDX-License-Identifier: MIT
// Raw system calls: no cancellation point, no wrapper, and errno only where the caller wants it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace uhca::sys::raw {

// All return a negative errno on failure.
inline long call(long number, long a = 0, long b = 0, long c = 0, long d = 0, long e = 0, long f = 0) {
  long ret;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(ret) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return ret;
}
template <class T>
inline long arg(T* p) {
  return reinterpret_cast<long>(p);
}

inline int fstat(int fd, struct stat* st) {
  return static_cast<int>(call(SYS_fstat, fd, arg(st)));
}
inline int stat(const char* path, struct stat* st) {
  return static_cast<int>(call(SYS_stat, arg(path), arg(st)));
}
inline int close(int fd) {
  return static_cast<int>(call(SYS_close, fd));
}
inline int getpid() {
  return static_cast<int>(call(SYS_getpid));
}
// The text behind /proc/self/fd/N, zero-terminated; its length or a negative errno.
inline long fd_link(int fd, char* buf, std::size_t size) {
  char path[32];
  // No snprintf: this runs in signal handlers.
  char* p = path;
  for (const char* s = "/proc/self/fd/"; *s; ++s) *p++ = *s;
  char digits[12];
  int n = 0;
  unsigned v = static_cast<unsigned>(fd);
  do digits[n++] = static_cast<char>('0' + v % 10);
  while (v /= 10);
  while (n > 0) *p++ = digits[--n];
  *p = 0;
  long len = call(SYS_readlink, arg(path), arg(buf), static_cast<long>(size - 1));
  if (len >= 0) buf[len] = 0;
  return len;
}

}  // namespace uhca::sys::raw
