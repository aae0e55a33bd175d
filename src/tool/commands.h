// SPDX-License-Identifier: MIT
// The subcommands; each returns the exit status of the command.
#pragma once

#include <string>
#include <vector>

#include "tool/launch.h"
#include "tool/trace_printer.h"

namespace uhca::tool {

int run_program(const LaunchOptions& options);

// Runs the program with the sanitizer and prints what it finds; the program's exit status, or 66 if that is 0 and something was found.
int check(const LaunchOptions& options);

// Lists the devices that a program would see on this host.
int devices(const std::string& netdev);

// Says what on this machine helps or hinders; 0 when nothing prevents uhca from working.
int doctor(const std::string& program);

struct TraceOptions {
  LaunchOptions launch;
  TraceFormat format;
  std::string output;  // file; empty: standard error, or none when there is another form of output
  std::string html;    // files; empty: none
  std::string perfetto;
};
int trace(const TraceOptions& options);

// Decodes the CQEs in a driver's dump: `words` are the dump itself, or one file's name; "-" or nothing: standard input. 1 when there is
// none.
int explain_cqe(const std::vector<std::string>& words);

// Prints a structure of the hardware field by field; an empty name: the names of all.
int layout(const std::string& name);

// Runs the program and prints the cause of its failure in one or two sentences; the program's exit status.
int why(const LaunchOptions& options);

struct TopOptions {
  bool once = false, json = false;
  double interval = 1;  // seconds
  unsigned count = 0;   // pictures; 0: until SIGINT
};
// Shows what the functions of this host count.
int top(const TopOptions& options);

struct PciOptions {
  std::string socket;
  std::string netdev;
  bool write_combining = false;
  bool trace = false;
  TraceFormat format;
  std::string output;  // of the trace; empty: standard error
};
// Serves an HCA as a vfio-user PCI device until SIGINT or SIGTERM.
int pci(const PciOptions& options);

}  // namespace uhca::tool
