// SPDX-License-Identifier: MIT
// Changes of memory keys that are in use, by work requests of the driver's own UMR queue pair. Linux: hw/mlx5/umr.c.
#pragma once

#include <memory>
#include <mutex>

#include "kernel/mlx5_core/mlx5_core.h"

namespace uhca::kernel::mlx5 {

class UmrQueue {
 public:
  explicit UmrQueue(mlx5_core_dev& m) : m_(m) {}
  ~UmrQueue();
  UmrQueue(const UmrQueue&) = delete;
  UmrQueue& operator=(const UmrQueue&) = delete;

  // The key's protection domain and access flags (IB_ACCESS_*) from now on; nothing else changes. `ring`: tells the device about a
  // doorbell. The queue is made when it is first used. EIO: the device refused.
  Status change_pd_access(std::uint32_t key, std::uint32_t pdn, std::uint32_t access, void (*ring)(void*, std::uint64_t, std::uint64_t),
                          void* context);

 private:
  Status make();
  void undo();
  Status to_rts();

  mlx5_core_dev& m_;
  std::mutex lock_;  // one request at a time
  std::unique_ptr<mm::DmaBuffer> memory_;
  mlx5_core_cq cq_;
  mlx5_core_qp qp_;
  std::uint32_t pdn_ = 0, posted_ = 0, polled_ = 0;
  int steps_ = 0;
};

}  // namespace uhca::kernel::mlx5
