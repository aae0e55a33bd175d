// SPDX-License-Identifier: MIT
// Flow rules of programs. Linux: hw/mlx5/fs.c.
#pragma once

#include <vector>

#include "kernel/mlx5_ib/counters.h"
#include "kernel/mlx5_ib/fs.h"
#include "kernel/mlx5_ib/raw_flow.h"

namespace uhca::kernel::mlx5 {

struct mlx5_ib_flow final : ib_flow {
  std::vector<FlowTables::Rule*> rules;
  mlx5_ib_counters* counters = nullptr;
  mlx5_ib_flow_matcher* matcher = nullptr;  // of a rule in the device's own format
};

}  // namespace uhca::kernel::mlx5
