// SPDX-License-Identifier: MIT
// /dev/uhca_gpu0: what the CUDA stand-in asks of the card (uapi/gpu.h).
#pragma once

#include <memory>
#include <mutex>

#include "kernel/gpu/file.h"
#include "kernel/gpu/gpu.h"
#include "kernel/gpu/vm.h"

namespace uhca::kernel::gpu {

class NvFile final : public File {
 public:
  explicit NvFile(Gpu& gpu) : gpu_(gpu) {}
  Device device() const override { return Device::kNvidia; }
  Result<int> ioctl(unsigned long request, UserPtr arg) override;
  Result<std::uintptr_t> mmap(const mm::UserMapping& m) override;

 private:
  Gpu& gpu_;
  Vm vm_;
};

}  // namespace uhca::kernel::gpu
