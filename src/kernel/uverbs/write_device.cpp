// SPDX-License-Identifier: MIT
// Write commands of device, PD, MR, MW, AH. Linux: uverbs_cmd.c.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/types.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel {
namespace {

void fill_device(const ib_device& dev, const ib_device_attr& a, ::ib_uverbs_query_device_resp& r) {
  r.fw_ver = a.fw_ver;
  r.node_guid = byteswap(dev.node_guid);
  r.sys_image_guid = a.sys_image_guid;
  r.max_mr_size = a.max_mr_size;
  r.page_size_cap = a.page_size_cap;
  r.vendor_id = a.vendor_id;
  r.vendor_part_id = a.vendor_part_id;
  r.hw_ver = a.hw_ver;
  r.max_qp = a.max_qp;
  r.max_qp_wr = a.max_qp_wr;
  r.device_cap_flags = a.device_cap_flags;
  r.max_sge = std::min(a.max_send_sge, a.max_recv_sge);
  r.max_sge_rd = a.max_sge_rd;
  r.max_cq = a.max_cq;
  r.max_cqe = a.max_cqe;
  r.max_mr = a.max_mr;
  r.max_pd = a.max_pd;
  r.max_qp_rd_atom = a.max_qp_rd_atom;
  r.max_ee_rd_atom = a.max_ee_rd_atom;
  r.max_res_rd_atom = a.max_res_rd_atom;
  r.max_qp_init_rd_atom = a.max_qp_init_rd_atom;
  r.max_ee_init_rd_atom = a.max_ee_init_rd_atom;
  r.atomic_cap = a.atomic_cap;
  r.max_ee = a.max_ee;
  r.max_rdd = a.max_rdd;
  r.max_mw = a.max_mw;
  r.max_raw_ipv6_qp = a.max_raw_ipv6_qp;
  r.max_raw_ethy_qp = a.max_raw_ethy_qp;
  r.max_mcast_grp = a.max_mcast_grp;
  r.max_mcast_qp_attach = a.max_mcast_qp_attach;
  r.max_total_mcast_qp_attach = a.max_total_mcast_qp_attach;
  r.max_ah = a.max_ah;
  r.max_srq = a.max_srq;
  r.max_srq_wr = a.max_srq_wr;
  r.max_srq_sge = a.max_srq_sge;
  r.max_pkeys = a.max_pkeys;
  r.local_ca_ack_delay = a.local_ca_ack_delay;
  r.phys_port_cnt = static_cast<std::uint8_t>(dev.num_ports);
}

}  // namespace

namespace write_cmd {

Status get_context(uverbs_attr_bundle& b) {
  ::ib_uverbs_get_context cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UverbsFile& f = ufile_of(b);
  UHCA_CHECK(f.alloc_context(b));
  // The context stays when the rest fails, as in Linux after ib_init_ucontext.
  NewObject async = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_ASYNC_EVENT));
  ::ib_uverbs_get_context_resp resp{};
  resp.async_fd = async->id;
  resp.num_comp_vectors = b.device->num_comp_vectors;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  uverbs_init_async_file(f, async.as<FdUobject>());
  return async.commit();
}

Status query_device(uverbs_attr_bundle& b) {
  UHCA_TRY(ufile_of(b).get_context());
  ::ib_uverbs_query_device cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  ::ib_uverbs_query_device_resp resp{};
  fill_device(*b.device, b.device->attrs, resp);
  return uverbs_response(b, &resp, sizeof resp);
}

Status ex_query_device(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_query_device cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask) return refuse(EINVAL, "EX_QUERY_DEVICE: comp_mask {:#x}", cmd.comp_mask);
  if (cmd.reserved) return refuse(EINVAL, "EX_QUERY_DEVICE: reserved field is not zero");
  ib_device_attr a;
  UHCA_CHECK(b.device->ops.query_device(*b.device, a, &b.driver_udata));
  ::ib_uverbs_ex_query_device_resp resp{};
  fill_device(*b.device, a, resp.base);
  resp.odp_caps.general_caps = a.odp_general_caps;
  resp.odp_caps.per_transport_caps = {a.odp_rc_caps, a.odp_uc_caps, a.odp_ud_caps};
  resp.xrc_odp_caps = a.xrc_odp_caps;
  resp.timestamp_mask = a.timestamp_mask;
  resp.hca_core_clock = a.hca_core_clock;
  resp.device_cap_flags_ex = a.device_cap_flags_ex | a.device_cap_flags;
  resp.rss_caps.supported_qpts = a.rss_supported_qpts;
  resp.rss_caps.max_rwq_indirection_tables = a.max_rwq_indirection_tables;
  resp.rss_caps.max_rwq_indirection_table_size = a.max_rwq_indirection_table_size;
  resp.max_wq_type_rq = a.max_wq_type_rq;
  resp.raw_packet_caps = a.raw_packet_caps;
  resp.max_dm_size = a.max_dm_size;
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  return uverbs_response(b, &resp, sizeof resp);
}

Status query_port(uverbs_attr_bundle& b) {
  UHCA_TRY(ufile_of(b).get_context());
  ::ib_uverbs_query_port cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.port_num < 1 || cmd.port_num > b.device->num_ports)
    return refuse(EINVAL, "QUERY_PORT: {} has no port {}", b.device->name, cmd.port_num);
  ib_port_attr a;
  UHCA_CHECK(b.device->ops.query_port(*b.device, cmd.port_num, a));
  ::ib_uverbs_query_port_resp resp{};
  uverbs_fill_port(*b.device, a, resp);
  return uverbs_response(b, &resp, sizeof resp);
}

Status alloc_pd(uverbs_attr_bundle& b) {
  ::ib_uverbs_alloc_pd cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_PD));
  u.set(UHCA_TRY(ib_alloc_pd(*b.device, u->context, &b.driver_udata)).release());
  ::ib_uverbs_alloc_pd_resp resp{};
  resp.pd_handle = u->id;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status dealloc_pd(uverbs_attr_bundle& b) {
  ::ib_uverbs_dealloc_pd cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return perform_destroy(b, UVERBS_OBJECT_PD, cmd.pd_handle);
}

Status reg_mr(uverbs_attr_bundle& b) {
  ::ib_uverbs_reg_mr cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if ((cmd.start ^ cmd.hca_va) & (page - 1))
    return refuse(EINVAL, "reg_mr: address {:#x} and iova {:#x} differ within a page", static_cast<std::uint64_t>(cmd.start),
                  static_cast<std::uint64_t>(cmd.hca_va));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_MR));
  UHCA_CHECK(ib_check_mr_access(*b.device, cmd.access_flags));
  UobjRef pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
  UHCA_CHECK(uverbs_reg_mr(b, u.as<ib_uobject>(), *pd.obj<ib_pd>(), cmd.start, cmd.length, cmd.hca_va, cmd.access_flags));
  auto* mr = static_cast<ib_mr*>(u->object);
  ::ib_uverbs_reg_mr_resp resp{};
  resp.lkey = mr->lkey;
  resp.rkey = mr->rkey;
  resp.mr_handle = u->id;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status rereg_mr(uverbs_attr_bundle& b) {
  constexpr std::uint32_t trans = 1, new_pd = 2, access = 4;
  ::ib_uverbs_rereg_mr cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (!cmd.flags) return refuse(EINVAL, "rereg_mr: nothing to change");
  if (cmd.flags & ~(trans | new_pd | access)) return refuse(EOPNOTSUPP, "rereg_mr: flags {:#x}", cmd.flags);
  auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  if ((cmd.flags & trans) && ((cmd.start ^ cmd.hca_va) & (page - 1)))
    return refuse(EINVAL, "rereg_mr: address and iova differ within a page");
  UobjRef u(UHCA_TRY(ufile_of(b).lookup(UVERBS_OBJECT_MR, cmd.mr_handle, UVERBS_ACCESS_WRITE)), UVERBS_ACCESS_WRITE);
  auto* mr = u.obj<ib_mr>();
  if (cmd.flags & access) UHCA_CHECK(ib_check_mr_access(*b.device, cmd.access_flags));
  ib_pd* orig = mr->pd;
  ib_pd* pd = orig;
  UobjRef pd_ref;
  if (cmd.flags & new_pd) {
    pd_ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
    pd = pd_ref.obj<ib_pd>();
  }
  if (mr->usecnt.load()) return refuse(EBUSY, "rereg_mr: memory windows are bound to the MR");
  auto replaced =
      UHCA_TRY(b.device->ops.rereg_user_mr(*mr, cmd.flags, cmd.start, cmd.length, cmd.hca_va, cmd.access_flags, *pd, &b.driver_udata));
  if (replaced) {
    replaced->device = b.device;
    delete mr;
    mr = replaced.release();
    u.get()->object = mr;
  }
  if (pd != orig) {
    orig->usecnt.fetch_sub(1);
    pd->usecnt.fetch_add(1);
  }
  mr->pd = pd;
  ::ib_uverbs_rereg_mr_resp resp{};
  resp.lkey = mr->lkey;
  resp.rkey = mr->rkey;
  return uverbs_response(b, &resp, sizeof resp);
}

Status dereg_mr(uverbs_attr_bundle& b) {
  ::ib_uverbs_dereg_mr cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return perform_destroy(b, UVERBS_OBJECT_MR, cmd.mr_handle);
}

Status alloc_mw(uverbs_attr_bundle& b) {
  ::ib_uverbs_alloc_mw cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_MW));
  UobjRef pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
  if (cmd.mw_type != 1 && cmd.mw_type != 2) return refuse(EINVAL, "alloc_mw: type {}", cmd.mw_type);
  auto mw = UHCA_TRY(b.device->ops.alloc_mw(*pd.obj<ib_pd>(), cmd.mw_type, &b.driver_udata));
  mw->device = b.device;
  mw->pd = pd.obj<ib_pd>();
  mw->type = cmd.mw_type;
  mw->pd->usecnt.fetch_add(1);
  b.device->restrack[RDMA_RESTRACK_MW].fetch_add(1);
  ::ib_uverbs_alloc_mw_resp resp{};
  resp.rkey = mw->rkey;
  resp.mw_handle = u->id;
  u.set(mw.release());
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status dealloc_mw(uverbs_attr_bundle& b) {
  ::ib_uverbs_dealloc_mw cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return perform_destroy(b, UVERBS_OBJECT_MW, cmd.mw_handle);
}

Status create_ah(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_ah cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.attr.port_num < 1 || cmd.attr.port_num > b.device->num_ports)
    return refuse(EINVAL, "create_ah: {} has no port {}", b.device->name, cmd.attr.port_num);
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_AH));
  UobjRef pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
  rdma_ah_attr a;
  a.is_global = cmd.attr.is_global;
  std::copy(std::begin(cmd.attr.grh.dgid), std::end(cmd.attr.grh.dgid), a.dgid.begin());
  a.flow_label = cmd.attr.grh.flow_label;
  a.sgid_index = cmd.attr.grh.sgid_index;
  a.hop_limit = cmd.attr.grh.hop_limit;
  a.traffic_class = cmd.attr.grh.traffic_class;
  a.dlid = cmd.attr.dlid;
  a.sl = cmd.attr.sl;
  a.src_path_bits = cmd.attr.src_path_bits;
  a.static_rate = cmd.attr.static_rate;
  a.port_num = cmd.attr.port_num;
  UHCA_CHECK(rdma_resolve_ah(*b.device, a, a.port_num));
  auto ah = UHCA_TRY(b.device->ops.create_user_ah(*pd.obj<ib_pd>(), a, &b.driver_udata));
  ah->device = b.device;
  ah->pd = pd.obj<ib_pd>();
  ah->attr = a;
  ah->pd->usecnt.fetch_add(1);
  b.device->restrack[RDMA_RESTRACK_AH].fetch_add(1);
  u->user_handle = cmd.user_handle;
  u.set(ah.release());
  ::ib_uverbs_create_ah_resp resp{};
  resp.ah_handle = u->id;
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status destroy_ah(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_ah cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  return perform_destroy(b, UVERBS_OBJECT_AH, cmd.ah_handle);
}

}  // namespace write_cmd
}  // namespace uhca::kernel
