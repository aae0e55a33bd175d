// SPDX-License-Identifier: MIT
// Kernel verbs: the driver's operations with the core's checks and bookkeeping. Linux: drivers/infiniband/core/verbs.c.
#include <string>

#include "base/log.h"
#include "kernel/core/ib_verbs.h"
#include "kernel/core/netdev.h"

namespace uhca::kernel {
namespace {

void track(ib_device& dev, rdma_restrack_type t, int delta) {
  dev.restrack[t].fetch_add(static_cast<std::uint32_t>(delta));
}

// The bookkeeping of an MR that the driver has made; ib_dereg_mr takes it back.
std::unique_ptr<ib_mr> track_mr(ib_pd& pd, std::unique_ptr<ib_mr> mr) {
  mr->device = pd.device;
  mr->pd = &pd;
  pd.usecnt.fetch_add(1);
  track(*pd.device, RDMA_RESTRACK_MR, 1);
  return mr;
}

bool connected(ib_qp_type t) {
  return t == ib_qp_type::RC || t == ib_qp_type::UC || t == ib_qp_type::XRC_INI || t == ib_qp_type::XRC_TGT;
}

// Linux: rdma_check_ah_attr + rdma_fill_sgid_attr, for a RoCE port.
Status fill_sgid_attr(ib_device& dev, rdma_ah_attr& ah) {
  if (ah.port_num < 1 || ah.port_num > dev.num_ports)
    return refuse(EINVAL, "address handle: port {} of {}, which has {} port(s)", ah.port_num, dev.name, dev.num_ports);
  if (!ah.is_global)
    return refuse(EINVAL, "address handle: is_global is not set: Ethernet port needs GRH ({} port {})", dev.name, ah.port_num);
  ah.sgid_attr = rdma_get_gid_attr(dev, ah.port_num, ah.sgid_index);
  if (!ah.sgid_attr.valid) {
    std::string usable;
    for (const ib_gid_attr& e : rdma_gid_table(dev, ah.port_num)) usable += " " + std::to_string(e.index);
    return refuse(ENODATA, "address handle: sgid_index {} of {} port {} is empty; usable:{}", ah.sgid_index, dev.name, ah.port_num, usable);
  }
  return success();
}

// Linux: ib_resolve_eth_dmac. Where Linux would send an ARP request and fail with its outcome, an unknown neighbour leaves an all-zero
// MAC: the UDP uplink routes by IP and never looks at it, and frames on this host are switched by function.
void resolve_dmac(ib_device& dev, rdma_ah_attr& ah) {
  const ib_gid& d = ah.dgid;
  if (d[0] == 0xff) {  // IPv6 multicast: 33:33 and the last 32 bits (RFC 2464)
    ah.dmac = {0x33, 0x33, d[12], d[13], d[14], d[15]};
    return;
  }
  if (is_v4_mapped(d) && (d[12] & 0xf0) == 0xe0) {  // IPv4 multicast: 01:00:5e and the last 23 bits (RFC 1112)
    ah.dmac = {0x01, 0x00, 0x5e, static_cast<std::uint8_t>(d[13] & 0x7f), d[14], d[15]};
    return;
  }
  for (const ib_gid_attr& own : rdma_gid_table(dev, ah.port_num)) {
    if (own.gid == d) {
      ah.dmac = own.mac;
      return;
    }
  }
  if (d[0] == 0xfe && d[1] == 0x80 && d[11] == 0xff && d[12] == 0xfe) {  // link-local with an EUI-64: the MAC is in it
    ah.dmac = {static_cast<std::uint8_t>(d[8] ^ 2), d[9], d[10], d[13], d[14], d[15]};
    return;
  }
  if (is_local_address(d)) {
    ah.dmac = ah.sgid_attr.mac;
    return;
  }
  ah.dmac = {};
  find_neighbour(static_cast<int>(ah.sgid_attr.ifindex), d, ah.dmac);
}

}  // namespace

Status rdma_resolve_ah(ib_device& dev, rdma_ah_attr& ah, std::uint32_t port) {
  if (port) ah.port_num = static_cast<std::uint8_t>(port);
  UHCA_CHECK(fill_sgid_attr(dev, ah));
  resolve_dmac(dev, ah);
  return success();
}

Status ib_modify_qp(ib_qp& opened, ib_qp_attr& attr, std::uint32_t mask, Udata* udata) {
  ib_qp& qp = ib_real_qp(opened);
  ib_device& dev = *qp.device;
  if (!dev.ops.modify_qp) return refuse(EOPNOTSUPP, "modify_qp: {} does not support it", dev.name);
  if (mask & IB_QP_AV) {
    UHCA_CHECK(fill_sgid_attr(dev, attr.ah_attr));
    if (connected(qp.qp_type)) resolve_dmac(dev, attr.ah_attr);
  }
  if (mask & IB_QP_ALT_PATH) {
    UHCA_CHECK(fill_sgid_attr(dev, attr.alt_ah_attr));
    // Automatic path migration exists on InfiniBand ports only.
    return refuse(EINVAL, "modify_qp: ALT_PATH needs an InfiniBand port; {} port {} is Ethernet", dev.name, attr.alt_ah_attr.port_num);
  }
  // PSNs have 24 bits; Linux masks the rest with a warning.
  if ((mask & IB_QP_RQ_PSN) && (attr.rq_psn & ~0xffffffu)) {
    log::warn("modify_qp: qpn {:#x}: rq_psn {:#x} has more than 24 bits, cut", qp.qp_num, attr.rq_psn);
    attr.rq_psn &= 0xffffff;
  }
  if ((mask & IB_QP_SQ_PSN) && (attr.sq_psn & ~0xffffffu)) {
    log::warn("modify_qp: qpn {:#x}: sq_psn {:#x} has more than 24 bits, cut", qp.qp_num, attr.sq_psn);
    attr.sq_psn &= 0xffffff;
  }
  UHCA_CHECK(dev.ops.modify_qp(qp, attr, mask, udata));
  if (mask & IB_QP_PORT) qp.port = opened.port = attr.port_num;
  return success();
}

Status ib_check_mr_access(ib_device& dev, std::uint32_t access) {
  constexpr std::uint32_t local_write = 1, remote_write = 2, remote_atomic = 8, on_demand = 1 << 6, flush = 1 << 8 | 1 << 9;
  constexpr std::uint32_t supported = 0x3ff | 0x3ff00000;  // bits 0..9 and the optional ones
  if ((access & (remote_write | remote_atomic)) && !(access & local_write))
    return refuse(EINVAL, "access flags {:#x}: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE", access);
  if (access & ~supported) return refuse(EINVAL, "access flags: unknown bits {:#x}", access & ~supported);
  if ((access & on_demand) && !dev.attrs.odp_general_caps)
    return refuse(EOPNOTSUPP, "access flags: {} does not support on-demand paging", dev.name);
  if ((access & flush) && !(dev.attrs.device_cap_flags_ex >> 38 & 3))
    return refuse(EOPNOTSUPP, "access flags: {} does not support FLUSH", dev.name);
  return success();
}

Result<std::unique_ptr<ib_pd>> ib_alloc_pd(ib_device& dev, ib_ucontext* uctx, Udata* udata) {
  if (!dev.ops.alloc_pd) return refuse(EOPNOTSUPP, "alloc_pd: {} does not support it", dev.name);
  auto pd = UHCA_TRY(dev.ops.alloc_pd(dev, uctx, udata));
  pd->device = &dev;
  pd->ucontext = uctx;
  track(dev, RDMA_RESTRACK_PD, 1);
  return pd;
}

Status ib_dealloc_pd(ib_pd& pd) {
  if (int n = pd.usecnt.load()) return refuse(EBUSY, "dealloc_pd: {} object(s) still use the PD", n);
  ib_device& dev = *pd.device;
  UHCA_CHECK(dev.ops.dealloc_pd(pd));
  track(dev, RDMA_RESTRACK_PD, -1);
  return success();
}

Result<std::unique_ptr<ib_mr>> ib_reg_user_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova,
                                              std::uint32_t access, Udata* udata) {
  ib_device& dev = *pd.device;
  if (!dev.ops.reg_user_mr) return refuse(EOPNOTSUPP, "reg_mr: {} does not support it", dev.name);
  UHCA_CHECK(ib_check_mr_access(dev, access));
  return track_mr(pd, UHCA_TRY(dev.ops.reg_user_mr(pd, start, length, iova, access, udata)));
}

Result<std::unique_ptr<ib_mr>> ib_reg_user_mr_dmabuf(ib_pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                                     std::uint32_t access, uverbs_attr_bundle* attrs) {
  ib_device& dev = *pd.device;
  if (!dev.ops.reg_user_mr_dmabuf) return refuse(EOPNOTSUPP, "reg_mr: {} registers no dma-bufs", dev.name);
  UHCA_CHECK(ib_check_mr_access(dev, access));
  return track_mr(pd, UHCA_TRY(dev.ops.reg_user_mr_dmabuf(pd, offset, length, iova, fd, access, attrs)));
}

Result<std::unique_ptr<ib_mr>> ib_reg_dm_mr(ib_pd& pd, ib_dm& dm, const ib_dm_mr_attr& attr, uverbs_attr_bundle* attrs) {
  ib_device& dev = *pd.device;
  if (!dev.ops.reg_dm_mr) return refuse(EOPNOTSUPP, "reg_dm_mr: {} does not support it", dev.name);
  UHCA_CHECK(ib_check_mr_access(dev, attr.access_flags));
  if (attr.offset > dm.length || attr.length > dm.length - attr.offset)
    return refuse(EINVAL, "reg_dm_mr: {} bytes at {} of a device memory of {}", attr.length, attr.offset, dm.length);
  auto mr = track_mr(pd, UHCA_TRY(dev.ops.reg_dm_mr(pd, dm, attr, attrs)));
  mr->dm = &dm;
  dm.usecnt.fetch_add(1);
  return mr;
}

Status ib_dereg_mr(ib_mr& mr) {
  ib_device& dev = *mr.device;
  ib_pd* pd = mr.pd;
  UHCA_CHECK(dev.ops.dereg_mr(mr));
  if (mr.dm) mr.dm->usecnt.fetch_sub(1);
  if (pd) pd->usecnt.fetch_sub(1);
  track(dev, RDMA_RESTRACK_MR, -1);
  return success();
}

Result<std::unique_ptr<ib_cq>> ib_create_cq(ib_device& dev, ib_ucontext* uctx, const ib_cq_init_attr& attr, Udata* udata) {
  if (!dev.ops.create_cq) return refuse(EOPNOTSUPP, "create_cq: {} does not support it", dev.name);
  auto cq = UHCA_TRY(dev.ops.create_cq(dev, uctx, attr, udata));
  cq->device = &dev;
  cq->ucontext = uctx;
  track(dev, RDMA_RESTRACK_CQ, 1);
  return cq;
}

Status ib_destroy_cq(ib_cq& cq) {
  if (int n = cq.usecnt.load()) return refuse(EBUSY, "destroy_cq: cqn {:#x} is still used by {} queue(s)", cq.hw_cqn(), n);
  ib_device& dev = *cq.device;
  UHCA_CHECK(dev.ops.destroy_cq(cq));
  track(dev, RDMA_RESTRACK_CQ, -1);
  return success();
}

Result<std::unique_ptr<ib_qp>> ib_create_qp(ib_device& dev, ib_pd* pd, ib_qp_init_attr& attr, Udata* udata) {
  if (!dev.ops.create_qp) return refuse(EOPNOTSUPP, "create_qp: {} does not support it", dev.name);
  bool shared = attr.qp_type == ib_qp_type::XRC_TGT;
  // A shared QP outlives the program's call: nothing of the program's is in it.
  auto qp = UHCA_TRY(dev.ops.create_qp(dev, shared ? nullptr : pd, attr, shared ? nullptr : udata));
  qp->device = &dev;
  qp->qp_type = attr.qp_type;
  track(dev, RDMA_RESTRACK_QP, 1);
  if (shared) return ib_share_qp(std::move(qp), *attr.xrcd);
  qp->pd = pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->srq = attr.srq;
  qp->rwq_ind_tbl = attr.rwq_ind_tbl;
  if (pd) pd->usecnt.fetch_add(1);
  if (attr.send_cq) attr.send_cq->usecnt.fetch_add(1);
  if (attr.recv_cq) attr.recv_cq->usecnt.fetch_add(1);
  if (attr.srq) attr.srq->usecnt.fetch_add(1);
  if (attr.rwq_ind_tbl) attr.rwq_ind_tbl->usecnt.fetch_add(1);
  return qp;
}

Status ib_destroy_qp(ib_qp& qp) {
  if (qp.real_qp) return ib_close_qp(qp);
  if (int n = qp.usecnt.load())
    return refuse(EBUSY, "destroy_qp: qpn {:#x} is still attached to {} multicast group(s) or flow(s)", qp.qp_num, n);
  ib_device& dev = *qp.device;
  ib_pd* pd = qp.pd;
  ib_cq* scq = qp.send_cq;
  ib_cq* rcq = qp.recv_cq;
  ib_srq* srq = qp.srq;
  ib_rwq_ind_table* table = qp.rwq_ind_tbl;
  UHCA_CHECK(dev.ops.destroy_qp(qp));
  if (pd) pd->usecnt.fetch_sub(1);
  if (scq) scq->usecnt.fetch_sub(1);
  if (rcq) rcq->usecnt.fetch_sub(1);
  if (srq) srq->usecnt.fetch_sub(1);
  if (table) table->usecnt.fetch_sub(1);
  track(dev, RDMA_RESTRACK_QP, -1);
  return success();
}

Status ib_query_qp(ib_qp& qp, ib_qp_attr& attr, std::uint32_t mask, ib_qp_init_attr& init) {
  if (!qp.device->ops.query_qp) return refuse(EOPNOTSUPP, "query_qp: {} does not support it", qp.device->name);
  return qp.device->ops.query_qp(ib_real_qp(qp), attr, mask, init);
}

namespace {

// Linux: rdma_is_multicast_addr. RoCE ignores the LID.
bool is_multicast(const ib_gid& g) {
  return g[0] == 0xff || (is_v4_mapped(g) && (g[12] & 0xf0) == 0xe0);
}

Status check_mcast(const ib_qp& qp, const ib_gid& gid) {
  if (!is_multicast(gid)) return refuse(EINVAL, "multicast on QP {:#x}: the GID is not a group's", qp.qp_num);
  if (qp.qp_type != ib_qp_type::UD) return refuse(EINVAL, "multicast on QP {:#x}: it is not UD", qp.qp_num);
  return success();
}

}  // namespace

Status ib_attach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t lid) {
  if (!qp.device->ops.attach_mcast) return refuse(EOPNOTSUPP, "attach_mcast: {} does not support it", qp.device->name);
  UHCA_CHECK(check_mcast(qp, gid));
  UHCA_CHECK(qp.device->ops.attach_mcast(qp, gid, lid));
  qp.usecnt.fetch_add(1);
  return success();
}

Status ib_detach_mcast(ib_qp& qp, const ib_gid& gid, std::uint16_t lid) {
  if (!qp.device->ops.detach_mcast) return refuse(EOPNOTSUPP, "detach_mcast: {} does not support it", qp.device->name);
  UHCA_CHECK(check_mcast(qp, gid));
  UHCA_CHECK(qp.device->ops.detach_mcast(qp, gid, lid));
  qp.usecnt.fetch_sub(1);
  return success();
}

Result<std::unique_ptr<ib_srq>> ib_create_srq(ib_pd& pd, ib_srq_init_attr& attr, Udata* udata) {
  ib_device& dev = *pd.device;
  if (!dev.ops.create_srq) return refuse(EOPNOTSUPP, "create_srq: {} does not support it", dev.name);
  auto srq = UHCA_TRY(dev.ops.create_srq(pd, attr, udata));
  srq->device = &dev;
  srq->pd = &pd;
  srq->srq_type = attr.srq_type;
  pd.usecnt.fetch_add(1);
  if (ib_srq_has_cq(attr.srq_type) && attr.cq) {
    srq->cq = attr.cq;
    srq->cq->usecnt.fetch_add(1);
  }
  if (attr.srq_type == ib_srq_type::XRC && attr.xrcd) {
    srq->xrcd = attr.xrcd;
    srq->xrcd->usecnt.fetch_add(1);
  }
  track(dev, RDMA_RESTRACK_SRQ, 1);
  return srq;
}

Status ib_destroy_srq(ib_srq& srq) {
  if (int n = srq.usecnt.load()) return refuse(EBUSY, "destroy_srq: {} QP(s) still use SRQ {:#x}", n, srq.srq_num);
  ib_device& dev = *srq.device;
  UHCA_CHECK(dev.ops.destroy_srq(srq));
  srq.pd->usecnt.fetch_sub(1);
  if (srq.cq) srq.cq->usecnt.fetch_sub(1);
  if (srq.xrcd) srq.xrcd->usecnt.fetch_sub(1);
  track(dev, RDMA_RESTRACK_SRQ, -1);
  return success();
}

}  // namespace uhca::kernel
