// SPDX-License-Identifier: MIT
// Open uverbs files: cmd_fd (a sealed memfd, known by its inode) -> VerbsFile, and the last close.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernel/uverbs/file.h"

namespace uhca::sys {

struct CmdFile {
  std::uint64_t ino = 0;
  std::shared_ptr<kernel::VerbsFile> file;
  std::atomic<bool> attached{false};   // a provider (or contexts.cpp) calls the hooks for it
  std::atomic<bool> provider{false};   // ... and that is our own provider, by uhca_hook_attach
  std::atomic<bool> inherited{false};  // opened by the parent of this process
  // BAR offsets, plus one, of the doorbell pages that were mapped from it (the first ones: a provider maps the page of its CQs when it
  // opens). 0: free.
  std::atomic<std::uint64_t> doorbell_pages[16]{};
  int watch = -1;  // inotify watch
};

namespace detail {
extern constinit std::atomic<int> open_cmd_files;
extern constinit std::atomic<bool> ever_opened;
}
// One predictable branch for every wrapper that would have to look.
inline bool any_cmd_files() {
  return detail::open_cmd_files.load(std::memory_order_relaxed) != 0;
}

// Event files outlive the device file that made them.
inline bool any_event_files() { return detail::ever_opened.load(std::memory_order_relaxed); }

// Opens /dev/infiniband/uverbs<minor>: the descriptor, or a negative errno.
int cmdfile_open(int minor, int flags);

// What `fd` is: a file of ours (shared ownership), else null. *foreign: a uverbs descriptor that another process opened (inherited
// over exec or passed by a socket).
std::shared_ptr<CmdFile> cmdfile_of(int fd, bool* foreign = nullptr);

// After any descriptor went away: releases the files whose last descriptor is gone.
void cmdfile_reap();

void cmdfiles_inherited();

}  // namespace uhca::sys
