// SPDX-License-Identifier: MIT
// Descriptors that stand for virtual files: sealed memfds. What one is stands in its name, so dup, fork, exec and SCM_RIGHTS need
// no bookkeeping: /proc/self/fd/N reads "/memfd:uhca:<kind>:<rest> (deleted)".
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace uhca::sys::vfd {

enum class Kind : char {
  kNone = 0,
  kVerbs = 'c',  // an open /dev/infiniband/uverbsN; rest = "<minor>:<pid>"
  kGpu = 'g',    // an open file of the GPU; rest = "<major>:<minor>:<pid>"
  kFile = 'f',   // a sysfs file with its text; rest = path
  kDir = 'd',    // a directory; rest = path
  kCwd = 'w',    // carries the virtual current directory over exec; rest = path
};

// A new descriptor (O_CLOEXEC as asked), or a negative errno. `text` becomes its content; the offset is 0.
int make(Kind kind, std::string_view rest, std::string_view text, bool cloexec);

// What `fd` is. Async-signal-safe, errno is left alone; two system calls for a memfd, one for anything else. `rest` (if not null)
// receives at most size-1 bytes and a zero. `st` (if not null) receives fstat's answer when the kind is not kNone.
Kind identify(int fd, char* rest, std::size_t size, struct stat* st = nullptr);

// Whether fstat's answer can be one of ours: cheap, no system call.
inline bool plausible(const struct stat& st) {
  return S_ISREG(st.st_mode) && st.st_nlink == 0;
}

}  // namespace uhca::sys::vfd
