// SPDX-License-Identifier: MIT
// Packet pacing entries that programs allocate. Linux: hw/mlx5/qos.c.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cstring>

#include "base/log.h"
#include "kernel/mlx5_core/rl.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/uapi_def.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint16_t kSharedUid = 0xffff;  // MLX5_SHARED_RESOURCE_UID

struct PacingEntry {
  mlx5_core_dev* mdev = nullptr;
  std::uint16_t index = 0;
};

bool pp_is_supported(const ib_device& d) {
  const auto& m = *static_cast<const mlx5_ib_dev&>(d).mdev;
  return m.cap_gen<prm::cmd_hca_cap::qos>() && m.cap_qos<prm::qos_cap::packet_pacing>() && m.cap_qos<prm::qos_cap::packet_pacing_uid>();
}

Status pp_destroy(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* e = static_cast<PacingEntry*>(uobj.object);
  e->mdev->rates().remove(e->index);
  delete e;
  return success();
}

Status pp_alloc(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  if (c.devx_uid == 0) return refuse(EINVAL, "packet pacing: the context was opened without DEVX");
  std::size_t n = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX));
  RateTable::Context rate{};
  std::memcpy(rate.data(), uverbs_attr_get_alloced_ptr(b, MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX), n);
  std::uint32_t flags = 0;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX));
  bool dedicated = flags & MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX;
  auto& m = *to_mdev(*c.device).mdev;
  auto e = std::make_unique<PacingEntry>();
  e->mdev = &m;
  e->index = UHCA_TRY(m.rates().add(rate, dedicated ? c.devx_uid : kSharedUid, dedicated));
  std::uint16_t index = e->index;
  uverbs_attr_get_uobject(b, MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE)->object = e.release();
  uverbs_finalize_uobj_create(b, MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE);
  return uverbs_copy_to(b, MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, index);
}

constexpr uverbs_attr_def kAllocAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_PP, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, UVERBS_ATTR_SIZE(1, sizeof(RateTable::Context)), UA_MANDATORY | UA_ALLOC_AND_COPY),
    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, UVERBS_ATTR_TYPE(std::uint16_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kDestroyAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_PP, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_PP_OBJ_ALLOC, kAllocAttrs, pp_alloc),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_PP_OBJ_DESTROY, kDestroyAttrs),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(pp_destroy);

}  // namespace

const uverbs_object_def pp_object_def = {MLX5_IB_OBJECT_PP, "MLX5_IB_OBJECT_PP", &kType, kMethods, std::size(kMethods), pp_is_supported};

}  // namespace uhca::kernel::mlx5
