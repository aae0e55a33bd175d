// SPDX-License-Identifier: MIT
// Running a program with a pipe for its trace events.
#pragma once

#include <functional>
#include <vector>

#include "tool/launch.h"
#include "tool/trace_event.h"

namespace uhca::tool {

// Starts the program and calls `consume` with the reading end, which must read to the end. The program's exit status, 128 + signal, or 1
// after a message when it cannot be started.
int traced_run(const LaunchOptions& launch, const std::function<void(int fd)>& consume);

// Events one by one as they come, until the end of the pipe. `after_read`: all that was there has been taken.
void for_each_event(
    int fd, const std::function<void(TraceEvent)>& take, const std::function<void()>& after_read = [] {});

// All of them, by time.
std::vector<TraceEvent> read_trace(int fd);

}  // namespace uhca::tool
