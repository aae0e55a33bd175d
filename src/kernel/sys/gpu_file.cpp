// SPDX-License-Identifier: MIT
#include "kernel/sys/gpu_file.h"

#include <sys/sysmacros.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "base/inode_watch.h"
#include "base/log.h"
#include "base/trace.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/vfd.h"

namespace uhca::sys {
namespace detail {
constinit std::atomic<int> open_gpu_files{0};
constinit std::atomic<bool> gpu_shown{false};
}  // namespace detail
namespace {

using kernel::gpu::Device;
using kernel::gpu::File;

struct Open {
  std::uint64_t dev, ino;
  int watch;  // -1: inotify is exhausted: the file stays
  std::shared_ptr<File> file;
};
constinit std::mutex lock;
constinit std::vector<Open>* files = nullptr;
constinit InodeWatch inodes;

}  // namespace

void gpu_look_at_environment() {
  const char* text = std::getenv("UHCA_GPU");
  detail::gpu_shown.store(text != nullptr && *text != 0);
}

bool gpu_is_major(unsigned major) {
  return major == kernel::gpu::kDrmMajor || major == kernel::gpu::kKfdMajor || major == kernel::gpu::kNvidiaMajor;
}

int gpu_file_open(dev_t device, int flags) {
  gpu_file_reap();
  kernel::gpu::file_of_fd = gpu_file_of;
  const unsigned number = major(device);
  KernelEntry entry;
  auto opened = kernel::gpu::open_file(number == kernel::gpu::kDrmMajor   ? Device::kRender
                                       : number == kernel::gpu::kKfdMajor ? Device::kKfd
                                                                          : Device::kNvidia);
  if (!opened) return -opened.code();
  char rest[48];
  std::snprintf(rest, sizeof rest, "%u:%u:%d", number, minor(device), raw::getpid());
  int fd = vfd::make(vfd::Kind::kGpu, rest, {}, flags & O_CLOEXEC);
  if (fd < 0) return fd;
  struct stat st;
  if (int r = raw::fstat(fd, &st); r < 0) {
    raw::close(fd);
    return r;
  }
  std::lock_guard l(lock);
  if (files == nullptr) files = new std::vector<Open>;
  files->push_back({st.st_dev, st.st_ino, inodes.watch(fd), std::move(*opened)});
  if (files->back().watch < 0) log::warn("inotify is exhausted for this user: a file of the GPU stays open until the process ends");
  detail::open_gpu_files.store(static_cast<int>(files->size()));
  return fd;
}

std::shared_ptr<File> gpu_file_of(int fd) {
  struct stat st;
  if (!any_gpu_files() || fd < 0 || raw::fstat(fd, &st) < 0 || !vfd::plausible(st)) return nullptr;
  inside::Guard guard;
  std::lock_guard l(lock);
  for (auto& f : *files)
    if (f.dev == st.st_dev && f.ino == st.st_ino) return f.file;
  return nullptr;
}

void gpu_file_reap() {
  if (!any_gpu_files() || !own_process()) return;
  KernelEntry entry;
  std::vector<std::shared_ptr<File>> gone;  // released without the lock
  std::lock_guard l(lock);
  inodes.drain([&](int watch) {
    for (std::size_t i = 0; i < files->size(); ++i) {
      if ((*files)[i].watch != watch) continue;
      gone.push_back(std::move((*files)[i].file));
      files->erase(files->begin() + static_cast<long>(i));
      break;
    }
  });
  detail::open_gpu_files.store(static_cast<int>(files->size()));
}

void gpu_files_inherited() {
  new (&lock) std::mutex;
  inodes.forget();
  files = nullptr;  // leaked: they are the parent's
  detail::open_gpu_files.store(0);
  kernel::gpu::forget_after_fork();
}

}  // namespace uhca::sys
