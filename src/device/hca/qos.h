// SPDX-License-Identifier: MIT
// Scheduling elements and the packet pacing table, as objects: who may exist under whom, and who uses what. The engine does not slow
// anything down for them.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "device/hca/number_pool.h"
#include "prm/qos.h"

namespace uhca::hca {

struct SchedulingElement {
  std::uint32_t type = 0, parent = 0;  // parent 0: a root
  std::uint32_t bw_share = 0, max_bw = 0;
  unsigned users = 0;  // elements under it, QPs
};

struct RateLimit {
  std::uint32_t rate = 0, burst = 0;  // kb/s, bytes
  std::uint16_t packet = 0;           // typical size, bytes
};

// An address vector that shares a QP's congestion control (mlx5dv_map_ah_to_qp), as its command said.
using AvMapping = std::array<std::uint8_t, prm::qos::kAvMapInBytes - prm::qos::kGeneralHdrBytes>;

inline constexpr std::uint32_t kMinRate = 1, kMaxRate = 100'000'000;  // kb/s
inline constexpr unsigned kRateTableSize = 128;

struct Qos {
  std::unordered_map<std::uint32_t, SchedulingElement> elements;
  std::unordered_map<std::uint32_t, AvMapping> av_mappings;
  NumberPool element_ids{1, 1u << 12};                 // of both: a number names one general object
  std::unordered_map<std::uint32_t, RateLimit> rates;  // by index, 1 and up
  void reset() {
    elements.clear();
    av_mappings.clear();
    element_ids.reset();
    rates.clear();
  }
  void drop(std::uint32_t element) {
    if (auto it = elements.find(element); it != elements.end()) --it->second.users;
  }
};

}  // namespace uhca::hca
