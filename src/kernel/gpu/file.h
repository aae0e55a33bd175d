// SPDX-License-Identifier: MIT
// The device files of the GPU, as kernel/sys opens them for a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/uaccess.h"
#include "uapi/gpu.h"

namespace uhca::kernel::gpu {

class Gpu;

class File;
// Set by kernel/sys: the file of the GPU that a descriptor of the program's is of; nullptr: none.
extern std::shared_ptr<File> (*file_of_fd)(int fd);

// What UHCA_GPU asks for; nullptr: no GPU (nothing was asked for, or it was wrong, which the log says). The first call decides.
const uhca::gpu::Config* configured();
// The GPU of this process, made by the first call; nullptr: there is none, or no memory for it.
Gpu* device();
void forget_after_fork();

enum class Device : std::uint8_t { kKfd, kRender, kNvidia };
inline constexpr unsigned kDrmMajor = 226, kRenderMinor = 128, kKfdMajor = 510, kNvidiaMajor = 511;

// An open file. Calls may come on any thread.
class File {
 public:
  virtual ~File() = default;  // Linux: release
  virtual Device device() const = 0;
  // What ioctl(2) returns: 0 or more, or the errno.
  virtual Result<int> ioctl(unsigned long request, UserPtr arg) = 0;
  virtual Result<std::uintptr_t> mmap(const mm::UserMapping& m) = 0;
};
// EINVAL, ENODEV, ENOMEM.
Result<std::shared_ptr<File>> open_file(Device which);

// The sysfs files that tell of the GPU: path below / and text, or the target of a link.
struct SysfsEntry {
  std::string path, text;
  bool link = false;
};
// `address`, `folder`: of its slot on the bus.
std::vector<SysfsEntry> sysfs_entries(const std::string& address, const std::string& folder);

}  // namespace uhca::kernel::gpu
