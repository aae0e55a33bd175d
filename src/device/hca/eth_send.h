// SPDX-License-Identifier: MIT
// Ethernet send queues: WQEs -> frames -> the port, or back into this device (local loopback).
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

// Sends what is posted, at most a turn's worth. True: something was sent or completed.
bool run_send_queue(Lane& lane, RawQueue& sq);
// Lets every SQ that waits send once.
bool run_send_queues(Lane& lane);

}  // namespace uhca::hca
