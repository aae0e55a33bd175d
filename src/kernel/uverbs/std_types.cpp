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

Status destroy_srq(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<UeventObject&>(uobj);
  auto* srq = static_cast<ib_srq*>(u.object);
  ib_pd* pd = srq->pd;
  if (why != RDMA_REMOVE_DRIVER_FAILURE) {
    if (int n = srq->usecnt.load()) return refuse(EBUSY, "destroy_srq: {} QP(s) still use the SRQ", n);
    UHCA_CHECK(u.device->ops.destroy_srq(*srq));
    pd->usecnt.fetch_sub(1);
    u.device->restrack[RDMA_RESTRACK_SRQ].fetch_sub(1);
  }
  if (u.async) u.async_events_reported = u.async->remove(&u.async_source);
  delete srq;
  return success();
}

Status srq_destroyed(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_srq_resp resp{static_cast<UeventObject&>(*b.uobject).async_events_reported};
  return uverbs_copy_to(b, UVERBS_ATTR_DESTROY_SRQ_RESP, resp);
}

UobjectPtr alloc_uevent() {
  return std::make_shared<UeventObject>();
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

constexpr uverbs_attr_def kSrqDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_OBJECT_SRQ, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_DESTROY_SRQ_RESP, UVERBS_ATTR_TYPE(::ib_uverbs_destroy_srq_resp), UA_MANDATORY),
};
constexpr uverbs_method_def kSrqMethods[] = {
    {UVERBS_METHOD_SRQ_DESTROY, "UVERBS_METHOD_SRQ_DESTROY", kSrqDestroy, 2, srq_destroyed, true, nullptr}};
constexpr uverbs_obj_type kSrq = {false, destroy_srq, alloc_uevent, ""};

}  // namespace

constinit const uverbs_object_def uverbs_def_pd = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_PD, &kPd, kPdMethods, alloc_pd);
constinit const uverbs_object_def uverbs_def_ah = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_AH, &kAh, kAhMethods, destroy_ah);
constinit const uverbs_object_def uverbs_def_mw = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_MW, &kMw, kMwMethods, dealloc_mw);
constinit const uverbs_object_def uverbs_def_srq = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_SRQ, &kSrq, kSrqMethods, destroy_srq);

}  // namespace uhca::kernel
