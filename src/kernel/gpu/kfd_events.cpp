// SPDX-License-Identifier: MIT
#include "kernel/gpu/kfd_events.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/inside.h"
#include "base/log.h"

namespace uhca::kernel::gpu {
namespace {
constexpr std::uint32_t kForever = 0xffffffff;
constexpr std::uint32_t kSlice = 50;                          // ms
constexpr std::uint64_t kEventPage = std::uint64_t{2} << 62;  // KFD_MMAP_TYPE_EVENTS: says that the event has a slot in it
}  // namespace

Status KfdEvents::create(kfd_ioctl_create_event_args& a) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (events_.size() >= KFD_SIGNAL_EVENT_LIMIT - 1) return refuse(ENOSPC, "kfd: {} events exist", events_.size());
  while (next_ == 0 || events_.count(next_)) next_ = (next_ + 1) % KFD_SIGNAL_EVENT_LIMIT;
  a.event_id = a.event_slot_index = next_;
  a.event_trigger_data = next_;
  if (a.event_type == KFD_IOC_EVENT_SIGNAL) a.event_page_offset = kEventPage;
  events_[next_] = {a.event_type, a.auto_reset != 0, false};
  next_ = (next_ + 1) % KFD_SIGNAL_EVENT_LIMIT;
  return success();
}

Status KfdEvents::destroy(std::uint32_t id) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (events_.erase(id) == 0) return refuse(EINVAL, "kfd: no event {}", id);
  changed_.notify_all();
  return success();
}

Status KfdEvents::set(std::uint32_t id) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto it = events_.find(id);
  if (it == events_.end() || it->second.type != KFD_IOC_EVENT_SIGNAL)
    return refuse(EINVAL, "kfd: {} is no event that a program signals", id);
  it->second.signaled = true;
  changed_.notify_all();
  return success();
}

Status KfdEvents::reset(std::uint32_t id) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  auto it = events_.find(id);
  if (it == events_.end() || it->second.type != KFD_IOC_EVENT_SIGNAL)
    return refuse(EINVAL, "kfd: {} is no event that a program resets", id);
  it->second.signaled = false;
  return success();
}

Status KfdEvents::wait(kfd_ioctl_wait_events_args& a) {
  if (a.num_events == 0 || a.num_events > KFD_SIGNAL_EVENT_LIMIT) return refuse(EINVAL, "kfd: a wait for {} events", a.num_events);
  std::vector<kfd_event_data> wanted(a.num_events);
  UHCA_CHECK(copy_from_user(wanted.data(), a.events_ptr, wanted.size() * sizeof wanted[0]));
  inside::Guard guard;
  std::unique_lock g(lock_);
  const std::uint32_t slice = std::min(a.timeout, kSlice);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(slice);
  while (true) {
    std::size_t set = 0;
    for (const auto& w : wanted) {
      auto it = events_.find(w.event_id);
      if (it == events_.end()) {
        a.wait_result = KFD_IOC_WAIT_RESULT_FAIL;
        return refuse(EINVAL, "kfd: a wait for event {}, which does not exist", w.event_id);
      }
      set += it->second.signaled;
    }
    if (a.wait_for_all ? set == wanted.size() : set != 0) {
      for (const auto& w : wanted)
        if (Event& e = events_[w.event_id]; e.signaled && e.auto_reset) e.signaled = false;
      a.wait_result = KFD_IOC_WAIT_RESULT_COMPLETE;
      return success();
    }
    if (changed_.wait_until(g, until) == std::cv_status::timeout) break;
  }
  if (a.timeout != kForever) a.timeout -= slice;
  if (a.timeout == 0) {
    a.wait_result = KFD_IOC_WAIT_RESULT_TIMEOUT;
    return success();
  }
  return Errno{EINTR};
}

}  // namespace uhca::kernel::gpu
