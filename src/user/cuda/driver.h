// SPDX-License-Identifier: MIT
// What the files of this library share: the open card, the current context, and what was allocated.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "uapi/gpu.h"
#include "user/cuda/cuda.h"

namespace uhca::cuda {

struct Context {
  bool primary = false;
  unsigned flags = 0;
};

struct Range {
  std::size_t size = 0;   // as it was asked for
  std::size_t whole = 0;  // as it is, in pages of the GPU
  bool device = false;
  bool registered = false;  // the program's own memory
  bool sync_memops = false;
  unsigned long long id = 0;
};

class Driver {
 public:
  static Driver& get();
  // NO_DEVICE: there is no card.
  CUresult init();
  // Success, or why nothing works: NOT_INITIALIZED (also in a child of fork).
  CUresult ready() const;
  // ... and a context is current: INVALID_CONTEXT.
  CUresult ready_with_context() const;
  // An ioctl of the card: 0 or the errno.
  int call(unsigned long request, void* arg) const;

  // Under `lock`: the allocation that holds [p, p + n); end(): none.
  using Ranges = std::map<CUdeviceptr, Range>;
  Ranges::iterator find(CUdeviceptr p, std::size_t n);

  std::mutex lock;
  Ranges ranges;
  unsigned long long next_id = 1;
  Context primary{true};
  unsigned retained = 0;  // of the primary context

 private:
  std::atomic<int> fd_{-1};
  int pid_ = 0;
};

// Of this thread.
Context* current();
Context* current_locked();  // with Driver::lock held

// An entry point by name, as a program of that version of CUDA sees it (12040: 12.4). nullptr: there is none.
void* entry_point(const char* name, int version, bool* known);

}  // namespace uhca::cuda
