// SPDX-License-Identifier: MIT
// What rdma-core v65 and Linux 7.2 add to the uapi headers that Debian 12 installs (<rdma/*.h>). Numbers are ABI facts; each
// group names the header that has it upstream. Everything lies in namespace uhca::uapi, so that newer installed headers do
// not collide.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstddef>
#include <cstdint>

namespace uhca::uapi {

// ib_user_ioctl_cmds.h: objects after UVERBS_OBJECT_ASYNC_EVENT.
inline constexpr std::uint16_t UVERBS_OBJECT_DMAH = 17, UVERBS_OBJECT_DMABUF = 18, UVERBS_OBJECT_COMP_CNTR = 19;
// Attribute namespaces of drivers: without and with UVERBS_ATTR_UHW_IN/OUT in the method.
inline constexpr std::uint16_t UVERBS_ID_DRIVER_NS = 0x1000, UVERBS_ID_DRIVER_NS_WITH_UHW = 0x1002;

// Methods of UVERBS_OBJECT_DEVICE.
inline constexpr std::uint16_t UVERBS_METHOD_QUERY_PORT_SPEED = 7, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS = 8;
inline constexpr std::uint16_t UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM = 0, UVERBS_ATTR_QUERY_PORT_SPEED_RESP = 1;
inline constexpr std::uint16_t UVERBS_ATTR_GET_CONTEXT_FD_ARR = 2;

// CQ_CREATE, QP_CREATE.
inline constexpr std::uint16_t UVERBS_ATTR_CREATE_CQ_BUFFER_VA = 8, UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH = 9,
                               UVERBS_ATTR_CREATE_CQ_BUFFER_FD = 10, UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET = 11,
                               UVERBS_ATTR_CREATE_CQ_BUF_UMEM = 12;
inline constexpr std::uint16_t UVERBS_ATTR_CREATE_QP_BUF_UMEM = 15, UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM = 16,
                               UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM = 17;

// Methods and attributes of UVERBS_OBJECT_MR.
inline constexpr std::uint16_t UVERBS_METHOD_REG_MR = 5;
inline constexpr std::uint16_t UVERBS_ATTR_REG_MR_HANDLE = 0, UVERBS_ATTR_REG_MR_PD_HANDLE = 1, UVERBS_ATTR_REG_MR_DMA_HANDLE = 2,
                               UVERBS_ATTR_REG_MR_IOVA = 3, UVERBS_ATTR_REG_MR_ADDR = 4, UVERBS_ATTR_REG_MR_LENGTH = 5,
                               UVERBS_ATTR_REG_MR_ACCESS_FLAGS = 6, UVERBS_ATTR_REG_MR_FD = 7, UVERBS_ATTR_REG_MR_FD_OFFSET = 8,
                               UVERBS_ATTR_REG_MR_RESP_LKEY = 9, UVERBS_ATTR_REG_MR_RESP_RKEY = 10;

// Of UVERBS_OBJECT_DMABUF, UVERBS_OBJECT_DMAH.
inline constexpr std::uint16_t UVERBS_METHOD_DMABUF_ALLOC = 0;
inline constexpr std::uint16_t UVERBS_ATTR_ALLOC_DMABUF_HANDLE = 0, UVERBS_ATTR_ALLOC_DMABUF_PGOFF = 1;
inline constexpr std::uint16_t UVERBS_METHOD_DMAH_ALLOC = 0, UVERBS_METHOD_DMAH_FREE = 1;
inline constexpr std::uint16_t UVERBS_ATTR_ALLOC_DMAH_HANDLE = 0, UVERBS_ATTR_ALLOC_DMAH_CPU_ID = 1,
                               UVERBS_ATTR_ALLOC_DMAH_TPH_MEM_TYPE = 2, UVERBS_ATTR_ALLOC_DMAH_PH = 3;
inline constexpr std::uint16_t UVERBS_ATTR_FREE_DMAH_HANDLE = 0;

// ib_user_ioctl_verbs.h.
inline constexpr std::uint64_t IB_UVERBS_CORE_SUPPORT_ROBUST_UDATA = 1 << 1;
inline constexpr std::uint32_t IB_UVERBS_ACCESS_FLUSH_GLOBAL = 1 << 8, IB_UVERBS_ACCESS_FLUSH_PERSISTENT = 1 << 9;

// ib_uverbs_query_port_resp_ex: the last 32 bits became active_speed_ex.
struct ib_uverbs_query_port_resp_ex {
  ::ib_uverbs_query_port_resp legacy_resp;
  std::uint16_t port_cap_flags2;
  std::uint8_t reserved[2];
  std::uint32_t active_speed_ex;
};
static_assert(sizeof(ib_uverbs_query_port_resp_ex) == 48 && offsetof(ib_uverbs_query_port_resp_ex, active_speed_ex) == 44);

inline constexpr std::uint32_t IB_UVERBS_BUFFER_TYPE_DMABUF = 0, IB_UVERBS_BUFFER_TYPE_VA = 1;
struct ib_uverbs_buffer_desc {
  std::uint32_t type;
  std::int32_t fd;
  std::uint32_t flags;           // unknown bits: EINVAL
  std::uint32_t optional_flags;  // unknown bits are ignored
  std::uint64_t addr;            // offset in the dma-buf, or virtual address
  std::uint64_t length;          // bytes
};
static_assert(sizeof(ib_uverbs_buffer_desc) == 32);

}  // namespace uhca::uapi
