// SPDX-License-Identifier: MIT
// Device memory. Linux: uverbs_std_types_dm.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

Status destroy_dm(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* dm = static_cast<ib_dm*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    if (int n = dm->usecnt.load()) return refuse(EBUSY, "free_dm: {} MR(s) lie in it", n);
    UHCA_CHECK(u.device->ops.dealloc_dm(*dm, *u.context));
  }
  delete dm;
  return success();
}

Status alloc(uverbs_attr_bundle& b) {
  ib_uobject& u = *uverbs_attr_get_uobject(b, UVERBS_ATTR_ALLOC_DM_HANDLE);
  if (!b.device->ops.alloc_dm) return refuse(EOPNOTSUPP, "alloc_dm: {} has no device memory", b.device->name);
  ib_dm_alloc_attr attr;
  UHCA_CHECK(uverbs_copy_from(&attr.length, b, UVERBS_ATTR_ALLOC_DM_LENGTH));
  UHCA_CHECK(uverbs_copy_from(&attr.alignment, b, UVERBS_ATTR_ALLOC_DM_ALIGNMENT));
  auto dm = UHCA_TRY(b.device->ops.alloc_dm(*u.context, attr, &b));
  dm->device = b.device;
  dm->length = attr.length;
  u.object = dm.release();
  u.hw_obj_valid = true;
  return success();
}

constexpr uverbs_attr_def kAlloc[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_ALLOC_DM_HANDLE, UVERBS_OBJECT_DM, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_ALLOC_DM_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kFree[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_FREE_DM_HANDLE, UVERBS_OBJECT_DM, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_DM_ALLOC, kAlloc, alloc),
    UVERBS_METHOD_DESTROY(UVERBS_METHOD_DM_FREE, kFree),
};
constexpr uverbs_obj_type kType = UVERBS_TYPE_ALLOC_IDR(destroy_dm);

}  // namespace

constinit const uverbs_object_def uverbs_def_dm = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_DM, &kType, kMethods, dealloc_dm);

}  // namespace uhca::kernel
