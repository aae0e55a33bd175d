// SPDX-License-Identifier: MIT
// Runs a program and tells why it failed.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "tool/commands.h"
#include "tool/diagnosis.h"
#include "tool/traced_run.h"

namespace uhca::tool {
namespace {

// The log goes through a file: refusals of all processes in one order, whatever descriptors they close.
class LogFile {
 public:
  LogFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder && *folder ? folder : "/tmp") + "/uhca-why-XXXXXX";
    int fd = mkostemp(path_.data(), O_CLOEXEC);
    ok_ = fd >= 0;
    if (ok_) close(fd);
  }
  ~LogFile() {
    if (ok_) unlink(path_.c_str());
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  bool ok() const { return ok_; }
  const std::string& path() const { return path_; }
  std::string text() const {
    std::ifstream in(path_);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }

 private:
  std::string path_;
  bool ok_ = false;
};

}  // namespace

int why(const LaunchOptions& options) {
  LogFile log;
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
