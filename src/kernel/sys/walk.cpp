// SPDX-License-Identifier: MIT
// libc functions that walk directories by themselves: scandir, glob, nftw. libc's own calls among its functions do not pass our
// wrappers, so these are redone over them where the view is concerned, and passed on where it is not.
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernel/sys/cwd.h"
#include "kernel/sys/dir.h"
#include "kernel/sys/lookup.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"

namespace uhca::sys {
namespace {

using Filter = int (*)(const dirent*);
using Compare = int (*)(const dirent**, const dirent**);
UHCA_NEXT(scandir, int(const char*, dirent***, Filter, Compare));
UHCA_NEXT(scandirat, int(int, const char*, dirent***, Filter, Compare));
UHCA_NEXT(glob, int(const char*, int, int (*)(const char*, int), glob_t*));
UHCA_NEXT(nftw, int(const char*, __nftw_func_t, int, int));
UHCA_NEXT(nftw64, int(const char*, __nftw_func_t, int, int));

// Below /sys and /dev the real functions would miss what we add; anywhere else they are left alone.
bool concerned(const char* path) {
  if (reinterpret_cast<std::uintptr_t>(path) < 4096 || inside::active()) return false;
  if (path[0] == '/') return !std::strncmp(path, "/sys", 4) || !std::strncmp(path, "/dev", 4);
  return virtual_cwd(nullptr);
}

int scan(const char* path, dirent*** list, Filter filter, Compare compare) {
  DIR* d = dir_open(path);
  if (!d) return -1;
  std::vector<dirent*> found;
  errno = 0;
  while (dirent* e = dir_read(d)) {
    if (filter && !filter(e)) continue;
    auto* copy = static_cast<dirent*>(std::malloc(sizeof(dirent)));
    if (!copy) break;
    *copy = {};
    copy->d_ino = e->d_ino;
    copy->d_off = e->d_off;
    copy->d_type = e->d_type;
    copy->d_reclen = sizeof(dirent);
    std::strcpy(copy->d_name, e->d_name);
    found.push_back(copy);
  }
  dir_close(d);
  auto** out = static_cast<dirent**>(std::malloc(sizeof(dirent*) * (found.size() + 1)));
  if (!out) {
    for (dirent* e : found) std::free(e);
    errno = ENOMEM;
    return -1;
  }
  if (!found.empty()) std::memcpy(out, found.data(), sizeof(dirent*) * found.size());
  if (compare) std::qsort(out, found.size(), sizeof(dirent*), reinterpret_cast<int (*)(const void*, const void*)>(compare));
  *list = out;
  return static_cast<int>(found.size());
}

int scan_path(const char* path, dirent*** list, Filter filter, Compare compare) {
  return concerned(path) ? scan(path, list, filter, compare) : next_scandir(path, list, filter, compare);
}

int scan_at(int dirfd, const char* path, dirent*** list, Filter filter, Compare compare) {
  if (dirfd == AT_FDCWD || path[0] == '/')
    return concerned(path) ? scan(path, list, filter, compare) : next_scandirat(dirfd, path, list, filter, compare);
  Where w = where(dirfd, path, true);
  if (w.pass()) return next_scandirat(dirfd, path, list, filter, compare);
  if (w.kind == Where::kError) {
    errno = w.err;
    return -1;
  }
  std::string p = w.real() ? w.path : w.node->path();
  return scan(p.c_str(), list, filter, compare);
}

template <bool kFollow>
int glob_stat(const char* path, struct stat* st) {
  Where w = where(AT_FDCWD, path, kFollow);
  if (w.kind == Where::kError) {
    errno = w.err;
    return -1;
  }
  if (w.ours()) {
    w.view->fill(*w.node, st);
    return 0;
  }
  long r = raw::call(SYS_newfstatat, AT_FDCWD, raw::arg(w.real() ? w.path.c_str() : path), raw::arg(st), kFollow ? 0 : AT_SYMLINK_NOFOLLOW);
  if (r < 0) errno = static_cast<int>(-r);
  return r < 0 ? -1 : 0;
}

int glob_any(const Next<int(const char*, int, int (*)(const char*, int), glob_t*)>& next, const char* pattern, int flags,
             int (*on_error)(const char*, int), glob_t* out) {
  if ((flags & GLOB_ALTDIRFUNC) || !concerned(pattern)) return next(pattern, flags, on_error, out);
  out->gl_opendir = [](const char* p) -> void* { return dir_open(p); };
  out->gl_readdir = [](void* d) { return dir_read(static_cast<DIR*>(d)); };
  out->gl_closedir = [](void* d) { dir_close(static_cast<DIR*>(d)); };
  out->gl_stat = glob_stat<true>;
  out->gl_lstat = glob_stat<false>;
  int r = next(pattern, flags | GLOB_ALTDIRFUNC, on_error, out);
  out->gl_flags &= ~GLOB_ALTDIRFUNC;
  return r;
}

struct Walk {
  __nftw_func_t visit;
  int flags;

  int step(const std::string& path, int level) {
    struct stat st {};
    bool follow = !(flags & FTW_PHYS);
    int type = FTW_F;
    if (glob_stat<false>(path.c_str(), &st) != 0) {
      if (level == 0) return -1;
      type = FTW_NS;
    } else if (S_ISLNK(st.st_mode)) {
      type = !follow ? FTW_SL : glob_stat<true>(path.c_str(), &st) != 0 ? FTW_SLN : S_ISDIR(st.st_mode) ? FTW_D : FTW_F;
    } else if (S_ISDIR(st.st_mode)) {
      type = FTW_D;
    }
    FTW where{static_cast<int>(path.rfind('/') + 1), level};
    // Links among virtual directories form cycles (device/infiniband/mlx5_0/device): following ends at this depth.
    if (type != FTW_D || level > 8) return visit(path.c_str(), &st, type, &where);
    DIR* d = dir_open(path.c_str());
    if (!d) return visit(path.c_str(), &st, FTW_DNR, &where);
    int r = flags & FTW_DEPTH ? 0 : visit(path.c_str(), &st, FTW_D, &where);
    std::vector<std::string> names;
    if (r == 0)
      while (dirent* e = dir_read(d))
        if (std::strcmp(e->d_name, ".") != 0 && std::strcmp(e->d_name, "..") != 0) names.emplace_back(e->d_name);
    dir_close(d);
    if ((flags & FTW_ACTIONRETVAL) && r == FTW_SKIP_SUBTREE) return 0;
    if (r != 0) return r;
    for (auto& n : names) {
      r = step(path + "/" + n, level + 1);
      if ((flags & FTW_ACTIONRETVAL) && r == FTW_SKIP_SIBLINGS) {
        r = 0;
        break;
      }
      if (r != 0) return r;
    }
    return flags & FTW_DEPTH ? visit(path.c_str(), &st, FTW_DP, &where) : 0;
  }
};

// Only roots inside the view: a walk over all of /sys stays libc's.
bool walk_is_ours(const char* path) {
  Where w = where(AT_FDCWD, path, true);
  return w.ours();
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int scandir(const char* path, dirent*** list, Filter filter, Compare compare) {
  return scan_path(path, list, filter, compare);
}
UHCA_EXPORT int scandir64(const char* path, dirent64*** list, int (*filter)(const dirent64*),
                          int (*compare)(const dirent64**, const dirent64**)) {
  return scan_path(path, reinterpret_cast<dirent***>(list), reinterpret_cast<Filter>(filter), reinterpret_cast<Compare>(compare));
}
UHCA_EXPORT int scandirat(int dirfd, const char* path, dirent*** list, Filter filter, Compare compare) {
  return scan_at(dirfd, path, list, filter, compare);
}
UHCA_EXPORT int scandirat64(int dirfd, const char* path, dirent64*** list, int (*filter)(const dirent64*),
                            int (*compare)(const dirent64**, const dirent64**)) {
  return scan_at(dirfd, path, reinterpret_cast<dirent***>(list), reinterpret_cast<Filter>(filter), reinterpret_cast<Compare>(compare));
}
UHCA_EXPORT int glob(const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* out) {
  return glob_any(next_glob, pattern, flags, on_error, out);
}
UHCA_EXPORT int glob64(const char* pattern, int flags, int (*on_error)(const char*, int), glob64_t* out) {
  return glob_any(next_glob, pattern, flags, on_error, reinterpret_cast<glob_t*>(out));
}
UHCA_EXPORT int nftw(const char* path, __nftw_func_t visit, int fds, int flags) {
  if (!walk_is_ours(path)) return next_nftw(path, visit, fds, flags);
  return Walk{visit, flags}.step(path, 0);
}
UHCA_EXPORT int nftw64(const char* path, __nftw64_func_t visit, int fds, int flags) {
  auto* v = reinterpret_cast<__nftw_func_t>(visit);
  if (!walk_is_ours(path)) return next_nftw64(path, v, fds, flags);
  return Walk{v, flags}.step(path, 0);
}
