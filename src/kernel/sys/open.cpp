// SPDX-License-Identifier: MIT
// open and its family, fopen, freopen.
#include "kernel/sys/open.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sysmacros.h>

#include <cstdarg>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/sys/cm_channel.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/lookup.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(open, int(const char*, int, mode_t));
UHCA_NEXT(open64, int(const char*, int, mode_t));
UHCA_NEXT(openat, int(int, const char*, int, mode_t));
UHCA_NEXT(openat64, int(int, const char*, int, mode_t));
UHCA_NEXT(__open_2, int(const char*, int));
UHCA_NEXT(__open64_2, int(const char*, int));
UHCA_NEXT(__openat_2, int(int, const char*, int));
UHCA_NEXT(__openat64_2, int(int, const char*, int));
UHCA_NEXT(creat, int(const char*, mode_t));
UHCA_NEXT(creat64, int(const char*, mode_t));
UHCA_NEXT(fopen, FILE*(const char*, const char*));
UHCA_NEXT(fopen64, FILE*(const char*, const char*));
UHCA_NEXT(freopen, FILE*(const char*, const char*, FILE*));
UHCA_NEXT(freopen64, FILE*(const char*, const char*, FILE*));
UHCA_NEXT(fdopen, FILE*(int, const char*));

int fail(int err) {
  errno = err;
  return -1;
}

int open_device(const Node& node, int flags) {
  if (major(node.rdev) == kMiscMajor || gpu_is_major(major(node.rdev))) {
    int fd = major(node.rdev) == kMiscMajor ? cm_channel_open(flags) : gpu_file_open(node.rdev, flags);
    if (trace::on()) trace::Event("syscall", "open").str("path", node.path()).num("fd", fd < 0 ? -1 : fd).num("errno", fd < 0 ? -fd : 0);
    return fd < 0 ? fail(-fd) : fd;
  }
  int minor = static_cast<int>(node.rdev & 0xff) - static_cast<int>(kVerbsMinorBase);
  int fd = cmdfile_open(minor, flags);
  if (trace::on()) trace::Event("syscall", "open").str("path", node.path()).num("fd", fd < 0 ? -1 : fd).num("errno", fd < 0 ? -fd : 0);
  return fd < 0 ? fail(-fd) : fd;
}

// The path leads to a real file by way of our tree: `mode` is passed whether or not it counts.
int open_where(const Where& w, int flags) {
  if (w.kind == Where::kError) return fail(w.err);
  return virtual_open(w, flags);
}

// The way that an fopen mode opens its file (fopen(3)).
int flags_of(const char* mode) {
  int flags = *mode == 'r' ? O_RDONLY : *mode == 'w' ? O_WRONLY | O_CREAT | O_TRUNC : O_WRONLY | O_CREAT | O_APPEND;
  for (const char* p = mode + 1; *p && *p != ','; ++p) {
    if (*p == '+') flags = (flags & ~O_ACCMODE) | O_RDWR;
    if (*p == 'e') flags |= O_CLOEXEC;
    if (*p == 'x') flags |= O_EXCL;
  }
  return flags;
}

FILE* fopen_any(const Next<FILE*(const char*, const char*)>& next, const char* path, const char* mode) {
  Where w = where(AT_FDCWD, path, true);
  if (w.pass()) return next(path, mode);
  if (w.real()) return next(w.path.c_str(), mode);
  int fd = open_where(w, flags_of(mode));
  if (fd < 0) return nullptr;
  FILE* f = next_fdopen(fd, mode);
  if (!f) raw::close(fd);
  return f;
}

FILE* freopen_any(const Next<FILE*(const char*, const char*, FILE*)>& next, const char* path, const char* mode, FILE* stream) {
  Where w = where(AT_FDCWD, path, true);
  if (w.pass()) return next(path, mode, stream);
  if (w.real()) return next(w.path.c_str(), mode, stream);
  int fd = open_where(w, flags_of(mode));
  if (fd < 0) return nullptr;
  // The stream keeps its buffer and orientation: it is pointed at our descriptor by its name in /proc.
  char name[32];
  std::snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  FILE* f = next(name, mode, stream);
  raw::close(fd);
  return f;
}

}  // namespace

int virtual_open(const Where& w, int flags) {
  const Node& n = *w.node;
  if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) return fail(EEXIST);
  bool writes = (flags & O_ACCMODE) != O_RDONLY;
  bool path_only = flags & O_PATH;
  bool cloexec = flags & O_CLOEXEC;
  auto answer = [](int fd) { return fd < 0 ? fail(-fd) : fd; };
  switch (n.kind) {
    case NodeKind::kDir:
      if (!path_only && (writes || (flags & O_CREAT))) return fail(EISDIR);
      return answer(vfd::make(vfd::Kind::kDir, n.path(), {}, cloexec));
    case NodeKind::kLink:
      // Only an unfollowed link comes here.
      if (!path_only) return fail(ELOOP);
      return answer(vfd::make(vfd::Kind::kFile, n.path(), {}, cloexec));
    case NodeKind::kChar:
      if (flags & O_DIRECTORY) return fail(ENOTDIR);
      if (path_only) return answer(vfd::make(vfd::Kind::kFile, n.path(), {}, cloexec));
      return open_device(n, flags);
    case NodeKind::kFile: break;
  }
  if (flags & O_DIRECTORY) return fail(ENOTDIR);
  // What is shown here is read-only, also where the real file could be written (as on a read-only sysfs of a container).
  if (writes && !path_only) return fail(n.mode & 0200 ? EROFS : EACCES);
  auto text = [&] {
    KernelEntry entry;
    return w.view->read(n);
  }();
  if (!text) {
    // Linux opens the file and refuses the read. A directory descriptor read gives EISDIR, so EINVAL has to be said at open.
    return fail(text.code());
  }
  return answer(vfd::make(vfd::Kind::kFile, n.path(), *text, cloexec));
}

}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

#define UHCA_MODE_ARG(flags)                     \
  mode_t mode = 0;                               \
  if ((flags) & (O_CREAT | O_TMPFILE)) {         \
    va_list ap;                                  \
    va_start(ap, flags);                         \
    mode = static_cast<mode_t>(va_arg(ap, int)); \
    va_end(ap);                                  \
  }

#define UHCA_OPEN(symbol)                                            \
  UHCA_EXPORT int symbol(const char* path, int flags, ...) {         \
    UHCA_MODE_ARG(flags)                                             \
    Where w = where(AT_FDCWD, path, !(flags & O_NOFOLLOW));          \
    if (w.pass()) return next_##symbol(path, flags, mode);           \
    if (w.real()) return next_##symbol(w.path.c_str(), flags, mode); \
    return open_where(w, flags);                                     \
  }
UHCA_OPEN(open)
UHCA_OPEN(open64)

#define UHCA_OPENAT(symbol)                                                    \
  UHCA_EXPORT int symbol(int dirfd, const char* path, int flags, ...) {        \
    UHCA_MODE_ARG(flags)                                                       \
    Where w = where(dirfd, path, !(flags & O_NOFOLLOW));                       \
    if (w.pass()) return next_##symbol(dirfd, path, flags, mode);              \
    if (w.real()) return next_##symbol(AT_FDCWD, w.path.c_str(), flags, mode); \
    return open_where(w, flags);                                               \
  }
UHCA_OPENAT(openat)
UHCA_OPENAT(openat64)

#define UHCA_OPEN_2(symbol)                                    \
  UHCA_EXPORT int symbol(const char* path, int flags) {        \
    Where w = where(AT_FDCWD, path, !(flags & O_NOFOLLOW));    \
    if (w.pass()) return next_##symbol(path, flags);           \
    if (w.real()) return next_##symbol(w.path.c_str(), flags); \
    return open_where(w, flags);                               \
  }
UHCA_OPEN_2(__open_2)
UHCA_OPEN_2(__open64_2)

#define UHCA_OPENAT_2(symbol)                                            \
  UHCA_EXPORT int symbol(int dirfd, const char* path, int flags) {       \
    Where w = where(dirfd, path, !(flags & O_NOFOLLOW));                 \
    if (w.pass()) return next_##symbol(dirfd, path, flags);              \
    if (w.real()) return next_##symbol(AT_FDCWD, w.path.c_str(), flags); \
    return open_where(w, flags);                                         \
  }
UHCA_OPENAT_2(__openat_2)
UHCA_OPENAT_2(__openat64_2)

#define UHCA_CREAT(symbol)                                    \
  UHCA_EXPORT int symbol(const char* path, mode_t mode) {     \
    Where w = where(AT_FDCWD, path, true);                    \
    if (w.pass()) return next_##symbol(path, mode);           \
    if (w.real()) return next_##symbol(w.path.c_str(), mode); \
    return open_where(w, O_CREAT | O_WRONLY | O_TRUNC);       \
  }
UHCA_CREAT(creat)
UHCA_CREAT(creat64)

UHCA_EXPORT FILE* fopen(const char* path, const char* mode) {
  return fopen_any(next_fopen, path, mode);
}
UHCA_EXPORT FILE* fopen64(const char* path, const char* mode) {
  return fopen_any(next_fopen64, path, mode);
}
UHCA_EXPORT FILE* freopen(const char* path, const char* mode, FILE* stream) {
  return freopen_any(next_freopen, path, mode, stream);
}
UHCA_EXPORT FILE* freopen64(const char* path, const char* mode, FILE* stream) {
  return freopen_any(next_freopen64, path, mode, stream);
}
