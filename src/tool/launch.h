// SPDX-License-Identifier: MIT
// Starting a program with uhca underneath: which libraries, which environment, and whether it can work at all.
#pragma once

#include <string>
#include <vector>

namespace uhca::tool {

struct LaunchOptions {
  bool system_rdma_core = false;  // keep the system's own libibverbs/libmlx5
  std::string netdev;
  bool framed = false;
  bool pin = false;                    // UHCA_PIN
  std::string impair;                  // UHCA_IMPAIR
  bool no_congestion_control = false;  // UHCA_CONGESTION
  std::string gpu;                     // UHCA_GPU
  std::vector<std::string> faults;     // UHCA_FAULT
  std::string remove_after;            // UHCA_REMOVE_AFTER
  std::string log;                     // UHCA_LOG
  std::string log_level;               // UHCA_LOG_LEVEL
  int trace_fd = -1;                   // UHCA_TRACE_FD
  std::string pcap;                    // UHCA_PCAP
  bool check = false;                  // with the sanitizer
  std::string check_file;              // UHCA_CHECK: an existing file; empty: without it
  std::vector<std::string> program;
};

// The folder that holds libuhca.so and the user libraries; empty if none is found.
std::string library_folder();

// What keeps the program from being interposed ("is statically linked", ...); empty: nothing. `path` is the resolved file.
std::string launch_obstacle(const std::string& path);

// The program's file, looked up in PATH like execvp; empty: not found.
std::string resolve_program(const std::string& name);

// Sets the environment and replaces this process. Returns only on failure, with an exit status (126/127) after a message.
int exec_program(const LaunchOptions& options);

}  // namespace uhca::tool
