// SPDX-License-Identifier: MIT
// XRC domains and the QPs that they share. Linux: drivers/infiniband/core/verbs.c (ib_alloc_xrcd_user, ib_open_qp, ib_close_qp).
#include <algorithm>

#include "base/log.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {
namespace {

// Everyone who has the QP open hears of it.
void shared_event(ib_qp* real, std::uint32_t ib_event, void*) {
  std::lock_guard g(real->open_lock);
  for (ib_qp* q : real->openings)
    if (q->event_handler) q->event_handler(q, ib_event, q->qp_context);
}

std::unique_ptr<ib_qp> open(ib_qp& real) {
  auto q = std::make_unique<ib_qp>();
  q->real_qp = &real;
  q->device = real.device;
  q->qp_num = real.qp_num;
  q->qp_type = real.qp_type;
  q->port = real.port;
  real.usecnt.fetch_add(1);
  std::lock_guard g(real.open_lock);
  real.openings.push_back(q.get());
  return q;
}

}  // namespace

Result<std::unique_ptr<ib_xrcd>> ib_alloc_xrcd(ib_device& dev, Udata* udata) {
  if (!dev.ops.alloc_xrcd) return refuse(EOPNOTSUPP, "open_xrcd: {} does not support it", dev.name);
  auto x = UHCA_TRY(dev.ops.alloc_xrcd(dev, udata));
  x->device = &dev;
  return x;
}

Status ib_dealloc_xrcd(ib_xrcd& xrcd) {
  if (int n = xrcd.usecnt.load()) return refuse(EBUSY, "close_xrcd: {} object(s) still use the XRC domain", n);
  return xrcd.device->ops.dealloc_xrcd(xrcd);
}

std::unique_ptr<ib_qp> ib_share_qp(std::unique_ptr<ib_qp> qp, ib_xrcd& xrcd) {
  ib_qp& real = *qp.release();
  real.event_handler = shared_event;
  real.xrcd = &xrcd;
  xrcd.usecnt.fetch_add(1);
  auto first = open(real);
  std::lock_guard g(xrcd.tgt_qps_lock);
  xrcd.tgt_qps.emplace(real.qp_num, &real);
  return first;
}

Result<std::unique_ptr<ib_qp>> ib_open_qp(ib_xrcd& xrcd, std::uint32_t qp_num, ib_qp_type type) {
  if (type != ib_qp_type::XRC_TGT) return refuse(EINVAL, "open_qp: type {} is never shared", static_cast<int>(type));
  std::lock_guard g(xrcd.tgt_qps_lock);
  auto it = xrcd.tgt_qps.find(qp_num);
  if (it == xrcd.tgt_qps.end()) return refuse(EINVAL, "open_qp: the XRC domain has no QP {:#x}", qp_num);
  return open(*it->second);
}

Status ib_close_qp(ib_qp& opening) {
  ib_qp& real = *opening.real_qp;
  ib_xrcd& xrcd = *real.xrcd;
  std::lock_guard g(xrcd.tgt_qps_lock);
  {
    std::lock_guard o(real.open_lock);
    std::erase(real.openings, &opening);
  }
  if (real.usecnt.fetch_sub(1) > 1) return success();
  if (Status s = real.device->ops.destroy_qp(real); !s.ok()) {
    std::lock_guard o(real.open_lock);
    real.openings.push_back(&opening);
    real.usecnt.fetch_add(1);
    return s;
  }
  real.device->restrack[RDMA_RESTRACK_QP].fetch_sub(1);
  xrcd.tgt_qps.erase(real.qp_num);
  xrcd.usecnt.fetch_sub(1);
  delete &real;
  return success();
}

}  // namespace uhca::kernel
