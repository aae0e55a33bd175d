// SPDX-License-Identifier: MIT
// What flow entries match: the headers of a frame in the layout of fte_match_param, as far as this device parses them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "device/hca/eth_headers.h"
#include "wire/net/port.h"

namespace uhca::hca {

// outer_headers and misc_parameters, as 64-bit words of memory.
inline constexpr std::size_t kMatchBytes = 128;
using MatchWords = std::array<std::uint64_t, kMatchBytes / 8>;

// match_criteria_enable (Linux mlx5/device.h: MLX5_MATCH_*).
enum MatchCriteria : std::uint8_t { kMatchOuter = 1 << 0, kMatchMisc = 1 << 1 };

MatchWords match_words(wire::Frame frame, const EthHeaders& h);

// The words of `match` (a fte_match_param) that `criteria` turns on.
MatchWords enabled_words(const void* match, std::uint8_t criteria);

// True if `mask` (a fte_match_param) asks, in a part that `criteria` turns on, for a field that match_words() does not fill.
bool asks_for_more(const void* mask, std::uint8_t criteria);

}  // namespace uhca::hca
