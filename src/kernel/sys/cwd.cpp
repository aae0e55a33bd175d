// SPDX-License-Identifier: MIT
#include "kernel/sys/cwd.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "base/fd.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"
#include "kernel/sys/view.h"

namespace uhca::sys {
namespace {

enum State : int { kUnknown, kReal, kVirtual };
constinit std::atomic<int> state{kUnknown};
constinit std::mutex lock;
constinit char current[4096]{};
constinit int carrier = -1;

void carry() {
  int fd = vfd::make(vfd::Kind::kCwd, current, {}, false);
  if (fd < 0) return;
  carrier = fd::adopt(fd);
  raw::call(SYS_fcntl, carrier, F_SETFD, 0);
}

void drop() {
  if (carrier >= 0) fd::close(carrier);
  carrier = -1;
}

// Was a carrier handed down by exec? Only looked for where it can be: the real directory is one that we share.
void find_inherited() {
  char real[4096];
  long n = raw::call(SYS_getcwd, raw::arg(real), sizeof real);
  int found = kReal;
  if (n > 0 && (extra_entries(real) || std::strcmp(real, "/") == 0)) {
    for (int fd = 3; fd < 4096; ++fd) {
      char rest[512];
      if (vfd::identify(fd, rest, sizeof rest) != vfd::Kind::kCwd) continue;
      std::strcpy(current, rest);
      carrier = fd::adopt(fd);
      raw::call(SYS_fcntl, carrier, F_SETFD, 0);
      found = kVirtual;
      break;
    }
  }
  state.store(found);
}

}  // namespace

bool virtual_cwd(std::string* path) {
  int s = state.load(std::memory_order_acquire);
  if (__builtin_expect(s == kUnknown, 0)) {
    find_inherited();
    s = state.load();
  }
  if (s != kVirtual) return false;
  if (path) {
    std::lock_guard guard(lock);
    *path = current;
  }
  return true;
}

void set_virtual_cwd(std::string_view path) {
  std::lock_guard guard(lock);
  if (path.size() >= sizeof current) return;
  std::memcpy(current, path.data(), path.size());
  current[path.size()] = 0;
  drop();
  carry();
  state.store(kVirtual, std::memory_order_release);
}

void leave_virtual_cwd() {
  if (state.exchange(kReal) != kVirtual) return;
  std::lock_guard guard(lock);
  drop();
}

void cwd_after_fork() {
  new (&lock) std::mutex;
  carrier = -1;
  if (state.load() == kVirtual) carry();
}

}  // namespace uhca::sys
