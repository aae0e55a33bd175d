// SPDX-License-Identifier: MIT
// The last close: InodeWatch tells when the memfd's inode dies. Where the user has no inotify instance left, the descriptors of this
// process are counted instead.
#include "kernel/sys/cmdfile.h"

#include <dirent.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "base/inode_watch.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/uar_map.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace detail {
constinit std::atomic<int> open_cmd_files{0};
constinit std::atomic<bool> ever_opened{false};
}  // namespace detail
namespace {

constinit std::mutex lock;
std::vector<std::shared_ptr<CmdFile>>& files() {
  static auto* v = new std::vector<std::shared_ptr<CmdFile>>;
  return *v;
}
constinit InodeWatch inodes;

// Without inotify: does any descriptor of this process still lead to the inode?
bool still_open(std::uint64_t ino) {
  long dir = raw::call(SYS_openat, AT_FDCWD, raw::arg("/proc/self/fd"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) return true;
  bool found = false;
  alignas(8) char buf[4096];
  long n;
  while (!found && (n = raw::call(SYS_getdents64, dir, raw::arg(buf), sizeof buf)) > 0) {
    for (long at = 0; at < n && !found;) {
      auto* e = reinterpret_cast<dirent64*>(buf + at);
      at += e->d_reclen;
      int fd = 0;
      const char* p = e->d_name;
      for (; *p >= '0' && *p <= '9'; ++p) fd = fd * 10 + (*p - '0');
      struct stat st;
      found = *p == 0 && raw::fstat(fd, &st) == 0 && vfd::plausible(st) && st.st_ino == ino;
    }
  }
  raw::close(static_cast<int>(dir));
  return found;
}

void release(const std::shared_ptr<CmdFile>& f) {
  KernelEntry entry;
  if (trace::on()) trace::Event("syscall", "close").str("file", "uverbs").flag("last", true);
  uar_map_forget_file(f.get());
  if (!f->inherited.load()) f->file->release();
}

}  // namespace

int cmdfile_open(int minor, int flags) {
  cmdfile_reap();
  auto opened = [&] {
    KernelEntry entry;
    return kernel::uverbs_open(minor);
  }();
  if (!opened) return -opened.code();
  char rest[32];
  std::snprintf(rest, sizeof rest, "%d:%d", minor, raw::getpid());
  int fd = vfd::make(vfd::Kind::kVerbs, rest, {}, flags & O_CLOEXEC);
  auto give_up = [&](int err) {
    KernelEntry entry;
    (*opened)->release();
    return err;
  };
  if (fd < 0) return give_up(fd);
  auto f = std::make_shared<CmdFile>();
  struct stat st;
  if (int r = raw::fstat(fd, &st); r < 0) {
    raw::close(fd);
    return give_up(r);
  }
  f->ino = st.st_ino;
  f->file = std::move(*opened);
  {
    inside::Guard guard;
    std::lock_guard l(lock);
    f->watch = inodes.watch(fd);
    files().push_back(f);
    detail::open_cmd_files.fetch_add(1);
    detail::ever_opened.store(true);
  }
  if (f->watch < 0)
    log::warn("inotify is exhausted for this user: the last close of a uverbs file is found by counting this process's descriptors");
  return fd;
}

std::shared_ptr<CmdFile> cmdfile_of(int fd, bool* foreign) {
  if (foreign) *foreign = false;
  struct stat st;
  if (fd < 0 || raw::fstat(fd, &st) < 0 || !vfd::plausible(st)) return nullptr;
  if (any_cmd_files()) {
    inside::Guard guard;
    std::lock_guard l(lock);
    for (auto& f : files())
      if (f->ino == st.st_ino) return f;
  }
  if (foreign) {
    char rest[32];
    *foreign = vfd::identify(fd, rest, sizeof rest) == vfd::Kind::kVerbs;
  }
  return nullptr;
}

void cmdfile_reap() {
  if (!any_cmd_files() || !own_process()) return;
  std::vector<std::shared_ptr<CmdFile>> gone;
  int saved = errno;
  {
    inside::Guard guard;
    std::lock_guard l(lock);
    inodes.drain([&](int watch) {
      for (auto& f : files())
        if (f->watch == watch) gone.push_back(f);
    });
    for (auto& f : files())
      if (f->watch < 0 && !still_open(f->ino)) gone.push_back(f);
    for (auto& g : gone) {
      auto& v = files();
      for (std::size_t i = 0; i < v.size(); ++i) {
        if (v[i] != g) continue;
        v.erase(v.begin() + static_cast<long>(i));
        detail::open_cmd_files.fetch_sub(1);
        break;
      }
    }
  }
  for (auto& g : gone) release(g);
  errno = saved;
}

void cmdfiles_inherited() {
  new (&lock) std::mutex;
  inodes.forget();
  for (auto& f : files()) {
    f->inherited.store(true);
    f->watch = -1;
    // The parent's object must not be destroyed here, whoever drops the last reference.
    new std::shared_ptr<kernel::VerbsFile>(f->file);
  }
}

}  // namespace uhca::sys
