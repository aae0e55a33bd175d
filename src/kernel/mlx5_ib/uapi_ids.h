// SPDX-License-Identifier: MIT
// Driver-private attribute numbers that are newer than the installed <rdma/mlx5_user_ioctl_cmds.h>. Source: rdma-core v65,
// kernel-headers/rdma/mlx5_user_ioctl_cmds.h.
#pragma once

#include <cstdint>

namespace uhca::kernel::mlx5 {

// On UVERBS_METHOD_CQ_CREATE, which has UHW attributes: the first number after them (MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX).
inline constexpr std::uint16_t kAttrCreateCqUarIndex = 0x1002;

}  // namespace uhca::kernel::mlx5
