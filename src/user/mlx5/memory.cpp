// SPDX-License-Identifier: MIT
// Protection domains, parent and thread domains, memory regions and windows, user buffers.
#include <rdma/ib_user_ioctl_cmds.h>

#include <cstdlib>

#include "base/log.h"
#include "uapi/mlx5_next.h"
#include "user/mlx5/devx.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {

ibv_pd* alloc_pd(ibv_context* context) {
  Pd* pd = make<Pd>();
  if (!pd) return nullptr;
  mlx5_ib_alloc_pd_resp out = {};
  verbs_udata udata{nullptr, 0, &out, sizeof out};
  if (int err = ibv_cmd_alloc_pd(context, &pd->pd, &udata)) {
    delete pd;
    errno = err;
    return nullptr;
  }
  pd->pd.context = context;
  pd->pdn = out.pdn;
  return &pd->pd;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask) return fail(refuse(EINVAL, "alloc_td: comp_mask {:#x}", attr->comp_mask));
  Td* td = make<Td>();
  if (!td) return nullptr;
  td->td.context = context;
  return &td->td;
}

int dealloc_td(ibv_td* ibtd) {
  Td* td = reinterpret_cast<Td*>(ibtd);
  if (td->refs.load() > 1) return refuse(EBUSY, "dealloc_td: parent domains still use it").value;
  delete td;
  return 0;
}

// A parent domain with the v65 permission to use unprotected memory is an ordinary one here: no device of ours is CC_DMA_BOUNCE.
constexpr std::uint32_t kAllowCcUnprotected = 1 << 2;

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr std::uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kAllowCcUnprotected;
  if (!attr->pd || attr->pd->context != context || (attr->td && attr->td->context != context))
    return fail(refuse(EINVAL, "alloc_parent_domain: PD or TD of another context, or no PD"));
  if (parent_domain(attr->pd)) return fail(refuse(EINVAL, "alloc_parent_domain: the PD is itself a parent domain"));
  if (attr->comp_mask & ~known) return fail(refuse(EINVAL, "alloc_parent_domain: comp_mask {:#x}", attr->comp_mask));
  Pd* pd = make<Pd>();
  if (!pd) return nullptr;
  pd->protection = to_pd(attr->pd);
  pd->pd = pd->protection->pd;
  pd->pdn = pd->protection->pdn;
  ++pd->protection->refs;
  if (attr->td) {
    pd->td = reinterpret_cast<Td*>(attr->td);
    ++pd->td->refs;
  }
  if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
    pd->alloc = attr->alloc;
    pd->free = attr->free;
  }
  if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) pd->pd_context = attr->pd_context;
  return &pd->pd;
}

int dealloc_pd(ibv_pd* ibpd) {
  Pd* pd = to_pd(ibpd);
  if (pd->refs.load() > 1) return refuse(EBUSY, "dealloc_pd: the domain is still used").value;
  if (pd->protection) {
    --pd->protection->refs;
    if (pd->td) --pd->td->refs;
  } else if (int err = ibv_cmd_dealloc_pd(ibpd)) {
    return err;
  }
  delete pd;
  return 0;
}

ibv_pd* import_pd(ibv_context* context, std::uint32_t handle) {
  // The PD's number comes from the driver's method PD_QUERY.
  Pd* pd = make<Pd>();
  if (!pd) return nullptr;
  ibv_command_buffer cmd(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY);
  cmd.in_obj(MLX5_IB_ATTR_QUERY_PD_HANDLE, handle);
  cmd.out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, &pd->pdn, sizeof pd->pdn);
  if (int err = execute_ioctl(context, &cmd)) {
    delete pd;
    errno = err;
    return nullptr;
  }
  pd->pd.context = context;
  pd->pd.handle = handle;
  return &pd->pd;
}

void unimport_pd(ibv_pd* pd) {
  delete to_pd(pd);
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t hca_va, int access) {
  return new_mr(access, [&](verbs_mr* mr) { return ibv_cmd_reg_mr(pd, addr, length, hca_va, access, mr, nullptr); });
}

ibv_mr* reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  return new_mr(attr->access, [&](verbs_mr* mr) { return ibv_cmd_reg_mr_ex(pd, mr, attr); });
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  return new_mr(access, [&](verbs_mr* mr) { return ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, nullptr); });
}

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  return new_mr(0, [&](verbs_mr* mr) { return ibv_cmd_query_mr(pd, mr, handle); });
}
void unimport_mr(ibv_mr* mr) {
  delete verbs_get_mr(mr);
}

// The key that swallows writes and reads as zeros: no kernel object behind it.
ibv_mr* alloc_null_mr(ibv_pd* pd) {
  Context* ctx = to_ctx(pd->context);
  if (ctx->dump_fill_mkey == prm::kInvalidLkey) return fail(refuse(ENOTSUP, "alloc_null_mr: the device has no dump-fill key"));
  verbs_mr* mr = make<verbs_mr>();
  if (!mr) return nullptr;
  mr->mr.context = pd->context;
  mr->mr.pd = pd;
  mr->mr.lkey = ctx->dump_fill_mkey;
  mr->mr.length = SIZE_MAX;
  mr->mr_type = IBV_MR_TYPE_NULL_MR;
  return &mr->mr;
}

int dereg_mr(verbs_mr* mr) {
  if (mr->mr_type != IBV_MR_TYPE_NULL_MR)
    if (int err = ibv_cmd_dereg_mr(mr)) return err;
  delete mr;
  return 0;
}

int rereg_mr(verbs_mr* mr, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
  int err =
      ibv_cmd_rereg_mr(mr, static_cast<std::uint32_t>(flags), addr, length, reinterpret_cast<std::uintptr_t>(addr), access, pd, nullptr);
  if (!err && (flags & IBV_REREG_MR_CHANGE_ACCESS)) mr->access = access;
  return err;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list, std::uint32_t n) {
  return ibv_cmd_advise_mr(pd, advice, flags, list, n);
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  ibv_mw* mw = make<ibv_mw>();
  if (!mw) return nullptr;
  if (int err = ibv_cmd_alloc_mw(pd, type, mw, nullptr)) {
    delete mw;
    errno = err;
    return nullptr;
  }
  return mw;
}

int dealloc_mw(ibv_mw* mw) {
  if (int err = ibv_cmd_dealloc_mw(mw)) return err;
  delete mw;
  return 0;
}

struct UserBuf {
  ibv_buf buf;  // first: programs hold a pointer to it
  Buf memory;
};

void* alloc_buf_op(ibv_pd* ibpd, std::size_t size, ibv_buf** out) {
  if (!size) return fail(refuse(EINVAL, "alloc_buf: size 0"));
  UserBuf* b = make<UserBuf>();
  if (!b) return nullptr;
  if (!alloc_buf(to_ctx(ibpd->context), parent_domain(ibpd), size, kResTypeBuf, &b->memory)) {
    delete b;
    errno = ENOMEM;
    return nullptr;
  }
  b->buf = ibv_buf{b->memory.addr, size, ibpd, -1};
  *out = &b->buf;
  return b->memory.addr;
}

void free_buf_op(ibv_buf* buf) {
  auto* b = reinterpret_cast<UserBuf*>(buf);
  free_buf(to_ctx(buf->pd->context), parent_domain(buf->pd), kResTypeBuf, &b->memory);
  delete b;
}

}  // namespace

void fill_memory_ops(verbs_context_ops* ops) {
  ops->alloc_pd = alloc_pd;
  ops->dealloc_pd = dealloc_pd;
  ops->import_pd = import_pd;
  ops->unimport_pd = unimport_pd;
  ops->alloc_td = alloc_td;
  ops->dealloc_td = dealloc_td;
  ops->alloc_parent_domain = alloc_parent_domain;
  ops->reg_mr = reg_mr;
  ops->reg_mr_ex = reg_mr_ex;
  ops->reg_dmabuf_mr = reg_dmabuf_mr;
  ops->rereg_mr = rereg_mr;
  ops->dereg_mr = dereg_mr;
  ops->import_mr = import_mr;
  ops->unimport_mr = unimport_mr;
  ops->alloc_null_mr = alloc_null_mr;
  ops->advise_mr = advise_mr;
  ops->alloc_mw = alloc_mw;
  ops->dealloc_mw = dealloc_mw;
  ops->alloc_buf = alloc_buf_op;
  ops->free_buf = free_buf_op;
}

}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

// The flag that names a second way into the device (data direct) is the kernel's to judge.
extern "C" __attribute__((visibility("default"))) ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                                                               std::uint64_t iova, int fd, int access, int mlx5_access) {
  if (!ours(pd->context)) return mlx5::fail(Errno{EOPNOTSUPP});
  ibv_command_buffer driver(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR);
  driver.in_u32(uapi::MLX5_IB_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, static_cast<std::uint32_t>(mlx5_access));
  return new_mr(access, [&](verbs_mr* mr) { return ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, &driver); });
}
