// SPDX-License-Identifier: MIT
// Doorbells: stores into UAR pages are hints (they may be lost, doubled, overwritten by a neighbour); the doorbell records are the truth
// (decision 4).
#pragma once

#include <array>
#include <cstdint>

#include "device/hca/lane.h"

namespace uhca::hca {

// `offset` in the 4 KiB page; `value`: the stored bytes as a little-endian number (64 bits; EQ doorbells 32 bits).
void uar_store(Lane& lane, std::uint64_t offset, std::uint32_t uar, std::uint64_t value);

// A BlueFlame write: 64 bytes to a register at `offset` in the page, the beginning of the WQE that they announce. One that fits into them
// and is next in turn is executed as it came; every other is a doorbell like any other.
void blue_flame_write(Lane& lane, std::uint64_t offset, std::uint32_t uar, const std::array<std::uint64_t, 8>& words);

void look_at_send_queue(Lane& lane, Qp& qp);

}  // namespace uhca::hca
