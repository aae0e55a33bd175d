// SPDX-License-Identifier: MIT
#include "kernel/gpu/copy_engine.h"

#include <utility>

#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"

namespace uhca::kernel::gpu {

CopyEngine::~CopyEngine() {
  {
    std::lock_guard g(lock_);
    stop_ = true;
    changed_.notify_all();
  }
  if (running_) pthread_join(thread_, nullptr);
}

void* CopyEngine::entry(void* self) {
  inside::Guard guard;
  static_cast<CopyEngine*>(self)->loop();
  return nullptr;
}

void CopyEngine::loop() {
  std::unique_lock g(lock_);
  while (true) {
    changed_.wait(g, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    g.unlock();
    job.run();
    job.fence->signal();
    job = {};  // what it held may take any lock when it goes
    g.lock();
  }
}

std::shared_ptr<mm::DmaFence> CopyEngine::submit(std::function<void()> run) {
  inside::Guard guard;
  auto fence = std::make_shared<mm::DmaFence>();
  {
    std::lock_guard g(lock_);
    if (running_ || (running_ = start_thread(entry, this, &thread_) == 0)) {
      jobs_.push_back({std::move(run), fence});
      changed_.notify_all();
      return fence;
    }
  }
  log::warn("gpu: no thread for the copy engine: copies are done where they are asked for");
  run();
  fence->signal();
  return fence;
}

void CopyEngine::drain() {
  submit([] {})->wait();
}

}  // namespace uhca::kernel::gpu
