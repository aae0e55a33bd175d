// SPDX-License-Identifier: MIT
// Queue pairs. Linux: uverbs_std_types_qp.c.
#include "base/log.h"
#include "kernel/uverbs/capable.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

using namespace uapi;

Status destroy_qp(ib_uobject& uobj, rdma_remove_reason why, uverbs_attr_bundle*) {
  auto& u = static_cast<UqpObject&>(uobj);
  auto* qp = static_cast<ib_qp*>(u.object);
  // Attachments are no objects: nobody else would undo them when the file goes.
  if (why == RDMA_REMOVE_DESTROY) {
    if (!u.mcast.empty()) return refuse(EBUSY, "destroy_qp: QP {:#x} is attached to {} multicast group(s)", qp->qp_num, u.mcast.size());
  } else {
    // What could not be detached stays for the next try: as long as it is attached, the device will not destroy the QP.
    std::erase_if(u.mcast, [qp](const McastEntry& e) {
      Status s = ib_detach_mcast(*qp, e.gid, e.lid);
      if (!s.ok()) log::error("QP {:#x} could not be detached ({})", qp->qp_num, s.code());
      return s.ok();
    });
  }
  if (why != RDMA_REMOVE_DRIVER_FAILURE) UHCA_CHECK(ib_destroy_qp(*qp));
  u.xrcd.drop();
  if (u.async) u.async_events_reported = u.async->remove(&u.async_source);
  delete qp;
  return success();
}

constexpr std::uint32_t kCreateFlags = ::IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | ::IB_UVERBS_QP_CREATE_SCATTER_FCS |
                                       ::IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | ::IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
                                       ::IB_UVERBS_QP_CREATE_SQ_SIG_ALL;

// Which objects a QP of this type needs and must not have. EINVAL.
Status check_objects(uverbs_attr_bundle& b, unsigned type, CreateQpArgs& a) {
  if (type == ::IB_UVERBS_QPT_XRC_TGT) {
    if (a.pd || a.attr.send_cq || a.attr.recv_cq || a.attr.srq) return refuse(EINVAL, "create_qp: an XRC target has no PD, CQ or SRQ");
    const uverbs_attr* xrcd = uverbs_attr_get(b, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE);
    if (!xrcd || !xrcd->uobject->object) return refuse(EINVAL, "create_qp: an XRC target needs an XRC domain");
    a.xrcd = xrcd->uobject;
    a.attr.xrcd = static_cast<ib_xrcd*>(xrcd->uobject->object);
    return success();
  }
  if (!a.pd) return refuse(EINVAL, "create_qp: no PD");
  if (a.attr.srq && a.attr.srq->srq_type == ib_srq_type::XRC) return refuse(EINVAL, "create_qp: an XRC SRQ belongs to no QP");
  if (type == ::IB_UVERBS_QPT_XRC_INI) {
    if (a.attr.recv_cq || !a.attr.send_cq || a.attr.srq) return refuse(EINVAL, "create_qp: an XRC initiator has a send CQ only");
    a.attr.cap.max_recv_wr = a.attr.cap.max_recv_sge = 0;
    return success();
  }
  if (const uverbs_attr* table = uverbs_attr_get(b, UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)) {
    if (a.attr.cap.max_recv_wr || a.attr.cap.max_recv_sge || a.attr.recv_cq || a.attr.srq)
      return refuse(EINVAL, "create_qp: a QP with an indirection table has no receive queue of its own");
    a.attr.rwq_ind_tbl = static_cast<ib_rwq_ind_table*>(table->uobject->object);
    // A send CQ is optional, and looked at only when there is something to send.
    if (!a.attr.cap.max_send_wr) {
      a.attr.send_cq = nullptr;
    } else if (!a.attr.send_cq) {
      return refuse(ENOENT, "create_qp: no send CQ");
    }
    return success();
  }
  // DRIVER types (DC) decide for themselves which queues they have.
  if (type != ::IB_UVERBS_QPT_DRIVER && (!a.attr.send_cq || !a.attr.recv_cq)) return refuse(EINVAL, "create_qp: no send or receive CQ");
  return success();
}

Status create(uverbs_attr_bundle& b) {
  auto& u = static_cast<UqpObject&>(*uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_QP_HANDLE));
  CreateQpArgs a;
  ::ib_uverbs_qp_cap cap{};
  UHCA_CHECK(uverbs_copy_from_or_zero(&cap, b, UVERBS_ATTR_CREATE_QP_CAP));
  UHCA_CHECK(uverbs_copy_from(&a.user_handle, b, UVERBS_ATTR_CREATE_QP_USER_HANDLE));
  UHCA_CHECK(uverbs_get_const(&a.attr.qp_type, b, UVERBS_ATTR_CREATE_QP_TYPE));
  auto type = static_cast<unsigned>(a.attr.qp_type);
  UHCA_CHECK(uverbs_check_qp_type(type));
  std::uint32_t flags = 0;
  UHCA_CHECK(uverbs_get_flags32(&flags, b, UVERBS_ATTR_CREATE_QP_FLAGS, kCreateFlags));
  UHCA_CHECK(uverbs_ignore_enoent(uverbs_copy_from(&a.attr.source_qpn, b, UVERBS_ATTR_CREATE_QP_SOURCE_QPN)));
  if (uverbs_attr_is_valid(b, UVERBS_ATTR_CREATE_QP_SOURCE_QPN) && type != ::IB_UVERBS_QPT_UD)
    return refuse(EINVAL, "create_qp: SOURCE_QPN is for UD QPs");
  for (std::uint16_t id : {UVERBS_ATTR_CREATE_QP_BUF_UMEM, UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM, UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM})
    if (uverbs_attr_is_valid(b, id)) return refuse(EOPNOTSUPP, "CREATE_QP: {} takes no buffer attributes", b.device->name);

  a.pd = uverbs_attr_get_obj<ib_pd>(b, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
  a.attr.send_cq = uverbs_attr_get_obj<ib_cq>(b, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
  a.attr.recv_cq = uverbs_attr_get_obj<ib_cq>(b, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
  a.attr.srq = uverbs_attr_get_obj<ib_srq>(b, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
  a.attr.cap = {cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data};
  UHCA_CHECK(check_objects(b, type, a));
  if (auto* e = static_cast<FdUobject*>(uverbs_attr_get_uobject(b, UVERBS_ATTR_CREATE_QP_EVENT_FD))) a.async = e->file;
  a.attr.sq_sig_all = flags & ::IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  a.attr.create_flags = flags & ~::IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  UHCA_CHECK(uverbs_create_qp(b, u, a));
  const ib_qp_cap& c = a.attr.cap;
  cap = {c.max_send_wr, c.max_recv_wr, c.max_send_sge, c.max_recv_sge, c.max_inline_data};
  UHCA_CHECK(uverbs_copy_to_struct_or_zero(b, UVERBS_ATTR_CREATE_QP_RESP_CAP, &cap, sizeof cap));
  return uverbs_copy_to(b, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, static_cast<ib_qp*>(u.object)->qp_num);
}

Status destroyed(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_qp_resp resp{static_cast<UeventObject&>(*b.uobject).async_events_reported};
  return uverbs_copy_to(b, UVERBS_ATTR_DESTROY_QP_RESP, resp);
}

constexpr uverbs_attr_def kCreate[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, UVERBS_OBJECT_XRCD, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_PD_HANDLE, UVERBS_OBJECT_PD, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, UVERBS_OBJECT_SRQ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_USER_HANDLE, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_CAP, UVERBS_ATTR_STRUCT(::ib_uverbs_qp_cap, max_inline_data), UA_MANDATORY),
    UVERBS_ATTR_CONST_IN(UVERBS_ATTR_CREATE_QP_TYPE, UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(UVERBS_ATTR_CREATE_QP_FLAGS),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_FD(UVERBS_ATTR_CREATE_QP_EVENT_FD, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_QP_RESP_CAP, UVERBS_ATTR_STRUCT(::ib_uverbs_qp_cap, max_inline_data), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_BUF_UMEM, UVERBS_ATTR_STRUCT(uapi::ib_uverbs_buffer_desc, length)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_RQ_BUF_UMEM, UVERBS_ATTR_STRUCT(uapi::ib_uverbs_buffer_desc, length)),
    UVERBS_ATTR_PTR_IN(UVERBS_ATTR_CREATE_QP_SQ_BUF_UMEM, UVERBS_ATTR_STRUCT(uapi::ib_uverbs_buffer_desc, length)),
    UVERBS_ATTR_UHW(),
};
constexpr uverbs_attr_def kDestroy[] = {
    UVERBS_ATTR_IDR(UVERBS_ATTR_DESTROY_QP_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(UVERBS_ATTR_DESTROY_QP_RESP, UVERBS_ATTR_TYPE(::ib_uverbs_destroy_qp_resp), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_QP_CREATE, kCreate, create),
    {UVERBS_METHOD_QP_DESTROY, "UVERBS_METHOD_QP_DESTROY", kDestroy, 2, destroyed, true, nullptr},
};
UobjectPtr alloc() {
  return std::make_shared<UqpObject>();
}
constexpr uverbs_obj_type kType = {false, destroy_qp, alloc, ""};

}  // namespace

constinit const uverbs_object_def uverbs_def_qp = UVERBS_OBJECT_NEEDS(UVERBS_OBJECT_QP, &kType, kMethods, create_qp);

Status uverbs_check_qp_type(unsigned type) {
  switch (type) {
    case ::IB_UVERBS_QPT_RAW_PACKET:
      if (!rdma_uattrs_has_raw_cap()) return refuse(EPERM, "create_qp: raw packet QPs need CAP_NET_RAW");
      return success();
    case ::IB_UVERBS_QPT_RC:
    case ::IB_UVERBS_QPT_UC:
    case ::IB_UVERBS_QPT_UD:
    case ::IB_UVERBS_QPT_XRC_INI:
    case ::IB_UVERBS_QPT_XRC_TGT:
    case ::IB_UVERBS_QPT_DRIVER: return success();
    default: return refuse(EINVAL, "create_qp: QP type {}", type);
  }
}

void uverbs_qp_event(ib_qp*, std::uint32_t ib_event, void* uobject) {
  auto* u = static_cast<UqpObject*>(uobject);
  if (u->async) u->async->post(&u->async_source, u->user_handle, ib_event);
}

Status uverbs_create_qp(uverbs_attr_bundle& b, UqpObject& u, CreateQpArgs& a) {
  u.user_handle = a.user_handle;
  u.async = uverbs_async_file(ufile_of(b), a.async);
  auto qp = UHCA_TRY(ib_create_qp(*b.device, a.pd, a.attr, &b.driver_udata));
  if (a.xrcd) u.xrcd.take(a.xrcd);
  qp->qp_context = &u;
  qp->event_handler = uverbs_qp_event;
  u.object = qp.release();
  u.hw_obj_valid = true;
  return success();
}

}  // namespace uhca::kernel
