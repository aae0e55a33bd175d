// SPDX-License-Identifier: MIT
// What the command interface's state changes mean for the engine. The QP's fields hold the new values when these are called.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

const char* qp_state_name(QpState s);  // for traces and refusals
void qp_created(Lane& lane, Qp& qp);
void qp_state_changed(Lane& lane, Qp& qp, QpState from);
// Live values into a qpc: state, PSNs, counters.
void fill_qpc(const Qp& qp, void* qpc);

}  // namespace uhca::hca
