// SPDX-License-Identifier: MIT
// What rdma-core v65 and Linux 7.2 add to mlx5's own uapi headers that Debian 12 installs (<rdma/mlx5_user_ioctl_*.h>), as rdma_next.h does
// for the others.
#pragma once

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cstdint>

#include "uapi/rdma_next.h"

namespace uhca::uapi {

// mlx5_user_ioctl_cmds.h. On UVERBS_METHOD_CQ_CREATE, which has UHW attributes.
inline constexpr std::uint16_t MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX = UVERBS_ID_DRIVER_NS_WITH_UHW;
// On MLX5_IB_METHOD_FLOW_MATCHER_CREATE.
inline constexpr std::uint16_t MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT = ::MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE + 1;
// On UVERBS_METHOD_REG_DMABUF_MR.
inline constexpr std::uint16_t MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS = UVERBS_ID_DRIVER_NS;

// mlx5_user_ioctl_verbs.h: enum mlx5_ib_uapi_flow_table_type.
inline constexpr std::uint32_t MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TRANSPORT_RX = 5, MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TRANSPORT_TX = 6;
// enum mlx5_ib_uapi_dm_type: the last one.
inline constexpr std::uint32_t MLX5_IB_UAPI_DM_TYPE_ENCAP_SW_ICM = 4;
// Of MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS.
inline constexpr std::uint32_t MLX5_IB_UAPI_REG_DMABUF_ACCESS_DATA_DIRECT = 1 << 0;

}  // namespace uhca::uapi
