// SPDX-License-Identifier: MIT
// What a tool may ask a function of this host, and how it is answered: over the name by which the function's slot is bound (switch.h), by
// the function's service thread. Only processes of its user, and root's, are answered.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"

namespace uhca::wire {

// Who answers for the function. The owner outlives the port. Called on the service side, with a lock of the port held.
class Inspector {
 public:
  virtual ~Inspector() = default;
  // JSON, one object. Empty: not now, ask again.
  virtual std::string report() = 0;
};

// The report of the function that has bound this slot. ECONNREFUSED: nobody has; EAGAIN: it was busy; ETIMEDOUT: it does not answer
// (stopped, or it has no program that uses the device yet); EACCES: it is another user's. Blocks for at most `milliseconds`. *pid: whose
// it is, or 0.
Result<std::string> ask_function(unsigned slot, int milliseconds, pid_t* pid, const std::string& prefix = "uhca/v1/fn/");

}  // namespace uhca::wire
