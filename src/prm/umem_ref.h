// SPDX-License-Identifier: MIT
// How contexts and commands name user memory (umem) instead of listing pages. Linux only sets the *_umem_valid bits (mlx5_ib/devx.c) and
// its mlx5_ifc.h leaves these fields reserved; programs fill them in themselves. Source: rdma-core, tests/mlx5_prm_structs.py and
// providers/mlx5/mlx5_ifc.h; wq: Linux 7.2 mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

namespace uhca::prm::umem_ref {

// create_cq_in, modify_cq_in
inline constexpr Field cq_umem_offset{0x280, 0x40, 1}, cq_umem_id{0x2c0, 0x20, 1};
// create_qp_in
inline constexpr Field qp_umem_offset{0x800, 0x40, 1}, qp_umem_id{0x840, 0x20, 1};
// create_mkey_in
inline constexpr Field mkey_umem_id{0x320, 0x20, 1}, mkey_umem_offset{0x340, 0x40, 1};
// Contexts: the doorbell record's umem; its offset in there stands in dbr_addr.
inline constexpr Field cqc_dbr_umem_id{0x20, 0x20, 1}, qpc_dbr_umem_id{0x720, 0x20, 1};
// wq
inline constexpr Field wq_dbr_umem_id{0x140, 0x20, 1}, wq_umem_id{0x160, 0x20, 1}, wq_umem_offset{0x180, 0x40, 1};

}  // namespace uhca::prm::umem_ref
