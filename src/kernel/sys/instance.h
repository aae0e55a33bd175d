// SPDX-License-Identifier: MIT
// The kernel instance of this process: HCA, driver, registered device and the view of it. Built on the first hint, leaked.
#pragma once

#include <atomic>
#include <csignal>
#include <string>

#include "base/inside.h"
#include "device/pci/inproc.h"
#include "kernel/core/ib_verbs.h"
#include "kernel/sys/view.h"

namespace uhca::sys {

struct Instance {
  kernel::ib_device* device;
  const View* view;
  pci::IdleWatch* idle;
};

namespace detail {
extern constinit std::atomic<Instance*> current;
}

// What exists now; nullptr before the first hint and in a child until its own first hint.
inline Instance* instance() {
  return detail::current.load(std::memory_order_acquire);
}

// After a poll that found nothing: whether the device would find nothing either. Every 32nd time of each thread it is to be asked itself.
inline bool device_is_idle(Instance& i) {
  static thread_local constinit unsigned polls __attribute__((tls_model("initial-exec"))) = 0;
  return ++polls % 32 != 0 && i.idle->poll_may_rest();
}

// The program showed interest: builds the instance unless it exists. nullptr: it cannot be built (the reason is in the log), or this
// is not the place (inside our own floors; a vfork child, which lives in its parent's memory).
Instance* hint();

// False in a child of vfork or raw clone that runs in memory whose owner is another process: such a caller must not change state.
bool own_process();

// Around every entry into the kernel floors: signals are deferred, cancellation is off, and this thread does not block the signals
// that the fault-tolerant copies need. errno is preserved.
class KernelEntry {
 public:
  KernelEntry();
  ~KernelEntry();
  KernelEntry(const KernelEntry&) = delete;
  KernelEntry& operator=(const KernelEntry&) = delete;

 private:
  int errno_;
  inside::Guard guard_;  // holds asynchronous cancellation back before, and lets it in after, what follows
  int cancel_ = 0;
};

// Once per thread: SIGSEGV and SIGBUS are not blocked (one system call the first time).
void unblock_faults();

}  // namespace uhca::sys
