// SPDX-License-Identifier: MIT
#include "kernel/mm/dma_resv.h"

#include <algorithm>
#include <utility>

#include "base/trace.h"

namespace uhca::kernel::mm {
namespace {

const char* usage_name(DmaResvUsage usage) {
  static constexpr const char* kNames[] = {"KERNEL", "WRITE", "READ", "BOOKKEEP"};
  return kNames[static_cast<unsigned>(usage)];
}

}  // namespace

void DmaFence::signal(int error) {
  std::lock_guard g(lock_);
  if (is_signaled()) return;
  error_ = error;
  signaled_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void DmaFence::wait() {
  if (is_signaled()) return;
  std::unique_lock g(lock_);
  changed_.wait(g, [this] { return is_signaled(); });
}

void DmaResv::add_fence(std::shared_ptr<DmaFence> fence, DmaResvUsage usage) {
  std::erase_if(fences_, [](const Entry& e) { return e.fence->is_signaled(); });
  fences_.push_back({std::move(fence), usage});
}

bool DmaResv::test_signaled(DmaResvUsage usage) {
  return std::all_of(fences_.begin(), fences_.end(), [usage](const Entry& e) { return e.usage > usage || e.fence->is_signaled(); });
}

std::vector<std::shared_ptr<DmaFence>> DmaResv::get_fences(DmaResvUsage usage) {
  std::vector<std::shared_ptr<DmaFence>> all;
  for (const Entry& e : fences_)
    if (e.usage <= usage) all.push_back(e.fence);
  return all;
}

int DmaResv::wait(DmaResvUsage usage) {
  if (trace::on() && !test_signaled(usage)) trace::Event("dmabuf", "fence_wait").str("for", usage_name(usage));
  int error = 0;
  for (auto& fence : get_fences(usage)) {
    fence->wait();
    if (error == 0) error = fence->error();
  }
  return error;
}

}  // namespace uhca::kernel::mm
