// SPDX-License-Identifier: MIT
// Picks out of a whole trace what belongs to one call: its WQEs, their frames on both sides, completions, events.
#pragma once

#include <string>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

// `what` is CALL#N: the N-th (from 1) api event of that name. `all` sorted by time. Empty: no such call.
std::vector<TraceEvent> follow(const std::vector<TraceEvent>& all, const std::string& what);

}  // namespace uhca::tool
