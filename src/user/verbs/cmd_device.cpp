// SPDX-License-Identifier: MIT
// Commands about the context, the device and its ports.
#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

void copy_port(ibv_port_attr* attr, const ib_uverbs_query_port_resp& resp) {
  attr->state = static_cast<ibv_port_state>(resp.state);
  attr->max_mtu = static_cast<ibv_mtu>(resp.max_mtu);
  attr->active_mtu = static_cast<ibv_mtu>(resp.active_mtu);
  attr->gid_tbl_len = static_cast<int>(resp.gid_tbl_len);
  attr->port_cap_flags = resp.port_cap_flags;
  attr->max_msg_sz = resp.max_msg_sz;
  attr->bad_pkey_cntr = resp.bad_pkey_cntr;
  attr->qkey_viol_cntr = resp.qkey_viol_cntr;
  attr->pkey_tbl_len = resp.pkey_tbl_len;
  attr->lid = resp.lid;
  attr->sm_lid = resp.sm_lid;
  attr->lmc = resp.lmc;
  attr->max_vl_num = resp.max_vl_num;
  attr->sm_sl = resp.sm_sl;
  attr->subnet_timeout = resp.subnet_timeout;
  attr->init_type_reply = resp.init_type_reply;
  attr->active_width = resp.active_width;
  attr->active_speed = resp.active_speed;
  attr->phys_state = resp.phys_state;
  attr->link_layer = resp.link_layer;
  attr->flags = resp.flags;
}

void copy_device(ibv_device_attr* a, const ib_uverbs_query_device_resp& r) {
  a->node_guid = r.node_guid;
  a->sys_image_guid = r.sys_image_guid;
  a->max_mr_size = r.max_mr_size;
  a->page_size_cap = r.page_size_cap;
  a->vendor_id = r.vendor_id;
  a->vendor_part_id = r.vendor_part_id;
  a->hw_ver = r.hw_ver;
  a->max_qp = static_cast<int>(r.max_qp);
  a->max_qp_wr = static_cast<int>(r.max_qp_wr);
  a->device_cap_flags = r.device_cap_flags;
  a->max_sge = static_cast<int>(r.max_sge);
  a->max_sge_rd = static_cast<int>(r.max_sge_rd);
  a->max_cq = static_cast<int>(r.max_cq);
  a->max_cqe = static_cast<int>(r.max_cqe);
  a->max_mr = static_cast<int>(r.max_mr);
  a->max_pd = static_cast<int>(r.max_pd);
  a->max_qp_rd_atom = static_cast<int>(r.max_qp_rd_atom);
  a->max_ee_rd_atom = static_cast<int>(r.max_ee_rd_atom);
  a->max_res_rd_atom = static_cast<int>(r.max_res_rd_atom);
  a->max_qp_init_rd_atom = static_cast<int>(r.max_qp_init_rd_atom);
  a->max_ee_init_rd_atom = static_cast<int>(r.max_ee_init_rd_atom);
  a->atomic_cap = static_cast<ibv_atomic_cap>(r.atomic_cap);
  a->max_ee = static_cast<int>(r.max_ee);
  a->max_rdd = static_cast<int>(r.max_rdd);
  a->max_mw = static_cast<int>(r.max_mw);
  a->max_raw_ipv6_qp = static_cast<int>(r.max_raw_ipv6_qp);
  a->max_raw_ethy_qp = static_cast<int>(r.max_raw_ethy_qp);
  a->max_mcast_grp = static_cast<int>(r.max_mcast_grp);
  a->max_mcast_qp_attach = static_cast<int>(r.max_mcast_qp_attach);
  a->max_total_mcast_qp_attach = static_cast<int>(r.max_total_mcast_qp_attach);
  a->max_ah = static_cast<int>(r.max_ah);
  a->max_fmr = static_cast<int>(r.max_fmr);
  a->max_map_per_fmr = static_cast<int>(r.max_map_per_fmr);
  a->max_srq = static_cast<int>(r.max_srq);
  a->max_srq_wr = static_cast<int>(r.max_srq_wr);
  a->max_srq_sge = static_cast<int>(r.max_srq_sge);
  a->max_pkeys = r.max_pkeys;
  a->local_ca_ack_delay = r.local_ca_ack_delay;
  a->phys_port_cnt = r.phys_port_cnt;
}

// A member is filled when the program's structure has room for it and the kernel's response reaches it.
#define AVAILABLE(app, kern)                                             \
  (attr_size >= offsetof(ibv_device_attr_ex, app) + sizeof(attr->app) && \
   r.response_length >= offsetof(ib_uverbs_ex_query_device_resp, kern) + sizeof(r.kern))

void copy_device_ex(ibv_device_attr_ex* attr, std::size_t attr_size, const ib_uverbs_ex_query_device_resp& r) {
  if (AVAILABLE(odp_caps, odp_caps)) {
    attr->odp_caps.general_caps = r.odp_caps.general_caps;
    attr->odp_caps.per_transport_caps.rc_odp_caps = r.odp_caps.per_transport_caps.rc_odp_caps;
    attr->odp_caps.per_transport_caps.uc_odp_caps = r.odp_caps.per_transport_caps.uc_odp_caps;
    attr->odp_caps.per_transport_caps.ud_odp_caps = r.odp_caps.per_transport_caps.ud_odp_caps;
  }
  if (AVAILABLE(completion_timestamp_mask, timestamp_mask)) attr->completion_timestamp_mask = r.timestamp_mask;
  if (AVAILABLE(hca_core_clock, hca_core_clock)) attr->hca_core_clock = r.hca_core_clock;
  if (AVAILABLE(device_cap_flags_ex, device_cap_flags_ex)) attr->device_cap_flags_ex = r.device_cap_flags_ex;
  if (AVAILABLE(rss_caps, rss_caps)) {
    attr->rss_caps.supported_qpts = r.rss_caps.supported_qpts;
    attr->rss_caps.max_rwq_indirection_tables = r.rss_caps.max_rwq_indirection_tables;
    attr->rss_caps.max_rwq_indirection_table_size = r.rss_caps.max_rwq_indirection_table_size;
  }
  if (AVAILABLE(max_wq_type_rq, max_wq_type_rq)) attr->max_wq_type_rq = r.max_wq_type_rq;
  if (AVAILABLE(raw_packet_caps, raw_packet_caps)) attr->raw_packet_caps = r.raw_packet_caps;
  if (AVAILABLE(tm_caps, tm_caps)) {
    attr->tm_caps.max_rndv_hdr_size = r.tm_caps.max_rndv_hdr_size;
    attr->tm_caps.max_num_tags = r.tm_caps.max_num_tags;
    attr->tm_caps.flags = r.tm_caps.flags;
    attr->tm_caps.max_ops = r.tm_caps.max_ops;
    attr->tm_caps.max_sge = r.tm_caps.max_sge;
  }
  if (AVAILABLE(cq_mod_caps, cq_moderation_caps)) {
    attr->cq_mod_caps.max_cq_count = r.cq_moderation_caps.max_cq_moderation_count;
    attr->cq_mod_caps.max_cq_period = r.cq_moderation_caps.max_cq_moderation_period;
  }
  if (AVAILABLE(max_dm_size, max_dm_size)) attr->max_dm_size = r.max_dm_size;
  if (AVAILABLE(xrc_odp_caps, xrc_odp_caps)) attr->xrc_odp_caps = r.xrc_odp_caps;
}
#undef AVAILABLE

}  // namespace

UHCA_EXPORT int ibv_cmd_get_context(verbs_context_v65* vctx, const ibv_fd_arr* fd_arr, const verbs_udata* udata) {
  ibv_context* context = &vctx->v.context;
  std::uint32_t num_comp_vectors = 0;
  std::uint64_t core_support = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
  cmd.out_struct(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, &num_comp_vectors);
  cmd.out_struct(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, &core_support);
  if (fd_arr) cmd.in(uhca::uapi::UVERBS_ATTR_GET_CONTEXT_FD_ARR, fd_arr->arr, fd_arr->count * sizeof(int));
  cmd.uhw(udata);

  int ret;
  switch (execute_with_fallback(context, Method::kGetContext, &cmd, nullptr, &ret)) {
    case Outcome::kSuccess:
      context->num_comp_vectors = static_cast<int>(num_comp_vectors);
      verbs_get_device(context->device)->core_support = core_support;
      return 0;
    case Outcome::kError: return ret;
    default: {
      ib_uverbs_get_context req{};
      ib_uverbs_get_context_resp resp{};
      ret = execute_write(context, IB_USER_VERBS_CMD_GET_CONTEXT, &req, &resp, udata);
      if (ret) return ret;
      context->async_fd = static_cast<int>(resp.async_fd);
      context->num_comp_vectors = static_cast<int>(resp.num_comp_vectors);
      return 0;
    }
  }
}

UHCA_EXPORT int ibv_cmd_query_context(ibv_context* context, ibv_command_buffer* driver) {
  std::uint32_t num_comp_vectors = 0;
  std::uint64_t core_support = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
  cmd.out_struct(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, &num_comp_vectors);
  cmd.out_struct(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, &core_support);
  cmd.link(driver);
  if (int ret = execute_ioctl(context, &cmd)) return ret;
  cmd.finish_link(driver);
  context->num_comp_vectors = static_cast<int>(num_comp_vectors);
  verbs_get_device(context->device)->core_support = core_support;
  return 0;
}

UHCA_EXPORT int ibv_cmd_query_device_any(ibv_context* context, const ibv_query_device_ex_input* input, ibv_device_attr_ex* attr,
                                         std::size_t attr_size, std::uint64_t* raw_fw_ver, const verbs_udata* udata,
                                         std::size_t* udata_out_len) {
  if (input && input->comp_mask) return fail(EINVAL);
  if (attr_size < sizeof attr->orig_attr) return fail(EINVAL);
  std::memset(static_cast<void*>(attr), 0, attr_size);
  if (udata_out_len) *udata_out_len = 0;

  ib_uverbs_ex_query_device_resp resp{};
  bool extended = attr_size > sizeof attr->orig_attr;
  if (extended) {
    ib_uverbs_ex_query_device req{};
    int ret = execute_write_ex_raw(context, IB_USER_VERBS_EX_CMD_QUERY_DEVICE, &req, sizeof req, &resp, sizeof resp, udata);
    if (ret && ret != EOPNOTSUPP && ret != ENOSYS) return ret;
    if (ret) {
      extended = false;
      attr_size = sizeof attr->orig_attr;
    } else if (udata && udata_out_len) {
      *udata_out_len = udata->out_len;
    }
  }
  if (!extended) {
    ib_uverbs_query_device req{};
    int ret = execute_write(context, IB_USER_VERBS_CMD_QUERY_DEVICE, &req, &resp.base);
    if (ret) return ret;
    resp.response_length = sizeof resp.base;
  }

  copy_device(&attr->orig_attr, resp.base);
  if (raw_fw_ver) *raw_fw_ver = resp.base.fw_ver;
  if (extended) copy_device_ex(attr, attr_size, resp);
  if (attr_size >= offsetof(ibv_device_attr_ex, phys_port_cnt_ex) + sizeof attr->phys_port_cnt_ex) {
    const verbs_sysfs_dev* sysfs = verbs_get_device(context->device)->sysfs;
    attr->phys_port_cnt_ex = sysfs && sysfs->num_ports ? sysfs->num_ports : attr->orig_attr.phys_port_cnt;
  }
  return 0;
}

UHCA_EXPORT int ibv_cmd_query_port(ibv_context* context, std::uint8_t port_num, ibv_port_attr_v65* attr) {
  uhca::uapi::ib_uverbs_query_port_resp_ex resp_ex{};
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);
  cmd.const_in(UVERBS_ATTR_QUERY_PORT_PORT_NUM, port_num);
  cmd.out_struct(UVERBS_ATTR_QUERY_PORT_RESP, &resp_ex);

  int ret;
  switch (execute_with_fallback(context, Method::kQueryPort, &cmd, nullptr, &ret)) {
    case Outcome::kSuccess:
      copy_port(&attr->base, resp_ex.legacy_resp);
      attr->base.port_cap_flags2 = resp_ex.port_cap_flags2;
      attr->active_speed_ex = resp_ex.active_speed_ex;
      return 0;
    case Outcome::kError: return ret;
    default: {
      ib_uverbs_query_port req{};
      ib_uverbs_query_port_resp resp{};
      req.port_num = port_num;
      ret = execute_write(context, IB_USER_VERBS_CMD_QUERY_PORT, &req, &resp);
      if (ret) return ret;
      copy_port(&attr->base, resp);
      return 0;
    }
  }
}

UHCA_EXPORT int ibv_cmd_query_port_speed(ibv_context* context, std::uint32_t port_num, std::uint64_t* speed) {
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, uhca::uapi::UVERBS_METHOD_QUERY_PORT_SPEED);
  cmd.const_in(uhca::uapi::UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, port_num);
  cmd.out_struct(uhca::uapi::UVERBS_ATTR_QUERY_PORT_SPEED_RESP, speed);
  return execute_ioctl(context, &cmd);
}

UHCA_EXPORT int ibv_cmd_alloc_async_fd(ibv_context* context) {
  ibv_command_buffer cmd(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC);
  cmd.out_fd(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
  if (int ret = execute_ioctl(context, &cmd)) return ret;
  context->async_fd = static_cast<int>(cmd.handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE));
  return 0;
}
