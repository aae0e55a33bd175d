// SPDX-License-Identifier: MIT
#include "tool/trace_page.h"

#include <fmt/format.h>

#include <string_view>

#include "prm/cqe_names.h"
#include "tool/follow.h"

// The page lies in the program as it is in the source tree.
asm(".pushsection .rodata\n"
    "uhca_trace_page: .incbin \"tool/trace_page.html\"\n"
    "uhca_trace_page_end:\n"
    ".popsection\n");
extern const char uhca_trace_page[], uhca_trace_page_end[];

namespace uhca::tool {
namespace {

using Json = nlohmann::ordered_json;

// Numbers of the hardware get their names.
Json decoded(const TraceEvent& e) {
  Json fields = e.fields;
  auto name = [&](const char* key, const char* text) {
    if (text) fields[key] = fmt::format("{} ({})", text, e.text(key));
  };
  if (auto opcode = e.number("opcode"); opcode && e.layer == "wqe")
    name("opcode", prm::wqe_opcode_name(static_cast<prm::WqeOpcode>(*opcode)));
  if (auto opcode = e.number("opcode"); opcode && e.layer == "cqe")
    name("opcode", prm::cqe_opcode_name(static_cast<prm::CqeOpcode>(*opcode)));
  if (auto syndrome = e.number("syndrome"); syndrome && e.layer == "cqe")
    if (const auto* s = prm::syndrome_name(static_cast<prm::CqeSyndrome>(*syndrome))) name("syndrome", s->phrase);
  return fields;
}

std::string title_of(const TraceEvent& e) {
  std::string title = e.layer == "wqe" ? "WQE " + e.text("wqe") : e.name;
  const Json fields = decoded(e);
  if (auto it = fields.find("opcode"); it != fields.end() && it->is_string()) {
    const std::string opcode = it->get<std::string>();
    title += " " + opcode.substr(0, opcode.find(' '));
  }
  if (e.number("qpn")) title += " " + e.text("qpn");
  if (std::string ret = e.text("ret"); !ret.empty() && ret != "0") title += " failed: " + ret;
  return title;
}

}  // namespace

std::string trace_page(const std::vector<TraceEvent>& events, const std::string& command) {
  const std::uint64_t t0 = events.empty() ? 0 : events.front().t;
  Json page{{"command", command}, {"events", Json::array()}, {"requests", Json::array()}};
  for (const TraceEvent& e : events)
    page["events"].push_back(
        {{"t", e.t - t0}, {"pid", e.pid}, {"tid", e.tid}, {"layer", e.layer}, {"name", e.name}, {"fields", decoded(e)}});
  const Follower follower(events);
  std::size_t n = 0;
  for (std::size_t seed : follower.seeds())
    page["requests"].push_back({{"title", fmt::format("{} {}", ++n, title_of(events[seed]))}, {"path", follower.path(seed)}});

  // A script element ends at "</", wherever it stands.
  std::string data = page.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = data.find("</", at)) != std::string::npos; at += 3) data.replace(at, 2, "<\\/");
  for (std::size_t at = 0; (at = data.find("<!--", at)) != std::string::npos; at += 4) data.replace(at, 4, "\\u003c!--");
  std::string_view text(uhca_trace_page, static_cast<std::size_t>(uhca_trace_page_end - uhca_trace_page));
  constexpr std::string_view kPlace = "@TRACE@";
  const std::size_t place = text.find(kPlace);
  std::string out(text.substr(0, place));
  out += data;
  out += text.substr(place + kPlace.size());
  return out;
}

}  // namespace uhca::tool
