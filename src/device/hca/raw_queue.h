// SPDX-License-Identifier: MIT
// Ethernet send and receive queues at work: doorbell records, completions, state changes, flushing. Linux counterpart: what
// drivers/net/ethernet/mellanox/mlx5/core/en_main.c sets up and en/reporter_{tx,rx}.c recovers.
#pragma once

#include <cstdint>

#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"
#include "prm/cqe.h"

namespace uhca::hca {

inline KeyUser key_user(const RawQueue& q) {
  return {q.pd, q.number, q.rlky};
}

// Reads the producer index from the doorbell record. False: unreadable, or further ahead than the queue is long.
bool refresh_posted(Lane& lane, RawQueue& q);

// The state changed by command; `from` is the state that it left.
void raw_queue_state_changed(Lane& lane, RawQueue& q, RawQueue::State from);
// Before the object is erased.
void raw_queue_destroyed(Lane& lane, RawQueue& q);
// Looks at the doorbell record and sends, or flushes what was posted to a queue in error.
void look_at_raw_queue(Lane& lane, RawQueue& q);

// The WQE at hw_counter cannot be executed: error CQE for it, ERR, the rest is flushed.
void fail_raw_queue(Lane& lane, RawQueue& q, std::uint8_t opcode, prm::CqeSyndrome syndrome);
// Queues whose CQ has overrun go to ERR.
void fail_raw_queues_of_bad_cqs(Lane& lane);
// Flushes what was posted to queues in error; receive posts ring no doorbell.
bool flush_raw_queues_in_error(Lane& lane);

// A CQE of this queue, all fields but the common ones (user index, number, index, ownership) filled in.
void write_raw_cqe(Lane& lane, RawQueue& q, prm::CqeOpcode opcode, std::uint8_t wqe_opcode, std::uint8_t (&e)[prm::cqe64::kBytes]);

}  // namespace uhca::hca
