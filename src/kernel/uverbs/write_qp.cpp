// SPDX-License-Identifier: MIT
// Write commands of queue pairs. Linux: uverbs_cmd.c.
#include <algorithm>

#include "base/log.h"
#include "kernel/uverbs/capable.h"
#include "kernel/uverbs/std_types.h"
#include "kernel/uverbs/write_cmds.h"

namespace uhca::kernel::write_cmd {
namespace {

constexpr std::uint32_t kStandardBits = (1u << 21) - 1;  // IB_QP_STATE ... IB_QP_DEST_QPN

// Shared by CREATE_QP and EX_CREATE_QP. `resp` is filled.
Status create(uverbs_attr_bundle& b, const ::ib_uverbs_ex_create_qp& cmd, ::ib_uverbs_create_qp_resp& resp, NewObject& u) {
  CreateQpArgs a;
  UobjRef table, xrcd, srq, scq, rcq, pd;
  bool rss = cmd.comp_mask & ::IB_UVERBS_CREATE_QP_MASK_IND_TABLE;
  if (rss) {
    table = UHCA_TRY(read_object(b, UVERBS_OBJECT_RWQ_IND_TBL, cmd.rwq_ind_tbl_handle));
    a.attr.rwq_ind_tbl = table.obj<ib_rwq_ind_table>();
    if (cmd.max_recv_wr || cmd.max_recv_sge || cmd.is_srq)
      return refuse(EINVAL, "create_qp: a QP with an indirection table has no receive queue of its own");
  }
  bool has_sq = !rss || cmd.max_send_wr;
  a.attr.cap = {cmd.max_send_wr, cmd.max_recv_wr, cmd.max_send_sge, cmd.max_recv_sge, cmd.max_inline_data};
  bool initiator = cmd.qp_type == ::IB_UVERBS_QPT_XRC_INI;
  if (cmd.qp_type == ::IB_UVERBS_QPT_XRC_TGT) {
    auto ref = read_object(b, UVERBS_OBJECT_XRCD, cmd.pd_handle);
    if (!ref.ok()) return refuse(EINVAL, "create_qp: XRC domain {} does not exist", cmd.pd_handle);
    xrcd = std::move(*ref);
    a.attr.xrcd = xrcd.obj<ib_xrcd>();
    if (!a.attr.xrcd) return refuse(EINVAL, "create_qp: the XRC domain is gone");
    a.xrcd = xrcd.ptr();
  } else {
    if (initiator) {
      a.attr.cap.max_recv_wr = a.attr.cap.max_recv_sge = 0;
    } else {
      if (cmd.is_srq) {
        srq = UHCA_TRY(read_object(b, UVERBS_OBJECT_SRQ, cmd.srq_handle));
        a.attr.srq = srq.obj<ib_srq>();
        if (a.attr.srq->srq_type == ib_srq_type::XRC) return refuse(EINVAL, "create_qp: an XRC SRQ belongs to no QP");
      }
      if (!rss && cmd.recv_cq_handle != cmd.send_cq_handle) {
        rcq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.recv_cq_handle));
        a.attr.recv_cq = rcq.obj<ib_cq>();
      }
    }
    if (has_sq) {
      scq = UHCA_TRY(read_object(b, UVERBS_OBJECT_CQ, cmd.send_cq_handle));
      a.attr.send_cq = scq.obj<ib_cq>();
    }
    if (!a.attr.recv_cq && !initiator && !rss) a.attr.recv_cq = a.attr.send_cq;
    pd = UHCA_TRY(read_object(b, UVERBS_OBJECT_PD, cmd.pd_handle));
    a.pd = pd.obj<ib_pd>();
  }
  constexpr std::uint32_t source_qpn_flag = 1 << 10;  // IB_QP_CREATE_SOURCE_QPN
  constexpr std::uint32_t allowed = ::IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | ::IB_UVERBS_QP_CREATE_SCATTER_FCS |
                                    ::IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | source_qpn_flag | ::IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING;
  if (cmd.create_flags & ~allowed) return refuse(EINVAL, "create_qp: create_flags {:#x}", cmd.create_flags & ~allowed);
  if ((cmd.create_flags & source_qpn_flag) && !rdma_uattrs_has_raw_cap())
    return refuse(EPERM, "create_qp: choosing the source QP number needs CAP_NET_RAW");
  a.user_handle = cmd.user_handle;
  a.attr.qp_type = static_cast<ib_qp_type>(cmd.qp_type);
  a.attr.sq_sig_all = cmd.sq_sig_all;
  a.attr.create_flags = cmd.create_flags;
  a.attr.source_qpn = cmd.source_qpn;
  UHCA_CHECK(uverbs_create_qp(b, u.as<UqpObject>(), a));
  resp.qpn = static_cast<ib_qp*>(u->object)->qp_num;
  resp.qp_handle = u->id;
  resp.max_send_wr = a.attr.cap.max_send_wr;
  resp.max_recv_wr = a.attr.cap.max_recv_wr;
  resp.max_send_sge = a.attr.cap.max_send_sge;
  resp.max_recv_sge = a.attr.cap.max_recv_sge;
  resp.max_inline_data = a.attr.cap.max_inline_data;
  return success();
}

void from_user(rdma_ah_attr& a, const ::ib_uverbs_qp_dest& d) {
  a.is_global = d.is_global;
  if (d.is_global) {
    std::copy(std::begin(d.dgid), std::end(d.dgid), a.dgid.begin());
    a.flow_label = d.flow_label;
    a.sgid_index = d.sgid_index;
    a.hop_limit = d.hop_limit;
    a.traffic_class = d.traffic_class;
  }
  a.dlid = d.dlid;
  a.sl = d.sl;
  a.src_path_bits = d.src_path_bits;
  a.static_rate = d.static_rate;
  a.port_num = d.port_num;
}

void to_user(::ib_uverbs_qp_dest& d, const rdma_ah_attr& a) {
  d.is_global = a.is_global;
  if (a.is_global) {
    std::copy(a.dgid.begin(), a.dgid.end(), std::begin(d.dgid));
    d.flow_label = a.flow_label;
    d.sgid_index = a.sgid_index;
    d.hop_limit = a.hop_limit;
    d.traffic_class = a.traffic_class;
  }
  d.dlid = a.dlid;
  d.sl = a.sl;
  d.src_path_bits = a.src_path_bits;
  d.static_rate = a.static_rate;
  d.port_num = a.port_num;
}

bool port_valid(const ib_device& dev, unsigned port) {
  return port >= 1 && port <= dev.num_ports;
}

Status modify(uverbs_attr_bundle& b, ::ib_uverbs_modify_qp& c, std::uint32_t rate_limit) {
  UobjRef ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_QP, c.qp_handle));
  ib_qp& qp = *ref.obj<ib_qp>();
  const ib_device& dev = *b.device;
  if ((c.attr_mask & IB_QP_PORT) && !port_valid(dev, c.port_num))
    return refuse(EINVAL, "modify_qp: {} has no port {}", dev.name, c.port_num);
  if (c.attr_mask & IB_QP_AV) {
    if (!port_valid(dev, c.dest.port_num)) return refuse(EINVAL, "modify_qp: address vector: {} has no port {}", dev.name, c.dest.port_num);
    if ((c.attr_mask & IB_QP_STATE) && c.qp_state == static_cast<std::uint8_t>(ib_qp_state::RTR)) {
      // INIT -> RTR: PORT was given before; the address vector must name the same one.
      if (c.dest.port_num != qp.port)
        return refuse(EINVAL, "modify_qp: address vector names port {}, the QP is on port {}", c.dest.port_num, qp.port);
    } else {
      // SQD -> SQD: a new primary path moves the port along.
      if ((c.attr_mask & IB_QP_PORT) && c.port_num != c.dest.port_num)
        return refuse(EINVAL, "modify_qp: PORT {} and the address vector's port {} differ", c.port_num, c.dest.port_num);
      if (!(c.attr_mask & IB_QP_PORT)) {
        c.attr_mask |= IB_QP_PORT;
        c.port_num = c.dest.port_num;
      }
    }
  }
  if ((c.attr_mask & IB_QP_ALT_PATH) &&
      (!port_valid(dev, c.alt_port_num) || !port_valid(dev, c.alt_dest.port_num) || c.alt_port_num != c.alt_dest.port_num))
    return refuse(EINVAL, "modify_qp: alternate path: ports {} and {}", c.alt_port_num, c.alt_dest.port_num);
  constexpr auto last = static_cast<std::uint8_t>(ib_qp_state::ERR);
  if (((c.attr_mask & IB_QP_CUR_STATE) && c.cur_qp_state > last) || ((c.attr_mask & IB_QP_STATE) && c.qp_state > last))
    return refuse(EINVAL, "modify_qp: no such state ({}, {})", c.cur_qp_state, c.qp_state);
  if ((c.attr_mask & IB_QP_QKEY) && (c.qkey & IB_QP_SET_QKEY) && !rdma_uattrs_has_raw_cap())
    return refuse(EPERM, "modify_qp: the privileged Q_Key {:#x} needs CAP_NET_RAW", c.qkey);

  ib_qp_attr a;
  std::uint32_t m = c.attr_mask;
  if (m & IB_QP_STATE) a.qp_state = static_cast<ib_qp_state>(c.qp_state);
  if (m & IB_QP_CUR_STATE) a.cur_qp_state = static_cast<ib_qp_state>(c.cur_qp_state);
  if (m & IB_QP_PATH_MTU) a.path_mtu = c.path_mtu;
  if (m & IB_QP_PATH_MIG_STATE) a.path_mig_state = c.path_mig_state;
  if (m & IB_QP_QKEY) a.qkey = c.qkey;
  if (m & IB_QP_RQ_PSN) a.rq_psn = c.rq_psn;
  if (m & IB_QP_SQ_PSN) a.sq_psn = c.sq_psn;
  if (m & IB_QP_DEST_QPN) a.dest_qp_num = c.dest_qp_num;
  if (m & IB_QP_ACCESS_FLAGS) a.qp_access_flags = c.qp_access_flags;
  if (m & IB_QP_PKEY_INDEX) a.pkey_index = c.pkey_index;
  if (m & IB_QP_EN_SQD_ASYNC_NOTIFY) a.en_sqd_async_notify = c.en_sqd_async_notify;
  if (m & IB_QP_MAX_QP_RD_ATOMIC) a.max_rd_atomic = c.max_rd_atomic;
  if (m & IB_QP_MAX_DEST_RD_ATOMIC) a.max_dest_rd_atomic = c.max_dest_rd_atomic;
  if (m & IB_QP_MIN_RNR_TIMER) a.min_rnr_timer = c.min_rnr_timer;
  if (m & IB_QP_PORT) a.port_num = c.port_num;
  if (m & IB_QP_TIMEOUT) a.timeout = c.timeout;
  if (m & IB_QP_RETRY_CNT) a.retry_cnt = c.retry_cnt;
  if (m & IB_QP_RNR_RETRY) a.rnr_retry = c.rnr_retry;
  if (m & IB_QP_ALT_PATH) {
    a.alt_port_num = c.alt_port_num;
    a.alt_timeout = c.alt_timeout;
    a.alt_pkey_index = c.alt_pkey_index;
    from_user(a.alt_ah_attr, c.alt_dest);
  }
  if (m & IB_QP_RATE_LIMIT) a.rate_limit = rate_limit;
  if (m & IB_QP_AV) from_user(a.ah_attr, c.dest);
  if (qp.qp_type == ib_qp_type::XRC_INI) m &= ~(IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER);
  if (qp.qp_type == ib_qp_type::XRC_TGT) m &= ~(IB_QP_MAX_QP_RD_ATOMIC | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY);
  return ib_modify_qp(qp, a, m, &b.driver_udata);
}

}  // namespace

Status create_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_create_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  ::ib_uverbs_ex_create_qp ex{};
  ex.user_handle = cmd.user_handle;
  ex.pd_handle = cmd.pd_handle;
  ex.send_cq_handle = cmd.send_cq_handle;
  ex.recv_cq_handle = cmd.recv_cq_handle;
  ex.srq_handle = cmd.srq_handle;
  ex.max_send_wr = cmd.max_send_wr;
  ex.max_recv_wr = cmd.max_recv_wr;
  ex.max_send_sge = cmd.max_send_sge;
  ex.max_recv_sge = cmd.max_recv_sge;
  ex.max_inline_data = cmd.max_inline_data;
  ex.sq_sig_all = cmd.sq_sig_all;
  ex.qp_type = cmd.qp_type;
  ex.is_srq = cmd.is_srq;
  UHCA_CHECK(uverbs_check_qp_type(ex.qp_type));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_QP));
  ::ib_uverbs_create_qp_resp resp{};
  UHCA_CHECK(create(b, ex, resp, u));
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status ex_create_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_create_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.comp_mask & ~::IB_UVERBS_CREATE_QP_SUP_COMP_MASK) return refuse(EINVAL, "EX_CREATE_QP: comp_mask {:#x}", cmd.comp_mask);
  if (cmd.reserved) return refuse(EINVAL, "EX_CREATE_QP: reserved field is not zero");
  UHCA_CHECK(uverbs_check_qp_type(cmd.qp_type));
  NewObject u = UHCA_TRY(NewObject::begin(b, UVERBS_OBJECT_QP));
  ::ib_uverbs_ex_create_qp_resp resp{};
  UHCA_CHECK(create(b, cmd, resp.base, u));
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  UHCA_CHECK(uverbs_response(b, &resp, sizeof resp));
  return u.commit();
}

Status query_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_query_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef qp = UHCA_TRY(read_object(b, UVERBS_OBJECT_QP, cmd.qp_handle));
  ib_qp_attr a;
  ib_qp_init_attr init;
  UHCA_CHECK(ib_query_qp(*qp.obj<ib_qp>(), a, cmd.attr_mask, init));
  ::ib_uverbs_query_qp_resp r{};
  r.qp_state = static_cast<std::uint8_t>(a.qp_state);
  r.cur_qp_state = static_cast<std::uint8_t>(a.cur_qp_state);
  r.path_mtu = a.path_mtu;
  r.path_mig_state = a.path_mig_state;
  r.qkey = a.qkey;
  r.rq_psn = a.rq_psn;
  r.sq_psn = a.sq_psn;
  r.dest_qp_num = a.dest_qp_num;
  r.qp_access_flags = a.qp_access_flags;
  r.pkey_index = a.pkey_index;
  r.alt_pkey_index = a.alt_pkey_index;
  r.sq_draining = a.sq_draining;
  r.max_rd_atomic = a.max_rd_atomic;
  r.max_dest_rd_atomic = a.max_dest_rd_atomic;
  r.min_rnr_timer = a.min_rnr_timer;
  r.port_num = a.port_num;
  r.timeout = a.timeout;
  r.retry_cnt = a.retry_cnt;
  r.rnr_retry = a.rnr_retry;
  r.alt_port_num = a.alt_port_num;
  r.alt_timeout = a.alt_timeout;
  to_user(r.dest, a.ah_attr);
  to_user(r.alt_dest, a.alt_ah_attr);
  r.max_send_wr = init.cap.max_send_wr;
  r.max_recv_wr = init.cap.max_recv_wr;
  r.max_send_sge = init.cap.max_send_sge;
  r.max_recv_sge = init.cap.max_recv_sge;
  r.max_inline_data = init.cap.max_inline_data;
  r.sq_sig_all = init.sq_sig_all;
  return uverbs_response(b, &r, sizeof r);
}

Status modify_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_modify_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  if (cmd.attr_mask & ~kStandardBits) return refuse(EOPNOTSUPP, "modify_qp: attribute bits {:#x}", cmd.attr_mask & ~kStandardBits);
  return modify(b, cmd, 0);
}

Status ex_modify_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_ex_modify_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  std::uint32_t unknown = cmd.base.attr_mask & ~(kStandardBits | IB_QP_RATE_LIMIT);
  if (unknown) return refuse(EOPNOTSUPP, "modify_qp: attribute bits {:#x}", unknown);
  UHCA_CHECK(modify(b, cmd.base, cmd.rate_limit));
  ::ib_uverbs_ex_modify_qp_resp resp{};
  resp.response_length = static_cast<std::uint32_t>(std::min(b.ucore.outlen, sizeof resp));
  return uverbs_response(b, &resp, sizeof resp);
}

Status destroy_qp(uverbs_attr_bundle& b) {
  ::ib_uverbs_destroy_qp cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjectPtr gone;
  UHCA_CHECK(perform_destroy(b, UVERBS_OBJECT_QP, cmd.qp_handle, &gone));
  ::ib_uverbs_destroy_qp_resp resp{static_cast<UeventObject&>(*gone).async_events_reported};
  return uverbs_response(b, &resp, sizeof resp);
}

namespace {

McastEntry entry_of(const std::uint8_t (&gid)[16], std::uint16_t lid) {
  McastEntry e;
  std::copy(std::begin(gid), std::end(gid), e.gid.begin());
  e.lid = lid;
  return e;
}

}  // namespace

// Attaching twice is attaching once.
Status attach_mcast(uverbs_attr_bundle& b) {
  ::ib_uverbs_attach_mcast cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_QP, cmd.qp_handle));
  auto& u = static_cast<UqpObject&>(*ref.get());
  McastEntry e = entry_of(cmd.gid, cmd.mlid);
  std::lock_guard g(u.mcast_lock);
  if (std::find(u.mcast.begin(), u.mcast.end(), e) != u.mcast.end()) return success();
  u.mcast.reserve(u.mcast.size() + 1);
  UHCA_CHECK(ib_attach_mcast(*ref.obj<ib_qp>(), e.gid, e.lid));
  u.mcast.push_back(e);
  return success();
}

Status detach_mcast(uverbs_attr_bundle& b) {
  ::ib_uverbs_detach_mcast cmd;
  UHCA_CHECK(uverbs_request(b, &cmd, sizeof cmd));
  UobjRef ref = UHCA_TRY(read_object(b, UVERBS_OBJECT_QP, cmd.qp_handle));
  auto& u = static_cast<UqpObject&>(*ref.get());
  McastEntry e = entry_of(cmd.gid, cmd.mlid);
  std::lock_guard g(u.mcast_lock);
  auto it = std::find(u.mcast.begin(), u.mcast.end(), e);
  if (it == u.mcast.end()) return refuse(EINVAL, "detach_mcast: QP {} is not attached to this group", cmd.qp_handle);
  UHCA_CHECK(ib_detach_mcast(*ref.obj<ib_qp>(), e.gid, e.lid));
  u.mcast.erase(it);
  return success();
}

}  // namespace uhca::kernel::write_cmd
