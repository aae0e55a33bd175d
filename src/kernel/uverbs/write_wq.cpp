// SPDX-License-Identifier: MIT
// Write commands of receive work queues and their indirection tables. Linux: uverbs_cmd.c.
#include <algorithm>

#include "base/log.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel::write_cmd {

Status ex_create_wq(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_create_wq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EOPNOTSUPP, "EX_CREATE_WQ: comp_mask {:#x}", cmd.comp_mask);
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_WQ));
  UobjRef pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
  UobjRef cq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.cq_handle));
  CreateWqArgs a;
  a.user_handle = cmd.user_handle;
  a.pd = pd.obj<ib_pd>();
  a.attr = {cq.obj<ib_cq>(), cmd.wq_type, cmd.max_wr, cmd.max_sge, cmd.create_flags};
  UHCA_CHECK(uverbs_create_wq(b, u.as<UwqObject>(), a));
  ::ib_uverbs_ex_create_wq_resp resp{};
  resp.wq_handle = u->id;
  resp.max_sge = a.attr.max_sge;
  resp.max_wr = a.attr.max_wr;
  resp.wqn = static_cast<ib_wq*>(u->object)->wq_num;
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status ex_modify_wq(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_modify_wq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (!cmd.attr_mask) return refuse(EINVAL, "EX_MODIFY_WQ: nothing to change");
  if (cmd.attr_mask > (IB_WQ_STATE | IB_WQ_CUR_STATE | IB_WQ_FLAGS)) return refuse(EINVAL, "EX_MODIFY_WQ: attr_mask {:#x}", cmd.attr_mask);
  UobjRef ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_WQ, cmd.wq_handle));
  ib_wq& wq = *ref.obj<ib_wq>();
  constexpr auto last = static_cast<std::uint32_t>(ib_wq_state::ERR);
  ib_wq_attr a;
  if (cmd.attr_mask & IB_WQ_FLAGS) {
    a.flags = cmd.flags;
    a.flags_mask = cmd.flags_mask;
  }
  a.curr_wq_state = wq.state;
  if (cmd.attr_mask & IB_WQ_CUR_STATE) {
    if (cmd.curr_wq_state > last) return refuse(EINVAL, "EX_MODIFY_WQ: no such state {}", cmd.curr_wq_state);
    a.curr_wq_state = static_cast<ib_wq_state>(cmd.curr_wq_state);
  }
  a.wq_state = a.curr_wq_state;
  if (cmd.attr_mask & IB_WQ_STATE) {
    if (cmd.wq_state > last) return refuse(EINVAL, "EX_MODIFY_WQ: no such state {}", cmd.wq_state);
    a.wq_state = static_cast<ib_wq_state>(cmd.wq_state);
  }
  return b.device->ops.modify_wq(wq, a, cmd.attr_mask, &b.driver_udata);
}

Status ex_destroy_wq(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_destroy_wq cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EOPNOTSUPP, "EX_DESTROY_WQ: comp_mask {:#x}", cmd.comp_mask);
  UobjectPtr gone;
  UHCA_CHECK(perform_destroy(b, UVERBS_OBJECT_WQ, cmd.wq_handle, &gone));
  ::ib_uverbs_ex_destroy_wq_resp resp{};
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  resp.events_reported = static_cast<UeventObject&>(*gone).async_events_reported;
  return uverbs_response(b, &resp, sizeof resp);
}

Status ex_create_rwq_ind_table(uverbs_attr_bundle& b) {
  RequestReader in(b);
  ::ib_uverbs_ex_create_rwq_ind_table cmd;
  UHCA_CHECK(in.next(&cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EOPNOTSUPP, "EX_CREATE_RWQ_IND_TBL: comp_mask {:#x}", cmd.comp_mask);
  if (cmd.log_ind_tbl_size > IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE)
    return refuse(EINVAL, "EX_CREATE_RWQ_IND_TBL: 2^{} places", cmd.log_ind_tbl_size);
  std::vector<std::uint32_t> handles(std::size_t{1} << cmd.log_ind_tbl_size);
  UHCA_CHECK(in.next(handles.data(), handles.size() * sizeof handles[0]));
  UHCA_CHECK(in.finish());
  std::vector<UobjRef> refs;
  std::vector<ib_wq*> wqs;
  refs.reserve(handles.size());
  wqs.reserve(handles.size());
  for (std::uint32_t handle : handles) {
    refs.push_back(UHCA_TRY(read_object(b, UVERBS_OBJECT_WQ, handle)));
    wqs.push_back(refs.back().obj<ib_wq>());
  }
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_RWQ_IND_TBL));
  auto table = UHCA_TRY(ib_create_rwq_ind_table(*b.device, wqs, &b.driver_udata));
  ::ib_uverbs_ex_create_rwq_ind_table_resp resp{};
  resp.ind_tbl_handle = u->id;
  resp.ind_tbl_num = table->ind_tbl_num;
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  u.set(table.release());
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status ex_destroy_rwq_ind_table(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_destroy_rwq_ind_table cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EOPNOTSUPP, "EX_DESTROY_RWQ_IND_TBL: comp_mask {:#x}", cmd.comp_mask);
  return perform_destroy(b, UVERBS_OBJECT_RWQ_IND_TBL, cmd.ind_tbl_handle);
}

}  // namespace uhca::kernel::write_cmd
