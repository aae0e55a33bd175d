// SPDX-License-Identifier: MIT
// Why a program failed, told from its trace and the refusals in its log. Knows no processes and no files.
#pragma once

#include <string>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

// A refusal as the log has it. The user libraries' refusals are only there: they have no trace of their own.
struct LoggedRefusal {
  int pid = 0;
  std::string errno_name;
  std::string reason;
};
std::vector<LoggedRefusal> parse_refusals(const std::string& log);

// One or two sentences about the failure that came first; empty: nothing in `events` failed. `events` are of all processes, by time.
// `calls`: a call that was refused is a failure as well; programs that end well have merely asked what there is.
std::string diagnose(const std::vector<TraceEvent>& events, const std::vector<LoggedRefusal>& log, bool calls);

}  // namespace uhca::tool
