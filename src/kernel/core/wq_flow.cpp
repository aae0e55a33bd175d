// SPDX-License-Identifier: MIT
// Kernel verbs of Ethernet: receive WQs, their indirection tables, flow rules. Linux: drivers/infiniband/core/verbs.c (ib_create_wq, ...),
// uverbs_cmd.c and uverbs_std_types.c (use counts of tables and rules).
#include "base/log.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

Result<std::unique_ptr<ib_wq>> ib_create_wq(ib_pd& pd, ib_wq_init_attr& attr, Udata* udata) {
  ib_device& dev = *pd.device;
  if (!dev.ops.create_wq) return refuse(EOPNOTSUPP, "create_wq: {} does not support it", dev.name);
  auto wq = UHCA_TRY(dev.ops.create_wq(pd, attr, udata));
  wq->device = &dev;
  wq->pd = &pd;
  wq->cq = attr.cq;
  wq->wq_type = attr.wq_type;
  pd.usecnt.fetch_add(1);
  attr.cq->usecnt.fetch_add(1);
  return wq;
}

Status ib_destroy_wq(ib_wq& wq) {
  if (int n = wq.usecnt.load()) return refuse(EBUSY, "destroy_wq: {} place(s) in indirection tables have WQ {:#x}", n, wq.wq_num);
  ib_pd* pd = wq.pd;
  ib_cq* cq = wq.cq;
  UHCA_CHECK(wq.device->ops.destroy_wq(wq));
  pd->usecnt.fetch_sub(1);
  cq->usecnt.fetch_sub(1);
  return success();
}

Result<std::unique_ptr<ib_rwq_ind_table>> ib_create_rwq_ind_table(ib_device& dev, const std::vector<ib_wq*>& wqs, Udata* udata) {
  if (!dev.ops.create_rwq_ind_table) return refuse(EOPNOTSUPP, "create_rwq_ind_table: {} does not support it", dev.name);
  auto table = UHCA_TRY(dev.ops.create_rwq_ind_table(dev, wqs, udata));
  table->device = &dev;
  table->ind_tbl = wqs;
  for (ib_wq* wq : wqs) wq->usecnt.fetch_add(1);
  return table;
}

Status ib_destroy_rwq_ind_table(ib_rwq_ind_table& table) {
  if (int n = table.usecnt.load()) return refuse(EBUSY, "destroy_rwq_ind_table: {} QP(s) still use it", n);
  UHCA_CHECK(table.device->ops.destroy_rwq_ind_table(table));
  for (ib_wq* wq : table.ind_tbl) wq->usecnt.fetch_sub(1);
  return success();
}

Result<std::unique_ptr<ib_flow>> ib_create_flow(ib_qp& qp, const ib_flow_attr& attr, Udata* udata) {
  ib_device& dev = *qp.device;
  if (!dev.ops.create_flow) return refuse(EOPNOTSUPP, "create_flow: {} does not support it", dev.name);
  auto flow = UHCA_TRY(dev.ops.create_flow(qp, attr, udata));
  flow->device = &dev;
  flow->qp = &qp;
  qp.usecnt.fetch_add(1);
  return flow;
}

Status ib_destroy_flow(ib_flow& flow) {
  ib_qp* qp = flow.qp;
  UHCA_CHECK(flow.device->ops.destroy_flow(flow));
  if (qp) qp->usecnt.fetch_sub(1);
  return success();
}

}  // namespace uhca::kernel
