// SPDX-License-Identifier: MIT
// Flow rules and the counters that they count in. Linux: uverbs_std_types.c, uverbs_std_types_counters.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

Status destroy_flow(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* flow = static_cast<ib_flow*>(uobj.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_flow(*flow));
  static_cast<UflowObject&>(uobj).drop();
  delete flow;
  return success();
}

Status destroy_counters(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* counters = static_cast<ib_counters*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    if (int n = counters->usecnt.load()) return refuse(EBUSY, "destroy_counters: {} flow(s) count in them", n);
    UHCA_CHECK(counters->device->ops.destroy_counters(*counters));
  }
  delete counters;
  return success();
}

Status create_counters(uverbs_attr_bundle& b) {
  ib_uobject& u = *uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_COUNTERS_HANDLE);
  if (!b.device->ops.create_counters) return refuse(EOPNOTSUPP, "create_counters: {} does not support it", b.device->name);
  auto counters = UHCA_TRY(b.device->ops.create_counters(*b.device));
  counters->device = b.device;
  u.object = counters.release();
  u.hw_obj_valid = true;
  return success();
}

constexpr std::uint32_t kPreferCached = 1 << 0;     // IB_UVERBS_READ_COUNTERS_PREFER_CACHED
constexpr std::size_t kMaxValues = 0xffff / 8 + 1;  // an attribute's length has 16 bits

Status read_counters(uverbs_attr_bundle& b) {
  auto& counters = *uverbs_attr_get_obj<ib_counters>(b, UVERBS_ATTR_READ_COUNTERS_HANDLE);
  if (!b.device->ops.read_counters) return refuse(EOPNOTSUPP, "read_counters: {} does not support it", b.device->name);
  if (!counters.usecnt.load()) return refuse(EINVAL, "read_counters: no flow counts in them");
  std::uint32_t flags = 0;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, UVERBS_ATTR_READ_COUNTERS_FLAGS, kPreferCached));
  std::size_t n = UHCA_TRY(uverbs_attr_get_len(b, UVERBS_ATTR_READ_COUNTERS_BUFF)) / sizeof(std::uint64_t);
  std::vector<std::uint64_t> values(std::min(n, kMaxValues));
  UHCA_CHECK(b.device->ops.read_counters(counters, values.data(), static_cast<std::uint32_t>(values.size()), flags));
  return uverbs_copy_to(b, UVERBS_ATTR_READ_COUNTERS_BUFF, values.data(), values.size() * sizeof(std::uint64_t));
}

constexpr uverbs_attr_def kFlowDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_FLOW_HANDLE, UVERBS_OBJECT_FLOW, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kFlowMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_FLOW_DESTROY, kFlowDestroy)};
UobjectPtr alloc_flow() {
  return std::make_shared<UflowObject>();
}
constexpr uverbs_obj_type kFlowType = {false, destroy_flow, alloc_flow, ""};

constexpr uverbs_attr_def kCountersCreate[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UVERBS_ACCESS_NEW, UA_MANDATORY),
};
constexpr uverbs_attr_def kCountersDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_attr_def kCountersRead[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_READ_COUNTERS_HANDLE, UVERBS_OBJECT_COUNTERS, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_READ_COUNTERS_BUFF, UVERBS_ATTR_MIN_SIZE(0), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_READ_COUNTERS_FLAGS),
};
constexpr uverbs_method_def kCountersMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_COUNTERS_CREATE, kCountersCreate, create_counters),
    UVERBS_METHOD_DESTROY(UVERBS_METHOD_COUNTERS_DESTROY, kCountersDestroy),
    UVERBS_METHOD(UVERBS_METHOD_COUNTERS_READ, kCountersRead, read_counters),
};
constexpr uverbs_obj_type kCountersType = UVERBS_TYPE_ALLOC_IDR(destroy_counters);

}  // namespace

constinit const uverbs_object_def uverbs_def_flow = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_FLOW, &kFlowType, kFlowMethods, destroy_flow);
constinit const uverbs_object_def uverbs_def_counters =
    UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_COUNTERS, &kCountersType, kCountersMethods, destroy_counters);

}  // namespace uhca::kernel
