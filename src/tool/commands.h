// SPDX-License-Identifier: MIT
// The subcommands; each returns the exit status of the command.
#pragma once

#include <string>

#include "tool/launch.h"

namespace uhca::tool {

int run_program(const LaunchOptions& options);

// Lists the devices that a program would see on this host.
int devices(const std::string& netdev);

// Says what on this machine helps or hinders; 0 when nothing prevents uhca from working.
int doctor(const std::string& program);

struct TraceOptions {
  LaunchOptions launch;
  bool json = false;
  std::string only;    // "ibv_post_send#1"
  std::string layers;  // comma separated; empty: all
  std::string output;  // file; empty: standard error
};
int trace(const TraceOptions& options);

}  // namespace uhca::tool
