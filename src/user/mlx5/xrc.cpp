// SPDX-License-Identifier: MIT
// XRC domains and target QPs: what arrives goes to the SRQ that the packet names, so a target has no queues in the program.
#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  verbs_xrcd* xrcd = make<verbs_xrcd>();
  if (!xrcd) return nullptr;
  if (int err = ibv_cmd_open_xrcd(context, xrcd, attr, nullptr)) {
    delete xrcd;
    errno = err;
    return nullptr;
  }
  return &xrcd->xrcd;
}

int close_xrcd(ibv_xrcd* ib) {
  auto* xrcd = reinterpret_cast<verbs_xrcd*>(ib);
  if (int err = ibv_cmd_close_xrcd(xrcd)) return err;
  delete xrcd;
  return 0;
}

Qp* new_target(ibv_context* context) {
  Qp* qp = make<Qp>();
  if (!qp) return nullptr;
  qp->ctx = to_ctx(context);
  qp->uar = &qp->ctx->nc_uar;
  return qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  Qp* qp = new_target(context);
  if (!qp) return nullptr;
  if (int err = ibv_cmd_open_qp(context, &qp->v, attr, nullptr)) {
    delete qp;
    errno = err;
    return nullptr;
  }
  return &qp->v.qp;
}

}  // namespace

ibv_qp* create_xrc_target(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
    return fail(refuse(EOPNOTSUPP, "create_qp: an XRC target sends nothing, so send_ops_flags are not for it"));
  if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd)
    return fail(refuse(EINVAL, "create_qp: an XRC target needs an XRC domain"));
  Qp* qp = new_target(context);
  if (!qp) return nullptr;
  // The kernel takes the driver's data for granted and does not look at it (the QP is not this program's own).
  if (int err = ibv_cmd_create_qp_ex(context, &qp->v, attr, nullptr, nullptr)) {
    delete qp;
    errno = err;
    return nullptr;
  }
  return &qp->v.qp;
}

int destroy_xrc_target(Qp* qp) {
  if (int err = ibv_cmd_destroy_qp(&qp->v.qp)) return err;
  delete qp;
  return 0;
}

void fill_xrc_ops(verbs_context_ops* ops) {
  ops->open_xrcd = open_xrcd;
  ops->close_xrcd = close_xrcd;
  ops->open_qp = open_qp;
}

}  // namespace uhca::mlx5
