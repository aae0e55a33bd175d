// SPDX-License-Identifier: MIT
// The tables of operations: the answers for what a provider does not supply, and where each operation is visible to programs.
#include <unistd.h>

#include <type_traits>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

// The answer "not supported" in the form that each signature calls for: a null pointer with errno, a positive errno, or nothing.
template <class F>
struct Unsupported;
template <class R, class... A>
struct Unsupported<R (*)(A...)> {
  static R call(A...) {
    if constexpr (std::is_pointer_v<R>) {
      errno = EOPNOTSUPP;
      return nullptr;
    } else if constexpr (std::is_same_v<R, int>) {
      return EOPNOTSUPP;
    }
  }
};

// Exceptions: what rdma-core answers differently, or can do without a provider.

int dm_export_dmabuf_fd(ibv_dm*) {
  errno = EOPNOTSUPP;
  return -1;
}
int rereg_mr(verbs_mr*, int, ibv_pd*, void*, std::size_t, int) {
  errno = EOPNOTSUPP;
  return IBV_REREG_MR_ERR_INPUT;
}
int query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) {
  return 0;
}

void* alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** out) {
  auto* buf = static_cast<ibv_buf*>(std::calloc(1, sizeof(ibv_buf)));
  if (!buf) return fail_null<void>(ENOMEM);
  void* addr = nullptr;
  if (int e = posix_memalign(&addr, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), size)) {
    std::free(buf);
    return fail_null<void>(e);
  }
  *buf = ibv_buf{addr, size, pd, -1};
  *out = buf;
  return addr;
}
void free_buf(ibv_buf* buf) {
  std::free(buf->addr);
  std::free(buf);
}

// Without an operation of its own, a provider registers through the two older ones; what they cannot say is not supported.
ibv_mr* reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attr) {
  constexpr std::uint64_t kKnown = IBV_REG_MR_MASK_IOVA | IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET;
  const verbs_context_ops* ops = get_ops(pd->context);
  const std::uint64_t mask = attr->comp_mask;
  if (mask & ~kKnown) return fail_null<ibv_mr>(EOPNOTSUPP);
  if (mask & IBV_REG_MR_MASK_FD) {
    if ((mask & IBV_REG_MR_MASK_ADDR) || !(mask & IBV_REG_MR_MASK_FD_OFFSET) || !(mask & IBV_REG_MR_MASK_IOVA))
      return fail_null<ibv_mr>(EINVAL);
    return ops->reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd, attr->access);
  }
  if (!(mask & IBV_REG_MR_MASK_ADDR) || (mask & IBV_REG_MR_MASK_FD_OFFSET)) return fail_null<ibv_mr>(EINVAL);
  const std::uint64_t iova = mask & IBV_REG_MR_MASK_IOVA ? attr->iova : reinterpret_cast<std::uintptr_t>(attr->addr);
  return ops->reg_mr(pd, attr->addr, attr->length, iova, attr->access);
}

// Every operation once, by where programs see it:
//   HIDDEN  only exported functions use it
//   COMPAT  the same, and ibv_context.ops keeps a placeholder of that name
//   CTX     ibv_context.ops
//   VCTX    verbs_context of v44
//   V65     verbs_context as v65 grew it
//   FLOW    verbs_context under the name ibv_<op>
#define UHCA_VERBS_OPS(HIDDEN, COMPAT, CTX, VCTX, V65, FLOW)                                                                              \
  VCTX(advise_mr)                                                                                                                         \
  V65(alloc_buf)                                                                                                                          \
  VCTX(alloc_dm) V65(alloc_dmah) CTX(alloc_mw) VCTX(alloc_null_mr) VCTX(alloc_parent_domain) COMPAT(alloc_pd) VCTX(alloc_td)              \
      COMPAT(async_event) VCTX(attach_counters_point_flow) COMPAT(attach_mcast) CTX(bind_mw) VCTX(close_xrcd) COMPAT(cq_event)            \
          COMPAT(create_ah) HIDDEN(create_comp_cntr) VCTX(create_counters) COMPAT(create_cq) HIDDEN(create_cq_ex) FLOW(create_flow)       \
              VCTX(create_flow_action_esp) COMPAT(create_qp) VCTX(create_qp_ex) VCTX(create_rwq_ind_table) COMPAT(create_srq)             \
                  VCTX(create_srq_ex) VCTX(create_wq) V65(dealloc_dmah) CTX(dealloc_mw) COMPAT(dealloc_pd) VCTX(dealloc_td)               \
                      COMPAT(dereg_mr) COMPAT(destroy_ah) HIDDEN(destroy_comp_cntr) VCTX(destroy_counters) COMPAT(destroy_cq)             \
                          FLOW(destroy_flow) VCTX(destroy_flow_action) COMPAT(destroy_qp) VCTX(destroy_rwq_ind_table) COMPAT(destroy_srq) \
                              VCTX(destroy_wq) COMPAT(detach_mcast) V65(dm_export_dmabuf_fd) V65(free_buf) HIDDEN(free_context)           \
                                  VCTX(free_dm) VCTX(get_srq_num) HIDDEN(import_dm) HIDDEN(import_mr) HIDDEN(import_pd)                   \
                                      HIDDEN(inc_comp_cntr) HIDDEN(inc_err_comp_cntr) VCTX(modify_cq) VCTX(modify_flow_action_esp)        \
                                          COMPAT(modify_qp) VCTX(modify_qp_rate_limit) COMPAT(modify_srq) VCTX(modify_wq) VCTX(open_qp)   \
                                              VCTX(open_xrcd) CTX(poll_cq) CTX(post_recv) CTX(post_send) VCTX(post_srq_ops)               \
                                                  CTX(post_srq_recv) HIDDEN(qp_attach_comp_cntr) HIDDEN(query_comp_cntr_caps)             \
                                                      VCTX(query_device_ex) HIDDEN(query_ece) HIDDEN(query_port) HIDDEN(query_port_speed) \
                                                          COMPAT(query_qp) HIDDEN(query_qp_data_in_order) VCTX(query_rt_values)           \
                                                              COMPAT(query_srq) HIDDEN(read_comp_cntr) VCTX(read_counters)                \
                                                                  HIDDEN(read_err_comp_cntr) VCTX(reg_dm_mr) HIDDEN(reg_dmabuf_mr)        \
                                                                      COMPAT(reg_mr) V65(reg_mr_ex) CTX(req_notify_cq) COMPAT(rereg_mr)   \
                                                                          COMPAT(resize_cq) HIDDEN(set_comp_cntr) HIDDEN(set_ece)         \
                                                                              HIDDEN(set_err_comp_cntr) HIDDEN(unimport_dm)               \
                                                                                  HIDDEN(unimport_mr) HIDDEN(unimport_pd)

#define COUNT(name) +1
static_assert(sizeof(verbs_context_ops) / sizeof(void*) == UHCA_VERBS_OPS(COUNT, COUNT, COUNT, COUNT, COUNT, COUNT),
              "an operation is missing from the list");
#undef COUNT

constexpr verbs_context_ops make_unsupported() {
  verbs_context_ops ops{};
#define FILL(name) ops.name = &Unsupported<decltype(ops.name)>::call;
  UHCA_VERBS_OPS(FILL, FILL, FILL, FILL, FILL, FILL)
#undef FILL
  ops.dm_export_dmabuf_fd = dm_export_dmabuf_fd;
  ops.rereg_mr = rereg_mr;
  ops.query_qp_data_in_order = query_qp_data_in_order;
  ops.alloc_buf = alloc_buf;
  ops.free_buf = free_buf;
  ops.reg_mr_ex = reg_mr_ex;
  return ops;
}

// verbs_context.create_cq_ex: what the inline ibv_create_cq_ex calls.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  if (attr->wc_flags & ~std::uint64_t{IBV_CREATE_CQ_SUP_WC_FLAGS}) return fail_null<ibv_cq_ex>(EOPNOTSUPP);
  ibv_cq_ex* cq = get_ops(context)->create_cq_ex(context, attr);
  if (cq) verbs_init_cq(ibv_cq_ex_to_cq(cq), context, attr->channel, attr->cq_context);
  return cq;
}

}  // namespace

namespace uhca::verbs {

constinit const verbs_context_ops unsupported_ops = make_unsupported();

extern "C" int uhca_verbs_query_port_compat(ibv_context* context, std::uint8_t port_num, _compat_ibv_port_attr* attr);
extern "C" int uhca_verbs_query_device(ibv_context* context, ibv_device_attr* attr);

void set_library_ops(verbs_context_v65* vctx) {
  vctx->v.create_cq_ex = create_cq_ex;
  vctx->v.query_port = query_port_clipped;
  vctx->v.context.ops._compat_query_port = uhca_verbs_query_port_compat;
  vctx->v.context.ops._compat_query_device = uhca_verbs_query_device;
  // Programs built against libibverbs 1.1.8 find the flow operations in these two places.
  vctx->v.ABI_placeholder1 = reinterpret_cast<void (*)()>(vctx->v.ibv_create_flow);
  vctx->v.ABI_placeholder2 = reinterpret_cast<void (*)()>(vctx->v.ibv_destroy_flow);
}

}  // namespace uhca::verbs

UHCA_EXPORT void verbs_set_ops(verbs_context_v65* vctx, const verbs_context_ops* ops) {
  verbs_context_ops* mine = &vctx->v.priv->ops;
  ibv_context_ops* ctx = &vctx->v.context.ops;
#define SET(name, also)     \
  if (ops->name) {          \
    mine->name = ops->name; \
    also;                   \
  }
#define SET_HIDDEN(name) SET(name, )
#define SET_COMPAT(name) SET(name, ctx->_compat_##name = reinterpret_cast<void* (*)()>(reinterpret_cast<void (*)()>(ops->name)))
#define SET_CTX(name) SET(name, ctx->name = ops->name)
#define SET_VCTX(name) SET(name, vctx->v.name = ops->name)
#define SET_V65(name) SET(name, vctx->name = ops->name)
#define SET_FLOW(name) SET(name, vctx->v.ibv_##name = ops->name)
  UHCA_VERBS_OPS(SET_HIDDEN, SET_COMPAT, SET_CTX, SET_VCTX, SET_V65, SET_FLOW)
}

UHCA_EXPORT const verbs_context_ops* verbs_get_ops(ibv_context* context) {
  return get_ops(context);
}
