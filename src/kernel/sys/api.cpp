// SPDX-License-Identifier: MIT
// The Verbs API as seen from outside: functions that open contexts (wrapped always, to give the context its hooks), and the control
// functions that become "api" events while tracing.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cerrno>

#include "base/trace.h"
#include "kernel/sys/api_trace.h"
#include "kernel/sys/contexts.h"
#include "kernel/sys/next.h"
#include "kernel/sys/uar_map.h"
#include "kernel/sys/verbs_next.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace uhca::sys {
namespace {

#define IBV(symbol, ...) UHCA_VERBS_NEXT(symbol, "libibverbs.so.1", __VA_ARGS__)
#define MLX5DV(symbol, ...) UHCA_VERBS_NEXT(symbol, "libmlx5.so.1", __VA_ARGS__)

IBV(ibv_open_device, ibv_context*(ibv_device*));
IBV(ibv_import_device, ibv_context*(int));
IBV(ibv_close_device, int(ibv_context*));
IBV(ibv_alloc_pd, ibv_pd*(ibv_context*));
IBV(ibv_dealloc_pd, int(ibv_pd*));
IBV(ibv_reg_mr, ibv_mr*(ibv_pd*, void*, size_t, int));
IBV(ibv_reg_mr_iova, ibv_mr*(ibv_pd*, void*, size_t, uint64_t, int));
IBV(ibv_reg_mr_iova2, ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned));
IBV(ibv_reg_dmabuf_mr, ibv_mr*(ibv_pd*, uint64_t, size_t, uint64_t, int, int));
IBV(ibv_dereg_mr, int(ibv_mr*));
IBV(ibv_create_comp_channel, ibv_comp_channel*(ibv_context*));
IBV(ibv_create_cq, ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int));
IBV(ibv_destroy_cq, int(ibv_cq*));
IBV(ibv_get_cq_event, int(ibv_comp_channel*, ibv_cq**, void**));
IBV(ibv_create_qp, ibv_qp*(ibv_pd*, ibv_qp_init_attr*));
IBV(ibv_modify_qp, int(ibv_qp*, ibv_qp_attr*, int));
IBV(ibv_query_qp, int(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*));
IBV(ibv_destroy_qp, int(ibv_qp*));
IBV(ibv_create_srq, ibv_srq*(ibv_pd*, ibv_srq_init_attr*));
IBV(ibv_destroy_srq, int(ibv_srq*));
IBV(ibv_create_ah, ibv_ah*(ibv_pd*, ibv_ah_attr*));
IBV(ibv_destroy_ah, int(ibv_ah*));
IBV(ibv_get_async_event, int(ibv_context*, ibv_async_event*));
IBV(ibv_query_device, int(ibv_context*, ibv_device_attr*));
IBV(ibv_query_gid, int(ibv_context*, uint8_t, int, ibv_gid*));
MLX5DV(mlx5dv_open_device, ibv_context*(ibv_device*, mlx5dv_context_attr*));
MLX5DV(mlx5dv_create_qp, ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*));
MLX5DV(mlx5dv_create_cq, ibv_cq_ex*(ibv_context*, ibv_cq_init_attr_ex*, mlx5dv_cq_init_attr*));
MLX5DV(mlx5dv_init_obj, int(mlx5dv_obj*, uint64_t));
MLX5DV(mlx5dv_devx_alloc_uar, mlx5dv_devx_uar*(ibv_context*, uint32_t));

#undef IBV
#undef MLX5DV

// Calls what is behind us; without a library behind us the call cannot have come from a program that linked one.
template <class R, class... P, class... A>
R call(VerbsNext<R(P...)>& next, A... a) {
  auto* f = next.get();
  if (!f) {
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<R>)
      return nullptr;
    else
      return ENOSYS;
  }
  return f(a...);
}

class KeepErrno {
 public:
  ~KeepErrno() { errno = saved_; }

 private:
  int saved_ = errno;
};

trace::Event& result(trace::Event& e, bool ok) {
  return ok ? e.num("errno", 0) : e.num("errno", errno);
}

ibv_context* opened(const char* name, const char* device, ibv_context* c) {
  KeepErrno keep;
  if (trace::on()) {
    trace::Event e("api", name);
    e.str("device", device ? device : "?").num("cmd_fd", c ? c->cmd_fd : -1);
    result(e, c);
  }
  contexts_wrap(c);
  return c;
}

ibv_mr* registered(const char* name, const void* addr, std::size_t length, unsigned access, ibv_mr* mr) {
  if (trace::on()) {
    KeepErrno keep;
    trace::Event e("api", name);
    e.hex("addr", reinterpret_cast<std::uintptr_t>(addr)).unum("length", length).hex("access", access);
    if (mr) e.hex("lkey", mr->lkey).hex("mkey", mr->rkey);
    result(e, mr);
  }
  return mr;
}

// A call that returns 0 or an errno and names one object by its handle.
int done(const char* name, const char* key, std::uint32_t number, int r) {
  if (trace::on()) {
    KeepErrno keep;
    trace::Event(std::string_view("api"), name).hex(key, number).num("ret", r);
  }
  return r;
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

// ---- contexts

UHCA_EXPORT ibv_context* ibv_open_device(ibv_device* d) {
  return opened("ibv_open_device", d ? d->name : nullptr, call(next_ibv_open_device, d));
}
UHCA_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  return opened("ibv_import_device", nullptr, call(next_ibv_import_device, cmd_fd));
}
UHCA_EXPORT ibv_context* mlx5dv_open_device(ibv_device* d, mlx5dv_context_attr* attr) {
  return opened("mlx5dv_open_device", d ? d->name : nullptr, call(next_mlx5dv_open_device, d, attr));
}
UHCA_EXPORT int ibv_close_device(ibv_context* c) {
  auto cmd_fd = static_cast<std::uint32_t>(c->cmd_fd);
  contexts_forget(c);
  int r = call(next_ibv_close_device, c);
  if (r != 0) contexts_wrap(c);
  return done("ibv_close_device", "cmd_fd", cmd_fd, r);
}

// ---- objects with operations of their own, and doorbells that the program will ring by itself

UHCA_EXPORT ibv_qp* mlx5dv_create_qp(ibv_context* c, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
  ibv_qp* qp = call(next_mlx5dv_create_qp, c, attr, dv);
  KeepErrno keep;
  if (trace::on() && attr) trace_create_qp("mlx5dv_create_qp", qp, attr->qp_type, attr->send_cq, attr->recv_cq, attr->cap);
  if (qp && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) contexts_wrap_qp(qp);
  return qp;
}
UHCA_EXPORT ibv_cq_ex* mlx5dv_create_cq(ibv_context* c, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* dv) {
  ibv_cq_ex* cq = call(next_mlx5dv_create_cq, c, attr, dv);
  KeepErrno keep;
  contexts_wrap_cq(cq);
  return cq;
}
UHCA_EXPORT int mlx5dv_init_obj(mlx5dv_obj* obj, uint64_t type) {
  int r = call(next_mlx5dv_init_obj, obj, type);
  if (r != 0) return r;
  KeepErrno keep;
  if ((type & MLX5DV_OBJ_QP) && obj->qp.out) uar_map_watch_page(reinterpret_cast<std::uintptr_t>(obj->qp.out->bf.reg), true);
  if ((type & MLX5DV_OBJ_CQ) && obj->cq.out) uar_map_watch_page(reinterpret_cast<std::uintptr_t>(obj->cq.out->cq_uar), true);
  return r;
}
UHCA_EXPORT mlx5dv_devx_uar* mlx5dv_devx_alloc_uar(ibv_context* c, uint32_t flags) {
  mlx5dv_devx_uar* uar = call(next_mlx5dv_devx_alloc_uar, c, flags);
  KeepErrno keep;
  if (uar) uar_map_watch_page(reinterpret_cast<std::uintptr_t>(uar->base_addr), true);
  return uar;
}

// ---- control functions

UHCA_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* c) {
  ibv_pd* pd = call(next_ibv_alloc_pd, c);
  done("ibv_alloc_pd", "pd", pd ? pd->handle : 0, pd ? 0 : errno);
  return pd;
}
UHCA_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  std::uint32_t n = pd->handle;
  return done("ibv_dealloc_pd", "pd", n, call(next_ibv_dealloc_pd, pd));
}
UHCA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return registered("ibv_reg_mr", addr, length, static_cast<unsigned>(access), call(next_ibv_reg_mr, pd, addr, length, access));
}
UHCA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  return registered("ibv_reg_mr_iova", addr, length, static_cast<unsigned>(access),
                    call(next_ibv_reg_mr_iova, pd, addr, length, iova, access));
}
UHCA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  return registered("ibv_reg_mr_iova2", addr, length, access, call(next_ibv_reg_mr_iova2, pd, addr, length, iova, access));
}
UHCA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  return registered("ibv_reg_dmabuf_mr", reinterpret_cast<void*>(offset), length, static_cast<unsigned>(access),
                    call(next_ibv_reg_dmabuf_mr, pd, offset, length, iova, fd, access));
}
UHCA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  std::uint32_t key = mr->lkey;
  return done("ibv_dereg_mr", "mkey", key, call(next_ibv_dereg_mr, mr));
}
UHCA_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* c) {
  ibv_comp_channel* ch = call(next_ibv_create_comp_channel, c);
  done("ibv_create_comp_channel", "fd", ch ? static_cast<std::uint32_t>(ch->fd) : 0, ch ? 0 : errno);
  return ch;
}
UHCA_EXPORT ibv_cq* ibv_create_cq(ibv_context* c, int cqe, void* context, ibv_comp_channel* channel, int vector) {
  ibv_cq* cq = call(next_ibv_create_cq, c, cqe, context, channel, vector);
  if (trace::on()) {
    KeepErrno keep;
    trace::Event e("api", "ibv_create_cq");
    e.num("cqe", cqe).num("comp_vector", vector).flag("channel", channel != nullptr).num("handle", cq ? cq->handle : -1);
    result(e, cq);
  }
  return cq;
}
UHCA_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  std::uint32_t n = cq->handle;
  bool extended = contexts_forget_cq(cq);
  int r = call(next_ibv_destroy_cq, cq);
  if (r != 0 && extended) contexts_wrap_cq(reinterpret_cast<ibv_cq_ex*>(cq));
  return done("ibv_destroy_cq", "handle", n, r);
}
UHCA_EXPORT int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** context) {
  int r = call(next_ibv_get_cq_event, channel, cq, context);
  if (trace::on()) {
    KeepErrno keep;
    trace::Event("api", "ibv_get_cq_event").num("fd", channel->fd).num("handle", r == 0 ? (*cq)->handle : -1).num("ret", r);
  }
  return r;
}
UHCA_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp* qp = call(next_ibv_create_qp, pd, attr);
  if (trace::on()) {
    KeepErrno keep;
    trace_create_qp("ibv_create_qp", qp, attr->qp_type, attr->send_cq, attr->recv_cq, attr->cap);
  }
  return qp;
}
UHCA_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  int r = call(next_ibv_modify_qp, qp, attr, mask);
  {
    // libmlx5 exchanges wr_complete when the state changes (providers/mlx5/verbs.c, set_qp_operational_state).
    KeepErrno keep;
    contexts_wrap_qp(qp);
  }
  if (trace::on()) {
    static constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    KeepErrno keep;
    trace::Event e("api", "ibv_modify_qp");
    e.hex("qpn", qp->qp_num).hex("mask", static_cast<unsigned>(mask));
    if ((mask & IBV_QP_STATE) && attr->qp_state <= IBV_QPS_ERR) e.str("state", kStates[attr->qp_state]);
    if (mask & IBV_QP_DEST_QPN) e.hex("dest_qpn", attr->dest_qp_num);
    e.num("ret", r);
  }
  return r;
}
UHCA_EXPORT int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
  return done("ibv_query_qp", "qpn", qp->qp_num, call(next_ibv_query_qp, qp, attr, mask, init));
}
UHCA_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  std::uint32_t n = qp->qp_num;
  bool extended = contexts_forget_qp(qp);
  int r = call(next_ibv_destroy_qp, qp);
  if (r != 0 && extended) contexts_wrap_qp(qp);
  return done("ibv_destroy_qp", "qpn", n, r);
}
UHCA_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq* srq = call(next_ibv_create_srq, pd, attr);
  done("ibv_create_srq", "handle", srq ? srq->handle : 0, srq ? 0 : errno);
  return srq;
}
UHCA_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  std::uint32_t n = srq->handle;
  return done("ibv_destroy_srq", "handle", n, call(next_ibv_destroy_srq, srq));
}
UHCA_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  ibv_ah* ah = call(next_ibv_create_ah, pd, attr);
  done("ibv_create_ah", "handle", ah ? ah->handle : 0, ah ? 0 : errno);
  return ah;
}
UHCA_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  std::uint32_t n = ah->handle;
  return done("ibv_destroy_ah", "handle", n, call(next_ibv_destroy_ah, ah));
}
UHCA_EXPORT int ibv_get_async_event(ibv_context* c, ibv_async_event* event) {
  int r = call(next_ibv_get_async_event, c, event);
  if (trace::on()) {
    KeepErrno keep;
    trace::Event("api", "ibv_get_async_event").num("event_type", r == 0 ? static_cast<int>(event->event_type) : -1).num("ret", r);
  }
  return r;
}
UHCA_EXPORT int ibv_query_device(ibv_context* c, ibv_device_attr* attr) {
  return done("ibv_query_device", "cmd_fd", static_cast<std::uint32_t>(c->cmd_fd), call(next_ibv_query_device, c, attr));
}
UHCA_EXPORT int ibv_query_gid(ibv_context* c, uint8_t port, int index, ibv_gid* gid) {
  return done("ibv_query_gid", "index", static_cast<std::uint32_t>(index), call(next_ibv_query_gid, c, port, index, gid));
}
