// SPDX-License-Identifier: MIT
// Receive work queues and their indirection tables. Linux: uverbs_std_types_wq.c, uverbs_std_types.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

void wq_event_handler(ib_wq*, std::uint32_t ib_event, void* context) {
  auto* u = static_cast<UwqObject*>(context);
  if (u->async) u->async->post(&u->async_source, u->user_handle, ib_event);
}

Status destroy_wq(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<UwqObject&>(uobj);
  auto* wq = static_cast<ib_wq*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_wq(*wq));
  if (u.async) u.async_events_reported = u.async->remove(&u.async_source);
  delete wq;
  return success();
}

Status destroy_table(ib_uobject& u, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto* table = static_cast<ib_rwq_ind_table*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_rwq_ind_table(*table));
  delete table;
  return success();
}

constexpr std::uint32_t kCreateFlags =
    IB_WQ_FLAGS_CVLAN_STRIPPING | IB_WQ_FLAGS_SCATTER_FCS | IB_WQ_FLAGS_DELAY_DROP | IB_WQ_FLAGS_PCI_WRITE_END_PADDING;

Status create(uverbs_attr_bundle& b) {
  auto& u = static_cast<UwqObject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_WQ_HANDLE));
  CreateWqArgs a;
  a.pd = uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_CREATE_WQ_PD_HANDLE);
  a.attr.cq = uverbs_attr_get_obj<ib_cq>(b, UVERBS_ATTR_CREATE_WQ_CQ_HANDLE);
  UHCA_CHECK(uverbs_get_flags32(&a.attr.create_flags, b, UVERBS_ATTR_CREATE_WQ_FLAGS, kCreateFlags));
  UHCA_CHECK(uverbs_copy_from(&a.attr.max_sge, b, UVERBS_ATTR_CREATE_WQ_MAX_SGE));
  UHCA_CHECK(uverbs_copy_from(&a.attr.max_wr, b, UVERBS_ATTR_CREATE_WQ_MAX_WR));
  UHCA_CHECK(uverbs_copy_from(&a.user_handle, b, UVERBS_ATTR_CREATE_WQ_USER_HANDLE));
  UHCA_CHECK(uverbs_get_const(&a.attr.wq_type, b, UVERBS_ATTR_CREATE_WQ_TYPE));
  if (a.attr.wq_type != IB_WQT_RQ) return refuse(EINVAL, "create_wq: WQ type {}", a.attr.wq_type);
  // Linux lets the attribute be absent, and its driver then reads through a bad pointer.
  if (!a.attr.cq) return refuse(EINVAL, "create_wq: no CQ");
  if (auto* e = static_cast<FdUobject*>(uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_WQ_EVENT_FD))) a.async = e->file;
  UHCA_CHECK(uverbs_create_wq(b, u, a));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, a.attr.max_wr));
  UHCA_CHECK(uverbs_copy_to(b, UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, a.attr.max_sge));
  return uverbs_ignore_enoent(uverbs_copy_to(b, UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, static_cast<ib_wq*>(u.object)->wq_num));
}

Status destroyed(uverbs_attr_bundle& b) {
  std::uint32_t events = static_cast<UwqObject&>(*b.uobject).async_events_reported;
  return uverbs_copy_to(b, UVERBS_ATTR_DESTROY_WQ_RESP, events);
}

constexpr uverbs_attr_def kCreate[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_WQ_HANDLE, UVERBS_OBJECT_WQ, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_CREATE_WQ_TYPE, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_WQ_MAX_WR, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_WQ_MAX_SGE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_CREATE_WQ_FLAGS, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_WQ_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_FD(UVERBS_ATTR_CREATE_WQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_WQ_HANDLE, UVERBS_OBJECT_WQ, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_DESTROY_WQ_RESP, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_WQ_CREATE, kCreate, create),
    {UVERBS_METHOD_WQ_DESTROY, "UVERBS_METHOD_WQ_DESTROY", kDestroy, 2, destroyed, true, nullptr},
};
UobjectPtr alloc() {
  return std::make_shared<UwqObject>();
}
constexpr uverbs_obj_type kType = {false, destroy_wq, alloc, ""};

constexpr uverbs_attr_def kTableDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE, UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kTableMethods[] = {UVERBS_METHOD_DESTROY(UVERBS_METHOD_RWQ_IND_TBL_DESTROY, kTableDestroy)};
constexpr uverbs_obj_type kTableType = UVERBS_TYPE_ALLOC_IDR(destroy_table);

}  // namespace

constinit const uverbs_object_def uverbs_def_wq = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_WQ, &kType, kMethods, destroy_wq);
constinit const uverbs_object_def uverbs_def_rwq_ind_tbl =
    UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_RWQ_IND_TBL, &kTableType, kTableMethods, destroy_rwq_ind_table);

Status uverbs_create_wq(uverbs_attr_bundle& b, UwqObject& u, CreateWqArgs& a) {
  u.user_handle = a.user_handle;
  u.async = uverbs_async_file(ufile_of(b), a.async);
  auto wq = UHCA_TRY(ib_create_wq(*a.pd, a.attr, &b.driver_udata));
  wq->wq_context = &u;
  wq->event_handler = wq_event_handler;
  u.object = wq.release();
  u.hw_obj_valid = true;
  return success();
}

}  // namespace uhca::kernel
