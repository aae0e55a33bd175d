// SPDX-License-Identifier: MIT
// Shared receive queues at work: taking WQEs, the limit event, failure. Software links free WQEs by index (rdma-core
// providers/mlx5/srq.c): the device follows the links from WQE 0 on, the doorbell record counts how many were posted.
#pragma once

#include "device/hca/lane.h"
#include "device/hca/wqe_fetch.h"

namespace uhca::hca {

// The SRQ's next WQE goes into `w`. kUnreadable: the SRQ has failed (event), or had failed before.
TakeWqe take_srq_wqe(Lane& lane, Srq& srq, const Qp& qp, RecvWqe& w);

// The limit was set: fires at once when fewer WQEs than that are left.
void srq_armed(Lane& lane, Srq& srq);

// Before it is erased: messages that hold one of its WQEs lose it, and their QPs fail (XRC only: others count as users).
void srq_destroyed(Lane& lane, Srq& srq);

}  // namespace uhca::hca
