// SPDX-License-Identifier: MIT
// The subcommands; each returns the exit status of the command.
#pragma once

#include <string>

#include "tool/launch.h"
#include "tool/trace_printer.h"

namespace uhca::tool {

int run_program(const LaunchOptions& options);

// Lists the devices that a program would see on this host.
int devices(const std::string& netdev);

// Says what on this machine helps or hinders; 0 when nothing prevents uhca from working.
int doctor(const std::string& program);

struct TraceOptions {
  LaunchOptions launch;
  TraceFormat format;
  std::string output;  // file; empty: standard error
};
int trace(const TraceOptions& options);

struct PciOptions {
  std::string socket;
  std::string netdev;
  bool trace = false;
  TraceFormat format;
  std::string output;  // of the trace; empty: standard error
};
// Serves an HCA as a vfio-user PCI device until SIGINT or SIGTERM.
int pci(const PciOptions& options);

}  // namespace uhca::tool
