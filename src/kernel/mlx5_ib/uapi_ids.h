// SPDX-License-Identifier: MIT
// Driver-private attribute numbers that are newer than the installed <rdma/mlx5_user_ioctl_cmds.h>. Source: rdma-core v65,
// kernel-headers/rdma/mlx5_user_ioctl_cmds.h.
#pragma once

#include <cstdint>

namespace uhca::kernel::mlx5 {

// On UVERBS_METHOD_CQ_CREATE, which has UHW attributes: the first number after them (MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX).
inline constexpr std::uint16_t kAttrCreateCqUarIndex = 0x1002;
// On MLX5_IB_METHOD_FLOW_MATCHER_CREATE, behind MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE (MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT).
inline constexpr std::uint16_t kAttrFlowMatcherIbPort = 0x1006;
// enum mlx5_ib_uapi_flow_table_type: the last one.
inline constexpr std::uint64_t kFlowTableRdmaTransportTx = 6;

// On UVERBS_METHOD_REG_DMABUF_MR (MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS), and its flag (MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT).
inline constexpr std::uint16_t kAttrRegDmabufMrAccessFlags = 0x1000;
inline constexpr std::uint32_t kDataDirect = 1;

}  // namespace uhca::kernel::mlx5
