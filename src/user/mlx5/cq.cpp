// SPDX-License-Identifier: MIT
// Completion queues: creation, arming, resizing, removal of a dead QP's entries.
#include <climits>
#include <cstdlib>

#include "base/log.h"
#include "uapi/mlx5_next.h"
#include "user/mlx5/doorbell.h"

namespace uhca::mlx5 {

namespace {

constexpr std::uint64_t kWcFlags = std::uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN |
                                   IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_TM_INFO | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr std::uint64_t kMaxCqe = std::uint64_t{1} << 24;

Result<std::uint32_t> cqe_size(const mlx5dv_cq_init_attr* dv) {
  long size = 64;
  if (dv && (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE))
    size = dv->cqe_size;
  else if (const char* env = getenv("MLX5_CQE_SIZE"))
    size = strtol(env, nullptr, 10);
  if (size != 64 && size != 128) return refuse(EINVAL, "create_cq: CQEs are 64 or 128 bytes, not {}", size);
  return static_cast<std::uint32_t>(size);
}

// Marks every entry of the buffer as never written.
void init_cqes(std::uint8_t* buf, std::uint32_t n, std::uint32_t shift) {
  for (std::uint32_t i = 0; i < n; ++i) buf[((std::size_t{i} + 1) << shift) - 1] = prm::kCqeOwnerInitial;
}

int check_attr(Context* ctx, const ibv_cq_init_attr_ex* attr, const mlx5dv_cq_init_attr* dv) {
  if (!attr->cqe) return refuse(EINVAL, "create_cq: no entries asked for").value;
  if (attr->comp_mask & ~(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
    return refuse(EINVAL, "create_cq_ex: comp_mask {:#x}", attr->comp_mask).value;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
      (attr->flags & ~(IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)))
    return refuse(EINVAL, "create_cq_ex: flags {:#x}", attr->flags).value;
  if (attr->wc_flags & ~kWcFlags) return refuse(ENOTSUP, "create_cq_ex: wc_flags {:#x}", attr->wc_flags).value;
  if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && !parent_domain(attr->parent_domain))
    return refuse(EINVAL, "create_cq_ex: parent_domain is not one").value;
  if (!dv) return 0;
  if (dv->comp_mask & ~(MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE | MLX5DV_CQ_INIT_ATTR_MASK_FLAGS | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE))
    return refuse(EINVAL, "mlx5dv_create_cq: comp_mask {:#x}", dv->comp_mask).value;
  // As in libmlx5, such a CQ is for programs that read CQEs themselves: compressed ones are not parsed here.
  const auto& comp = ctx->caps.cqe_comp_caps;
  if ((dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) && (!comp.max_num || !(dv->cqe_comp_res_format & comp.supported_format)))
    return refuse(EINVAL, "mlx5dv_create_cq: compression format {:#x}; the device has {:#x}", dv->cqe_comp_res_format,
                  comp.supported_format)
        .value;
  if (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) {
    if (dv->flags & ~std::uint32_t{MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD})
      return refuse(EINVAL, "mlx5dv_create_cq: flags {:#x}", dv->flags).value;
    if ((dv->flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD) && !(ctx->caps.flags & MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD))
      return refuse(EINVAL, "mlx5dv_create_cq: the device cannot pad CQEs").value;
  }
  return 0;
}

ibv_cq* create_cq_op(ibv_context* context, int cqe, ibv_comp_channel* channel, int vector) {
  if (cqe <= 0) return fail(refuse(EINVAL, "create_cq: {} entries", cqe));
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = static_cast<std::uint32_t>(cqe);
  attr.channel = channel;
  attr.comp_vector = static_cast<std::uint32_t>(vector);
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = create_cq(context, &attr, nullptr, false);
  return cq ? ibv_cq_ex_to_cq(cq) : nullptr;
}

ibv_cq_ex* create_cq_ex_op(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return create_cq(context, attr, nullptr, true);
}

// Copies what is left in the old buffer, up to the CQE that marks the switch, to the places behind it in the new one.
void copy_on_resize(Cq* cq, std::uint8_t* to, std::uint32_t new_ncqe) {
  std::uint32_t i = cq->cons_index;
  std::size_t size = std::size_t{1} << cq->cqe_shift;
  for (std::uint32_t n = 0; n < cq->ncqe && cq->sw_owned(i); ++n, ++i) {
    const std::uint8_t* src64 = cq->cqe64(i);
    if (CqeView(src64).opcode() == CqeOpcode::RESIZE_CQ) {
      ++cq->cons_index;
      return;
    }
    std::uint8_t* dst = to + (std::size_t{(i + 1) & (new_ncqe - 1)} << cq->cqe_shift);
    std::memcpy(dst, src64 + prm::cqe64::kBytes - size, size);
    std::uint8_t& own = dst[size - 1];
    own = static_cast<std::uint8_t>((own & ~1) | (((i + 1) & new_ncqe) ? 1 : 0));
  }
  log::warn("CQ {:#x}: resized, but the old buffer holds no RESIZE_CQ entry", cq->cqn);
}

int resize_cq(ibv_cq* ibcq, int cqe) {
  Cq* cq = to_cq(ibcq);
  Context* ctx = to_ctx(ibcq->context);
  if (cqe < 0 || static_cast<long long>(cqe) * 64 > INT_MAX) return fail_int(refuse(EINVAL, "resize_cq: {} entries", cqe));
  LockGuard guard(cq->lock);
  auto ncqe = static_cast<std::uint32_t>(round_up_pow2(static_cast<std::uint64_t>(cqe) + 1));
  if (ncqe == cq->ncqe) return 0;
  Buf fresh;
  if (!alloc_buf(ctx, cq->parent, std::size_t{ncqe} << cq->cqe_shift, MLX5DV_RES_TYPE_CQ, &fresh)) return errno = ENOMEM;
  init_cqes(fresh.bytes(), ncqe, cq->cqe_shift);
  mlx5_ib_resize_cq in = {};
  in.buf_addr = reinterpret_cast<std::uintptr_t>(fresh.addr);
  in.cqe_size = static_cast<std::uint16_t>(1u << cq->cqe_shift);
  verbs_udata udata{&in, sizeof in, nullptr, 0};
  if (int err = ibv_cmd_resize_cq(ibcq, static_cast<int>(ncqe) - 1, &udata)) {
    free_buf(ctx, cq->parent, MLX5DV_RES_TYPE_CQ, &fresh);
    return err;
  }
  copy_on_resize(cq, fresh.bytes(), ncqe);
  free_buf(ctx, cq->parent, MLX5DV_RES_TYPE_CQ, &cq->buf);
  cq->buf = fresh;
  cq->ncqe = ncqe;
  ibcq->cqe = static_cast<int>(ncqe) - 1;
  return 0;
}

int destroy_cq(ibv_cq* ibcq) {
  Cq* cq = to_cq(ibcq);
  Context* ctx = to_ctx(ibcq->context);
  if (int err = ibv_cmd_destroy_cq(ibcq)) return err;
  free_dbr(ctx, cq->parent, cq->db);
  free_buf(ctx, cq->parent, MLX5DV_RES_TYPE_CQ, &cq->buf);
  if (cq->parent) --cq->parent->refs;
  delete cq;
  return 0;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  return ibv_cmd_modify_cq(cq, attr);
}

int arm_cq(ibv_cq* ibcq, int solicited_only) {
  Cq* cq = to_cq(ibcq);
  Context* ctx = to_ctx(ibcq->context);
  std::uint32_t word = (cq->arm_sn & 3) << 28 | (solicited_only ? prm::kCqDbReqNotSol : prm::kCqDbReqNot) | (cq->cons_index & 0xffffff);
  write_dbr(&cq->db[prm::kCqArmDb], word);
  Doorbell d{ctx->nc_uar.page + prm::kUarCqDoorbell, __builtin_bswap64(std::uint64_t{word} << 32 | cq->cqn)};
  write_uar(ctx, d);
  call_hook(ctx, d);
  return 0;
}

void cq_event(ibv_cq* cq) {
  ++to_cq(cq)->arm_sn;
}

}  // namespace

ibv_cq_ex* create_cq(ibv_context* context, const ibv_cq_init_attr_ex* attr, const mlx5dv_cq_init_attr* dv, bool extended) {
  Context* ctx = to_ctx(context);
  if (int err = check_attr(ctx, attr, dv)) return fail(Errno{err});
  auto size = cqe_size(dv);
  if (!size) return fail(size.error());
  if (dv && (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) && (dv->flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD) && *size != 128)
    return fail(refuse(EINVAL, "mlx5dv_create_cq: padding is for CQEs of 128 bytes"));
  std::uint64_t ncqe = round_up_pow2(std::uint64_t{attr->cqe} + 1);
  if (ncqe > kMaxCqe) return fail(refuse(EINVAL, "create_cq: {} entries, at most {}", attr->cqe, kMaxCqe - 1));

  Cq* cq = make<Cq>();
  if (!cq) return nullptr;
  cq->v.cq.context = context;
  bool single = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) && (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  cq->lock.enable(!ctx->single_threaded && !single);
  cq->ncqe = static_cast<std::uint32_t>(ncqe);
  cq->cqe_shift = *size == 128 ? 7 : 6;
  if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) cq->parent = parent_domain(attr->parent_domain);

  int err = extended ? fill_cq_readers(cq, attr) : 0;
  if (!err && !alloc_buf(ctx, cq->parent, ncqe << cq->cqe_shift, MLX5DV_RES_TYPE_CQ, &cq->buf)) err = errno;
  if (!err) {
    init_cqes(cq->buf.bytes(), cq->ncqe, cq->cqe_shift);
    cq->db = alloc_dbr(ctx, cq->parent);
    if (!cq->db) err = errno;
  }
  if (!err) {
    mlx5_ib_create_cq in = {};
    mlx5_ib_create_cq_resp out = {};
    in.buf_addr = reinterpret_cast<std::uintptr_t>(cq->buf.addr);
    in.db_addr = reinterpret_cast<std::uintptr_t>(cq->db);
    in.cqe_size = *size;
    if (dv && (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) && (dv->flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD))
      in.flags |= MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD;
    if (dv && (dv->comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE)) {
      in.cqe_comp_en = 1;
      in.cqe_comp_res_format = dv->cqe_comp_res_format;
    }
    if (ctx->real_time_ts && !(attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) &&
        (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK))
      in.flags |= MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
    ibv_command_buffer driver(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE);
    if (ctx->nc_uar.page_id >> 16) {
      driver.in_u32(uapi::MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX, ctx->nc_uar.page_id);
    } else {
      in.flags |= MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
      in.uar_page_index = static_cast<std::uint16_t>(ctx->nc_uar.page_id);
    }
    verbs_udata udata{&in, sizeof in, &out, sizeof out};
    ibv_cq_init_attr_ex kernel_attr = *attr;
    kernel_attr.cqe = cq->ncqe - 1;
    err = ibv_cmd_create_cq_ex(context, &kernel_attr, &cq->v, &udata, CREATE_CQ_CMD_FLAGS_TS_IGNORED_EX, &driver);
    cq->cqn = out.cqn;
  }
  if (err) {
    free_dbr(ctx, cq->parent, cq->db);
    free_buf(ctx, cq->parent, MLX5DV_RES_TYPE_CQ, &cq->buf);
    delete cq;
    errno = err;
    return nullptr;
  }
  if (cq->parent) ++cq->parent->refs;
  return &cq->v.cq_ex;
}

void clean_cq_locked(Cq* cq, std::uint32_t uidx, Srq* srq) {
  if (!cq || cq->dv_owned) return;
  if (cq->cur_index && cq->cur_index->uidx == uidx) cq->cur_index = nullptr;
  // The QP is gone, so nothing of it can come behind what is there now.
  std::uint32_t prod = cq->cons_index;
  while (prod != cq->cons_index + cq->ncqe && cq->sw_owned(prod)) ++prod;
  std::size_t size = std::size_t{1} << cq->cqe_shift;
  std::uint32_t freed = 0;
  while (prod != cq->cons_index) {
    --prod;
    CqeView cqe(cq->cqe64(prod));
    if (cqe.uidx() == uidx) {
      bool responder = cqe.opcode() != CqeOpcode::REQ && cqe.opcode() != CqeOpcode::REQ_ERR;
      if (srq && responder) srq_free_wqe(srq, cqe.wqe_counter());
      ++freed;
    } else if (freed) {
      std::uint8_t* dst = cq->cqe64(prod + freed) + prm::cqe64::kBytes - size;
      std::uint8_t owner = dst[size - 1] & 1;
      std::memcpy(dst, cqe.bytes() + prm::cqe64::kBytes - size, size);
      dst[size - 1] = static_cast<std::uint8_t>((dst[size - 1] & ~1) | owner);
    }
  }
  if (freed) {
    cq->cons_index += freed;
    to_device_barrier();
    write_dbr(&cq->db[prm::kCqSetCi], cq->cons_index & 0xffffff);
  }
}

void fill_cq_ops(verbs_context_ops* ops) {
  ops->create_cq = create_cq_op;
  ops->create_cq_ex = create_cq_ex_op;
  ops->resize_cq = resize_cq;
  ops->destroy_cq = destroy_cq;
  ops->modify_cq = modify_cq;
  ops->poll_cq = cq_poll;
  ops->req_notify_cq = arm_cq;
  ops->cq_event = cq_event;
}

}  // namespace uhca::mlx5
