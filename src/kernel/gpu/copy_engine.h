// SPDX-License-Identifier: MIT
// What copies on the GPU: jobs, one after the other, each with its fence. Linux: amdgpu's buffer_funcs on an SDMA ring, drm_sched.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "kernel/mm/dma_resv.h"

namespace uhca::kernel::gpu {

class CopyEngine {
 public:
  // Leaked with its thread, as whatever it works for: it ends with the process.
  CopyEngine() = default;
  ~CopyEngine();
  // Jobs run in the order of their submission, on a thread of the engine, and must take no lock under which somebody waits for a fence.
  std::shared_ptr<mm::DmaFence> submit(std::function<void()> job);
  // Returns when all that had been submitted is done.
  void drain();

 private:
  struct Job {
    std::function<void()> run;
    std::shared_ptr<mm::DmaFence> fence;
  };
  static void* entry(void* self);
  void loop();

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool running_ = false, stop_ = false;
  pthread_t thread_{};
};

}  // namespace uhca::kernel::gpu
