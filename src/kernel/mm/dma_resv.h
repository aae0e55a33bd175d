// SPDX-License-Identifier: MIT
// Fences, and the reservation object of a buffer: who may use it how, once which work has ended. Linux: <linux/dma-fence.h>,
// <linux/dma-resv.h>; names as there.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace uhca::kernel::mm {

// Work that will have ended. Thread-safe.
class DmaFence {
 public:
  // Once: it has ended, well (0) or with an errno.
  void signal(int error = 0);
  bool is_signaled() const { return signaled_.load(std::memory_order_acquire); }
  // Of a signalled fence.
  int error() const { return error_; }
  void wait();

 private:
  std::atomic<bool> signaled_{false};
  int error_ = 0;
  std::mutex lock_;
  std::condition_variable changed_;
};

// What a fence stands for; who asks for one usage gets all those before it too.
enum class DmaResvUsage : std::uint8_t { kKernel, kWrite, kRead, kBookkeep };

class DmaResv {
 public:
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

  // Held.
  void add_fence(std::shared_ptr<DmaFence> fence, DmaResvUsage usage);
  // Whether all fences of that usage, and of those before it, have been signalled. Held.
  bool test_signaled(DmaResvUsage usage);
  // Those of that usage, and of those before it. Held; they may be waited for without. Linux: dma_resv_get_fences.
  std::vector<std::shared_ptr<DmaFence>> get_fences(DmaResvUsage usage);
  // Returns when they have been signalled. Held, and stays so meanwhile. The first error of one, or 0.
  int wait(DmaResvUsage usage);

 private:
  struct Entry {
    std::shared_ptr<DmaFence> fence;
    DmaResvUsage usage;
  };
  std::mutex mutex_;
  std::vector<Entry> fences_;  // signalled ones go when the next is added
};

}  // namespace uhca::kernel::mm
