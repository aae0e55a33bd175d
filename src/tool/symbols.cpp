// SPDX-License-Identifier: MIT
#include "tool/symbols.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <vector>

namespace uhca::tool {
namespace {

// What a program prints; empty: it could not be run, or failed.
std::string output_of(const std::vector<std::string>& words) {
  int p[2];
  if (pipe(p) != 0) return {};
  pid_t child = fork();
  if (child == 0) {
    dup2(p[1], STDOUT_FILENO);
    close(p[0]);
    close(p[1]);
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    std::vector<char*> argv;
    for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(p[1]);
  std::string out;
  char buf[4096];
  for (ssize_t n; (n = read(p[0], buf, sizeof buf)) > 0;) out.append(buf, static_cast<std::size_t>(n));
  close(p[0]);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? out : std::string();
}

// Two lines a function: its name, and file:line.
std::vector<Place> places_in(const std::string& text) {
  std::vector<Place> places;
  std::istringstream in(text);
  for (std::string function, line; std::getline(in, function) && std::getline(in, line);) {
    Place& p = places.emplace_back();
    if (function != "??") p.function = function;
    if (line.rfind("??", 0) != 0 && line.find(":?") == std::string::npos) p.line = line.substr(0, line.find(' '));
  }
  return places;
}

}  // namespace

std::vector<Place> Symbols::find(const std::string& module, std::uint64_t offset) {
  auto [it, fresh] = known_.try_emplace({module, offset});
  if (!fresh) return it->second;
  const std::string at = fmt::format("{:#x}", offset);
  it->second = places_in(output_of({"addr2line", "-f", "-C", "-s", "-i", "-e", module, at}));
  // Of the innermost of several functions, binutils 2.40 names the wrong file when it is asked for all.
  if (it->second.size() > 1)
    if (auto innermost = places_in(output_of({"addr2line", "-f", "-C", "-s", "-e", module, at})); !innermost.empty())
      it->second.front() = innermost.front();
  if (it->second.empty()) it->second.emplace_back();
  return it->second;
}

}  // namespace uhca::tool
