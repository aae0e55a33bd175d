// SPDX-License-Identifier: MIT
// Which path of the program is ours.
#pragma once

#include <string>

#include "kernel/sys/instance.h"

namespace uhca::sys {

struct Where {
  enum Kind : unsigned char {
    kPass,   // none of our business: use the program's own arguments
    kReal,   // a real file, but reached through our tree: use AT_FDCWD and `path`
    kNode,   // ours
    kError,  // ours, and the answer is `err`
  } kind = kPass;
  int err = 0;
  const Node* node = nullptr;
  const View* view = nullptr;
  std::string path;

  bool pass() const { return kind == kPass; }
  bool real() const { return kind == kReal; }
  bool ours() const { return kind == kNode; }
};

// `dirfd` as in openat. The fast answer (kPass) allocates nothing and is async-signal-safe.
Where where(int dirfd, const char* path, bool follow);

// The virtual directory behind a descriptor; nullptr when it is not one.
const Node* directory_of(int fd);

}  // namespace uhca::sys
