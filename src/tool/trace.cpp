// SPDX-License-Identifier: MIT
// Runs a program with a pipe for its trace events and prints them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tool/commands.h"
#include "tool/trace_printer.h"
#include "tool/traced_run.h"

namespace uhca::tool {
namespace {

bool create_pcap(const std::string& path) {
  int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    std::fprintf(stderr, "uhca: %s: %s\n", path.c_str(), std::strerror(errno));
    return false;
  }
  // libpcap file header: nanosecond magic, version 2.4, snap length, link type 1 (Ethernet).
  const std::uint32_t head[6] = {0xa1b23c4d, 2 | 4u << 16, 0, 0, 65535, 1};
  bool ok = write(fd, head, sizeof head) == static_cast<ssize_t>(sizeof head);
  close(fd);
  return ok;
}

}  // namespace

int trace(const TraceOptions& options) {
  std::FILE* out = stderr;
  if (!options.output.empty() && !(out = std::fopen(options.output.c_str(), "we"))) {
    std::fprintf(stderr, "uhca: %s: %s\n", options.output.c_str(), std::strerror(errno));
    return 1;
  }
  if (!options.launch.pcap.empty() && !create_pcap(options.launch.pcap)) return 1;

  bool found = true;
  int status = traced_run(options.launch, [&](int fd) { found = print_trace(fd, options.format, out); });
  if (out != stderr) std::fclose(out);
  if (!found) {
    std::fprintf(stderr, "uhca: the program made no call '%s'\n", options.format.only.c_str());
    return 1;
  }
  return status;
}

}  // namespace uhca::tool
