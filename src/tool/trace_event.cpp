// SPDX-License-Identifier: MIT
#include "tool/trace_event.h"

#include <fmt/format.h>

#include <cstdlib>

namespace uhca::tool {

std::optional<TraceEvent> TraceEvent::parse(const std::string& line) {
  auto j = nlohmann::ordered_json::parse(line, nullptr, false);
  if (!j.is_object()) return std::nullopt;
  TraceEvent e;
  e.t = j.value("t", std::uint64_t{0});
  e.pid = j.value("pid", 0);
  e.tid = j.value("tid", 0);
  e.layer = j.value("layer", "");
  e.name = j.value("name", "");
  for (const char* k : {"t", "pid", "tid", "layer", "name"}) j.erase(k);
  e.fields = std::move(j);
  e.line = line;
  return e;
}

std::optional<std::uint64_t> TraceEvent::number(const char* key) const {
  auto it = fields.find(key);
  if (it == fields.end()) return std::nullopt;
  if (it->is_number_unsigned()) return it->get<std::uint64_t>();
  if (it->is_number_integer()) return static_cast<std::uint64_t>(it->get<std::int64_t>());
  if (it->is_string()) {
    const auto& s = it->get_ref<const std::string&>();
    if (s.empty() || s[0] < '0' || s[0] > '9') return std::nullopt;
    return std::strtoull(s.c_str(), nullptr, 0);
  }
  return std::nullopt;
}

std::string TraceEvent::text(const char* key) const {
  auto it = fields.find(key);
  if (it == fields.end()) return {};
  return it->is_string() ? it->get<std::string>() : it->dump();
}

std::string render(const TraceEvent& e, std::uint64_t t0, bool show_pid) {
  std::string out = fmt::format("{:>12.3f} us  ", static_cast<double>(e.t - t0) / 1000.0);
  if (show_pid) out += fmt::format("{:>7}  ", e.pid);
  out += fmt::format("{:<8}  {}", e.layer, e.name);
  for (const auto& [k, v] : e.fields.items()) out += fmt::format("  {}={}", k, v.is_string() ? v.get<std::string>() : v.dump());
  return out;
}

}  // namespace uhca::tool
