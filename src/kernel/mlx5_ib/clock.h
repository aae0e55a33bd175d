// SPDX-License-Identifier: MIT
// The two clock pages that programs map: the device's free-running timer, and what makes wall clock time of it.
// Linux: mlx5/core/lib/clock.c (clock_info), hw/mlx5/main.c (mlx5_ib_mmap_clock_info_page, MLX5_IB_MMAP_CORE_CLOCK).
#pragma once

#include <rdma/mlx5-abi.h>

#include <cstdint>
#include <mutex>

#include "base/result.h"
#include "device/pci/inproc.h"

namespace uhca::kernel::mlx5 {

class ClockPages {
 public:
  // The page of the BAR that holds the timer, and where in it, bytes.
  static constexpr std::uint64_t kTimerPage = 0x1000, kTimerOffset = 0;

  explicit ClockPages(pci::InprocEndpoint& slot) : slot_(slot) {}
  ~ClockPages();
  ClockPages(const ClockPages&) = delete;
  ClockPages& operator=(const ClockPages&) = delete;

  // Makes the pages; ENOMEM, EMFILE and the like.
  Status start();
  // Descriptors that cannot be mapped writable.
  int timer_fd() const { return timer_fd_; }  // the page lies at kTimerPage
  int info_fd() const { return info_fd_; }
  // The timer as it is now, and the two clocks side by side again. Cheap; any thread.
  void refresh();

 private:
  std::uint64_t read_timer();

  pci::InprocEndpoint& slot_;
  std::mutex lock_;
  ::mlx5_ib_clock_info* info_ = nullptr;
  int timer_fd_ = -1, info_fd_ = -1;
};

}  // namespace uhca::kernel::mlx5
