// SPDX-License-Identifier: MIT
// Runs a program with the sanitizer (src/check) in it, and makes text of what that finds.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tool/commands.h"
#include "tool/symbols.h"
#include "tool/temporary_file.h"

namespace uhca::tool {
namespace {

using Json = nlohmann::json;

constexpr int kFoundStatus = 66;  // of a program that would have ended with 0, as ThreadSanitizer has it
constexpr timespec kLook{0, 200'000'000};

class Reporter {
 public:
  explicit Reporter(const TemporaryFile& file) : file_(file) {}

  // What has been written since.
  void look() {
    const std::string text = file_.text(done_);
    std::size_t start = 0;
    for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
      Json j = Json::parse(text.substr(start, end - start), nullptr, false);
      if (j.is_object()) tell(j);
    }
    done_ += start;
  }
  unsigned findings() const { return findings_; }

 private:
  void tell(const Json& j) {
    const std::string rule = j.value("rule", "");
    std::string out = fmt::format("uhca check: {}: {} (process {})\n", rule, j.value("text", ""), j.value("pid", 0));
    if (rule != "note") {
      ++findings_;
      for (const Json& site : j["sites"]) out += site.value("label", "") + ":\n" + frames(site["frames"]);
    }
    std::fputs(out.c_str(), stderr);
  }

  std::string frames(const Json& all) {
    std::string out;
    int n = 0;
    for (const Json& f : all) {
      const std::string module = f.value("module", "");
      const auto offset = f.value("offset", std::uint64_t{0});
      std::vector<Place> places = module.empty() ? std::vector<Place>(1) : symbols_.find(module, offset);
      if (places.back().function.empty() && f.contains("symbol"))
        places.back().function = fmt::format("{}+{:#x}", f.value("symbol", ""), f.value("plus", std::uint64_t{0}));
      for (const Place& p : places) {
        if (p.function.rfind("__libc_start", 0) == 0 || p.function == "_start" || p.function == "start_thread") return out;
        out += fmt::format("    #{} {}{}{} ({}+{:#x})\n", n++, p.function.empty() ? "?" : p.function, p.line.empty() ? "" : " at ", p.line,
                           module.substr(module.rfind('/') + 1), offset);
        if (p.function == "main") return out;
      }
    }
    return out;
  }

  const TemporaryFile& file_;
  std::size_t done_ = 0;
  unsigned findings_ = 0;
  Symbols symbols_;
};

}  // namespace

int check(const LaunchOptions& options) {
  TemporaryFile file("uhca-check");
  if (!file.ok()) {
    std::perror("uhca: temporary file");
    return 1;
  }
  LaunchOptions launch = options;
  launch.check_file = file.path();
  sigset_t child_ends, before;
  sigemptyset(&child_ends);
  sigaddset(&child_ends, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ends, &before);
  const pid_t child = fork();
  if (child < 0) {
    std::perror("uhca: fork");
    return 1;
  }
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    std::_Exit(exec_program(launch));
  }
  signal(SIGINT, SIG_IGN);  // the program decides; we read to the end
  Reporter reporter(file);
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    sigtimedwait(&child_ends, nullptr, &kLook);
    reporter.look();
  }
  reporter.look();
  const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (reporter.findings() == 0) {
    std::fprintf(stderr, "uhca check: no findings\n");
    return result;
  }
  std::fprintf(stderr, "uhca check: %u finding%s\n", reporter.findings(), reporter.findings() == 1 ? "" : "s");
  return result == 0 ? kFoundStatus : result;
}

}  // namespace uhca::tool
