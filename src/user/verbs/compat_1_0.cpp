// SPDX-License-Identifier: MIT
// The 33 functions that libibverbs 1.0 (2006) had with other structure layouts. Programs of that age do not exist any more; the symbols do,
// and refuse in the form in which each function reports errors. Also the old driver interface, which has been a no-op since rdma-core 13.
#include "user/verbs/internal.h"

// How each function reports EOPNOTSUPP.
#define UHCA_ANSWER_VOID(impl) \
  UHCA_COMPAT_LINKAGE void impl() {}
#define UHCA_ANSWER_POINTER(impl)                    \
  UHCA_COMPAT_LINKAGE void* impl() {                 \
    return uhca::verbs::fail_null<void>(EOPNOTSUPP); \
  }
#define UHCA_ANSWER_INT(impl)             \
  UHCA_COMPAT_LINKAGE int impl() {        \
    return uhca::verbs::fail(EOPNOTSUPP); \
  }
#define UHCA_ANSWER_MINUS_ONE(impl) \
  UHCA_COMPAT_LINKAGE int impl() {  \
    return errno = EOPNOTSUPP, -1;  \
  }
#define UHCA_ANSWER_ZERO(impl)               \
  UHCA_COMPAT_LINKAGE std::uint64_t impl() { \
    return errno = EOPNOTSUPP, 0;            \
  }
#define UHCA_COMPAT_LINKAGE extern "C" __attribute__((used, visibility("default")))

#define UHCA_COMPAT(name, answer) UHCA_ANSWER_##answer(name##_v1_0) UHCA_SYMVER(name##_v1_0, name, "IBVERBS_1.0");

// clang-format off
UHCA_COMPAT(ibv_ack_async_event, VOID)
UHCA_COMPAT(ibv_ack_cq_events, VOID)
UHCA_COMPAT(ibv_alloc_pd, POINTER)
UHCA_COMPAT(ibv_attach_mcast, INT)
UHCA_COMPAT(ibv_close_device, INT)
UHCA_COMPAT(ibv_create_ah, POINTER)
UHCA_COMPAT(ibv_create_cq, POINTER)
UHCA_COMPAT(ibv_create_qp, POINTER)
UHCA_COMPAT(ibv_create_srq, POINTER)
UHCA_COMPAT(ibv_dealloc_pd, INT)
UHCA_COMPAT(ibv_dereg_mr, INT)
UHCA_COMPAT(ibv_destroy_ah, INT)
UHCA_COMPAT(ibv_destroy_cq, INT)
UHCA_COMPAT(ibv_destroy_qp, INT)
UHCA_COMPAT(ibv_destroy_srq, INT)
UHCA_COMPAT(ibv_detach_mcast, INT)
UHCA_COMPAT(ibv_free_device_list, VOID)
UHCA_COMPAT(ibv_get_async_event, MINUS_ONE)
UHCA_COMPAT(ibv_get_cq_event, MINUS_ONE)
UHCA_COMPAT(ibv_get_device_guid, ZERO)
UHCA_COMPAT(ibv_get_device_list, POINTER)
UHCA_COMPAT(ibv_get_device_name, POINTER)
UHCA_COMPAT(ibv_modify_qp, INT)
UHCA_COMPAT(ibv_modify_srq, INT)
UHCA_COMPAT(ibv_open_device, POINTER)
UHCA_COMPAT(ibv_query_device, INT)
UHCA_COMPAT(ibv_query_gid, MINUS_ONE)
UHCA_COMPAT(ibv_query_pkey, MINUS_ONE)
UHCA_COMPAT(ibv_query_port, INT)
UHCA_COMPAT(ibv_query_qp, INT)
UHCA_COMPAT(ibv_query_srq, INT)
UHCA_COMPAT(ibv_reg_mr, POINTER)
UHCA_COMPAT(ibv_resize_cq, INT)
// clang-format on

UHCA_EXPORT void ibv_register_driver(const char*, void* (*)(const char*, int)) {}

// The private node of v44 and Debian 13's v56: the same function under a second version.
UHCA_EXPORT int uhca_query_gid_type_v34(ibv_context* context, std::uint8_t port_num, unsigned int index, ibv_gid_type_sysfs* type) {
  return ibv_query_gid_type(context, port_num, index, type);
}
UHCA_SYMVER(uhca_query_gid_type_v34, ibv_query_gid_type, "IBVERBS_PRIVATE_34");
