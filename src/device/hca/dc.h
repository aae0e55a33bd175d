// SPDX-License-Identifier: MIT
// The dynamically connected transport. An initiator (DCI) talks to one target (DCT) at a time; whenever nothing is outstanding, the next
// request may go elsewhere. A run of requests without such a break is a session. The target opens a session at the first packet that
// reaches it and answers like an RC responder; what a session knows is a Qp of its own (QpType::kDctSession).
// ConnectX's packets are not published, so this is not what a ConnectX sends: both ends must be uhca.
#pragma once

#include "device/hca/lane.h"
#include "device/hca/qp_transport.h"

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

// Streams (rdma-core, mlx5dv_dci_stream_id_reset(3)): an error of a request ends only the stream that the request names. What follows in
// that stream is flushed until a command resets it; once as many streams have failed as the QP was created to bear, the QP fails. A session
// is of one stream, so that what was sent behind the failed request is of the same stream.
bool has_streams(const Qp& dci);
bool stream_failed(const Qp& qp, std::uint16_t stream);
// Behind the oldest request, which was reported with `error`. False: that is not the affair of a stream, the QP has failed.
bool fail_stream(Lane& lane, Qp& dci, std::uint16_t stream, const WcError& error);
// False: this stream has not failed.
void reset_stream(Qp& dci, std::uint16_t stream);

}  // namespace uhca::hca
