// SPDX-License-Identifier: MIT
// Flow rules in the device's own format. Linux: hw/mlx5/fs.c (MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_CREATE_FLOW).
#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/mlx5_ib/fs.h"
#include "kernel/uverbs/uapi_def.h"

namespace uhca::kernel::mlx5 {

struct mlx5_ib_flow_matcher {
  FlowSpec spec;          // what is matched, not yet which values
  std::uint8_t type = 0;  // MLX5_IB_FLOW_TYPE_*
  std::uint16_t priority = 0;
  bool receive = true;         // for the tables of NIC receive; others do not exist
  std::atomic<int> usecnt{0};  // rules
};

extern const uverbs_object_def flow_matcher_object_def, raw_flow_object_def;

}  // namespace uhca::kernel::mlx5
