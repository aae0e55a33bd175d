// SPDX-License-Identifier: MIT
// Runs a program with a pipe for its trace events and prints them, or writes them as a page or for Perfetto.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tool/commands.h"
#include "tool/follow.h"
#include "tool/perfetto.h"
#include "tool/trace_page.h"
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

// Opened before the program runs: a name that cannot be written is told at once.
std::FILE* create(const std::string& path) {
  std::FILE* f = std::fopen(path.c_str(), "we");
  if (!f) std::fprintf(stderr, "uhca: %s: %s\n", path.c_str(), std::strerror(errno));
  return f;
}

bool write_whole(std::FILE* f, const std::string& path, const std::string& text) {
  const bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size();
  if (std::fclose(f) == 0 && ok) return true;
  std::fprintf(stderr, "uhca: %s: %s\n", path.c_str(), std::strerror(errno));
  return false;
}

std::string command_line(const LaunchOptions& launch) {
  std::string out;
  for (const std::string& word : launch.program) out += (out.empty() ? "" : " ") + word;
  return out;
}

}  // namespace

int trace(const TraceOptions& options) {
  const bool whole = !options.html.empty() || !options.perfetto.empty();
  std::FILE* out = whole ? nullptr : stderr;
  std::FILE *html = nullptr, *perfetto = nullptr;
  if (!options.output.empty() && !(out = create(options.output))) return 1;
  if (!options.html.empty() && !(html = create(options.html))) return 1;
  if (!options.perfetto.empty() && !(perfetto = create(options.perfetto))) return 1;
  if (!options.launch.pcap.empty() && !create_pcap(options.launch.pcap)) return 1;

  bool found = true, written = true;
  int status = traced_run(options.launch, [&](int fd) {
    if (!whole) {
      found = print_trace(fd, options.format, out);
      return;
    }
    std::vector<TraceEvent> events = read_trace(fd);
    if (out) found = print_events(events, options.format, out);
    if (!options.format.only.empty()) {
      events = follow(events, options.format.only);
      found = !events.empty();
    }
    if (html) written = write_whole(html, options.html, trace_page(events, command_line(options.launch)));
    if (perfetto) written = write_whole(perfetto, options.perfetto, perfetto_json(events)) && written;
  });
  if (out && out != stderr) std::fclose(out);
  if (!found) {
    std::fprintf(stderr, "uhca: the program made no call '%s'\n", options.format.only.c_str());
    return 1;
  }
  return status == 0 && !written ? 1 : status;
}

}  // namespace uhca::tool
