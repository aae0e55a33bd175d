// SPDX-License-Identifier: MIT
// Runs a program and tells why it failed.
#include <cstdio>
#include <string>

#include "tool/commands.h"
#include "tool/diagnosis.h"
#include "tool/temporary_file.h"
#include "tool/traced_run.h"

namespace uhca::tool {
int why(const LaunchOptions& options) {
  // Refusals of all processes in one order.
  TemporaryFile log("uhca-why");
  if (!log.ok()) {
    std::perror("uhca: temporary file");
    return 1;
  }
  LaunchOptions launch = options;
  launch.log = log.path();
  launch.log_level = "warn";
  std::vector<TraceEvent> events;
  int status = traced_run(launch, [&](int fd) { events = read_trace(fd); });
  std::string cause = diagnose(events, parse_refusals(log.text()), status != 0);
  if (events.empty() && (status == 126 || status == 127)) return status;  // it was not started, and that has been said
  if (!cause.empty()) {
    std::fprintf(stderr, "uhca: %s\n", cause.c_str());
  } else if (status != 0) {
    std::fprintf(stderr, "uhca: the program ended with status %d, but nothing of what it asked of the device failed\n", status);
  } else {
    std::fprintf(stderr, "uhca: nothing failed\n");
  }
  return status;
}

}  // namespace uhca::tool
