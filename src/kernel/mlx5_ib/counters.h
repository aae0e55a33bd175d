// SPDX-License-Identifier: MIT
// Counters that flow rules count in. Linux: hw/mlx5/counters.c.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"

namespace uhca::kernel::mlx5 {

struct mlx5_ib_counters final : ib_counters {
  std::mutex lock;
  std::optional<std::uint32_t> id;                     // of the device's counter
  std::vector<::mlx5_ib_flow_counters_desc> counters;  // what the program wants where, while a rule counts here
  std::uint32_t max_index = 0;                         // one more than the largest place; 0: not described yet
};

// What a rule that is about to count here needs: the device's counter, and a description when `data` has one. EINVAL: there is none yet, or
// there is one already.
Status counters_set_data(mlx5_ib_counters& counters, const ::mlx5_ib_flow_counters_data* data);
// A rule does not count here (any more): the last one takes the description along.
void counters_clear_description(mlx5_ib_counters& counters);

}  // namespace uhca::kernel::mlx5
