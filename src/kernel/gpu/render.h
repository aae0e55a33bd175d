// SPDX-License-Identifier: MIT
// /dev/dri/renderD128: the DRM interface of amdgpu, as far as it is about memory. Linux: drivers/gpu/drm/drm_{ioctl,gem,prime}.c,
// amdgpu_gem.c, amdgpu_kms.c.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "kernel/gpu/file.h"
#include "kernel/gpu/gpu.h"
#include "kernel/gpu/vm.h"

namespace uhca::kernel::gpu {

class RenderFile final : public File {
 public:
  explicit RenderFile(Gpu& gpu) : gpu_(gpu), vm_(std::make_shared<Vm>()) {}
  Device device() const override { return Device::kRender; }
  Result<int> ioctl(unsigned long request, UserPtr arg) override;
  Result<std::uintptr_t> mmap(const mm::UserMapping& m) override;

  Gpu& gpu() { return gpu_; }
  const std::shared_ptr<Vm>& vm() { return vm_; }
  // The offset at which this file maps the buffer. Linux: drm_vma_node_offset_addr, drm_vma_node_allow.
  std::uint64_t allow_mmap(const std::shared_ptr<Bo>& bo);
  void revoke_mmap(const Bo& bo);

 private:
  std::uint32_t add(std::shared_ptr<Bo> bo);
  Result<std::shared_ptr<Bo>> find(std::uint32_t handle) const;
  Result<int> amdgpu(unsigned number, unsigned long request, UserPtr arg);
  Result<int> gem_create(unsigned long request, UserPtr arg);
  Result<int> gem_va(unsigned long request, UserPtr arg);
  Result<int> gem_userptr(unsigned long request, UserPtr arg);
  Result<int> prime_export(unsigned long request, UserPtr arg);
  Result<int> prime_import(unsigned long request, UserPtr arg);

  Gpu& gpu_;
  const std::shared_ptr<Vm> vm_;
  mutable std::mutex lock_;
  std::map<std::uint32_t, std::shared_ptr<Bo>> handles_;
  std::uint32_t next_handle_ = 1;
  std::map<std::uint64_t, std::weak_ptr<Bo>> offsets_;
};

// What AMDGPU_INFO answers (render_info.cpp). EINVAL: a query that is not known; EFAULT.
Status amdgpu_info(Gpu& gpu, UserPtr arg);

}  // namespace uhca::kernel::gpu
