// SPDX-License-Identifier: MIT
// The log (printf-like, for people) and the reasons behind refusals (DESIGN, decision 11).
//
// Nothing is printed unless the environment asks for it: UHCA_LOG=stderr or UHCA_LOG=FILE, UHCA_LOG_LEVEL=error|warn|info|debug
// (default warn). A library must not write into a program's output by itself.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "base/result.h"

namespace uhca::log {

enum class Level : int { kError = 0, kWarn = 1, kInfo = 2, kDebug = 3 };

// One predictable branch when the log is off.
bool enabled(Level l);
void vwrite(Level l, fmt::string_view format, fmt::format_args args);
// Logs at level warn, and emits a "refuse" trace event with the errno and the reason.
void vrefuse(int err, fmt::string_view format, fmt::format_args args);

template <class... A>
void write(Level l, fmt::format_string<A...> f, A&&... a) {
  if (enabled(l)) vwrite(l, f, fmt::make_format_args(a...));
}
template <class... A>
void debug(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kDebug)) vwrite(Level::kDebug, f, fmt::make_format_args(a...));
}
template <class... A>
void info(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kInfo)) vwrite(Level::kInfo, f, fmt::make_format_args(a...));
}
template <class... A>
void warn(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kWarn)) vwrite(Level::kWarn, f, fmt::make_format_args(a...));
}
template <class... A>
void error(fmt::format_string<A...> f, A&&... a) {
  if (enabled(Level::kError)) vwrite(Level::kError, f, fmt::make_format_args(a...));
}

}  // namespace uhca::log

namespace uhca {

// The answer of the real stack (the errno) together with the reason that it does not give:
//   return refuse(EINVAL, "modify_qp {} -> {}: attribute mask lacks {}", from, to, missing);
template <class... A>
Errno refuse(int err, fmt::format_string<A...> f, A&&... a) {
  log::vrefuse(err, f, fmt::make_format_args(a...));
  return Errno{err};
}

}  // namespace uhca
