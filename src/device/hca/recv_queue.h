// SPDX-License-Identifier: MIT
// The receive queue at work: taking WQEs, scattering into them, completing them.
#pragma once

#include "device/hca/cqe_writer.h"
#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"

namespace uhca::hca {

// The next receive WQE, of the QP's own queue or of `srq`, becomes the one that the current message holds.
TakeWqe take_recv_wqe(Lane& lane, Qp& qp, Srq* srq);
// The XRC SRQ that a request for this target names; nullptr: none of its domain.
Srq* xrc_srq(const Lane& lane, const Qp& qp, const wire::Packet& p);
// Whose keys a request of the peer may use: the QP's protection domain, or, of an XRC target, that of the SRQ which the request names
// (IBTA vol. 1 annex A14). In the latter case the SRQ must exist.
KeyUser remote_key_user(const Lane& lane, const Qp& qp, const wire::Packet& p);
// Whose keys the held WQE's scatter list uses.
KeyUser recv_key_user(const Qp& qp);
// `len` bytes at offset `off` of the message into the held WQE's scatter list. False: a local protection error (reported).
bool scatter_recv(Lane& lane, Qp& qp, std::uint64_t off, const std::byte* src, std::size_t len, bool last);
// Where receives out of `srq` (nullptr: the QP's own queue) complete; nullptr: nowhere.
Cq* recv_cq_of(const Qp& qp, const Srq* srq);
// The held WQE completes, where its queue says.
void complete_recv(Lane& lane, Qp& qp, Cqe c);
// How many bytes of a receive may go into its CQE instead of into memory.
std::size_t recv_inline_limit(const Qp& qp);

}  // namespace uhca::hca
