// SPDX-License-Identifier: MIT
// The messages of inspect.h, and the answering half.
#pragma once

#include <cstdint>
#include <string>

namespace uhca::wire {

// In place of a link's hello; of another size than that.
struct Question {
  char magic[4] = {'a', 's', 'k', '?'};
  std::uint32_t version = 1;
};
// With the report in a memfd; without one: not now.
struct Answer {
  char magic[4] = {'t', 'o', 'l', 'd'};
  std::uint32_t version = 1;
};

inline constexpr long kLongestReport = 16 << 20;

// One message; who does not take it has asked in vain.
void answer_question(int socket, const std::string& report);

}  // namespace uhca::wire
