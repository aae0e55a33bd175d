// SPDX-License-Identifier: MIT
// Objects with destroy methods only: they are made by write commands. Linux: uverbs_std_types.c.
#include "kernel/uverbs/std_types.h"

#include "base/log.h"

namespace uhca::kernel {
namespace {

Status destroy_pd(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* pd = static_cast<ib_pd*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_dealloc_pd(*pd));
  delete pd;
  return success();
}

Status destroy_ah(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* ah = static_cast<ib_ah*>(u.object);
  ib_pd* pd = ah->pd;
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    UHCA_CHECK(u.device->ops.destroy_ah(*ah));
    pd->usecnt.fetch_sub(1);
    u.device->restrack[RDMA_RESTRACK_AH].fetch_sub(1);
  }
  delete ah;
  return success();
}

Status destroy_mw(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* mw = static_cast<ib_mw*>(u.object);
  ib_pd* pd = mw->pd;
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    UHCA_CHECK(u.device->ops.dealloc_mw(*mw));
    pd->usecnt.fetch_sub(1);
    u.device->restrack[RDMA_RESTRACK_MW].fetch_sub(1);
  }
  delete mw;
  return success();
}

Status destroy_xrcd(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& xu = static_cast<UxrcdObject&>(u);
  if (why != RDMA_REMOVE_DRIVER_FAILURE)
    if (int n = xu.refcnt.load()) return refuse(EBUSY, "close_xrcd: {} SRQ(s) and QP(s) were made with this handle", n);
  return uverbs_dealloc_xrcd(*static_cast<ib_xrcd*>(u.object), why);
}

UobjectPtr alloc_xrcd() {
  return std::make_shared<UxrcdObject>();
}

constexpr uverbs_attr_def kPdDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_DESTROY, UA_MANDATORY)};
constexpr uverbs_method_def kPdMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_PD_DESTROY, kPdDestroy)};
constexpr uverbs_obj_type kPd = UVERBS_TYPE_ALLOC_IDR(destroy_pd);

constexpr uverbs_attr_def kAhDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_AH_HANDLE, UVERBS_OBJECT_AH, UVERBS_ACCESS_DESTROY, UA_MANDATORY)};
constexpr uverbs_method_def kAhMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_AH_DESTROY, kAhDestroy)};
constexpr uverbs_obj_type kAh = UVERBS_TYPE_ALLOC_IDR(destroy_ah);

constexpr uverbs_attr_def kMwDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_MW_HANDLE, UVERBS_OBJECT_MW, UVERBS_ACCESS_DESTROY, UA_MANDATORY)};
constexpr uverbs_method_def kMwMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_MW_DESTROY, kMwDestroy)};
constexpr uverbs_obj_type kMw = UVERBS_TYPE_ALLOC_IDR(destroy_mw);

constexpr uverbs_attr_def kXrcdDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_XRCD_HANDLE, UVERBS_OBJECT_XRCD, UVERBS_ACCESS_DESTROY, UA_MANDATORY)};
constexpr uverbs_method_def kXrcdMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_XRCD_DESTROY, kXrcdDestroy)};
constexpr uverbs_obj_type kXrcd = {false, destroy_xrcd, alloc_xrcd, ""};

}  // namespace

constinit const uverbs_object_def uverbs_def_pd = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_PD, &kPd, kPdMethods, alloc_pd);
constinit const uverbs_object_def uverbs_def_ah = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_AH, &kAh, kAhMethods, destroy_ah);
constinit const uverbs_object_def uverbs_def_mw = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_MW, &kMw, kMwMethods, dealloc_mw);
constinit const uverbs_object_def uverbs_def_xrcd = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_XRCD, &kXrcd, kXrcdMethods, dealloc_xrcd);

}  // namespace uhca::kernel
