// SPDX-License-Identifier: MIT
// The operation pointers of an opened context are replaced by ours, which call the original. Contexts of the system's rdma-core thereby get
// the two hooks; our own provider calls them itself (uhca_hook_attach). While tracing, the events of layer "api" are made here.
//
// A data path operation of a provider holds its locks, so it counts as inside: a handler of the program that leaves by longjmp, or posts
// and polls itself, runs after the operation, and so does an asynchronous cancellation.
#include "kernel/sys/contexts.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <mutex>

#include "base/inside.h"
#include "base/trace.h"
#include "base/types.h"
#include "kernel/sys/api_trace.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/next.h"
#include "kernel/sys/pointer_map.h"
#include "kernel/sys/uar_map.h"
#include "kernel/sys/verbs_next.h"
#include "prm/wqe.h"

namespace uhca::sys {
namespace {

UHCA_VERBS_NEXT(ibv_qp_to_qp_ex, "libibverbs.so.1", ibv_qp_ex*(ibv_qp*));

// Of one opened context. Leaked when it closes: another thread may be about to read it.
struct Wrapped {
  ibv_context_ops ops;
  decltype(verbs_context::create_qp_ex) create_qp_ex;
  decltype(verbs_context::create_cq_ex) create_cq_ex;
  decltype(verbs_context::query_rt_values) query_rt_values;
  std::shared_ptr<CmdFile> file;
  bool hooks;  // false: the provider calls them itself
};
struct ExCq {
  int (*start_poll)(ibv_cq_ex*, ibv_poll_cq_attr*);
  int (*next_poll)(ibv_cq_ex*);
};
struct ExQp {
  int (*complete)(ibv_qp_ex*);
  void (*start)(ibv_qp_ex*);
};

constinit std::mutex lock;
constinit PointerMap<Wrapped*, 1024> contexts;
constinit PointerMap<ExCq, 4096> cqs;
constinit PointerMap<ExQp, 16384> qps;
constinit std::atomic<unsigned> generation{1};

Wrapped* wrapped(ibv_context* c) {
  auto* w = contexts.find(c);
  return w ? *w : nullptr;
}

class KeepErrno {
 public:
  ~KeepErrno() { errno = saved_; }

 private:
  int saved_ = errno;
};

// The hardware number of a CQ, remembered until some uverbs call may have changed what handles mean.
std::uint32_t cqn_of(const Wrapped& w, const ibv_cq* cq) {
  struct Memo {
    const ibv_cq* cq;
    unsigned generation;
    std::uint32_t cqn;
  };
  static thread_local Memo memo[16] __attribute__((tls_model("initial-exec")));
  unsigned g = generation.load(std::memory_order_acquire);
  Memo& m = memo[reinterpret_cast<std::uintptr_t>(cq) >> 6 & 15];
  if (m.cq != cq || m.generation != g) m = {cq, g, w.file ? w.file->file->cqn_of_handle(cq->handle) : 0};
  return m.cqn;
}

void sent(const Wrapped& w, const ibv_qp* qp) {
  if (!w.hooks) return;
  KeepErrno keep;
  unblock_faults();
  if (Instance* i = instance()) i->device->look_at_send_queue(qp->qp_num);
}

// True: the device has worked.
bool polled_nothing(const Wrapped& w) {
  if (!w.hooks) return false;
  Instance* i = instance();
  if (!i || device_is_idle(*i)) return false;
  KeepErrno keep;
  unblock_faults();
  i->device->polled_empty();
  return true;
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  inside::Guard guard;
  Wrapped* w = wrapped(qp->context);
  int r = w->ops.post_send(qp, wr, bad);
  if (trace::on()) trace_post_send(qp, wr, r);
  sent(*w, qp);
  return r;
}

// A type 1 window is bound by a WQE that the provider posts itself.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  inside::Guard guard;
  Wrapped* w = wrapped(qp->context);
  int r = w->ops.bind_mw(qp, mw, bind);
  if (trace::on()) trace::Event("api", "ibv_bind_mw").hex("qpn", qp->qp_num).hex("rkey", mw->rkey).num("ret", r);
  sent(*w, qp);
  return r;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  inside::Guard guard;
  Wrapped* w = wrapped(qp->context);
  int r = w->ops.post_recv(qp, wr, bad);
  if (trace::on()) trace_post_recv("ibv_post_recv", qp->qp_num, wr, r);
  return r;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  inside::Guard guard;
  Wrapped* w = wrapped(srq->context);
  int r = w->ops.post_srq_recv(srq, wr, bad);
  if (trace::on()) trace_post_recv("ibv_post_srq_recv", srq->handle, wr, r);
  return r;
}

__attribute__((noinline)) void traced_poll(const Wrapped& w, const ibv_cq* cq, const ibv_wc* wc, int n) {
  if (n > 0) trace_completions(cqn_of(w, cq), wc, n);
}

int poll_cq(ibv_cq* cq, int n, ibv_wc* wc) {
  inside::Guard guard;
  Wrapped* w = wrapped(cq->context);
  int r = w->ops.poll_cq(cq, n, wc);
  // What was just received is there now: the caller need not come again for it.
  if (r == 0 && polled_nothing(*w)) r = w->ops.poll_cq(cq, n, wc);
  if (__builtin_expect(trace::on(), 0)) traced_poll(*w, cq, wc, r);
  return r;
}

// The first arming leaves the record in memory as it was (sequence 0, index 0), so only the doorbell itself tells. It was stored to one
// of the context's pages; the device ignores it for CQs that belong to another one.
void armed(const Wrapped& w, const ibv_cq* cq) {
  KeepErrno keep;
  unblock_faults();
  Instance* i = instance();
  if (!i || !w.file) return;
  std::uint64_t value = byteswap(std::uint64_t{cqn_of(w, cq)});
  for (auto& page : w.file->doorbell_pages) {
    std::uint64_t bar = page.load(std::memory_order_acquire);
    if (bar == 0) break;
    i->device->doorbell(bar - 1 + prm::kUarCqDoorbell, value);
  }
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  inside::Guard guard;
  Wrapped* w = wrapped(cq->context);
  int r = w->ops.req_notify_cq(cq, solicited_only);
  if (trace::on()) trace::Event("api", "ibv_req_notify_cq").hex("cqn", cqn_of(*w, cq)).num("solicited_only", solicited_only).num("ret", r);
  if (w->hooks) armed(*w, cq);
  return r;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  inside::Guard guard;
  const ExCq* e = cqs.find(cq);
  Wrapped* w = wrapped(cq->context);
  int r = e->start_poll(cq, attr);
  if (r == ENOENT && w && polled_nothing(*w)) r = e->start_poll(cq, attr);
  if (trace::on() && r == 0 && w) trace_completion_ex(cqn_of(*w, ibv_cq_ex_to_cq(cq)), cq);
  return r;
}

int next_poll(ibv_cq_ex* cq) {
  inside::Guard guard;
  const ExCq* e = cqs.find(cq);
  Wrapped* w = wrapped(cq->context);
  int r = e->next_poll(cq);
  if (r == ENOENT && w) polled_nothing(*w);
  if (trace::on() && r == 0 && w) trace_completion_ex(cqn_of(*w, ibv_cq_ex_to_cq(cq)), cq);
  return r;
}

int wr_complete(ibv_qp_ex* qp) {
  inside::Guard guard;
  const ExQp* e = qps.find(qp);
  Wrapped* w = wrapped(qp->qp_base.context);
  int r = e->complete(qp);
  if (trace::on()) trace::Event("api", "ibv_wr_complete").hex("qpn", qp->qp_base.qp_num).num("ret", r);
  if (w) sent(*w, &qp->qp_base);
  return r;
}

// libmlx5 puts its own wr_complete back whenever mlx5dv_devx_qp_modify() has passed (providers/mlx5/verbs.c, set_qp_operational_state).
void wr_start(ibv_qp_ex* qp) {
  qps.find(qp)->start(qp);
  if (qp->wr_complete != wr_complete) contexts_wrap_qp(&qp->qp_base);
}

ibv_qp* create_qp_ex(ibv_context* c, ibv_qp_init_attr_ex* attr) {
  Wrapped* w = wrapped(c);
  ibv_qp* qp = w->create_qp_ex(c, attr);
  if (trace::on()) trace_create_qp("ibv_create_qp_ex", qp, attr->qp_type, attr->send_cq, attr->recv_cq, attr->cap);
  if (qp && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) contexts_wrap_qp(qp);
  return qp;
}

ibv_cq_ex* create_cq_ex(ibv_context* c, ibv_cq_init_attr_ex* attr) {
  Wrapped* w = wrapped(c);
  ibv_cq_ex* cq = w->create_cq_ex(c, attr);
  if (trace::on())
    trace::Event("api", "ibv_create_cq_ex")
        .unum("cqe", attr->cqe)
        .hex("cqn", cq ? cqn_of(*w, ibv_cq_ex_to_cq(cq)) : 0)
        .flag("ok", cq != nullptr);
  if (cq) contexts_wrap_cq(cq);
  return cq;
}

// The clock lies in a page that the provider reads by itself: it is brought up to date first.
int query_rt_values(ibv_context* c, ibv_values_ex* values) {
  Wrapped* w = wrapped(c);
  {
    KeepErrno keep;
    unblock_faults();
    if (Instance* i = instance()) i->device->refresh_clock();
  }
  return w->query_rt_values(c, values);
}

}  // namespace

void contexts_handles_changed() {
  generation.fetch_add(1, std::memory_order_release);
}

void contexts_wrap_qp(ibv_qp* qp) {
  if (!qp || !wrapped(qp->context)) return;
  auto* to_ex = next_ibv_qp_to_qp_ex.get();
  ibv_qp_ex* ex = to_ex ? to_ex(qp) : nullptr;
  if (!ex) return;
  std::lock_guard l(lock);
  if (!ex->wr_complete || ex->wr_complete == wr_complete) return;
  auto* start = ex->wr_start == wr_start ? qps.find(ex)->start : ex->wr_start;
  bool kept = qps.insert(ex, {ex->wr_complete, start});
  if (kept) ex->wr_complete = wr_complete;
  ex->wr_start = kept ? wr_start : start;
}

void contexts_wrap_cq(ibv_cq_ex* cq) {
  if (!cq || !wrapped(cq->context)) return;
  std::lock_guard l(lock);
  if (!cq->start_poll || cq->start_poll == start_poll) return;
  if (!cqs.insert(cq, {cq->start_poll, cq->next_poll})) return;
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
}

bool contexts_forget_qp(ibv_qp* qp) {
  if (!qp || !wrapped(qp->context)) return false;
  auto* to_ex = next_ibv_qp_to_qp_ex.get();
  ibv_qp_ex* ex = to_ex ? to_ex(qp) : nullptr;
  std::lock_guard l(lock);
  const ExQp* e = ex ? qps.find(ex) : nullptr;
  if (!e) return false;
  ex->wr_complete = e->complete;
  ex->wr_start = e->start;
  qps.remove(ex);
  return true;
}

bool contexts_forget_cq(ibv_cq* cq) {
  std::lock_guard l(lock);
  const ExCq* e = cqs.find(cq);
  if (!e) return false;
  auto* ex = reinterpret_cast<ibv_cq_ex*>(cq);
  ex->start_poll = e->start_poll;
  ex->next_poll = e->next_poll;
  cqs.remove(cq);
  return true;
}

void contexts_wrap(ibv_context* c) {
  if (!c || wrapped(c)) return;
  std::shared_ptr<CmdFile> file = cmdfile_of(c->cmd_fd);
  if (!file) return;  // a device that is not ours
  bool hooks = !file->provider.load();
  auto* w = new Wrapped{c->ops, nullptr, nullptr, nullptr, file, hooks};
  verbs_context* vc = verbs_get_ctx(c);
  if (vc) {
    w->create_qp_ex = vc->create_qp_ex;
    w->create_cq_ex = vc->create_cq_ex;
    w->query_rt_values = vc->query_rt_values;
  }
  {
    std::lock_guard l(lock);
    if (!contexts.insert(c, w)) {
      delete w;
      return;
    }
  }
  if (vc && vc->query_rt_values) vc->query_rt_values = query_rt_values;
  c->ops.post_send = post_send;
  if (c->ops.bind_mw) c->ops.bind_mw = bind_mw;
  c->ops.post_recv = post_recv;
  c->ops.post_srq_recv = post_srq_recv;
  c->ops.poll_cq = poll_cq;
  c->ops.req_notify_cq = req_notify_cq;
  if (vc && vc->create_qp_ex) vc->create_qp_ex = create_qp_ex;
  if (vc && vc->create_cq_ex) vc->create_cq_ex = create_cq_ex;
  if (hooks) {
    // Its doorbells need no watching any more. Pages that others ring (mlx5dv) are watched again by api.cpp.
    file->attached.store(true);
    inside::Guard guard;
    uar_map_watch(file.get(), false);
  }
}

void contexts_forget(ibv_context* c) {
  std::lock_guard l(lock);
  Wrapped* w = wrapped(c);
  if (!w) return;
  c->ops = w->ops;
  if (verbs_context* vc = verbs_get_ctx(c)) {
    vc->create_qp_ex = w->create_qp_ex;
    vc->create_cq_ex = w->create_cq_ex;
    vc->query_rt_values = w->query_rt_values;
  }
  w->file.reset();
  contexts.remove(c);
}

}  // namespace uhca::sys
