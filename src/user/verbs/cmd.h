// SPDX-License-Identifier: MIT
// The command layer: one function per kernel command, called by providers. Names and meaning are those of rdma-core's ibv_cmd_*; the
// signatures are our own: driver data travels in a verbs_udata instead of behind an embedded header. Which command uses which ABI (ioctl
// method with legacy fallback, INVOKE_WRITE or plain write()) is decided here, as rdma-core decides it.
//
// All functions that return int answer 0 or a positive errno (errno is set as well), except where stated. None of them frees the object.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstring>

#include "user/verbs/provider.h"

// Driver data of a command (UHW): `in` is sent behind the core request, the kernel fills `out`. Sizes in bytes, multiples of 4 (of 8 for
// extended commands over write()). Null udata means no driver data.
struct verbs_udata {
  const void* in = nullptr;
  std::size_t in_len = 0;
  void* out = nullptr;
  std::size_t out_len = 0;
};

// An ioctl command under construction: {object, method} and up to kMaxAttrs attributes. Attributes are mandatory for the kernel unless made
// optional. Pointers are borrowed until execute_ioctl returns.
//
//   ibv_command_buffer cmd(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
//   cmd.in_obj(UVERBS_ATTR_DESTROY_PD_HANDLE, pd->handle);
//   int ret = execute_ioctl(context, &cmd);
struct ibv_command_buffer {
  static constexpr unsigned kMaxAttrs = 40;

  ibv_command_buffer(std::uint16_t object_id, std::uint16_t method_id) {
    hdr.object_id = object_id;
    hdr.method_id = method_id;
  }

  ib_uverbs_attr* in_obj(std::uint16_t id, std::uint32_t handle) { return add(id, 0, handle); }
  ib_uverbs_attr* out_obj(std::uint16_t id) { return add(id, 0, 0); }
  // Nothing is added for fd == -1.
  ib_uverbs_attr* in_fd(std::uint16_t id, int fd) { return fd == -1 ? nullptr : add(id, 0, static_cast<std::uint32_t>(fd)); }
  // UVERBS_ATTR_RAW_FD: an ordinary file descriptor, such as a dma-buf.
  ib_uverbs_attr* in_raw_fd(std::uint16_t id, int fd) { return add(id, 0, static_cast<std::uint64_t>(static_cast<std::int64_t>(fd))); }
  ib_uverbs_attr* out_fd(std::uint16_t id) { return add(id, 0, 0); }
  // Up to 8 bytes go into the attribute itself, as the ABI demands.
  ib_uverbs_attr* in(std::uint16_t id, const void* data, std::size_t len) {
    if (len > UINT16_MAX) invalid = true;
    ib_uverbs_attr* a = add(id, len, 0);
    if (len <= sizeof a->data && data)
      std::memcpy(&a->data, data, len);
    else
      a->data = reinterpret_cast<std::uintptr_t>(data);
    return a;
  }
  template <class T>
  ib_uverbs_attr* in_struct(std::uint16_t id, const T* data) {
    return in(id, data, sizeof(T));
  }
  ib_uverbs_attr* in_u64(std::uint16_t id, std::uint64_t v) { return add(id, 8, v); }
  ib_uverbs_attr* in_u32(std::uint16_t id, std::uint32_t v) { return add(id, 4, v); }
  ib_uverbs_attr* const_in(std::uint16_t id, std::uint64_t v) { return add(id, 8, v); }
  // UVERBS_ATTR_FLAGS_IN. Absent means 0: nothing is added for 0.
  ib_uverbs_attr* flags_in(std::uint16_t id, std::uint32_t v) { return v ? add(id, 4, v) : nullptr; }
  ib_uverbs_attr* in_enum(std::uint16_t id, std::uint8_t elem, const void* data, std::size_t len) {
    ib_uverbs_attr* a = in(id, data, len);
    a->attr_data.enum_data.elem_id = elem;
    return a;
  }
  ib_uverbs_attr* in_objs(std::uint16_t id, const std::uint32_t* handles, std::size_t n) { return in(id, handles, n * sizeof *handles); }
  ib_uverbs_attr* out(std::uint16_t id, void* data, std::size_t len) {
    if (len > UINT16_MAX) invalid = true;
    return add(id, len, reinterpret_cast<std::uintptr_t>(data));
  }
  template <class T>
  ib_uverbs_attr* out_struct(std::uint16_t id, T* data) {
    return out(id, data, sizeof(T));
  }
  // UHW_IN and UHW_OUT.
  void uhw(const verbs_udata* u) {
    if (u && u->in_len) in(UVERBS_ATTR_UHW_IN, u->in, u->in_len);
    if (u && u->out_len) out(UVERBS_ATTR_UHW_OUT, u->out, u->out_len);
  }
  static ib_uverbs_attr* optional(ib_uverbs_attr* a) {
    if (a) a->flags &= static_cast<std::uint16_t>(~UVERBS_ATTR_F_MANDATORY);
    return a;
  }
  // Appends the attributes of `other` (driver attributes of the provider). finish_link copies the kernel's answers (handles, flags) back
  // into it.
  void link(const ibv_command_buffer* other) {
    if (!other) return;
    invalid |= other->invalid;
    for (unsigned i = 0; i < other->count; ++i) *add(0, 0, 0) = other->attrs[i];
  }
  void finish_link(ibv_command_buffer* other) const {
    if (!other) return;
    for (unsigned i = 0; i < other->count; ++i)
      for (unsigned j = 0; j < count; ++j)
        if (attrs[j].attr_id == other->attrs[i].attr_id) other->attrs[i] = attrs[j];
  }

  // After a successful execute_ioctl: the attribute `id`, or nullptr.
  const ib_uverbs_attr* find(std::uint16_t id) const {
    for (unsigned i = 0; i < count; ++i)
      if (attrs[i].attr_id == id) return &attrs[i];
    return nullptr;
  }
  // The handle (or fd) that the kernel wrote into attribute `id`.
  std::uint32_t handle(std::uint16_t id) const {
    const ib_uverbs_attr* a = find(id);
    return a ? static_cast<std::uint32_t>(a->data) : 0;
  }
  // Whether the kernel filled the output `id`.
  bool filled(std::uint16_t id) const {
    const ib_uverbs_attr* a = find(id);
    return a && (a->flags & UVERBS_ATTR_F_VALID_OUTPUT);
  }

  // The ABI's image: a header of 24 bytes, then the attributes.
  struct Header {
    std::uint16_t length = 0;
    std::uint16_t object_id = 0;
    std::uint16_t method_id = 0;
    std::uint16_t num_attrs = 0;
    std::uint64_t reserved1 = 0;
    std::uint32_t driver_id = 0;
    std::uint32_t reserved2 = 0;
  } hdr;
  ib_uverbs_attr attrs[kMaxAttrs + 1];  // the last one absorbs overflow, see add()
  unsigned count = 0;
  bool invalid = false;              // something could not be expressed: execute_ioctl answers EINVAL
  bool fallback_require_ex = false;  // for commands with a write() fallback: only the extended write command will do
  bool fallback_ioctl_only = false;  // no write command can express it: EOPNOTSUPP on kernels without the method

 private:
  ib_uverbs_attr* add(std::uint16_t id, std::size_t len, std::uint64_t data) {
    if (count == kMaxAttrs) invalid = true;
    ib_uverbs_attr* a = &attrs[count == kMaxAttrs ? kMaxAttrs : count++];
    *a = ib_uverbs_attr{};
    a->attr_id = id;
    a->len = static_cast<std::uint16_t>(len);
    a->flags = UVERBS_ATTR_F_MANDATORY;
    a->data = data;
    return a;
  }
};
static_assert(sizeof(ibv_command_buffer::Header) == 24 && sizeof(ib_uverbs_attr) == 16);
static_assert(offsetof(ibv_command_buffer, attrs) == offsetof(ibv_command_buffer, hdr) + 24);

// RDMA_VERBS_IOCTL on the context's cmd_fd; 0 or a positive errno.
UHCA_VERBS_API int execute_ioctl(ibv_context* context, ibv_command_buffer* cmd);

// ---- context, device, port
// -------------------------------------------------------------------------------------------------------------------------

// GET_CONTEXT (ioctl, fallback write, which also brings the async fd). Fills num_comp_vectors and the device's core_support. One
// attempt: trying other lengths of the driver's request is the provider's business. fd_arr may be nullptr.
UHCA_VERBS_API int ibv_cmd_get_context(verbs_context_v65* context, const ibv_fd_arr* fd_arr, const verbs_udata* udata);
// QUERY_CONTEXT for import; `driver` carries the driver's attributes, may be nullptr.
UHCA_VERBS_API int ibv_cmd_query_context(ibv_context* context, ibv_command_buffer* driver);
// QUERY_DEVICE: the extended command when attr_size goes beyond ibv_device_attr, else the plain one; EOPNOTSUPP of the extended falls back
// to the plain one. Fills attr up to attr_size; fw_ver inside attr is left for the provider, which gets the raw number in *raw_fw_ver.
// udata goes with the extended command only; *udata_out_len (may be nullptr) tells how much of udata->out the kernel filled at most:
// udata->out_len, or 0 after the plain command.
UHCA_VERBS_API int ibv_cmd_query_device_any(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                                            std::size_t attr_size, std::uint64_t* raw_fw_ver, const verbs_udata* udata,
                                            std::size_t* udata_out_len);
UHCA_VERBS_API int ibv_cmd_query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr_v65* attr);
UHCA_VERBS_API int ibv_cmd_query_port_speed(ibv_context* context, std::uint32_t port_num, std::uint64_t* speed);
// Opens the async event fd into context->async_fd. libibverbs calls it after alloc_context.
UHCA_VERBS_API int ibv_cmd_alloc_async_fd(ibv_context* context);

// ---- PD, MR, MW, AH, XRCD
// --------------------------------------------------------------------------------------------------------------------------

UHCA_VERBS_API int ibv_cmd_alloc_pd(ibv_context* context, ibv_pd* pd, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_dealloc_pd(ibv_pd* pd);
UHCA_VERBS_API int ibv_cmd_reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t hca_va, int access, verbs_mr* vmr,
                                  const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_rereg_mr(verbs_mr* vmr, std::uint32_t flags, void* addr, std::size_t length, std::uint64_t hca_va, int access,
                                    ibv_pd* pd, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_dereg_mr(verbs_mr* vmr);
UHCA_VERBS_API int ibv_cmd_query_mr(ibv_pd* pd, verbs_mr* vmr, std::uint32_t mr_handle);
UHCA_VERBS_API int ibv_cmd_advise_mr(ibv_pd* pd, enum ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* sg_list,
                                     std::uint32_t num_sge);
UHCA_VERBS_API int ibv_cmd_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access,
                                         verbs_mr* vmr, const ibv_command_buffer* driver);
// The ioctl method REG_MR; falls back to the write command when the attributes allow it.
UHCA_VERBS_API int ibv_cmd_reg_mr_ex(ibv_pd* pd, verbs_mr* vmr, const ibv_mr_init_attr* attr);
UHCA_VERBS_API int ibv_cmd_alloc_mw(ibv_pd* pd, enum ibv_mw_type type, ibv_mw* mw, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_dealloc_mw(ibv_mw* mw);
UHCA_VERBS_API int ibv_cmd_create_ah(ibv_pd* pd, ibv_ah* ah, const ibv_ah_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_destroy_ah(ibv_ah* ah);
UHCA_VERBS_API int ibv_cmd_open_xrcd(ibv_context* context, verbs_xrcd* xrcd, const ibv_xrcd_init_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_close_xrcd(verbs_xrcd* xrcd);

// ---- CQ
// --------------------------------------------------------------------------------------------------------------------------------------------

UHCA_VERBS_API int ibv_cmd_create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector, ibv_cq* cq,
                                     const verbs_udata* udata);
enum create_cq_cmd_flags { CREATE_CQ_CMD_FLAGS_TS_IGNORED_EX = 1 << 0 };
// attr->flags and, unless TS_IGNORED_EX, a completion timestamp request need the extended command. `driver`: extra driver attributes (may
// be nullptr); when one of them is mandatory there is no fallback to write.
UHCA_VERBS_API int ibv_cmd_create_cq_ex(ibv_context* context, const ibv_cq_init_attr_ex* attr, verbs_cq* cq, const verbs_udata* udata,
                                        std::uint32_t cmd_flags, const ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_resize_cq(ibv_cq* cq, int cqe, const verbs_udata* udata);  // updates cq->cqe
UHCA_VERBS_API int ibv_cmd_modify_cq(ibv_cq* cq, const ibv_modify_cq_attr* attr);
// Waits until the program has acknowledged every event that the kernel reports for this CQ.
UHCA_VERBS_API int ibv_cmd_destroy_cq(ibv_cq* cq);

// ---- SRQ, WQ
// ---------------------------------------------------------------------------------------------------------------------------------------

UHCA_VERBS_API int ibv_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_create_srq_ex(ibv_context* context, verbs_srq* srq, ibv_srq_init_attr_ex* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_modify_srq(ibv_srq* srq, const ibv_srq_attr* attr, int attr_mask, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_query_srq(ibv_srq* srq, ibv_srq_attr* attr);
UHCA_VERBS_API int ibv_cmd_destroy_srq(ibv_srq* srq);
UHCA_VERBS_API int ibv_cmd_create_wq(ibv_context* context, const ibv_wq_init_attr* attr, ibv_wq* wq, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_modify_wq(ibv_wq* wq, const ibv_wq_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_destroy_wq(ibv_wq* wq);
UHCA_VERBS_API int ibv_cmd_create_rwq_ind_table(ibv_context* context, const ibv_rwq_ind_table_init_attr* attr, ibv_rwq_ind_table* table);
UHCA_VERBS_API int ibv_cmd_destroy_rwq_ind_table(ibv_rwq_ind_table* table);

// ---- QP
// --------------------------------------------------------------------------------------------------------------------------------------------

// Fill qp (handle, qp_num, state RESET, event counters, mutex, cq/srq/pd links) and write the granted capabilities into attr->cap.
UHCA_VERBS_API int ibv_cmd_create_qp(ibv_pd* pd, ibv_qp* qp, ibv_qp_init_attr* attr, const verbs_udata* udata);
// The same with comp_mask, creation flags and driver attributes (may be nullptr). With VERBS_QP_EX wanted, the provider fills the wr_*
// pointers and sets qp->comp_mask |= VERBS_QP_EX itself.
UHCA_VERBS_API int ibv_cmd_create_qp_ex(ibv_context* context, verbs_qp* qp, ibv_qp_init_attr_ex* attr, const verbs_udata* udata,
                                        const ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_open_qp(ibv_context* context, verbs_qp* qp, const ibv_qp_open_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init_attr);
// qp->state is left to the exported ibv_modify_qp, which follows a successful IBV_QP_STATE.
UHCA_VERBS_API int ibv_cmd_modify_qp(ibv_qp* qp, const ibv_qp_attr* attr, int attr_mask);
// The extended command: IBV_QP_RATE_LIMIT and driver data (mlx5: burst_info, ECE, dctn).
UHCA_VERBS_API int ibv_cmd_modify_qp_ex(ibv_qp* qp, const ibv_qp_attr* attr, int attr_mask, const verbs_udata* udata);
// Waits until the program has acknowledged every async event of this QP.
UHCA_VERBS_API int ibv_cmd_destroy_qp(ibv_qp* qp);
UHCA_VERBS_API int ibv_cmd_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);
UHCA_VERBS_API int ibv_cmd_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid);

// ---- DM, flows, counters, DMA handles
// --------------------------------------------------------------------------------------------------------------

UHCA_VERBS_API int ibv_cmd_alloc_dm(ibv_context* context, const ibv_alloc_dm_attr* attr, verbs_dm* dm, ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_free_dm(verbs_dm* dm);
UHCA_VERBS_API int ibv_cmd_reg_dm_mr(ibv_pd* pd, verbs_dm* dm, std::uint64_t offset, std::size_t length, unsigned int access, verbs_mr* vmr,
                                     const ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_create_flow(ibv_qp* qp, ibv_flow* flow, const ibv_flow_attr* attr, const verbs_udata* udata);
UHCA_VERBS_API int ibv_cmd_destroy_flow(ibv_flow* flow);
UHCA_VERBS_API int ibv_cmd_destroy_flow_action(verbs_flow_action* action);
UHCA_VERBS_API int ibv_cmd_create_counters(ibv_context* context, const ibv_counters_init_attr* attr, verbs_counters* counters,
                                           const ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_destroy_counters(verbs_counters* counters);
UHCA_VERBS_API int ibv_cmd_read_counters(verbs_counters* counters, std::uint64_t* values, std::uint32_t ncounters, std::uint32_t flags,
                                         const ibv_command_buffer* driver);
UHCA_VERBS_API int ibv_cmd_alloc_dmah(ibv_context* context, verbs_dmah* dmah, const ibv_dmah_init_attr* attr);
UHCA_VERBS_API int ibv_cmd_free_dmah(verbs_dmah* dmah);
// A dma-buf of an mmap range of the device (DM, UAR): fd, or -1 with errno.
UHCA_VERBS_API int ibv_cmd_export_dmabuf_fd(ibv_context* context, std::uint64_t pg_off);
