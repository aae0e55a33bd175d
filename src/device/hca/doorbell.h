// SPDX-License-Identifier: MIT
// Doorbells: stores into UAR pages are hints (they may be lost, doubled, overwritten by a neighbour); the doorbell records are the truth
// (decision 4).
#pragma once

#include <cstdint>

#include "device/hca/lane.h"

namespace uhca::hca {

// `offset` in the 4 KiB page; `value`: the stored bytes as a little-endian number (64 bits; EQ doorbells 32 bits).
void uar_store(Lane& lane, std::uint64_t offset, std::uint32_t uar, std::uint64_t value);

void look_at_send_queue(Lane& lane, Qp& qp);

}  // namespace uhca::hca
