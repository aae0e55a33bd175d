// SPDX-License-Identifier: MIT
// Shared receive queues. Linux: uverbs_std_types_srq.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

void srq_event_handler(ib_srq*, std::uint32_t ib_event, void* context) {
  auto* u = static_cast<UsrqObject*>(context);
  if (u->async) u->async->post(&u->async_source, u->user_handle, ib_event);
}

Status destroy_srq(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<UsrqObject&>(uobj);
  auto* srq = static_cast<ib_srq*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_srq(*srq));
  u.xrcd.drop();
  if (u.async) u.async_events_reported = u.async->remove(&u.async_source);
  delete srq;
  return success();
}

Status create(uverbs_attr_bundle& b) {
  auto& u = static_cast<UsrqObject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_SRQ_HANDLE));
  CreateSrqArgs a;
  a.pd = uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_CREATE_SRQ_PD_HANDLE);
  ib_srq_attr& attr = a.attr.attr;
  UHCA_CHECK(uverbs_copy_from(&attr.max_sge, b, UVERBS_ATTR_CREATE_SRQ_MAX_SGE));
  UHCA_CHECK(uverbs_copy_from(&attr.max_wr, b, UVERBS_ATTR_CREATE_SRQ_MAX_WR));
  UHCA_CHECK(uverbs_copy_from(&attr.srq_limit, b, UVERBS_ATTR_CREATE_SRQ_LIMIT));
  UHCA_CHECK(uverbs_copy_from(&a.user_handle, b, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE));
  std::uint32_t type = 0;
  UHCA_CHECK(uverbs_get_const(&type, b, UVERBS_ATTR_CREATE_SRQ_TYPE));
  if (type == ::IB_UVERBS_SRQT_XRC || type == ::IB_UVERBS_SRQT_TM) {
    const uverbs_attr* cq = uverbs_attr_get(b, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
    if (!cq) return refuse(ENOENT, "create_srq: type {} needs a CQ", type);
    a.attr.cq = static_cast<ib_cq*>(cq->uobject->object);
  }
  switch (type) {
    case ::IB_UVERBS_SRQT_BASIC: break;
    case ::IB_UVERBS_SRQT_XRC: {
      const uverbs_attr* xrcd = uverbs_attr_get(b, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE);
      if (!xrcd) return refuse(ENOENT, "create_srq: an XRC SRQ needs an XRC domain");
      a.attr.xrcd = static_cast<ib_xrcd*>(xrcd->uobject->object);
      if (!a.attr.xrcd) return refuse(EINVAL, "create_srq: the XRC domain is gone");
      a.xrcd = xrcd->uobject;
      break;
    }
    case ::IB_UVERBS_SRQT_TM: UHCA_CHECK(uverbs_copy_from(&a.attr.max_num_tags, b, UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS)); break;
    default: return refuse(EINVAL, "create_srq: SRQ type {}", type);
  }
  a.attr.srq_type = static_cast<ib_srq_type>(type);
  if (auto* e = static_cast<FdUobject*>(uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_SRQ_EVENT_FD))) a.async = e->file;
  UHCA_CHECK(uverbs_create_srq(b, u, a));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, attr.max_wr));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, attr.max_sge));
  if (a.attr.srq_type != ib_srq_type::XRC) return success();
  return uverbs_copy_to(b, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, static_cast<ib_srq*>(u.object)->srq_num);
}

Status destroyed(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_srq_resp resp{static_cast<UsrqObject&>(*b.uobject).async_events_reported};
  return uverbs_copy_to(b, UVERBS_ATTR_DESTROY_SRQ_RESP, resp);
}

constexpr uverbs_attr_def kCreate[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_SRQ_HANDLE, UVERBS_OBJECT_SRQ, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_CREATE_SRQ_TYPE, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_SRQ_MAX_WR, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_SRQ_LIMIT, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, UVERBS_OBJECT_XRCD, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_FD(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_SRQ_HANDLE, UVERBS_OBJECT_SRQ, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_DESTROY_SRQ_RESP, UVERBS_ATTR_TYPE(::ib_uverbs_destroy_srq_resp), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_SRQ_CREATE, kCreate, create),
    {UVERBS_METHOD_SRQ_DESTROY, "UVERBS_METHOD_SRQ_DESTROY", kDestroy, 2, destroyed, true, nullptr},
};
UobjectPtr alloc() {
  return std::make_shared<UsrqObject>();
}
constexpr uverbs_obj_type kType = {false, destroy_srq, alloc, ""};

}  // namespace

constinit const uverbs_object_def uverbs_def_srq = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_SRQ, &kType, kMethods, destroy_srq);

Status uverbs_create_srq(uverbs_attr_bundle& b, UsrqObject& u, CreateSrqArgs& a) {
  u.user_handle = a.user_handle;
  u.async = uverbs_async_file(ufile_of(b), a.async);
  auto srq = UHCA_TRY(ib_create_srq(*a.pd, a.attr, &b.driver_udata));
  if (a.xrcd) u.xrcd.take(a.xrcd);
  srq->srq_context = &u;
  srq->event_handler = srq_event_handler;
  u.object = srq.release();
  u.hw_obj_valid = true;
  return success();
}

}  // namespace uhca::kernel
