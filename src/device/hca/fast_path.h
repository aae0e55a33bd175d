// SPDX-License-Identifier: MIT
// One-sided operations between functions of one host, executed by the initiator (DESIGN, decision 5): the checks of the responder on what
// it has published, then one copy between the two address spaces, the responder's PSN and MSN moved on, done. Its processor takes no part.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

// Executes the RDMA WRITE or READ `m` (decoded: `w`), which is the oldest of the QP that is not complete and has sent nothing yet, at
// `peer` (direct.h). False: nothing has happened that the framed path would not do again in the same way; it must be sent as packets.
bool execute_one_sided(Lane& lane, Qp& qp, wire::PeerFunction& peer, SendMessage& m, const SendWqe& w);

// The same for the next WQE of the send queue, from its fetch to its completion, if it is the plainest of all: a WRITE or READ with one
// data segment, in one basic block, with nothing before it that is not complete. False: nothing has happened; run_requester() does whatever
// it is.
bool execute_plain(Lane& lane, Qp& qp);

}  // namespace uhca::hca
