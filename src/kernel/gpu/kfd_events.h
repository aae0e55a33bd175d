// SPDX-License-Identifier: MIT
// KFD's events: what host threads wait for. Linux: drivers/gpu/drm/amd/amdkfd/kfd_events.c.
#pragma once

#include <linux/kfd_ioctl.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/result.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::gpu {

class KfdEvents {
 public:
  // ENOSPC: 4095 exist; there is no number 0.
  Status create(kfd_ioctl_create_event_args& a);
  // The rest: EINVAL: no such event.
  Status destroy(std::uint32_t id);
  Status set(std::uint32_t id);
  Status reset(std::uint32_t id);
  // Returns EINTR now and then (with what is left of the timeout), so that the thread's signals get their turn; libhsakmt asks again.
  Status wait(kfd_ioctl_wait_events_args& a);

 private:
  struct Event {
    std::uint32_t type;
    bool auto_reset, signaled;
  };
  std::mutex lock_;
  std::condition_variable changed_;
  std::map<std::uint32_t, Event> events_;
  std::uint32_t next_ = 1;
};

}  // namespace uhca::kernel::gpu
