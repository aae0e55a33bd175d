// SPDX-License-Identifier: MIT
// Direct Verbs: the mlx5dv functions that are supported (support.inc lists all). Conventions are those of <infiniband/mlx5dv.h>.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "base/log.h"
#include "prm/other_caps.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {

namespace {

constexpr std::uint64_t kFlagBlueFlame = 1 << 8;  // MLX5DV_CONTEXT_FLAGS_BLUEFLAME

// What DC queues may do with memory on demand: only the device knows (capability group 2).
std::uint32_t dc_odp_caps(ibv_context* context) {
  constexpr unsigned kOdp = 2;
  const auto odp = current_caps(context, kOdp);
  using S = prm::odp_per_transport_service_cap;
  const void* dc = prm::at<prm::odp_cap::dc_odp_caps>(static_cast<const void*>(odp.data()));
  std::uint32_t caps = 0;
  if (prm::get<S::send>(dc)) caps |= IBV_ODP_SUPPORT_SEND;
  if (prm::get<S::receive>(dc)) caps |= IBV_ODP_SUPPORT_RECV;
  if (prm::get<S::write>(dc)) caps |= IBV_ODP_SUPPORT_WRITE;
  if (prm::get<S::read>(dc)) caps |= IBV_ODP_SUPPORT_READ;
  if (prm::get<S::atomic>(dc)) caps |= IBV_ODP_SUPPORT_ATOMIC;
  if (prm::get<S::srq_receive>(dc)) caps |= IBV_ODP_SUPPORT_SRQ_RECV;
  return caps;
}

void fill_dv_context(Context* ctx, mlx5dv_context* out) {
  std::uint64_t asked = out->comp_mask;
  std::uint64_t done = 0;
  const mlx5_ib_query_device_resp& c = ctx->caps;
  out->version = 0;
  out->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1;
  if (c.mlx5_ib_support_multi_pkt_send_wqes & MLX5_IB_ALLOW_MPW) out->flags |= MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED;
  if (c.mlx5_ib_support_multi_pkt_send_wqes & MLX5_IB_SUPPORT_EMPW) out->flags |= MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW;
  if (c.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP) out->flags |= MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP;
  if (c.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD) out->flags |= MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD;
  if (c.flags & MLX5_IB_QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE) out->flags |= MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE;
  if (ctx->real_time_ts) out->flags |= MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS;
  if (ctx->bf_reg_size) out->flags |= kFlagBlueFlame;

  if (asked & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) {
    out->cqe_comp_caps = {c.cqe_comp_caps.max_num, c.cqe_comp_caps.supported_format};
    done |= MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
  }
  if (asked & MLX5DV_CONTEXT_MASK_SWP) {
    out->sw_parsing_caps = {c.sw_parsing_caps.sw_parsing_offloads, c.sw_parsing_caps.supported_qpts};
    done |= MLX5DV_CONTEXT_MASK_SWP;
  }
  if (asked & MLX5DV_CONTEXT_MASK_STRIDING_RQ) {
    out->striding_rq_caps = {};  // needs mlx5dv_create_wq
    done |= MLX5DV_CONTEXT_MASK_STRIDING_RQ;
  }
  if (asked & MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS) {
    out->tunnel_offloads_caps = c.tunnel_offloads_caps;
    done |= MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS;
  }
  if (asked & MLX5DV_CONTEXT_MASK_DYN_BFREGS) {
    out->max_dynamic_bfregs = ctx->num_dyn_bfregs;
    done |= MLX5DV_CONTEXT_MASK_DYN_BFREGS;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE) && ctx->clock_info) {
    out->max_clock_info_update_nsec = ctx->clock_info->overflow_period;
    done |= MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE;
  }
  if (asked & MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS) {
    out->flow_action_flags = 0;
    done |= MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS;
  }
  if (asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) {
    out->dc_odp_caps = dc_odp_caps(to_ibv(ctx));
    done |= MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK) && ctx->hca_core_clock) {
    out->hca_core_clock = ctx->hca_core_clock;
    done |= MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK;
  }
  if (asked & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) {
    out->sig_caps = {};
    done |= MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  }
  if (asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) {
    out->dci_streams_caps = {c.dci_streams_caps.max_log_num_concurent, c.dci_streams_caps.max_log_num_errored};
    done |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  }
  if (asked & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH) {
    out->max_wr_memcpy_length = 0;
    done |= MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH;
  }
  if (asked & MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD) {
    out->crypto_caps = {};
    done |= MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD;
  }
  out->comp_mask = done;
}

void get_qp(ibv_qp* in, mlx5dv_qp* out) {
  Qp* qp = to_qp(in);
  std::uint64_t asked = out->comp_mask;
  out->dbrec = reinterpret_cast<__be32*>(qp->db);
  out->sq.buf = qp->ring.start;
  out->sq.wqe_cnt = qp->sq.wqe_cnt;
  out->sq.stride = static_cast<std::uint32_t>(prm::kSendWqeBb);
  out->rq.buf = qp->buf.bytes() + qp->rq.offset;
  out->rq.wqe_cnt = qp->rq.wqe_cnt;
  out->rq.stride = 1u << qp->rq.wqe_shift;
  out->bf.reg = qp->uar->reg;
  out->bf.size = qp->uar->buf_size;
  out->comp_mask = 0;
  if (asked & MLX5DV_QP_MASK_UAR_MMAP_OFFSET) {
    out->uar_mmap_offset = qp->uar->mmap_offset;
    out->comp_mask |= MLX5DV_QP_MASK_UAR_MMAP_OFFSET;
  }
  if (asked & MLX5DV_QP_MASK_RAW_QP_HANDLES) {
    out->tirn = out->tisn = out->rqn = out->sqn = 0;  // RC, UC and UD QPs have none
    out->comp_mask |= MLX5DV_QP_MASK_RAW_QP_HANDLES;
  }
  if (asked & MLX5DV_QP_MASK_RAW_QP_TIR_ADDR) {
    out->tir_icm_addr = 0;
    out->comp_mask |= MLX5DV_QP_MASK_RAW_QP_TIR_ADDR;
  }
}

void get_cq(ibv_cq* in, mlx5dv_cq* out) {
  Cq* cq = to_cq(in);
  out->comp_mask = 0;
  out->cqn = cq->cqn;
  out->cqe_cnt = cq->ncqe;
  out->cqe_size = 1u << cq->cqe_shift;
  out->buf = cq->buf.addr;
  out->dbrec = reinterpret_cast<__be32*>(cq->db);
  out->cq_uar = to_ctx(in->context)->nc_uar.page;
  // From now on the program reads the CQ itself, so nothing is removed from it behind its back.
  cq->dv_owned = true;
}

void get_srq(ibv_srq* in, mlx5dv_srq* out) {
  Srq* srq = to_srq(in);
  std::uint64_t asked = out->comp_mask;
  out->buf = srq->buf.addr;
  out->dbrec = reinterpret_cast<__be32*>(srq->db);
  out->stride = 1u << srq->wqe_shift;
  out->head = srq->head;
  out->tail = srq->tail;
  out->comp_mask = 0;
  if (asked & MLX5DV_SRQ_MASK_SRQN) {
    out->srqn = srq->srqn;
    out->comp_mask = MLX5DV_SRQ_MASK_SRQN;
  }
}

ibv_context* context_of(const mlx5dv_obj* obj, std::uint64_t type) {
  if (type & MLX5DV_OBJ_QP) return obj->qp.in->context;
  if (type & MLX5DV_OBJ_CQ) return obj->cq.in->context;
  if (type & MLX5DV_OBJ_SRQ) return obj->srq.in->context;
  if (type & MLX5DV_OBJ_RWQ) return obj->rwq.in->context;
  if (type & MLX5DV_OBJ_DM) return obj->dm.in->context;
  if (type & MLX5DV_OBJ_AH) return obj->ah.in->context;
  if (type & MLX5DV_OBJ_PD) return obj->pd.in->context;
  return nullptr;
}

int init_obj(mlx5dv_obj* obj, std::uint64_t type) {
  if (!ours(context_of(obj, type))) return EOPNOTSUPP;
  if (type & MLX5DV_OBJ_RWQ) return refuse(EOPNOTSUPP, "mlx5dv_init_obj: WQs are not supported").value;
  if (type & MLX5DV_OBJ_QP) get_qp(obj->qp.in, obj->qp.out);
  if (type & MLX5DV_OBJ_CQ) get_cq(obj->cq.in, obj->cq.out);
  if (type & MLX5DV_OBJ_SRQ) get_srq(obj->srq.in, obj->srq.out);
  if (type & MLX5DV_OBJ_DM) get_dm(obj->dm.in, obj->dm.out);
  if (type & MLX5DV_OBJ_AH) {
    obj->ah.out->comp_mask = 0;
    obj->ah.out->av = reinterpret_cast<mlx5_wqe_av*>(to_ah(obj->ah.in)->av);
  }
  if (type & MLX5DV_OBJ_PD) {
    obj->pd.out->comp_mask = 0;
    obj->pd.out->pdn = to_pd(obj->pd.in)->pdn;
  }
  return 0;
}

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT int uhca_mlx5dv_init_obj_1_2(mlx5dv_obj* obj, std::uint64_t type) {
  return mlx5::init_obj(obj, type);
}
// Before MLX5_1.2 mlx5dv_cq.cq_uar was the address of a pointer to the page (mlx5dv.h's history).
UHCA_EXPORT int uhca_mlx5dv_init_obj_1_0(mlx5dv_obj* obj, std::uint64_t type) {
  int ret = mlx5::init_obj(obj, type);
  if (!ret && (type & MLX5DV_OBJ_CQ)) obj->cq.out->cq_uar = &to_ctx(obj->cq.in->context)->nc_uar.page;
  return ret;
}
__asm__(".symver uhca_mlx5dv_init_obj_1_2, mlx5dv_init_obj@@MLX5_1.2");
__asm__(".symver uhca_mlx5dv_init_obj_1_0, mlx5dv_init_obj@MLX5_1.0");

UHCA_EXPORT bool mlx5dv_is_supported(ibv_device* device) {
  return is_ours(device);
}

UHCA_EXPORT ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
  if (!is_ours(device)) return mlx5::fail(refuse(EOPNOTSUPP, "mlx5dv_open_device: not an mlx5 device"));
  return verbs_open_device(device, attr);
}

UHCA_EXPORT int mlx5dv_query_device(ibv_context* context, mlx5dv_context* out) {
  if (!ours(context)) return EOPNOTSUPP;
  fill_dv_context(to_ctx(context), out);
  return 0;
}

UHCA_EXPORT int mlx5dv_set_context_attr(ibv_context* context, mlx5dv_set_ctx_attr_type type, void* attr) {
  if (!ours(context)) return EOPNOTSUPP;
  if (type != MLX5DV_CTX_ATTR_BUF_ALLOCATORS) return refuse(ENOTSUP, "mlx5dv_set_context_attr: type {}", static_cast<int>(type)).value;
  to_ctx(context)->extern_alloc = *static_cast<mlx5dv_ctx_allocators*>(attr);
  return 0;
}

UHCA_EXPORT int mlx5dv_get_clock_info(ibv_context* context, mlx5dv_clock_info* info) {
  if (!ours(context)) return EOPNOTSUPP;
  return read_clock_info(to_ctx(context), info);
}

UHCA_EXPORT ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  ibv_cq_ex* cq = mlx5::create_cq(context, attr, dv, true);
  if (cq) verbs_init_cq(ibv_cq_ex_to_cq(cq), context, attr->channel, attr->cq_context);
  return cq;
}

UHCA_EXPORT ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  return mlx5::create_qp(context, attr, dv);
}

UHCA_EXPORT mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
  return &to_qp(qp)->dv;
}

UHCA_EXPORT int _mlx5dv_query_port(ibv_context* context, std::uint32_t port, mlx5dv_port* info, std::size_t len) {
  if (!ours(context)) return EOPNOTSUPP;
  ibv_command_buffer cmd(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT);
  cmd.in_u32(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, port);
  cmd.out(MLX5_IB_ATTR_QUERY_PORT, info, len);
  return execute_ioctl(context, &cmd);
}
