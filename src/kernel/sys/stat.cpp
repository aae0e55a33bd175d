// SPDX-License-Identifier: MIT
// stat and its family, access, statfs, extended attributes.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "kernel/sys/cm_channel.h"
#include "kernel/sys/lookup.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"

static_assert(sizeof(struct stat) == sizeof(struct stat64));

namespace uhca::sys {
namespace {

UHCA_NEXT(stat, int(const char*, void*));
UHCA_NEXT(stat64, int(const char*, void*));
UHCA_NEXT(lstat, int(const char*, void*));
UHCA_NEXT(lstat64, int(const char*, void*));
UHCA_NEXT(fstat, int(int, void*));
UHCA_NEXT(fstat64, int(int, void*));
UHCA_NEXT(fstatat, int(int, const char*, void*, int));
UHCA_NEXT(fstatat64, int(int, const char*, void*, int));
UHCA_NEXT(__xstat, int(int, const char*, void*));
UHCA_NEXT(__xstat64, int(int, const char*, void*));
UHCA_NEXT(__lxstat, int(int, const char*, void*));
UHCA_NEXT(__lxstat64, int(int, const char*, void*));
UHCA_NEXT(__fxstat, int(int, int, void*));
UHCA_NEXT(__fxstat64, int(int, int, void*));
UHCA_NEXT(__fxstatat, int(int, int, const char*, void*, int));
UHCA_NEXT(__fxstatat64, int(int, int, const char*, void*, int));
UHCA_NEXT(statx, int(int, const char*, int, unsigned, void*));
UHCA_NEXT(statfs, int(const char*, void*));
UHCA_NEXT(statfs64, int(const char*, void*));
UHCA_NEXT(fstatfs, int(int, void*));
UHCA_NEXT(fstatfs64, int(int, void*));
UHCA_NEXT(access, int(const char*, int));
UHCA_NEXT(eaccess, int(const char*, int));
UHCA_NEXT(euidaccess, int(const char*, int));
UHCA_NEXT(faccessat, int(int, const char*, int, int));
UHCA_NEXT(getxattr, ssize_t(const char*, const char*, void*, size_t));
UHCA_NEXT(lgetxattr, ssize_t(const char*, const char*, void*, size_t));
UHCA_NEXT(listxattr, ssize_t(const char*, char*, size_t));
UHCA_NEXT(llistxattr, ssize_t(const char*, char*, size_t));

int fail(int err) {
  errno = err;
  return -1;
}

int answer(const Where& w, void* out) {
  if (w.kind == Where::kError) return fail(w.err);
  w.view->fill(*w.node, static_cast<struct stat*>(out));
  return 0;
}

// The kernel's answer about a descriptor is replaced where it stands for a virtual file.
void correct(int fd, struct stat* st) {
  if (__builtin_expect(S_ISFIFO(st->st_mode), 0) && !inside::active() && cm_channel_is(*st)) {
    st->st_mode = S_IFCHR | 0666;
    st->st_rdev = makedev(kMiscMajor, kRdmaCmMinor);
    return;
  }
  if (__builtin_expect(!vfd::plausible(*st), 1) || inside::active()) return;
  char rest[512];
  vfd::Kind kind = vfd::identify(fd, rest, sizeof rest);
  int saved = errno;
  if (kind == vfd::Kind::kVerbs) {
    // "<minor>:<pid>": right in every process, also where the descriptor is inherited.
    st->st_mode = S_IFCHR | 0666;
    st->st_rdev = makedev(kVerbsMajor, kVerbsMinorBase + static_cast<unsigned>(std::atoi(rest)));
    st->st_nlink = 1;
  } else if (kind == vfd::Kind::kGpu) {
    char* end;
    const unsigned long number = std::strtoul(rest, &end, 10);
    st->st_mode = S_IFCHR | 0666;
    st->st_rdev = makedev(static_cast<unsigned>(number), *end == ':' ? static_cast<unsigned>(std::atoi(end + 1)) : 0);
    st->st_nlink = 1;
  } else if (kind == vfd::Kind::kFile || kind == vfd::Kind::kDir) {
    if (Instance* i = hint()) {
      auto f = i->view->find(rest, false);
      if (f.what == View::Found::kNode) i->view->fill(*f.node, st);
    }
  }
  errno = saved;
}

int fstat_any(const Next<int(int, void*)>& next, int fd, void* out) {
  int r = next(fd, out);
  if (r == 0) correct(fd, static_cast<struct stat*>(out));
  return r;
}

int fstatat_any(const Next<int(int, const char*, void*, int)>& next, int dirfd, const char* path, void* out, int flags) {
  Where w = where(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (w.pass()) {
    int r = next(dirfd, path, out, flags);
    if (r == 0 && (flags & AT_EMPTY_PATH)) correct(dirfd, static_cast<struct stat*>(out));
    return r;
  }
  if (w.real()) return next(AT_FDCWD, w.path.c_str(), out, flags);
  return answer(w, out);
}

void to_statx(const struct stat& st, struct statx* x) {
  *x = {};
  x->stx_mask = STATX_BASIC_STATS;
  x->stx_blksize = static_cast<std::uint32_t>(st.st_blksize);
  x->stx_nlink = static_cast<std::uint32_t>(st.st_nlink);
  x->stx_uid = st.st_uid;
  x->stx_gid = st.st_gid;
  x->stx_mode = static_cast<std::uint16_t>(st.st_mode);
  x->stx_ino = st.st_ino;
  x->stx_size = static_cast<std::uint64_t>(st.st_size);
  x->stx_blocks = static_cast<std::uint64_t>(st.st_blocks);
  auto time = [](const timespec& t, struct statx_timestamp& o) {
    o.tv_sec = t.tv_sec;
    o.tv_nsec = static_cast<std::uint32_t>(t.tv_nsec);
  };
  time(st.st_atim, x->stx_atime);
  time(st.st_mtim, x->stx_mtime);
  time(st.st_ctim, x->stx_ctime);
  x->stx_rdev_major = major(st.st_rdev);
  x->stx_rdev_minor = minor(st.st_rdev);
  x->stx_dev_major = major(st.st_dev);
  x->stx_dev_minor = minor(st.st_dev);
}

int access_node(const Where& w, int mode) {
  if (w.kind == Where::kError) return fail(w.err);
  const Node& n = *w.node;
  if (n.kind == NodeKind::kChar) return mode & X_OK ? fail(EACCES) : 0;
  if ((mode & W_OK) && n.kind != NodeKind::kDir) return fail(n.mode & 0200 ? EROFS : EACCES);
  if ((mode & W_OK) && geteuid() != 0) return fail(EACCES);
  if ((mode & X_OK) && n.kind == NodeKind::kFile) return fail(EACCES);
  return 0;
}

template <class N>
int access_any(const N& next, const char* path, int mode) {
  Where w = where(AT_FDCWD, path, true);
  if (w.pass()) return next(path, mode);
  if (w.real()) return next(w.path.c_str(), mode);
  return access_node(w, mode);
}

template <class N>
int statfs_any(const N& next, const char* path, void* out) {
  Where w = where(AT_FDCWD, path, true);
  if (w.pass()) return next(path, out);
  if (w.real()) return next(w.path.c_str(), out);
  if (w.kind == Where::kError) return fail(w.err);
  return next(w.node->path().compare(0, 4, "/dev") == 0 ? "/dev" : "/sys", out);
}

template <class N>
int fstatfs_any(const N& next, int fd, void* out) {
  char rest[512];
  if (!inside::active()) {
    vfd::Kind kind = vfd::identify(fd, rest, sizeof rest);
    if (kind == vfd::Kind::kFile || kind == vfd::Kind::kDir) return next_statfs(std::strncmp(rest, "/dev", 4) == 0 ? "/dev" : "/sys", out);
    if (kind == vfd::Kind::kVerbs || kind == vfd::Kind::kGpu) return next_statfs("/dev", out);
  }
  return next(fd, out);
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

#define UHCA_STAT(symbol, follow)                                    \
  UHCA_EXPORT int symbol(const char* path, struct symbol##_t* out) { \
    Where w = where(AT_FDCWD, path, follow);                         \
    if (w.pass()) return next_##symbol(path, out);                   \
    if (w.real()) return next_##symbol(w.path.c_str(), out);         \
    return answer(w, out);                                           \
  }
#define stat_t stat
#define lstat_t stat
#define stat64_t stat64
#define lstat64_t stat64
UHCA_STAT(stat, true)
UHCA_STAT(lstat, false)
UHCA_STAT(stat64, true)
UHCA_STAT(lstat64, false)

UHCA_EXPORT int fstat(int fd, struct stat* out) {
  return fstat_any(next_fstat, fd, out);
}
UHCA_EXPORT int fstat64(int fd, struct stat64* out) {
  return fstat_any(next_fstat64, fd, out);
}
UHCA_EXPORT int fstatat(int dirfd, const char* path, struct stat* out, int flags) {
  return fstatat_any(next_fstatat, dirfd, path, out, flags);
}
UHCA_EXPORT int fstatat64(int dirfd, const char* path, struct stat64* out, int flags) {
  return fstatat_any(next_fstatat64, dirfd, path, out, flags);
}

// Programs linked against older C libraries.
#define UHCA_XSTAT(symbol, type, follow)                                \
  UHCA_EXPORT int symbol(int ver, const char* path, struct type* out) { \
    Where w = where(AT_FDCWD, path, follow);                            \
    if (w.pass()) return next_##symbol(ver, path, out);                 \
    if (w.real()) return next_##symbol(ver, w.path.c_str(), out);       \
    return answer(w, out);                                              \
  }
UHCA_XSTAT(__xstat, stat, true)
UHCA_XSTAT(__xstat64, stat64, true)
UHCA_XSTAT(__lxstat, stat, false)
UHCA_XSTAT(__lxstat64, stat64, false)
#define UHCA_FXSTAT(symbol, type)                                 \
  UHCA_EXPORT int symbol(int ver, int fd, struct type* out) {     \
    int r = next_##symbol(ver, fd, out);                          \
    if (r == 0) correct(fd, reinterpret_cast<struct stat*>(out)); \
    return r;                                                     \
  }
UHCA_FXSTAT(__fxstat, stat)
UHCA_FXSTAT(__fxstat64, stat64)
#define UHCA_FXSTATAT(symbol, type)                                                           \
  UHCA_EXPORT int symbol(int ver, int dirfd, const char* path, struct type* out, int flags) { \
    Where w = where(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW));                             \
    if (w.pass()) return next_##symbol(ver, dirfd, path, out, flags);                         \
    if (w.real()) return next_##symbol(ver, AT_FDCWD, w.path.c_str(), out, flags);            \
    return answer(w, out);                                                                    \
  }
UHCA_FXSTATAT(__fxstatat, stat)
UHCA_FXSTATAT(__fxstatat64, stat64)

UHCA_EXPORT int statx(int dirfd, const char* path, int flags, unsigned mask, struct statx* out) {
  Where w = where(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW));
  struct stat st;
  if (w.pass()) {
    int r = next_statx(dirfd, path, flags, mask, out);
    if (r == 0 && (flags & AT_EMPTY_PATH) && S_ISREG(out->stx_mode) && out->stx_nlink == 0 && raw::fstat(dirfd, &st) == 0) {
      ino_t before = st.st_ino;
      mode_t mode = st.st_mode;
      correct(dirfd, &st);
      if (st.st_ino != before || st.st_mode != mode) to_statx(st, out);
    }
    return r;
  }
  if (w.real()) return next_statx(AT_FDCWD, w.path.c_str(), flags, mask, out);
  if (answer(w, &st) != 0) return -1;
  to_statx(st, out);
  return 0;
}

UHCA_EXPORT int statfs(const char* path, struct statfs* out) {
  return statfs_any(next_statfs, path, out);
}
UHCA_EXPORT int statfs64(const char* path, struct statfs64* out) {
  return statfs_any(next_statfs64, path, out);
}
UHCA_EXPORT int fstatfs(int fd, struct statfs* out) {
  return fstatfs_any(next_fstatfs, fd, out);
}
UHCA_EXPORT int fstatfs64(int fd, struct statfs64* out) {
  return fstatfs_any(next_fstatfs64, fd, out);
}

UHCA_EXPORT int access(const char* path, int mode) {
  return access_any(next_access, path, mode);
}
UHCA_EXPORT int eaccess(const char* path, int mode) {
  return access_any(next_eaccess, path, mode);
}
UHCA_EXPORT int euidaccess(const char* path, int mode) {
  return access_any(next_euidaccess, path, mode);
}
UHCA_EXPORT int faccessat(int dirfd, const char* path, int mode, int flags) {
  Where w = where(dirfd, path, !(flags & AT_SYMLINK_NOFOLLOW));
  if (w.pass()) return next_faccessat(dirfd, path, mode, flags);
  if (w.real()) return next_faccessat(AT_FDCWD, w.path.c_str(), mode, flags);
  return access_node(w, mode);
}

// sysfs files carry no attributes that anyone set.
#define UHCA_GETXATTR(symbol, follow)                                                        \
  UHCA_EXPORT ssize_t symbol(const char* path, const char* name, void* value, size_t size) { \
    Where w = where(AT_FDCWD, path, follow);                                                 \
    if (w.pass()) return next_##symbol(path, name, value, size);                             \
    if (w.real()) return next_##symbol(w.path.c_str(), name, value, size);                   \
    return fail(w.kind == Where::kError ? w.err : ENODATA);                                  \
  }
UHCA_GETXATTR(getxattr, true)
UHCA_GETXATTR(lgetxattr, false)
#define UHCA_LISTXATTR(symbol, follow)                                    \
  UHCA_EXPORT ssize_t symbol(const char* path, char* list, size_t size) { \
    Where w = where(AT_FDCWD, path, follow);                              \
    if (w.pass()) return next_##symbol(path, list, size);                 \
    if (w.real()) return next_##symbol(w.path.c_str(), list, size);       \
    return w.kind == Where::kError ? fail(w.err) : 0;                     \
  }
UHCA_LISTXATTR(listxattr, true)
UHCA_LISTXATTR(llistxattr, false)
