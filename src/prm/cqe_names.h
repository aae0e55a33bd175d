// SPDX-License-Identifier: MIT
// Names of what a CQE says, for people. nullptr: the value has no name.
#pragma once

#include "prm/cqe.h"
#include "prm/wqe.h"

namespace uhca::prm {

const char* cqe_opcode_name(CqeOpcode opcode);
const char* wqe_opcode_name(WqeOpcode opcode);

struct SyndromeName {
  const char* phrase;     // "local protection error"
  const char* wc_status;  // the verbs status that it becomes (libmlx5 and mlx5_ib agree): "IBV_WC_LOC_PROT_ERR"
};
const SyndromeName* syndrome_name(CqeSyndrome syndrome);

}  // namespace uhca::prm
