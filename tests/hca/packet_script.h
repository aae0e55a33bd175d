// SPDX-License-Identifier: MIT
// The language of packet scripts (docs/packet-scripts.md): one statement a line, in words; what they mean is in script_machine.h.
#pragma once

#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"

namespace uhca::hcatest {

struct Statement {
  unsigned line = 0;
  std::string text;
  std::optional<Nanos> after;  // "+10ms"
  std::string verb;            // empty: only time passes
  std::vector<std::string> words;
  std::map<std::string, std::string> args;  // name=value
  // A value is asked for once and then known to be understood; what nobody asked for is an error of the script.
  mutable std::set<std::string> used;

  bool has(const std::string& name) const {
    used.insert(name);
    return args.count(name) != 0;
  }
  std::string get(const std::string& name, const std::string& otherwise = "") const {
    used.insert(name);
    auto it = args.find(name);
    return it == args.end() ? otherwise : it->second;
  }
  // A word without a value, such as "ack".
  bool flag(const std::string& name) const {
    for (const std::string& w : words)
      if (w == name) return used.insert(name), true;
    return false;
  }
};

inline std::optional<std::uint64_t> script_number(const std::string& s) {
  if (s.empty() || !std::isdigit(static_cast<unsigned char>(s[0]))) return {};
  std::size_t end = 0;
  std::uint64_t v = std::stoull(s, &end, 0);
  return end == s.size() ? std::optional<std::uint64_t>(v) : std::nullopt;
}

// "+1.5ms"; nothing: no time.
inline std::optional<Nanos> script_time(const std::string& s) {
  if (s.size() < 3 || s[0] != '+') return {};
  std::size_t end = 0;
  double v = std::isdigit(static_cast<unsigned char>(s[1])) ? std::stod(s.substr(1), &end) : -1;
  std::string unit = s.substr(1 + end);
  double scale = unit == "ns" ? 1 : unit == "us" ? 1e3 : unit == "ms" ? 1e6 : unit == "s" ? 1e9 : -1;
  if (v < 0 || scale < 0) return {};
  return static_cast<Nanos>(v * scale + 0.5);
}

// The statements of a script; `error` says what cannot be read.
inline std::vector<Statement> parse_script(const std::string& text, std::string* error) {
  std::vector<Statement> all;
  std::istringstream in(text);
  std::string line;
  for (unsigned n = 1; std::getline(in, line); ++n) {
    if (auto hash = line.find('#'); hash != std::string::npos) line.resize(hash);
    std::istringstream words(line);
    Statement s;
    s.line = n;
    s.text = line;
    std::string w;
    bool first = true;
    while (words >> w) {
      if (first && w[0] == '+') {
        s.after = script_time(w);
        if (!s.after) return *error = "line " + std::to_string(n) + ": '" + w + "' is no time", all;
        first = false;
        continue;
      }
      first = false;
      auto eq = w.find('=');
      if (s.verb.empty()) {
        s.verb = w;
      } else if (eq != std::string::npos && eq != 0) {
        s.args[w.substr(0, eq)] = w.substr(eq + 1);
      } else {
        s.words.push_back(w);
      }
    }
    if (s.after || !s.verb.empty()) all.push_back(std::move(s));
  }
  return all;
}

}  // namespace uhca::hcatest
