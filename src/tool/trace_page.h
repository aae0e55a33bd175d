// SPDX-License-Identifier: MIT
// A trace as one self-contained page: the layers as lanes, each request as a path through them (trace_page.html).
#pragma once

#include <string>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

// The page's text. `events` in order of time; `command`: what was run, as shown at its top.
std::string trace_page(const std::vector<TraceEvent>& events, const std::string& command);

}  // namespace uhca::tool
