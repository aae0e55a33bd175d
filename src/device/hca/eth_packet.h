// SPDX-License-Identifier: MIT
// Packets out of a send WQE: segmentation (TSO), VLAN insertion, checksums.
#pragma once

#include <cstdint>
#include <span>

#include "device/hca/eth_wqe.h"
#include "device/hca/lane.h"

namespace uhca::hca {

// How many packets the WQE makes (1 without TSO).
std::uint32_t packets_of(const EthSendWqe& w);

enum class BuildFault : std::uint8_t { kNone, kMemory, kTooLong };

// Builds packet `i` into `out` and sets *size. kMemory: a data segment could not be read (reported). kTooLong: no frame of this port.
BuildFault build_packet(Lane& lane, const RawQueue& sq, const EthSendWqe& w, std::uint32_t i, std::span<std::byte> out, std::size_t* size);

}  // namespace uhca::hca
