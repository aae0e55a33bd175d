// SPDX-License-Identifier: MIT
#include "kernel/cm/early_requests.h"

#include <algorithm>

namespace uhca::kernel::cm {

bool EarlyRequests::add(Request r, Nanos now) {
  if (r.looks == kLooks || waiting_.size() == kMost) return false;
  r.look = now + (kFirstLook << r.looks++);
  waiting_.push_back(r);
  return true;
}

std::optional<EarlyRequests::Request> EarlyRequests::due(Nanos now) {
  auto it = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request& r) { return r.look <= now; });
  if (it == waiting_.end()) return std::nullopt;
  Request r = *it;
  waiting_.erase(it);
  return r;
}

Nanos EarlyRequests::next_deadline() const {
  Nanos t = kNever;
  for (const Request& r : waiting_) t = std::min(t, r.look);
  return t;
}

}  // namespace uhca::kernel::cm
