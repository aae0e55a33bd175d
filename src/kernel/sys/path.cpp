// SPDX-License-Identifier: MIT
// readlink, realpath, the current directory.
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "kernel/sys/cwd.h"
#include "kernel/sys/lookup.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(readlink, ssize_t(const char*, char*, size_t));
UHCA_NEXT(readlinkat, ssize_t(int, const char*, char*, size_t));
UHCA_NEXT(__readlink_chk, ssize_t(const char*, char*, size_t, size_t));
UHCA_NEXT(__readlinkat_chk, ssize_t(int, const char*, char*, size_t, size_t));
UHCA_NEXT(realpath, char*(const char*, char*));
UHCA_NEXT(__realpath_chk, char*(const char*, char*, size_t));
UHCA_NEXT(canonicalize_file_name, char*(const char*));
UHCA_NEXT(getcwd, char*(char*, size_t));
UHCA_NEXT(__getcwd_chk, char*(char*, size_t, size_t));
UHCA_NEXT(get_current_dir_name, char*());
UHCA_NEXT(chdir, int(const char*));
UHCA_NEXT(fchdir, int(int));

ssize_t link_text(const Where& w, char* buf, size_t size) {
  if (w.kind == Where::kError || w.node->kind != NodeKind::kLink || size == 0) {
    errno = w.kind == Where::kError ? w.err : EINVAL;
    return -1;
  }
  size_t n = w.node->text.size() < size ? w.node->text.size() : size;
  std::memcpy(buf, w.node->text.data(), n);
  return static_cast<ssize_t>(n);
}

char* give(const std::string& text, char* out) {
  if (text.size() >= PATH_MAX) {
    errno = ENAMETOOLONG;
    return nullptr;
  }
  if (!out) out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out) std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

// realpath of a path that is not ours throughout: nullptr and *passed when libc's own should run.
char* real(const char* path, char* out, bool* passed) {
  *passed = false;
  Where w = where(AT_FDCWD, path, true);
  if (w.kind == Where::kError) {
    errno = w.err;
    return nullptr;
  }
  if (w.ours()) return give(w.node->path(), out);
  if (w.real()) return next_realpath(w.path.c_str(), out);
  *passed = true;
  return nullptr;
}

char* cwd_text(char* buf, size_t size) {
  std::string path;
  virtual_cwd(&path);
  if (!buf) {
    if (size == 0) size = path.size() + 1;
    if (size <= path.size()) {
      errno = ERANGE;
      return nullptr;
    }
    buf = static_cast<char*>(std::malloc(size));
    if (!buf) return nullptr;
  } else if (size <= path.size()) {
    errno = size == 0 ? EINVAL : ERANGE;
    return nullptr;
  }
  std::memcpy(buf, path.c_str(), path.size() + 1);
  return buf;
}

int enter(const Node& node) {
  std::string real_dir = View::real_ancestor(node);
  int r = next_chdir(real_dir.c_str());
  if (r == 0) set_virtual_cwd(node.path());
  return r;
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT ssize_t readlink(const char* path, char* buf, size_t size) {
  Where w = where(AT_FDCWD, path, false);
  if (w.pass()) return next_readlink(path, buf, size);
  if (w.real()) return next_readlink(w.path.c_str(), buf, size);
  return link_text(w, buf, size);
}
UHCA_EXPORT ssize_t __readlink_chk(const char* path, char* buf, size_t size, size_t room) {
  Where w = where(AT_FDCWD, path, false);
  if (w.pass() || size > room) return next___readlink_chk(path, buf, size, room);
  if (w.real()) return next_readlink(w.path.c_str(), buf, size);
  return link_text(w, buf, size);
}
UHCA_EXPORT ssize_t readlinkat(int dirfd, const char* path, char* buf, size_t size) {
  Where w = where(dirfd, path, false);
  if (w.pass()) return next_readlinkat(dirfd, path, buf, size);
  if (w.real()) return next_readlink(w.path.c_str(), buf, size);
  return link_text(w, buf, size);
}
UHCA_EXPORT ssize_t __readlinkat_chk(int dirfd, const char* path, char* buf, size_t size, size_t room) {
  Where w = where(dirfd, path, false);
  if (w.pass() || size > room) return next___readlinkat_chk(dirfd, path, buf, size, room);
  if (w.real()) return next_readlink(w.path.c_str(), buf, size);
  return link_text(w, buf, size);
}
UHCA_EXPORT char* realpath(const char* path, char* out) {
  bool passed;
  char* r = real(path, out, &passed);
  return passed ? next_realpath(path, out) : r;
}
UHCA_EXPORT char* __realpath_chk(const char* path, char* out, size_t room) {
  bool passed;
  if (out && room < PATH_MAX) return next___realpath_chk(path, out, room);
  char* r = real(path, out, &passed);
  return passed ? next___realpath_chk(path, out, room) : r;
}
UHCA_EXPORT char* canonicalize_file_name(const char* path) {
  bool passed;
  char* r = real(path, nullptr, &passed);
  return passed ? next_canonicalize_file_name(path) : r;
}

UHCA_EXPORT char* getcwd(char* buf, size_t size) {
  if (inside::active() || !virtual_cwd(nullptr)) return next_getcwd(buf, size);
  return cwd_text(buf, size);
}
UHCA_EXPORT char* __getcwd_chk(char* buf, size_t size, size_t room) {
  if (size > room || inside::active() || !virtual_cwd(nullptr)) return next___getcwd_chk(buf, size, room);
  return cwd_text(buf, size);
}
UHCA_EXPORT char* get_current_dir_name() {
  if (inside::active() || !virtual_cwd(nullptr)) return next_get_current_dir_name();
  return cwd_text(nullptr, 0);
}
UHCA_EXPORT int chdir(const char* path) {
  Where w = where(AT_FDCWD, path, true);
  if (w.kind == Where::kError || (w.ours() && w.node->kind != NodeKind::kDir)) {
    errno = w.kind == Where::kError ? w.err : ENOTDIR;
    return -1;
  }
  if (w.ours()) return enter(*w.node);
  int r = next_chdir(w.real() ? w.path.c_str() : path);
  if (r == 0 && !inside::active() && own_process()) leave_virtual_cwd();
  return r;
}
UHCA_EXPORT int fchdir(int fd) {
  if (const Node* node = directory_of(fd)) return enter(*node);
  int r = next_fchdir(fd);
  if (r == 0 && !inside::active() && own_process()) leave_virtual_cwd();
  return r;
}
