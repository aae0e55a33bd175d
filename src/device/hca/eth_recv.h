// SPDX-License-Identifier: MIT
// Received Ethernet frames: steering -> TIR -> RSS -> RQ -> memory and CQE.
#pragma once

#include <cstdint>
#include <optional>

#include "device/hca/lane.h"

namespace uhca::hca {

// Whether a frame that came in by the port belongs to the RDMA transport: RoCEv2 for a QP (or a multicast group) of this device, while
// RoCE is on. Without a driver of the Ethernet half (no root flow table) every frame does.
bool is_for_rdma(Lane& lane, wire::Frame f);

// Delivers one frame. `sender`: the transport domain that it comes from, when it is this device's own (local loopback).
void receive_ethernet(Lane& lane, wire::Frame f, std::optional<std::uint32_t> sender);

}  // namespace uhca::hca
