// SPDX-License-Identifier: MIT
// The dynamically connected transport's QPs. Initiators (DCI) are QPs of the device with their own rules of state changes; targets (DCT)
// are objects of their own, made by the device only when the program brings them to RTR. Linux: hw/mlx5/qp.c, qpc.c.
#pragma once

#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/cmd_qp.h"

namespace uhca::kernel::mlx5 {

struct Dct {
  std::uint8_t create[prm::create_dct_in::kBytes] = {};  // grows with each state change
  std::uint32_t dctn = 0;                                // in RTR
  bool drained = false;                                  // DRAIN_DCT has been done, and cannot be done twice
};

// `qp` is filled as far as all QPs are alike. EINVAL.
Status create_dct(mlx5_ib_qp& qp, const ib_qp_init_attr& attr, const ::mlx5_ib_create_qp& ucmd, std::uint32_t uidx);
Status modify_dct(mlx5_ib_qp& qp, const ib_qp_attr& attr, std::uint32_t mask, std::uint32_t ece, Udata* udata);
Status query_dct(mlx5_ib_qp& qp, ib_qp_attr& attr, std::uint32_t mask);
Status destroy_dct(mlx5_ib_qp& qp);

// Whether a DCI may go from one state to the other with these attributes.
bool modify_dci_is_ok(ib_qp_state from, ib_qp_state to, std::uint32_t mask);

}  // namespace uhca::kernel::mlx5
