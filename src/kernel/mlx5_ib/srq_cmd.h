// SPDX-License-Identifier: MIT
// The firmware commands of SRQs. With ISSI 1 a basic SRQ is an RMP, and there are XRC SRQs; both share one number space and one view here.
// Linux: hw/mlx5/srq_cmd.c.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/queue_pages.h"

namespace uhca::kernel::mlx5 {

struct SrqSpec {
  SrqKind kind = SrqKind::kRmp;
  std::uint32_t pdn = 0;
  unsigned log_size = 0;    // WQEs
  unsigned log_stride = 0;  // bytes of a WQE
  bool signature = false;
  std::uint64_t doorbell = 0;  // bus address
  QueuePages pages;
  std::uint32_t xrcdn = 0, cqn = 0, user_index = kDefaultUserIndex;  // XRC
};

// page_offset's width in the context of this kind.
constexpr unsigned srq_offset_bits(SrqKind k) {
  return k == SrqKind::kRmp ? 5 : 6;
}

// The number.
Result<std::uint32_t> cmd_create_srq(mlx5_core_dev& m, const SrqSpec& spec);
Status cmd_destroy_srq(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn);
// The limit event comes when fewer than lwm WQEs are left.
Status cmd_arm_srq(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn, std::uint16_t lwm);
// The limit in force; 0: not armed.
Result<std::uint16_t> cmd_query_srq_limit(mlx5_core_dev& m, SrqKind kind, std::uint32_t srqn);

}  // namespace uhca::kernel::mlx5
