// SPDX-License-Identifier: MIT
#pragma once

#include <linux/kfd_ioctl.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "kernel/gpu/kfd_events.h"
#include "kernel/gpu/render.h"
#include "kernel/gpu/sdma.h"

namespace uhca::kernel::gpu {

// An open /dev/kfd: a process, in KFD's words. Handlers answer as kfd_ioctl_*.
class KfdFile final : public File {
 public:
  explicit KfdFile(Gpu& gpu) : gpu_(gpu), sdma_(events_) {}
  ~KfdFile() override;
  Device device() const override { return Device::kKfd; }
  Result<int> ioctl(unsigned long request, UserPtr arg) override;
  Result<std::uintptr_t> mmap(const mm::UserMapping& m) override;

 private:
  struct Memory {
    std::shared_ptr<Bo> bo;
    std::shared_ptr<mm::DmaBuf> dmabuf;  // once it was exported, or if it was imported
    std::uint64_t va = 0;
    std::uint32_t flags = 0;  // KFD_IOC_ALLOC_MEM_FLAGS_*
    bool mapped = false;
  };
  Result<Memory*> find(std::uint64_t handle);  // lock held
  Status acquire_vm(kfd_ioctl_acquire_vm_args& a);
  Status create_queue(kfd_ioctl_create_queue_args& a);
  Status apertures(kfd_ioctl_get_process_apertures_new_args& a);
  Status apertures_of(kfd_process_device_apertures& p) const;
  Status alloc(kfd_ioctl_alloc_memory_of_gpu_args& a);
  Status free(const kfd_ioctl_free_memory_of_gpu_args& a);
  Status map(kfd_ioctl_map_memory_to_gpu_args& a, bool map);
  Status export_dmabuf(std::uint64_t handle, std::uint32_t flags, std::uint32_t* fd);
  Status dmabuf_info(kfd_ioctl_get_dmabuf_info_args& a);
  Status import_dmabuf(kfd_ioctl_import_dmabuf_args& a);

  Gpu& gpu_;
  KfdEvents events_;
  std::mutex lock_;
  std::atomic<bool> acquired_{false};  // vm_ is there then
  std::shared_ptr<RenderFile> render_;
  std::shared_ptr<Vm> vm_;
  std::map<std::uint64_t, Memory> memory_;  // by handle
  std::uint32_t next_handle_ = 1;
  std::shared_ptr<Bo> mmio_, doorbells_;
  Sdma sdma_;  // ends before what its engine uses
};

}  // namespace uhca::kernel::gpu
