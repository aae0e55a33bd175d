// SPDX-License-Identifier: MIT
// Trace events as they come through a pipe (base/trace.h), printed for people or as JSON.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "tool/trace_event.h"

namespace uhca::tool {

struct TraceFormat {
  bool json = false;
  std::string only;      // "ibv_post_send#1"
  std::string layers;    // comma separated; empty: all
  bool at_once = false;  // print as events come, in the order in which they come
};

// Until the end of the pipe. False: `only` named a call that never happened.
bool print_trace(int fd, const TraceFormat& format, std::FILE* out);

// The same of events that have been read.
bool print_events(const std::vector<TraceEvent>& events, const TraceFormat& format, std::FILE* out);

}  // namespace uhca::tool
