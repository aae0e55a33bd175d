// SPDX-License-Identifier: MIT
// SDMA queues of programs: rings of copy packets in the program's memory, executed by an engine of the GPU. Real counterpart: the SDMA 4
// engines of gfx9; packets as in Linux's vega10_sdma_pkt_open.h.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "kernel/gpu/kfd_events.h"
#include "kernel/gpu/vm.h"

namespace uhca::kernel::gpu {

class Sdma {
 public:
  struct Ring {
    std::uint64_t base = 0, size = 0;           // bytes; size is a power of two
    std::uint64_t read_ptr = 0, write_ptr = 0;  // addresses of the two indices (bytes, they only grow)
  };
  // `events`: what traps signal. Outlives this.
  explicit Sdma(KfdEvents& events) : events_(events) {}
  ~Sdma();
  // EINVAL: the ring; EFAULT: its indices; ENOMEM, EAGAIN: no thread.
  Result<std::uint32_t> create(std::shared_ptr<Vm> vm, const Ring& ring);
  Status destroy(std::uint32_t id);  // EINVAL: none

 private:
  struct Queue {
    std::shared_ptr<Vm> vm;
    Ring ring;
    std::uint64_t at = 0;  // next packet
    bool stopped = false;  // by a packet that the engine does not know, or memory that is not there
  };
  enum class Step { kDone, kIdle, kBlocked };
  static void* entry(void* self);
  void loop();
  Step step(Queue& q);
  Result<unsigned> execute(Queue& q, const std::uint32_t* packet, unsigned left);  // its length in dwords; 0: not yet

  KfdEvents& events_;
  std::mutex lock_;  // held while packets are executed: a queue that was destroyed touches nothing any more
  std::condition_variable changed_;
  std::map<std::uint32_t, Queue> queues_;
  std::uint32_t next_ = 1;
  bool running_ = false, stop_ = false;
  pthread_t thread_{};
};

}  // namespace uhca::kernel::gpu
