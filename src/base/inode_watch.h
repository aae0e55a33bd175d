// SPDX-License-Identifier: MIT
// The death of files without names. inotify tells when their inode goes, which counts dups, descriptors in flight and those of children.
#pragma once

#include <sys/inotify.h>

#include <cstddef>

namespace uhca {

// One inotify instance. The caller holds a lock of its own around all of it.
class InodeWatch {
 public:
  // Watches the file behind `fd`: the number by which drain() knows it, -1: inotify is exhausted for this user.
  int watch(int fd);
  // gone(number) for each file that has died since the last call. Does not wait; changes errno.
  template <class F>
  void drain(F&& gone) {
    alignas(inotify_event) char buf[1024];
    for (std::size_t n; (n = read(buf, sizeof buf)) > 0;) {
      for (std::size_t at = 0; at < n;) {
        const auto* e = reinterpret_cast<const inotify_event*>(buf + at);
        at += sizeof *e + e->len;
        if (e->mask & IN_DELETE_SELF) gone(e->wd);
      }
    }
  }
  // After fork in the child: the instance is the parent's, closed here with all internal descriptors (fd::abandon_all).
  void forget() { fd_ = -1; }

 private:
  std::size_t read(char* buf, std::size_t n) const;  // 0: no events

  int fd_ = -1;  // from the first watch() on
};

}  // namespace uhca
