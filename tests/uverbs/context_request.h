// SPDX-License-Identifier: MIT
// What libmlx5 asks for when it opens a device.
#pragma once

#include <rdma/mlx5-abi.h>

namespace uhca::kernel::test {

inline ::mlx5_ib_alloc_ucontext_req_v2 context_request(bool devx) {
  ::mlx5_ib_alloc_ucontext_req_v2 req{};
  req.total_num_bfregs = 16;
  req.num_low_latency_bfregs = 4;
  req.max_cqe_version = 1;
  req.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
  req.flags = devx ? MLX5_IB_ALLOC_UCTX_DEVX : 0;
  return req;
}

}  // namespace uhca::kernel::test
