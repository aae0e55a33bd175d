// SPDX-License-Identifier: MIT
// Names for places in programs, from the machine's addr2line (binutils); without it, as the dynamic loader knows them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace uhca::tool {

struct Place {
  std::string function, line;  // "bad.c:33"; empty: not known
};

class Symbols {
 public:
  // Several where functions were inlined, from the inside out; at least one.
  std::vector<Place> find(const std::string& module, std::uint64_t offset);

 private:
  std::map<std::pair<std::string, std::uint64_t>, std::vector<Place>> known_;
};

}  // namespace uhca::tool
