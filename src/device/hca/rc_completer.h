// SPDX-License-Identifier: MIT
// The completer of an RC QP: acknowledges, READ responses and atomic acknowledges against what the requester has sent (IBTA vol. 1 9.7.5.1,
// 9.7.5.2, 9.7.7). Stages: psn, ack, nak, read, atomic, complete.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

void complete_response(Lane& lane, Qp& qp, const wire::Packet& p);

// The QP's timer: acknowledge timeout or end of an RNR wait.
void requester_timer(Lane& lane, Qp& qp);

// Wait that an RNR NAK timer code asks for (IBTA table 45), ns.
Nanos rnr_wait(unsigned code);

}  // namespace uhca::hca
