// SPDX-License-Identifier: MIT
// Requests for services on which nobody listens, or not yet. Programs are known that tell their peer a port before they listen on it
// (qperf 0.4.11, perftest's second connection with -R). On an adapter with firmware the peer's QP takes milliseconds to create, so its REQ
// comes late enough; here it comes in microseconds. So a request is looked at again for a while before it is rejected.
#pragma once

#include <cstddef>
#include <list>
#include <optional>

#include "base/clock.h"
#include "kernel/cm/mad.h"

namespace uhca::kernel::cm {

class EarlyRequests {
 public:
  // Looks after 1, 2, 4, ... ms, 63 ms in all.
  static constexpr Nanos kFirstLook = 1'000'000;
  static constexpr unsigned kLooks = 6;
  static constexpr std::size_t kMost = 64;

  struct Request {
    Mad mad;
    MadInfo info;
    Nanos look = 0;  // when
    unsigned looks = 0;
  };

  // False: it has waited long enough, or too many others wait.
  bool add(Request r, Nanos now);
  // The next whose time has come, taken out.
  std::optional<Request> due(Nanos now);
  Nanos next_deadline() const;

 private:
  std::list<Request> waiting_;
};

}  // namespace uhca::kernel::cm
