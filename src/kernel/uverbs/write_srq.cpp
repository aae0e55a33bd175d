// SPDX-License-Identifier: MIT
// Write commands of SRQs. Linux: uverbs_cmd.c.
#include "base/log.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel::write_cmd {
namespace {

// CREATE_SRQ and CREATE_XSRQ.
Status create(uverbs_attr_bundle& b, const ::ib_uverbs_create_xsrq& cmd) {
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_SRQ));
  CreateSrqArgs a;
  a.user_handle = cmd.user_handle;
  a.attr.attr = {cmd.max_wr, cmd.max_sge, cmd.srq_limit};
  UobjRef xrcd, cq;
  switch (cmd.srq_type) {
    case ::IB_UVERBS_SRQT_BASIC: break;
    case ::IB_UVERBS_SRQT_XRC: {
      auto ref = read_object(b, UVERBS_OBJECT_XRCD, cmd.xrcd_handle);
      if (!ref.ok()) return refuse(EINVAL, "create_srq: XRC domain {} does not exist", cmd.xrcd_handle);
      xrcd = std::move(*ref);
      a.attr.xrcd = xrcd.obj<ib_xrcd>();
      if (!a.attr.xrcd) return refuse(EINVAL, "create_srq: the XRC domain is gone");
      a.xrcd = xrcd.ptr();
      break;
    }
    case ::IB_UVERBS_SRQT_TM: a.attr.max_num_tags = cmd.max_num_tags; break;
    default: return refuse(EINVAL, "create_srq: SRQ type {}", cmd.srq_type);
  }
  a.attr.srq_type = static_cast<ib_srq_type>(cmd.srq_type);
  if (ib_srq_has_cq(a.attr.srq_type)) {
    cq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.cq_handle));
    a.attr.cq = cq.obj<ib_cq>();
  }
  UobjRef pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
  a.pd = pd.obj<ib_pd>();
  UHCA_CHECK(uverbs_create_srq(b, u.as<UsrqObject>(), a));
  ::ib_uverbs_create_srq_resp resp{};
  resp.srq_handle = u->id;
  resp.max_wr = a.attr.attr.max_wr;
  resp.max_sge = a.attr.attr.max_sge;
  if (a.attr.srq_type == ib_srq_type::XRC) resp.srqn = static_cast<ib_srq*>(u->object)->srq_num;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

}  // namespace

Status create_srq(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_srq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  ::ib_uverbs_create_xsrq x{};
  x.response = cmd.response;
  x.user_handle = cmd.user_handle;
  x.srq_type = ::IB_UVERBS_SRQT_BASIC;
  x.pd_handle = cmd.pd_handle;
  x.max_wr = cmd.max_wr;
  x.max_sge = cmd.max_sge;
  x.srq_limit = cmd.srq_limit;
  return create(b, x);
}

Status create_xsrq(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_xsrq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return create(b, cmd);
}

Status modify_srq(uverbs_attr_bundle& b) {
  ::ib_uverbs_modify_srq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef srq = UHCA_TRY(read_object(b, UVERBS_OBJECT_SRQ, cmd.srq_handle));
  return b.device->ops.modify_srq(*srq.obj<ib_srq>(), {cmd.max_wr, 0, cmd.srq_limit}, cmd.attr_mask, &b.driver_udata);
}

Status query_srq(uverbs_attr_bundle& b) {
  ::ib_uverbs_query_srq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef srq = UHCA_TRY(read_object(b, UVERBS_OBJECT_SRQ, cmd.srq_handle));
  ib_srq_attr a;
  UHCA_CHECK(b.device->ops.query_srq(*srq.obj<ib_srq>(), a));
  ::ib_uverbs_query_srq_resp resp{};
  resp.max_wr = a.max_wr;
  resp.max_sge = a.max_sge;
  resp.srq_limit = a.srq_limit;
  return uverbs_response(b, &resp, sizeof resp);
}

Status destroy_srq(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_srq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjectPtr gone;
  UHCA_CHECK(perform_destroy(b, UVERBS_OBJECT_SRQ, cmd.srq_handle, &gone));
  ::ib_uverbs_destroy_srq_resp resp{static_cast<UeventObject&>(*gone).async_events_reported};
  return uverbs_response(b, &resp, sizeof resp);
}

}  // namespace uhca::kernel::write_cmd
