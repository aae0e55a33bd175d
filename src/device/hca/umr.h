// SPDX-License-Identifier: MIT
// UMR: a work request that changes a memory key: fast registration (kernel), memory window bind and unbind, local invalidate. WQE layout:
// rdma-core mlx5dv.h (mlx5_wqe_umr_ctrl_seg, mlx5_wqe_mkey_context_seg); what kernels and libraries send: Linux mlx5_ib wr.c, umr.c,
// rdma-core providers/mlx5/qp.c.
#pragma once

#include "device/hca/lane.h"

namespace uhca::hca {

// Executes the UMR at once; on an error nothing has changed and the reason is reported.
WcError execute_umr(Lane& lane, Qp& qp, const SendWqe& w);

}  // namespace uhca::hca
