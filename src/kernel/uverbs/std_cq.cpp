// SPDX-License-Identifier: MIT
// Completion queues. Linux: uverbs_std_types_cq.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

using namespace uapi;

// Any thread, inside the interrupt dispatch: only the event file's short lock.
void comp_handler(ib_cq*, void* context) {
  auto* u = static_cast<UcqObject*>(context);
  if (u->comp) u->comp->post(&u->comp_source, u->user_handle, 0);
}

void cq_event_handler(ib_cq*, std::uint32_t ib_event, void* context) {
  auto* u = static_cast<UcqObject*>(context);
  if (u->async) u->async->post(&u->async_source, u->user_handle, ib_event);
}

Status destroy_cq(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<UcqObject&>(uobj);
  auto* cq = static_cast<ib_cq*>(u.object);
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_cq(*cq));
  // No handler runs any more.
  if (u.comp) u.comp_events_reported = u.comp->remove(&u.comp_source);
  if (u.async) u.async_events_reported = u.async->remove(&u.async_source);
  delete cq;
  return success();
}

Status create(uverbs_attr_bundle& b) {
  auto& u = static_cast<UcqObject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_CQ_HANDLE));
  CreateCqArgs a;
  UHCA_CHECK(uverbs_copy_from(&a.attr.comp_vector, b, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR));
  UHCA_CHECK(uverbs_copy_from(&a.attr.cqe, b, UVERBS_ATTR_CREATE_CQ_CQE));
  UHCA_CHECK(uverbs_copy_from(&a.user_handle, b, UVERBS_ATTR_CREATE_CQ_USER_HANDLE));
  UHCA_CHECK(uverbs_get_flags32(&a.attr.flags, b, UVERBS_ATTR_CREATE_CQ_FLAGS,
                                ::IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | ::IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN));
  for (std::uint16_t id : {UVERBS_ATTR_CREATE_CQ_BUFFER_VA, UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH, UVERBS_ATTR_CREATE_CQ_BUFFER_FD,
                           UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET, UVERBS_ATTR_CREATE_CQ_BUF_UMEM})
    if (uverbs_attr_is_valid(b, id)) return refuse(EOPNOTSUPP, "CREATE_CQ: {} takes no buffer attributes", b.device->name);
  if (auto* c = static_cast<FdUobject*>(uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL))) a.comp = c->file;
  if (auto* e = static_cast<FdUobject*>(uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_CQ_EVENT_FD))) a.async = e->file;
  UHCA_CHECK(uverbs_create_cq(b, u, a));
  auto cqe = static_cast<std::uint32_t>(static_cast<ib_cq*>(u.object)->cqe);
  return uverbs_copy_to(b, UVERBS_ATTR_CREATE_CQ_RESP_CQE, cqe);
}

Status destroyed(uverbs_attr_bundle& b) {
  auto& u = static_cast<UcqObject&>(*b.uobject);
  ::ib_uverbs_destroy_cq_resp resp{u.comp_events_reported, u.async_events_reported};
  return uverbs_copy_to(b, UVERBS_ATTR_DESTROY_CQ_RESP, resp);
}

constexpr uverbs_attr_def kCreate[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_CQE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_FD(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, UVERBS_OBJECT_COMP_CHANNEL, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_CREATE_CQ_FLAGS),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_CQ_RESP_CQE, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_FD(UVERBS_ATTR_CREATE_CQ_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_BUFFER_VA, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_BUFFER_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_RAW_FD(UVERBS_ATTR_CREATE_CQ_BUFFER_FD),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_BUFFER_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_CQ_BUF_UMEM, UVERBS_ATTR_STRUCT(uapi::ib_uverbs_buffer_desc, length)),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_DESTROY_CQ_RESP, UVERBS_ATTR_TYPE(::ib_uverbs_destroy_cq_resp), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_CQ_CREATE, kCreate, create),
    {UVERBS_METHOD_CQ_DESTROY, "UVERBS_METHOD_CQ_DESTROY", kDestroy, 2, destroyed, true, nullptr},
};
UobjectPtr alloc() {
  return std::make_shared<UcqObject>();
}
constexpr uverbs_obj_type kType = {false, destroy_cq, alloc, ""};

}  // namespace

constinit const uverbs_object_def uverbs_def_cq = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_CQ, &kType, kMethods, create_cq);

Status uverbs_create_cq(uverbs_attr_bundle& b, UcqObject& u, const CreateCqArgs& a) {
  if (!a.attr.cqe) return refuse(EINVAL, "create_cq: 0 entries");
  if (a.attr.comp_vector >= b.device->num_comp_vectors)
    return refuse(EINVAL, "create_cq: comp_vector {}, the device has {}", a.attr.comp_vector, b.device->num_comp_vectors);
  u.user_handle = a.user_handle;
  u.comp = a.comp;
  u.async = uverbs_async_file(ufile_of(b), a.async);
  auto cq = UHCA_TRY(ib_create_cq(*b.device, u.context, a.attr, &b.driver_udata));
  cq->cq_context = &u;
  cq->event_handler = cq_event_handler;
  cq->comp_handler = a.comp ? comp_handler : nullptr;
  u.object = cq.release();
  u.hw_obj_valid = true;
  return success();
}

}  // namespace uhca::kernel
