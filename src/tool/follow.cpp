// SPDX-License-Identifier: MIT
#include "tool/follow.h"

#include <cstdlib>

namespace uhca::tool {

std::vector<TraceEvent> follow(const std::vector<TraceEvent>& all, const std::string& what) {
  std::size_t hash = what.find('#');
  const std::string call = what.substr(0, hash);
  int n = hash == std::string::npos ? 1 : std::atoi(what.c_str() + hash + 1);
  std::vector<TraceEvent> out;
  for (const auto& e : all)
    if (e.layer == "api" && e.name == call && --n == 0) out.push_back(e);
  return out;
}

}  // namespace uhca::tool
