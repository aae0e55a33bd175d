// SPDX-License-Identifier: MIT
// VARs: pages of the device where the doorbells of emulated virtio devices lie. Linux: hw/mlx5/main.c.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "base/log.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/qos.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint64_t kPage = 4096;

bool var_is_supported(const ib_device& d) {
  return static_cast<const mlx5_ib_dev&>(d).mdev->has_vars();
}

Status var_destroy(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* e = static_cast<MmapEntry*>(uobj.object);
  auto& c = to_mucontext(*uobj.context);
  remove_mmap_entry(c, *e);
  to_mdev(*c.device).vars.give_back(e->page_id);
  delete e;
  return success();
}

Status var_alloc(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  auto& dev = to_mdev(*c.device);
  auto& m = *dev.mdev;
  const std::uint64_t stride = std::uint64_t{1} << m.cap_vdpa<prm::qos::var_log_stride>();
  const std::uint64_t all = kPage << m.cap_vdpa<prm::qos::var_log_size>();
  auto e = std::make_unique<MmapEntry>();
  auto number = dev.vars.take(static_cast<std::uint32_t>(all / stride));
  if (!number) return refuse(ENOSPC, "VAR: all {} are in use", all / stride);
  e->page_id = *number;
  e->bar_offset = m.cap_vdpa<prm::qos::var_bar_offset>() + *number * stride;
  e->length = stride;
  if (Status s = add_mmap_entry(c, *e); !s.ok()) {
    dev.vars.give_back(*number);
    return s;
  }
  std::uint64_t offset = e->pgoff * kPage;
  std::uint32_t length = static_cast<std::uint32_t>(stride), page_id = e->page_id;
  ib_uobject* uobj = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE);
  uobj->mmap_pgoff = e->pgoff;
  uobj->object = e.release();
  uverbs_finalize_uobj_create(b, MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE);
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET, offset));
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID, page_id));
  return uverbs_copy_to(b, MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH, length);
}

constexpr uverbs_attr_def kAllocAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE, MLX5_IB_OBJECT_VAR, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kDestroyAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_VAR, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_VAR_OBJ_ALLOC, kAllocAttrs, var_alloc),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_VAR_OBJ_DESTROY, kDestroyAttrs),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(var_destroy);

}  // namespace

std::optional<std::uint32_t> PageNumbers::take(std::uint32_t count) {
  std::lock_guard g(lock_);
  for (std::uint32_t i = 0; i < count; ++i)
    if (used_.insert(i).second) return i;
  return std::nullopt;
}

void PageNumbers::give_back(std::uint32_t n) {
  std::lock_guard g(lock_);
  used_.erase(n);
}

const uverbs_object_def var_object_def = {MLX5_IB_OBJECT_VAR, "MLX5_IB_OBJECT_VAR", &kType,
                                          kMethods,           std::size(kMethods),  var_is_supported};

}  // namespace uhca::kernel::mlx5
