// SPDX-License-Identifier: MIT
// The dynamically connected transport. An initiator (DCI) talks to one target (DCT) at a time; whenever nothing is outstanding, the next
// request may go elsewhere. A run of requests without such a break is a session. The target opens a session at the first packet that
// reaches it and answers like an RC responder; what a session knows is a Qp of its own (QpType::kDctSession).
// ConnectX's packets are not published, so this is not what a ConnectX sends: both ends must be uhca.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

enum class DcTarget : std::uint8_t {
  kReady,
  kWait,     // another target, or another session, is still outstanding
  kInvalid,  // the address vector is bad
};

// Before the first packet of a message: the DCI turns to the WQE's target.
DcTarget turn_to_target(Lane& lane, Qp& dci, const SendMessage& m, const SendWqe& w);

// A request to a DCT, or to a number that is none.
void receive_dc_request(Lane& lane, const wire::Packet& p);

void end_sessions(Lane& lane, Dct& dct);

}  // namespace uhca::hca
