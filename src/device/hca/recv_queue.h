// SPDX-License-Identifier: MIT
// The receive queue at work: taking WQEs, scattering into them, completing them.
#pragma once

#include "device/hca/cqe_writer.h"
#include "device/hca/lane.h"

namespace uhca::hca {

enum class TakeWqe : std::uint8_t {
  kTaken,
  kNone,        // nothing is posted
  kUnreadable,  // the WQE was taken but could not be read
};

// The next receive WQE becomes the one that the current message holds.
TakeWqe take_recv_wqe(Lane& lane, Qp& qp);
// `len` bytes at offset `off` of the message into the held WQE's scatter list. False: a local protection error (reported).
bool scatter_recv(Lane& lane, Qp& qp, std::uint64_t off, const std::byte* src, std::size_t len, bool last);
// The held WQE completes.
void complete_recv(Lane& lane, Qp& qp, Cqe c);

}  // namespace uhca::hca
