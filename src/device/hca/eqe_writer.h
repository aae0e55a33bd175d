// SPDX-License-Identifier: MIT
// Event queue entries. Types: Linux include/linux/mlx5/device.h (MLX5_EVENT_TYPE_*).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/hca/lane.h"

namespace uhca::hca {

enum class EventType : std::uint8_t {
  kCompletion = 0x00,
  kCommEst = 0x02,
  kSqDrained = 0x03,
  kCqError = 0x04,
  kWqCatastrophic = 0x05,
  kWqInvalidRequest = 0x10,
  kWqAccess = 0x11,
  kSrqCatastrophic = 0x12,
  kLastWqe = 0x13,
  kSrqLimit = 0x14,
};

// Writes one EQE; raises the EQ's vector when it is armed (and disarms it). A full EQ loses the event: logged and counted.
void write_eqe(Lane& lane, Eq& eq, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len);
// The same into every EQ that subscribes to the type.
void async_event(Lane& lane, std::uint8_t type, std::uint8_t sub_type, const void* data, std::size_t len);
// UAR doorbell of an EQ: consumer index (24 bits), and whether to raise the vector for the next EQE. With EQEs unread it is raised at once.
void eq_doorbell(Lane& lane, Eq& eq, std::uint32_t ci, bool arm);

void qp_event(Lane& lane, EventType type, const Qp& qp);
void srq_event(Lane& lane, EventType type, const Srq& srq);
void raw_queue_event(Lane& lane, EventType type, const RawQueue& q);
void cq_error_event(Lane& lane, const Cq& cq, std::uint8_t syndrome);
void completion_event(Lane& lane, const Cq& cq);

}  // namespace uhca::hca
