// SPDX-License-Identifier: MIT
// The driver's private part of the ioctl tree. Linux: hw/mlx5/devx.c, main.c, std_types.c.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "base/log.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/dm.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mlx5_ib/raw_flow.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/cmd_object.h"
#include "uapi/mlx5_next.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint32_t kPage = 4096;

// ---------------------------------------------------------------- UAR

Status uar_destroy(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* e = static_cast<UarEntry*>(uobj.object);
  UHCA_CHECK(free_uar_entry(to_mucontext(*uobj.context), *e));
  delete e;
  uobj.object = nullptr;
  return success();
}

Status uar_alloc(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  std::uint64_t type;
  UHCA_CHECK(uverbs_get_const(&type, b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE));
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) return refuse(EOPNOTSUPP, "UAR type {}", type);
  ib_uobject* uobj = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  auto e = UHCA_TRY(alloc_uar_entry(c));
  std::uint64_t offset = e->pgoff * kPage;
  std::uint32_t length = kPage, page_id = e->page_id;
  uobj->mmap_pgoff = e->pgoff;
  uobj->object = e.release();
  uverbs_finalize_uobj_create(b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset));
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, page_id));
  return uverbs_copy_to(b, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length);
}

constexpr uverbs_attr_def kUarAllocAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kUarDestroyAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_UAR, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kUarMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_UAR_OBJ_ALLOC, kUarAllocAttrs, uar_alloc),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_UAR_OBJ_DESTROY, kUarDestroyAttrs),
};
constexpr uverbs_obj_type kUarType = UVERBS_TYPE_ALLOC_IDR(uar_destroy);
constexpr uverbs_object_def kUarObject = UVERBS_OBJECT(MLX5_IB_OBJECT_UAR, &kUarType, kUarMethods);

// ---------------------------------------------------------------- additions to core objects

Status pd_query(uverbs_attr_bundle& b) {
  auto* pd = uverbs_attr_get_obj<ib_pd>(b, MLX5_IB_ATTR_QUERY_PD_HANDLE);
  std::uint32_t pdn = to_mpd(*pd).pdn;
  return uverbs_copy_to(b, MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pdn);
}

constexpr uverbs_attr_def kPdQueryAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_QUERY_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_method_def kPdMethods[] = {UVERBS_METHOD(MLX5_IB_METHOD_PD_QUERY, kPdQueryAttrs, pd_query)};
constexpr uverbs_object_def kPdAdditions = UVERBS_OBJECT(UVERBS_OBJECT_PD, nullptr, kPdMethods);

// Eswitch data of a port: without an eswitch, none of its parts is valid (Linux: mlx5_ib QUERY_PORT on a non-manager).
Status query_port_method(uverbs_attr_bundle& b) {
  UHCA_TRY(context_of(b));
  std::uint32_t port;
  UHCA_CHECK(uverbs_copy_from(&port, b, MLX5_IB_ATTR_QUERY_PORT_PORT_NUM));
  if (port != 1) return refuse(EINVAL, "query_port: port {} of 1", port);
  ::mlx5_ib_uapi_query_port info{};
  return uverbs_copy_to_struct_or_zero(b, MLX5_IB_ATTR_QUERY_PORT, &info, sizeof info);
}

constexpr uverbs_attr_def kQueryPortAttrs[] = {
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_PORT, UVERBS_ATTR_STRUCT(::mlx5_ib_uapi_query_port, reg_c0), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryContextAttrs[] = {
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, UVERBS_ATTR_STRUCT(::mlx5_ib_alloc_ucontext_resp, dump_fill_mkey)),
};
constexpr uverbs_method_def kDeviceMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_QUERY_PORT, kQueryPortAttrs, query_port_method),
    UVERBS_METHOD(UVERBS_METHOD_QUERY_CONTEXT, kQueryContextAttrs, nullptr),
};
constexpr uverbs_object_def kDeviceAdditions = UVERBS_OBJECT(UVERBS_OBJECT_DEVICE, nullptr, kDeviceMethods);

constexpr uverbs_attr_def kCqCreateAttrs[] = {UVERBS_ATTR_PTR_IN(uapi::MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, UVERBS_ATTR_TYPE(std::uint32_t))};
constexpr uverbs_method_def kCqMethods[] = {UVERBS_METHOD(UVERBS_METHOD_CQ_CREATE, kCqCreateAttrs, nullptr)};
constexpr uverbs_object_def kCqAdditions = UVERBS_OBJECT(UVERBS_OBJECT_CQ, nullptr, kCqMethods);

constexpr uverbs_attr_def kRegDmabufAttrs[] = {UVERBS_ATTR_FLAGS_IN(uapi::MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS)};
constexpr uverbs_method_def kMrMethods[] = {UVERBS_METHOD(UVERBS_METHOD_REG_DMABUF_MR, kRegDmabufAttrs, nullptr)};
constexpr uverbs_object_def kMrAdditions = UVERBS_OBJECT(UVERBS_OBJECT_MR, nullptr, kMrMethods);

}  // namespace

const uapi_definition mlx5_ib_defs[] = {{&kUarObject},
                                        {&devx_object_def},
                                        {&devx_obj_object_def},
                                        {&flow_matcher_object_def},
                                        {&raw_flow_object_def},
                                        {&devx_umem_object_def},
                                        {&devx_async_cmd_object_def},
                                        {&devx_async_event_object_def},
                                        {&var_object_def},
                                        {&pp_object_def},
                                        {&dm_object_def},
                                        {&kPdAdditions},
                                        {&kMrAdditions},
                                        {&kDeviceAdditions},
                                        {&kCqAdditions},
                                        {}};

}  // namespace uhca::kernel::mlx5
