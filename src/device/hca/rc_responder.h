// SPDX-License-Identifier: MIT
// The responder of an RC QP (IBTA vol. 1 9.7.4, 9.7.5). A request packet passes the stages in this order; each may refuse it:
//   psn, op_sequence, op_valid, resources, length, rkey, execute, complete, acknowledge
// Answers are queued and sent by send_answers(): READ responses and atomic acknowledges in PSN order, the acknowledge (which
// covers everything received) behind them. One acknowledge answers a whole batch of frames.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

struct HostBody;  // host_packet.h
// `host`: of a host packet; nullptr: the packet came in a frame.
void respond(Lane& lane, Qp& qp, const wire::Packet& p, const HostBody* host);

// True: something was sent. Reschedules the QP when the port was busy or more is left.
bool send_answers(Lane& lane, Qp& qp);

}  // namespace uhca::hca
