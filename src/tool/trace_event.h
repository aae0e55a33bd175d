// SPDX-License-Identifier: MIT
// One trace event as it came out of a program (base/trace.h), and the order of the layers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace uhca::tool {

struct TraceEvent {
  std::uint64_t t = 0;  // ns, CLOCK_MONOTONIC
  int pid = 0;
  int tid = 0;
  std::string layer;
  std::string name;
  nlohmann::ordered_json fields;  // everything else, in the order in which it was written
  std::string line;               // as read

  static std::optional<TraceEvent> parse(const std::string& line);
  // A number field, whether it came as number or as "0x..."; nullopt when absent.
  std::optional<std::uint64_t> number(const char* key) const;
  std::string text(const char* key) const;
};

// Human-readable, one line without newline. t0: the first event's time.
std::string render(const TraceEvent& e, std::uint64_t t0, bool show_pid);

}  // namespace uhca::tool
