// SPDX-License-Identifier: MIT
// Write commands of completion channels and CQs. Linux: uverbs_cmd.c.
#include <algorithm>

#include "base/log.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel::write_cmd {
namespace {

// comp_channel < 0: none.
Status channel_of(uverbs_attr_bundle& b, std::int32_t fd, UobjRef& ref, std::shared_ptr<EventFile>& out) {
  if (fd < 0) return success();
  ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_COMP_CHANNEL, fd));
  out = static_cast<FdUobject*>(ref.get())->file;
  return success();
}

}  // namespace

Status create_comp_channel(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_comp_channel cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_COMP_CHANNEL));
  ::ib_uverbs_create_comp_channel_resp resp{};
  resp.fd = u->id;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status create_cq(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_cq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  CreateCqArgs a;
  a.user_handle = cmd.user_handle;
  a.attr.cqe = cmd.cqe;
  a.attr.comp_vector = cmd.comp_vector;
  if (cmd.comp_vector >= b.device->num_comp_vectors)
    return refuse(EINVAL, "create_cq: comp_vector {}, the device has {}", cmd.comp_vector, b.device->num_comp_vectors);
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_CQ));
  UobjRef channel;
  UHCA_CHECK(channel_of(b, cmd.comp_channel, channel, a.comp));
  UHCA_CHECK(uverbs_create_cq(b, u.as<UcqObject>(), a));
  ::ib_uverbs_create_cq_resp resp{};
  resp.cq_handle = u->id;
  resp.cqe = static_cast<std::uint32_t>(static_cast<ib_cq*>(u->object)->cqe);
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status ex_create_cq(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_create_cq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EINVAL, "EX_CREATE_CQ: comp_mask {:#x}", cmd.comp_mask);
  if (cmd.reserved) return refuse(EINVAL, "EX_CREATE_CQ: reserved field is not zero");
  CreateCqArgs a;
  a.user_handle = cmd.user_handle;
  a.attr.cqe = cmd.cqe;
  a.attr.comp_vector = cmd.comp_vector;
  a.attr.flags = cmd.flags;
  if (cmd.comp_vector >= b.device->num_comp_vectors)
    return refuse(EINVAL, "create_cq: comp_vector {}, the device has {}", cmd.comp_vector, b.device->num_comp_vectors);
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_CQ));
  UobjRef channel;
  UHCA_CHECK(channel_of(b, cmd.comp_channel, channel, a.comp));
  UHCA_CHECK(uverbs_create_cq(b, u.as<UcqObject>(), a));
  ::ib_uverbs_ex_create_cq_resp resp{};
  resp.base.cq_handle = u->id;
  resp.base.cqe = static_cast<std::uint32_t>(static_cast<ib_cq*>(u->object)->cqe);
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status resize_cq(uverbs_attr_bundle& b) {
  ::ib_uverbs_resize_cq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef cq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.cq_handle));
  if (!cmd.cqe) return refuse(EINVAL, "resize_cq: 0 entries");
  UHCA_CHECK(b.device->ops.resize_cq(*cq.obj<ib_cq>(), cmd.cqe, &b.driver_udata));
  ::ib_uverbs_resize_cq_resp resp{};
  resp.cqe = static_cast<std::uint32_t>(cq.obj<ib_cq>()->cqe);
  return uverbs_response(b, &resp, sizeof resp);
}

Status destroy_cq(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_cq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjectPtr gone;
  UHCA_CHECK(perform_destroy(b, UVERBS_OBJECT_CQ, cmd.cq_handle, &gone));
  auto& u = static_cast<UcqObject&>(*gone);
  ::ib_uverbs_destroy_cq_resp resp{u.comp_events_reported, u.async_events_reported};
  return uverbs_response(b, &resp, sizeof resp);
}

Status ex_modify_cq(uverbs_attr_bundle& b) {
  constexpr std::uint32_t moderate = 1;  // IB_CQ_MODERATE
  ::ib_uverbs_ex_modify_cq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (!cmd.attr_mask || cmd.reserved) return refuse(EINVAL, "modify_cq: nothing to change, or reserved field is not zero");
  if (cmd.attr_mask > moderate) return refuse(EOPNOTSUPP, "modify_cq: attr_mask {:#x}", cmd.attr_mask);
  UobjRef cq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.cq_handle));
  return b.device->ops.modify_cq(*cq.obj<ib_cq>(), cmd.attr.cq_count, cmd.attr.cq_period);
}

}  // namespace uhca::kernel::write_cmd
