// SPDX-License-Identifier: MIT
// What the port counts of RDMA, as /sys/class/infiniband/*/ports/1/hw_counters shows it. Linux: counters.c.
#pragma once

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel::mlx5 {

class mlx5_core_dev;

// The names of the counters that this device has, in the order of read_hw_counter(); nullptr behind the last.
const char* const* hw_counter_names(const mlx5_core_dev& m);
// Over all QPs of the function. EINVAL: no such counter.
Result<std::uint64_t> read_hw_counter(ib_device& d, unsigned index);

}  // namespace uhca::kernel::mlx5
