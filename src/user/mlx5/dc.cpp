// SPDX-License-Identifier: MIT
// The dynamically connected transport. Initiators (DCI) are QPs with a send queue whose every request names its target; targets (DCT) have
// no queues in the program, and no number until they are modified to RTR: only then the device makes them.
#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

Result<mlx5dv_dc_type> dc_type_of(const ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr* dv) {
  bool wanted = dv && (dv->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC);
  if (attr->qp_type != IBV_QPT_DRIVER) return mlx5dv_dc_type{};
  if (!wanted) return refuse(EINVAL, "create_qp: the driver's QP type needs mlx5dv_create_qp and the DC attributes");
  mlx5dv_dc_type type = dv->dc_init_attr.dc_type;
  if (type != MLX5DV_DCTYPE_DCT && type != MLX5DV_DCTYPE_DCI) return refuse(EINVAL, "mlx5dv_create_qp: dc_type {}", static_cast<int>(type));
  return type;
}

Result<mlx5_ib_create_qp_dci_streams> dci_streams_of(const Context* ctx, const mlx5dv_qp_init_attr& dv) {
  const mlx5dv_dci_streams& want = dv.dc_init_attr.dci_streams;
  const mlx5_ib_dci_streams_caps& most = ctx->caps.dci_streams_caps;
  if (want.log_num_concurent > most.max_log_num_concurent || want.log_num_errored > most.max_log_num_errored)
    return refuse(EINVAL, "mlx5dv_create_qp: 2^{} DCI streams, of which 2^{} may fail; at most 2^{} and 2^{}", want.log_num_concurent,
                  want.log_num_errored, most.max_log_num_concurent, most.max_log_num_errored);
  return mlx5_ib_create_qp_dci_streams{want.log_num_concurent, want.log_num_errored};
}

ibv_qp* create_dct(ibv_context* context, ibv_qp_init_attr_ex* attr, const mlx5dv_qp_init_attr& dv, std::uint32_t flags) {
  if (attr->comp_mask & ~std::uint32_t{IBV_QP_INIT_ATTR_PD}) return fail(refuse(EINVAL, "create DCT: comp_mask {:#x}", attr->comp_mask));
  if (dv.comp_mask & ~std::uint64_t{MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS})
    return fail(refuse(EINVAL, "create DCT: comp_mask {:#x}", dv.comp_mask));
  if (flags & ~std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE}) return fail(refuse(EINVAL, "create DCT: flags {:#x}", flags));
  Context* ctx = to_ctx(context);
  if (!(ctx->caps.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT)) flags = 0;
  Qp* qp = make<Qp>();
  if (!qp) return nullptr;
  qp->ctx = ctx;
  qp->uar = &ctx->nc_uar;
  qp->dc_type = MLX5DV_DCTYPE_DCT;
  qp->index.qp = qp;
  int uidx = store_uidx(ctx, &qp->index);
  int err = uidx < 0 ? refuse(ENOMEM, "create DCT: no free user index").value : 0;
  if (!err) {
    qp->uidx = static_cast<std::uint32_t>(uidx);
    mlx5_ib_create_qp in = {};
    mlx5_ib_create_qp_resp out = {};
    in.flags = MLX5_QP_FLAG_TYPE_DCT | flags;
    in.access_key = dv.dc_init_attr.dct_access_key;
    in.uidx = qp->uidx;
    in.ece_options = ctx->ece ? kEceFirstVersion : 0;
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    err = ibv_cmd_create_qp_ex(context, &qp->v, attr, &udata, nullptr);
    qp->get_ece = out.ece_options;
  }
  if (!err) return &qp->v.qp;
  if (uidx >= 0) clear_uidx(ctx, qp->uidx);
  delete qp;
  errno = err;
  return nullptr;
}

int modify_dct(Qp* qp, const ibv_qp_attr* attr, int mask) {
  mlx5_ib_modify_qp in = {};
  mlx5_ib_modify_qp_resp out = {};
  in.ece_options = qp->set_ece;
  verbs_udata udata{&in, sizeof in, &out, sizeof out};
  if (int err = ibv_cmd_modify_qp_ex(&qp->v.qp, attr, mask, &udata)) return err;
  if (!(mask & IBV_QP_STATE) || attr->qp_state != IBV_QPS_RTR) return 0;
  if (out.response_length < offsetof(mlx5_ib_modify_qp_resp, dctn) + sizeof out.dctn)
    return fail_int(refuse(EINVAL, "modify DCT: the kernel does not tell its number"));
  qp->v.qp.qp_num = out.dctn;
  if (qp->set_ece) {
    qp->set_ece = 0;
    qp->get_ece = out.ece_options;
  }
  return 0;
}

}  // namespace uhca::mlx5
