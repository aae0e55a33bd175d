// SPDX-License-Identifier: MIT
// Open files of the simulated GPU (/dev/kfd, the render node, /dev/uhca_gpu0): sealed memfds, known by their inode.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>

#include "kernel/gpu/file.h"

namespace uhca::sys {

namespace detail {
extern constinit std::atomic<int> open_gpu_files;
extern constinit std::atomic<bool> gpu_shown;
}  // namespace detail
// One predictable branch for every wrapper that would have to look.
inline bool any_gpu_files() {
  return detail::open_gpu_files.load(std::memory_order_relaxed) != 0;
}
// Whether this process was started with a GPU: its paths are ours then. No lock; known from the loading of the library on.
inline bool gpu_shown() {
  return detail::gpu_shown.load(std::memory_order_relaxed);
}
void gpu_look_at_environment();

bool gpu_is_major(unsigned major);
// The descriptor, or a negative errno.
int gpu_file_open(dev_t device, int flags);
// nullptr: no file of the GPU, or one that another process opened.
std::shared_ptr<kernel::gpu::File> gpu_file_of(int fd);
// After any descriptor went away.
void gpu_file_reap();
void gpu_files_inherited();

}  // namespace uhca::sys
