// SPDX-License-Identifier: MIT
// The seam between libibverbs and a provider (libmlx5.so.1): what a provider exports, the objects that it extends, and the table of
// operations that it installs in a context. Real counterpart: rdma-core's libibverbs/driver.h (names and meaning kept, the binary form is
// our own: only libraries of this project are loaded through it).
//
// A provider exports the data symbol "uhca_provider" of type `const uhca_provider* const` (extern "C", default visibility):
//
//   extern "C" __attribute__((visibility("default"))) const struct uhca_provider* const uhca_provider = &mlx5_provider;
//
// libibverbs opens "libmlx5.so.1" (its own directory first, then by soname) and looks it up with dlsym; the provider links against
// libibverbs and calls the functions below and those of cmd.h, which are exported under the version node IBVERBS_PRIVATE_65.
#pragma once

#include <sys/types.h>
#include <time.h>

#include "user/verbs/v65.h"

#define UHCA_VERBS_API extern "C" __attribute__((visibility("default")))

struct ibv_command_buffer;  // cmd.h

// ---- discovery
// -------------------------------------------------------------------------------------------------------------------------------------

enum verbs_match_kind : std::uint8_t {
  VERBS_MATCH_SENTINEL = 0,   // ends a table
  VERBS_MATCH_PCI = 1,        // vendor and device id, from the PCI modalias
  VERBS_MATCH_DRIVER_ID = 3,  // RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID
};
struct verbs_match_ent {
  verbs_match_kind kind;
  std::uint16_t vendor;
  std::uint16_t device;
  std::uint64_t driver_id;  // enum rdma_driver_id
};

inline constexpr std::uint32_t VERBS_DRIVER_ID_UNKNOWN = ~0u;  // found through sysfs only

// A device that the kernel has announced. Owned by libibverbs; lives as long as its verbs_device.
struct verbs_sysfs_dev {
  verbs_sysfs_dev* next;
  const verbs_match_ent* match;         // the row that matched
  char sysfs_name[IBV_SYSFS_NAME_MAX];  // "uverbs0"
  char ibdev_name[IBV_SYSFS_NAME_MAX];  // "mlx5_0"
  char ibdev_path[IBV_SYSFS_PATH_MAX];  // "/sys/class/infiniband/mlx5_0"
  char modalias[512];                   // "pci:v000015B3d..." or ""
  dev_t sysfs_cdev;
  std::uint64_t node_guid;  // host order; valid when have_node_guid
  bool have_node_guid;
  std::uint32_t driver_id;  // or VERBS_DRIVER_ID_UNKNOWN
  enum ibv_node_type node_type;
  int ibdev_idx;            // RDMA_NLDEV_ATTR_DEV_INDEX, or -1
  std::uint32_t num_ports;  // 0 when unknown
  std::uint32_t abi_ver;    // of the driver's user ABI (mlx5: 1)
};

struct uhca_provider;

// Allocated by the provider (calloc-like, zeroed) with this as its first member; libibverbs fills everything except what follows it.
struct verbs_device {
  ibv_device device;  // first: programs hold a pointer to it
  const uhca_provider* provider;
  int refcount;  // __atomic builtins
  verbs_device* next;
  verbs_sysfs_dev* sysfs;
  std::uint64_t core_support;  // IB_UVERBS_CORE_SUPPORT_*, as of the last GET_CONTEXT
};
inline verbs_device* verbs_get_device(const ibv_device* dev) {
  return reinterpret_cast<verbs_device*>(const_cast<ibv_device*>(dev));
}

struct uhca_provider {
  std::uint32_t struct_size;  // sizeof(uhca_provider) of the provider's build; a different size is refused
  const char* name;           // "mlx5"
  std::uint32_t match_min_abi_version;
  std::uint32_t match_max_abi_version;
  const verbs_match_ent* match_table;
  // Returns a zeroed device wrapper, or nullptr (ENOMEM).
  verbs_device* (*alloc_device)(verbs_sysfs_dev* sysfs_dev);
  // Frees what alloc_device made.
  void (*uninit_device)(verbs_device* device);
  // Opens a context on cmd_fd. Takes cmd_fd in every case: on failure it is closed and nullptr returned with errno set.
  // private_data: what mlx5dv_open_device passes down, else nullptr.
  verbs_context_v65* (*alloc_context)(ibv_device* device, int cmd_fd, void* private_data);
  // The same for ibv_import_device; cmd_fd already carries a context. May be nullptr.
  verbs_context_v65* (*import_context)(ibv_device* device, int cmd_fd);
};

// ---- objects
// ---------------------------------------------------------------------------------------------------------------------------------------
// A provider's object begins with these; programs see the first member.

enum ibv_mr_type { IBV_MR_TYPE_MR, IBV_MR_TYPE_NULL_MR, IBV_MR_TYPE_IMPORTED_MR, IBV_MR_TYPE_DMABUF_MR };
struct verbs_mr {
  ibv_mr mr;
  ibv_mr_type mr_type;
  int access;
};
inline verbs_mr* verbs_get_mr(ibv_mr* mr) {
  return reinterpret_cast<verbs_mr*>(mr);
}

struct verbs_xrcd {
  ibv_xrcd xrcd;
  std::uint32_t comp_mask;  // VERBS_XRCD_HANDLE when handle is valid
  std::uint32_t handle;
};
enum verbs_xrcd_mask { VERBS_XRCD_HANDLE = 1 << 0 };

struct verbs_srq {
  ibv_srq srq;
  enum ibv_srq_type srq_type;
  verbs_xrcd* xrcd;
  ibv_cq* cq;
  std::uint32_t srq_num;
};

enum verbs_qp_mask { VERBS_QP_XRCD = 1 << 0, VERBS_QP_EX = 1 << 1 };
struct verbs_qp {
  union {
    ibv_qp qp;
    ibv_qp_ex_v65 qp_ex;  // its first member is the ibv_qp
  };
  std::uint32_t comp_mask;  // VERBS_QP_EX: the wr_* pointers are set and ibv_qp_to_qp_ex may return it
  verbs_xrcd* xrcd;
};
static_assert(offsetof(ibv_qp_ex, qp_base) == 0);

struct verbs_cq {
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex;
  };
};

struct verbs_dm {
  ibv_dm dm;
  std::uint32_t handle;
};
struct verbs_dmah {
  ibv_dmah dmah;
  std::uint32_t handle;
};
struct verbs_counters {
  ibv_counters counters;
  std::uint32_t handle;
};
enum ibv_flow_action_type { IBV_FLOW_ACTION_UNSPECIFIED, IBV_FLOW_ACTION_ESP = 1 };
struct verbs_flow_action {
  ibv_flow_action action;
  std::uint32_t handle;
  ibv_flow_action_type type;
};

// ---- operations
// ------------------------------------------------------------------------------------------------------------------------------------
// Every operation that a provider can supply. A null member means "not supported": libibverbs then answers as rdma-core does (errno
// EOPNOTSUPP with nullptr/-1, or the positive errno). Return conventions are those of the public function of the same name; those that
// return int answer 0 or a positive errno (poll_cq: count or -1; dm_export_dmabuf_fd: fd or -1 with errno).
struct verbs_context_ops {
  int (*advise_mr)(ibv_pd*, enum ibv_advise_mr_advice, std::uint32_t flags, ibv_sge* sg_list, std::uint32_t num_sges);
  void* (*alloc_buf)(ibv_pd*, std::size_t size, ibv_buf** buf);
  ibv_dm* (*alloc_dm)(ibv_context*, ibv_alloc_dm_attr*);
  ibv_dmah* (*alloc_dmah)(ibv_context*, ibv_dmah_init_attr*);
  ibv_mw* (*alloc_mw)(ibv_pd*, enum ibv_mw_type);
  ibv_mr* (*alloc_null_mr)(ibv_pd*);
  ibv_pd* (*alloc_parent_domain)(ibv_context*, ibv_parent_domain_init_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  ibv_td* (*alloc_td)(ibv_context*, ibv_td_init_attr*);
  void (*async_event)(ibv_context*, ibv_async_event*);
  int (*attach_counters_point_flow)(ibv_counters*, ibv_counter_attach_attr*, ibv_flow*);
  int (*attach_mcast)(ibv_qp*, const ibv_gid*, std::uint16_t lid);
  int (*bind_mw)(ibv_qp*, ibv_mw*, ibv_mw_bind*);
  int (*close_xrcd)(ibv_xrcd*);
  void (*cq_event)(ibv_cq*);
  ibv_ah* (*create_ah)(ibv_pd*, ibv_ah_attr*);
  ibv_comp_cntr* (*create_comp_cntr)(ibv_context*, ibv_comp_cntr_init_attr*);
  ibv_counters* (*create_counters)(ibv_context*, ibv_counters_init_attr*);
  ibv_cq* (*create_cq)(ibv_context*, int cqe, ibv_comp_channel*, int comp_vector);
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*);
  ibv_flow* (*create_flow)(ibv_qp*, ibv_flow_attr*);
  ibv_flow_action* (*create_flow_action_esp)(ibv_context*, ibv_flow_action_esp_attr*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*);
  ibv_rwq_ind_table* (*create_rwq_ind_table)(ibv_context*, ibv_rwq_ind_table_init_attr*);
  ibv_srq* (*create_srq)(ibv_pd*, ibv_srq_init_attr*);
  ibv_srq* (*create_srq_ex)(ibv_context*, ibv_srq_init_attr_ex*);
  ibv_wq* (*create_wq)(ibv_context*, ibv_wq_init_attr*);
  int (*dealloc_dmah)(ibv_dmah*);
  int (*dealloc_mw)(ibv_mw*);
  int (*dealloc_pd)(ibv_pd*);
  int (*dealloc_td)(ibv_td*);
  int (*dereg_mr)(verbs_mr*);
  int (*destroy_ah)(ibv_ah*);
  int (*destroy_comp_cntr)(ibv_comp_cntr*);
  int (*destroy_counters)(ibv_counters*);
  int (*destroy_cq)(ibv_cq*);
  int (*destroy_flow)(ibv_flow*);
  int (*destroy_flow_action)(ibv_flow_action*);
  int (*destroy_qp)(ibv_qp*);
  int (*destroy_rwq_ind_table)(ibv_rwq_ind_table*);
  int (*destroy_srq)(ibv_srq*);
  int (*destroy_wq)(ibv_wq*);
  int (*detach_mcast)(ibv_qp*, const ibv_gid*, std::uint16_t lid);
  int (*dm_export_dmabuf_fd)(ibv_dm*);
  void (*free_buf)(ibv_buf*);
  // Required. Calls verbs_uninit_context and frees the provider's context.
  void (*free_context)(ibv_context*);
  int (*free_dm)(ibv_dm*);
  int (*get_srq_num)(ibv_srq*, std::uint32_t* srq_num);
  ibv_dm* (*import_dm)(ibv_context*, std::uint32_t handle);
  ibv_mr* (*import_mr)(ibv_pd*, std::uint32_t handle);
  ibv_pd* (*import_pd)(ibv_context*, std::uint32_t handle);
  int (*inc_comp_cntr)(ibv_comp_cntr*, std::uint64_t amount);
  int (*inc_err_comp_cntr)(ibv_comp_cntr*, std::uint64_t amount);
  int (*modify_cq)(ibv_cq*, ibv_modify_cq_attr*);
  int (*modify_flow_action_esp)(ibv_flow_action*, ibv_flow_action_esp_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int attr_mask);
  int (*modify_qp_rate_limit)(ibv_qp*, ibv_qp_rate_limit_attr*);
  int (*modify_srq)(ibv_srq*, ibv_srq_attr*, int attr_mask);
  int (*modify_wq)(ibv_wq*, ibv_wq_attr*);
  ibv_qp* (*open_qp)(ibv_context*, ibv_qp_open_attr*);
  ibv_xrcd* (*open_xrcd)(ibv_context*, ibv_xrcd_init_attr*);
  int (*poll_cq)(ibv_cq*, int num_entries, ibv_wc*);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr** bad_wr);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad_wr);
  int (*post_srq_ops)(ibv_srq*, ibv_ops_wr*, ibv_ops_wr** bad_op);
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr** bad_wr);
  int (*qp_attach_comp_cntr)(ibv_qp*, ibv_comp_cntr*, ibv_qp_attach_comp_cntr_attr*);
  int (*query_comp_cntr_caps)(ibv_context*, ibv_comp_cntr_caps*, std::size_t caps_size);
  int (*query_device_ex)(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, std::size_t attr_size);
  int (*query_ece)(ibv_qp*, ibv_ece*);
  int (*query_port)(ibv_context*, std::uint8_t port_num, ibv_port_attr_v65*);
  int (*query_port_speed)(ibv_context*, std::uint32_t port_num, std::uint64_t* speed);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int attr_mask, ibv_qp_init_attr*);
  int (*query_qp_data_in_order)(ibv_qp*, enum ibv_wr_opcode, std::uint32_t flags);
  int (*query_rt_values)(ibv_context*, ibv_values_ex*);
  int (*query_srq)(ibv_srq*, ibv_srq_attr*);
  int (*read_comp_cntr)(ibv_comp_cntr*, std::uint64_t* value);
  int (*read_counters)(ibv_counters*, std::uint64_t* values, std::uint32_t ncounters, std::uint32_t flags);
  int (*read_err_comp_cntr)(ibv_comp_cntr*, std::uint64_t* value);
  ibv_mr* (*reg_dm_mr)(ibv_pd*, ibv_dm*, std::uint64_t dm_offset, std::size_t length, unsigned int access);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access);
  ibv_mr* (*reg_mr)(ibv_pd*, void* addr, std::size_t length, std::uint64_t hca_va, int access);
  ibv_mr* (*reg_mr_ex)(ibv_pd*, ibv_mr_init_attr*);
  int (*req_notify_cq)(ibv_cq*, int solicited_only);
  int (*rereg_mr)(verbs_mr*, int flags, ibv_pd*, void* addr, std::size_t length, int access);
  int (*resize_cq)(ibv_cq*, int cqe);
  int (*set_comp_cntr)(ibv_comp_cntr*, std::uint64_t value);
  int (*set_ece)(ibv_qp*, ibv_ece*);
  int (*set_err_comp_cntr)(ibv_comp_cntr*, std::uint64_t value);
  void (*unimport_dm)(ibv_dm*);
  void (*unimport_mr)(ibv_mr*);
  void (*unimport_pd)(ibv_pd*);
};

// Installs every non-null member of ops over what the context has (call it as often as needed: base set first, then variants). Also
// fills the program-visible tables (ibv_context.ops, verbs_context).
UHCA_VERBS_API void verbs_set_ops(verbs_context_v65* vctx, const verbs_context_ops* ops);
// The table in force, for a provider that wraps or compares it (mlx5dv_is_supported).
UHCA_VERBS_API const verbs_context_ops* verbs_get_ops(ibv_context* context);

// ---- contexts
// --------------------------------------------------------------------------------------------------------------------------------------

// Allocates alloc_size zeroed bytes whose verbs_context_v65 lies at context_offset and prepares that context: device reference, cmd_fd,
// mutex, ABI marker, default operations, the probe for ioctl-carried write commands. Takes cmd_fd: on failure (errno set, nullptr) it is
// closed.
UHCA_VERBS_API void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, std::size_t alloc_size, std::size_t context_offset,
                                                   std::uint32_t driver_id);
// Closes both descriptors and drops the device reference; does not free the memory. For free_context and for failure paths of
// alloc_context.
UHCA_VERBS_API void verbs_uninit_context(verbs_context_v65* context);
// Opens a device as ibv_open_device does, handing private_data to the provider (mlx5dv_open_device).
UHCA_VERBS_API ibv_context* verbs_open_device(ibv_device* device, void* private_data);

// Initialises the public part of a CQ (context, channel with its reference, cq_context, event counters, mutex, cond). libibverbs does it
// itself after the operations create_cq and create_cq_ex; a provider calls it only for CQs that it makes by another road
// (mlx5dv_create_cq).
UHCA_VERBS_API void verbs_init_cq(ibv_cq* cq, ibv_context* context, ibv_comp_channel* channel, void* cq_context);

// A line to the verbs log (VERBS_LOG_LEVEL, VERBS_LOG_FILE). Levels: 1 error, 2 warning, 3 info, 4 debug.
UHCA_VERBS_API void verbs_log(verbs_context_v65* ctx, std::uint32_t level, const char* format, ...) __attribute__((format(printf, 3, 4)));

// True when RDMAV_ALLOW_DISASSOC_DESTROY is set: EIO of a destroy command counts as success. The ibv_cmd_destroy_* functions apply it
// themselves.
UHCA_VERBS_API bool verbs_allow_disassociate_destroy();

// Reads <ibdev_path>/<file> into buf (NUL-terminated, trailing newline removed). Returns the length or -1.
UHCA_VERBS_API int ibv_read_ibdev_sysfs_file(char* buf, std::size_t size, verbs_sysfs_dev* sysfs_dev, const char* file);

enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 };
UHCA_VERBS_API int ibv_query_gid_type(ibv_context* context, std::uint8_t port_num, unsigned int index, ibv_gid_type_sysfs* type);

// Fork protection of provider memory (madvise MADV_DONTFORK bookkeeping); 0, or non-zero with errno.
UHCA_VERBS_API int ibv_dontfork_range(void* base, std::size_t size);
UHCA_VERBS_API int ibv_dofork_range(void* base, std::size_t size);
