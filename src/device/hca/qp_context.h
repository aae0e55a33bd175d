// SPDX-License-Identifier: MIT
// What state changes write from a QP context (qpc) into struct Qp. Sources: IBTA volume 1, 11.2.5 (Modify Queue Pair) for what each
// transition needs; Linux mlx5/qp.h (MLX5_QP_OPTPAR_*) and drivers/infiniband/hw/mlx5/qp.c for where mlx5 carries it.
#pragma once

#include "device/hca/cmd_if.h"

namespace uhca::hca {

// opt_param_mask bits.
enum OptPar : std::uint32_t {
  kOptAltPath = 1 << 0,
  kOptRre = 1 << 1,
  kOptRae = 1 << 2,
  kOptRwe = 1 << 3,
  kOptPkeyIndex = 1 << 4,
  kOptQkey = 1 << 5,
  kOptRnrTimeout = 1 << 6,
  kOptPrimaryPath = 1 << 7,
  kOptSraMax = 1 << 8,
  kOptRraMax = 1 << 9,
  kOptPmState = 1 << 10,
  kOptRetryCount = 1 << 12,
  kOptRnrRetry = 1 << 13,
  kOptAckTimeout = 1 << 14,
  kOptLagAffinity = 1 << 15,
  kOptPrimaryPort = 1 << 16,
  kOptSrqn = 1 << 18,
  kOptCqnRcv = 1 << 19,
  kOptCounterSet = 1 << 25,
};

// Connected services have a path and a peer.
constexpr bool is_connected(QpType t) {
  return t == QpType::kRc || t == QpType::kUc || t == QpType::kXrc || t == QpType::kDci;
}

// All of what this transition takes, checked before anything is changed: on a refusal the QP is as before.
prm::CmdStatus check_rtr(Command& c, const Qp& qp, const std::uint8_t* qpc);
prm::CmdStatus check_optional(Command& c, std::uint32_t mask, const std::uint8_t* qpc);

void apply_init(Qp& qp, const std::uint8_t* qpc);
void apply_rtr(Command& c, Qp& qp, const std::uint8_t* qpc);
void apply_rts(Qp& qp, const std::uint8_t* qpc);
void apply_optional(Command& c, Qp& qp, std::uint32_t mask, const std::uint8_t* qpc);
// To RESET: what INIT..RTS had set is gone.
void apply_reset(Qp& qp);

// The UDP source port when the driver leaves it open: stable for the pair, in 0xc000..0xffff. As Linux's rdma_calc_flow_label and
// rdma_flow_label_to_udp_sport spread flows.
std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t local_qpn, std::uint32_t remote_qpn);

}  // namespace uhca::hca
