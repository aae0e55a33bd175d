// SPDX-License-Identifier: MIT
// What a responder owes its peer: READ responses, atomic acknowledges, one acknowledge or NAK. Queued here, sent by send_answers()
// (rc_responder.h).
#pragma once

#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"

namespace uhca::hca {

// An acknowledge of everything before the expected PSN; a NAK that waits is not replaced.
void queue_ack(Qp& qp);
// A sequence NAK names what is expected when it leaves.
void queue_nak(Qp& qp, std::uint8_t syndrome, std::uint32_t psn);
// The packet that a sequence or RNR NAK asked for is here before that NAK was sent.
void withdraw_nak(Qp& qp);
bool nak_waits(const Qp& qp);

// `packets` responses from the packet's PSN on; `user` is whose keys they read with.
void queue_read(Qp& qp, const KeyUser& user, const wire::Packet& p, std::uint32_t packets);
// Asked for again: an answer that is being given starts over from there, else it is given again.
void queue_duplicate_read(Qp& qp, const KeyUser& user, const wire::Packet& p, std::uint32_t packets);

// Executes compare-and-swap or fetch-and-add on a host-order 64-bit word. False: access error (reported).
bool execute_atomic(Lane& lane, const KeyUser& user, const wire::Packet& p, std::uint64_t* found);
void queue_atomic(Qp& qp, std::uint32_t psn, std::uint64_t found);
// Sends the saved result again; nothing when it is not remembered any more.
void queue_duplicate_atomic(Qp& qp, std::uint32_t psn);

// Remote invalidate: the key must be invalidatable and of the user's PD. False: refused (reported).
bool invalidate_key(Lane& lane, const KeyUser& user, std::uint32_t rkey);

}  // namespace uhca::hca
