// SPDX-License-Identifier: MIT
// What the driver keeps for contexts that need an object where the program has none: a PD, a CQ, two XRC domains, an XRC SRQ and an RMP.
// Made when the first QP or SRQ asks. Linux: struct mlx5_ib_resources (devr).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "kernel/mlx5_core/mlx5_core.h"

namespace uhca::kernel::mlx5 {

class DevResources {
 public:
  struct View {
    std::uint32_t p0 = 0, c0 = 0, xrcdn0 = 0, xrcdn1 = 0, s0 = 0, s1 = 0;  // numbers; s0: XRC SRQ, s1: RMP
  };

  explicit DevResources(mlx5_core_dev& m) : m_(m) {}
  ~DevResources();
  DevResources(const DevResources&) = delete;
  DevResources& operator=(const DevResources&) = delete;

  // Thread-safe; what the firmware answers. After a failure nothing is left, and the next call tries again.
  Result<View> get();

 private:
  Status make();
  void undo();
  Result<std::uint32_t> make_cq();

  mlx5_core_dev& m_;
  std::mutex lock_;
  bool made_ = false;
  View view_;
  std::unique_ptr<mm::DmaBuffer> memory_;  // queues and doorbell records of c0, s0 and s1
  mlx5_core_cq cq_;
  unsigned steps_ = 0;  // how much of make() is done
};

}  // namespace uhca::kernel::mlx5
