// SPDX-License-Identifier: MIT
// What rdma-core v65 adds to the Verbs API of Debian 12's <infiniband/verbs.h> (v44). Layouts: libibverbs/verbs.h and driver.h of
// rdma-core v65, appendix D of the ABI report; the static_asserts hold them in place. Names that v44 knows keep their v44 declaration; the
// grown form has the suffix _v65 and the old form as its first (or, for verbs_context, which grows downwards, last) member.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

// v65 appends the speed in units of 100 Mb/s; active_speed alone cannot express XDR and later.
struct ibv_port_attr_v65 {
  ibv_port_attr base;
  std::uint32_t active_speed_ex;
};
static_assert(sizeof(ibv_port_attr) == 52 && sizeof(ibv_port_attr_v65) == 56);

struct ibv_qp_ex_v65 {
  ibv_qp_ex base;
  void (*wr_flush)(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t remote_addr, std::size_t len, std::uint8_t type, std::uint8_t level);
};
static_assert(sizeof(ibv_qp_ex) == 352 && sizeof(ibv_qp_ex_v65) == 360);

enum {
  IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS_V65 = 1 << 0,  // flags
  IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY_V65 = 1 << 1,
  IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG_V65 = 1 << 0,  // results
  IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES_V65 = 1 << 1,
};
enum { IBV_EVENT_DEVICE_SPEED_CHANGE_V65 = IBV_EVENT_WQ_FATAL + 1 };

struct ibv_dmah {
  ibv_context* context;
};
enum ibv_dmah_init_attr_mask {
  IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
  IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
  IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2,
};
struct ibv_dmah_init_attr {
  std::uint32_t comp_mask;
  std::uint32_t cpu_id;
  std::uint8_t ph;
  std::uint8_t tph_mem_type;
};
static_assert(sizeof(ibv_dmah_init_attr) == 12);

// Opaque to programs. dmabuf_fd is -1 for ordinary memory.
struct ibv_buf {
  void* addr;
  std::size_t size;
  ibv_pd* pd;
  int dmabuf_fd;
};
static_assert(sizeof(ibv_buf) == 32);

enum ibv_mr_init_attr_mask {
  IBV_REG_MR_MASK_IOVA = 1 << 0,
  IBV_REG_MR_MASK_ADDR = 1 << 1,
  IBV_REG_MR_MASK_FD = 1 << 2,
  IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
  IBV_REG_MR_MASK_DMAH = 1 << 4,
  IBV_REG_MR_MASK_BUF = 1 << 5,
};
struct ibv_mr_init_attr {
  std::size_t length;
  int access;
  std::uint64_t comp_mask;
  std::uint64_t iova;
  void* addr;
  int fd;
  std::uint64_t fd_offset;
  ibv_dmah* dmah;
  ibv_buf* buf;
};
static_assert(sizeof(ibv_mr_init_attr) == 72 && offsetof(ibv_mr_init_attr, buf) == 64);

struct ibv_fd_arr {
  int* arr;
  std::uint32_t count;
};

enum ibv_comp_cntr_type { IBV_COMP_CNTR_TYPE_WRS, IBV_COMP_CNTR_TYPE_BYTES };
struct ibv_comp_cntr {
  ibv_context* context;
  std::uint32_t handle;
};
struct ibv_comp_cntr_caps {
  std::uint64_t max_value;
  std::uint32_t max_counters;
  std::uint32_t supported_qp_attach_ops;
};
struct ibv_comp_cntr_init_attr {
  std::uint32_t comp_mask;
  ibv_comp_cntr_type type;
  std::uint32_t flags;
};
struct ibv_qp_attach_comp_cntr_attr {
  std::uint32_t comp_mask;
  std::uint32_t op_mask;
};
static_assert(sizeof(ibv_comp_cntr) == 16 && sizeof(ibv_comp_cntr_caps) == 16 && sizeof(ibv_comp_cntr_init_attr) == 12);

// The v65 table: six more operations in front of v44's. `v.sz` holds sizeof(verbs_context_v65), so that programs of every
// release find what they know (verbs_get_ctx_op counts backwards from the ibv_context).
struct verbs_context_v65 {
  void (*free_buf)(ibv_buf* buf);
  void* (*alloc_buf)(ibv_pd* pd, std::size_t size, ibv_buf** buf);
  int (*dm_export_dmabuf_fd)(ibv_dm* dm);
  ibv_mr* (*reg_mr_ex)(ibv_pd* pd, ibv_mr_init_attr* attr);
  int (*dealloc_dmah)(ibv_dmah* dmah);
  ibv_dmah* (*alloc_dmah)(ibv_context* context, ibv_dmah_init_attr* attr);
  verbs_context v;
};

#define UHCA_CTX_OFFSET(member) \
  (static_cast<long>(offsetof(verbs_context_v65, member)) - static_cast<long>(offsetof(verbs_context_v65, v.context)))
static_assert(sizeof(verbs_context_v65) - sizeof(ibv_context) == 696 - 328 && sizeof(verbs_context_v65) == 696);
static_assert(sizeof(ibv_context) == 328 && sizeof(verbs_context) == 648);
static_assert(UHCA_CTX_OFFSET(free_buf) == -368 && UHCA_CTX_OFFSET(alloc_buf) == -360 && UHCA_CTX_OFFSET(dm_export_dmabuf_fd) == -352);
static_assert(UHCA_CTX_OFFSET(reg_mr_ex) == -344 && UHCA_CTX_OFFSET(dealloc_dmah) == -336 && UHCA_CTX_OFFSET(alloc_dmah) == -328);
static_assert(UHCA_CTX_OFFSET(v.query_port) == -320 && UHCA_CTX_OFFSET(v.priv) == -112 && UHCA_CTX_OFFSET(v.sz) == -8);

// The v65 table around the context that a program holds. Only for contexts made by this library.
inline verbs_context_v65* verbs_context_of(ibv_context* context) {
  return reinterpret_cast<verbs_context_v65*>(reinterpret_cast<char*>(context) - offsetof(verbs_context_v65, v.context));
}
