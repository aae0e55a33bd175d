// SPDX-License-Identifier: MIT
// A trace in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing read.
#pragma once

#include <string>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

// One JSON object: a track for each layer of each process, and each request as a flow of arrows. `events` in order of time.
std::string perfetto_json(const std::vector<TraceEvent>& events);

}  // namespace uhca::tool
