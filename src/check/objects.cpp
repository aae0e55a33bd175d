// SPDX-License-Identifier: MIT
// Functions that make, change and destroy objects.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <infiniband/mlx5dv.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "check/next.h"
#include "check/state.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace uhca::check {

std::atomic<unsigned> registered{0};

namespace {

#define NEXT(symbol, ...)                     \
  constinit Next<__VA_ARGS__> next_##symbol { \
    "libibverbs.so.1", #symbol                \
  }

NEXT(ibv_open_device, ibv_context*(ibv_device*));
NEXT(ibv_import_device, ibv_context*(int));
NEXT(ibv_close_device, int(ibv_context*));
NEXT(ibv_alloc_pd, ibv_pd*(ibv_context*));
NEXT(ibv_dealloc_pd, int(ibv_pd*));
NEXT(ibv_reg_mr, ibv_mr*(ibv_pd*, void*, size_t, int));
NEXT(ibv_reg_mr_iova, ibv_mr*(ibv_pd*, void*, size_t, uint64_t, int));
NEXT(ibv_reg_mr_iova2, ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned));
NEXT(ibv_reg_dmabuf_mr, ibv_mr*(ibv_pd*, uint64_t, size_t, uint64_t, int, int));
NEXT(ibv_dereg_mr, int(ibv_mr*));
NEXT(ibv_create_comp_channel, ibv_comp_channel*(ibv_context*));
NEXT(ibv_destroy_comp_channel, int(ibv_comp_channel*));
NEXT(ibv_create_cq, ibv_cq*(ibv_context*, int, void*, ibv_comp_channel*, int));
NEXT(ibv_destroy_cq, int(ibv_cq*));
NEXT(ibv_create_qp, ibv_qp*(ibv_pd*, ibv_qp_init_attr*));
NEXT(ibv_modify_qp, int(ibv_qp*, ibv_qp_attr*, int));
NEXT(ibv_destroy_qp, int(ibv_qp*));
NEXT(ibv_create_srq, ibv_srq*(ibv_pd*, ibv_srq_init_attr*));
NEXT(ibv_destroy_srq, int(ibv_srq*));
NEXT(ibv_create_ah, ibv_ah*(ibv_pd*, ibv_ah_attr*));
NEXT(ibv_destroy_ah, int(ibv_ah*));
NEXT(ibv_query_gid, int(ibv_context*, uint8_t, int, ibv_gid*));
constinit Next<ibv_qp*(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*)> next_mlx5dv_create_qp{"libmlx5.so.1", "mlx5dv_create_qp"};

void made(Kind kind, ibv_context* context, void* object, std::uint32_t number, const Site& site) {
  if (!object) return;
  // librdmacm keeps what it opens for itself until the process ends.
  if ((kind == Kind::kContext || kind == Kind::kPd) && called_from(site, "librdmacm.so")) return;
  Lock lock(state().lock);
  state().objects[object] = {kind, context, number, site};
}
void destroyed(void* object) {
  Lock lock(state().lock);
  state().objects.erase(object);
}

// Runs f, which destroys `object`; it is there again when that fails.
template <class F>
int destroy(void* object, F f) {
  if (Inside::active()) return f();
  const int r = f();
  Inside inside;
  if (r == 0) destroyed(object);
  return r;
}

// ---- contexts

ibv_qp* create_qp_ex(ibv_context* c, ibv_qp_init_attr_ex* attr);
ibv_cq_ex* create_cq_ex(ibv_context* c, ibv_cq_init_attr_ex* attr);

ibv_context* opened(ibv_context* c, const Site& site) {
  if (!c) return c;
  Inside inside;
  auto w = std::make_shared<Context>();
  w->ops = c->ops;
  verbs_context* vc = verbs_get_ctx(c);
  if (vc) {
    w->create_qp_ex = vc->create_qp_ex;
    w->create_cq_ex = vc->create_cq_ex;
  }
  {
    Lock lock(state().lock);
    if (!state().contexts.emplace(c, w).second) return c;
  }
  c->ops.post_send = post_send;
  c->ops.post_recv = post_recv;
  c->ops.post_srq_recv = post_srq_recv;
  c->ops.poll_cq = poll_cq;
  if (vc && vc->create_qp_ex) vc->create_qp_ex = create_qp_ex;
  if (vc && vc->create_cq_ex) vc->create_cq_ex = create_cq_ex;
  made(Kind::kContext, c, c, 0, site);
  return c;
}

// ---- memory regions

ibv_mr* registered_mr(ibv_mr* mr, void* addr, std::size_t length, std::uint64_t iova, unsigned access, const Site& site) {
  if (!mr) return mr;
  const bool weak = (access & IBV_ACCESS_RELAXED_ORDERING) && (access & IBV_ACCESS_REMOTE_WRITE);
  const std::string where = weak ? "registered at " + one_line(site) : std::string();
  Lock lock(state().lock);
  State& s = state();
  Mr m;
  m.lkey = mr->lkey;
  m.rkey = mr->rkey;
  m.pd = mr->pd->handle;
  m.iova = iova;
  m.memory = {reinterpret_cast<std::uint64_t>(addr), addr ? length : 0};
  m.access = access;
  m.on_demand = access & IBV_ACCESS_ON_DEMAND;
  m.made = site;
  s.host.forget_key(m.rkey);
  if (weak) s.host.note_key(Host::KeyIs::kWeaklyOrdered, m.rkey, where);
  if (addr && !m.on_demand) {
    s.by_address.insert({m.memory.addr, m.lkey});
    s.longest = std::max<std::uint64_t>(s.longest, length);
    registered.fetch_add(1);
  }
  s.mrs[m.lkey] = m;
  s.objects[mr] = {Kind::kMr, mr->context, m.lkey, site};
  return mr;
}

// ---- QPs

ibv_qp* made_qp(ibv_qp* qp, ibv_qp_type type, std::uint32_t max_send_wr, bool all_signaled, bool has_srq, const Site& site) {
  if (!qp) return qp;
  Inside inside;
  {
    Lock lock(state().lock);
    Qp q;
    q.qp = qp;
    q.number = qp->qp_num;
    q.pd = qp->pd ? qp->pd->handle : 0;
    q.type = type;
    q.max_send_wr = max_send_wr;
    q.all_signaled = all_signaled;
    q.has_srq = has_srq;
    q.made = site;
    state().qps[q.number] = std::move(q);
    state().host.add_qp(qp->qp_num, !has_srq);
  }
  made(Kind::kQp, qp->context, qp, qp->qp_num, site);
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* c, ibv_qp_init_attr_ex* attr) {
  auto w = context_of(c);
  ibv_qp* qp = w->create_qp_ex(c, attr);
  if (Inside::active()) return qp;
  made_qp(qp, attr->qp_type, attr->cap.max_send_wr, attr->sq_sig_all, attr->srq != nullptr, here());
  if (qp && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) wrap_wr_api(qp);
  return qp;
}

ibv_cq_ex* create_cq_ex(ibv_context* c, ibv_cq_init_attr_ex* attr) {
  auto w = context_of(c);
  ibv_cq_ex* cq = w->create_cq_ex(c, attr);
  if (!cq || Inside::active()) return cq;
  Inside inside;
  wrap_cq_ex(cq);
  made(Kind::kCq, c, cq, ibv_cq_ex_to_cq(cq)->handle, here());
  return cq;
}

// ---- addresses

bool is_zero(const ibv_gid& g) {
  return g.global.interface_id == 0 && g.global.subnet_prefix == 0;
}
bool is_ipv4(const ibv_gid& g) {
  static const std::uint8_t prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(g.raw, prefix, sizeof prefix) == 0;
}
std::string text_of(const ibv_gid& g) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, g.raw, text, sizeof text);
  return text;
}

void check_address(ibv_context* c, const ibv_ah_attr& ah, const std::string& what, const Site& site) {
  Inside inside;
  ibv_port_attr port{};
  verbs_context* vc = verbs_get_ctx_op(c, query_port);
  if (!vc || vc->query_port(c, ah.port_num, &port, sizeof port) != 0) return;
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return;
  if (!ah.is_global) {
    found("no-grh", what + " has no GRH (ah_attr.is_global is 0): on an Ethernet port every address needs one, with sgid_index and dgid",
          {{"asked at", &site}});
    return;
  }
  ibv_gid own{};
  const int index = ah.grh.sgid_index;
  if (index >= port.gid_tbl_len || next_ibv_query_gid(c, ah.port_num, index, &own) != 0 || is_zero(own)) {
    std::string usable;
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid g{};
      if (next_ibv_query_gid(c, ah.port_num, i, &g) == 0 && !is_zero(g))
        usable += fmt::format("{}{} {}", usable.empty() ? "" : ", ", i, text_of(g));
    }
    found("wrong-gid", fmt::format("{} uses sgid_index {}, where the port has no GID; it has {}", what, index, usable),
          {{"asked at", &site}});
  } else if (is_zero(ah.grh.dgid)) {
    found("wrong-gid", what + " has a dgid of zeros: nobody's", {{"asked at", &site}});
  } else if (is_ipv4(own) != is_ipv4(ah.grh.dgid) && ah.grh.dgid.raw[0] != 0xff) {
    found(
        "wrong-gid",
        fmt::format("{} goes from {} (sgid_index {}) to {}: one is an IPv4 address, the other is not; both ends have to use the same kind",
                    what, text_of(own), index, text_of(ah.grh.dgid)),
        {{"asked at", &site}});
  }
}

// ---- the end

const char* name_of(Kind k) {
  static constexpr const char* kNames[] = {"device context", "PD", "CQ", "QP", "SRQ", "AH", "completion channel", "memory window", "MR"};
  return kNames[static_cast<int>(k)];
}

// Behind everything that the program and its libraries do at exit.
void at_exit(int status, void*) {
  Inside inside;
  State& s = state();
  // What a program that gives up leaves behind is not the news.
  if (status == 0) {
    std::map<std::pair<Kind, void*>, std::pair<int, Object>> places;
    {
      Lock lock(s.lock);
      for (const auto& [object, o] : s.objects) {
        auto& p = places[{o.kind, o.made.depth > 1 ? o.made.frames[1] : nullptr}];
        if (p.first++ == 0) p.second = o;
      }
    }
    for (const auto& [place, p] : places) {
      const auto& [n, o] = p;
      found("leak",
            n == 1 ? fmt::format("a {}{} still exists when the program ends", name_of(o.kind),
                                 o.number ? fmt::format(" ({:#x})", o.number) : "")
                   : fmt::format("{} {}s still exist when the program ends", n, name_of(o.kind)),
            {{"made at", &o.made}});
    }
  }
  Lock lock(s.lock);
  for (const auto& [n, q] : s.qps) s.host.remove_qp(n);
  s.host.leave();
}

State* the_state = nullptr;

// The parent's objects are not the child's.
void in_child() {
  auto* s = new State;
  s->contexts = state().contexts;  // whose operations are ours
  the_state = s;
  registered.store(0);
}

__attribute__((constructor)) void start() {
  on_exit(at_exit, nullptr);
  pthread_atfork(nullptr, nullptr, in_child);
}

}  // namespace

State& state() {
  static State* const first = new State;
  return the_state ? *the_state : *first;
}

std::shared_ptr<Context> context_of(ibv_context* c) {
  Lock lock(state().lock);
  auto it = state().contexts.find(c);
  if (it != state().contexts.end()) return it->second;
  // A child that goes on with its parent's context: as it was.
  static auto* none = new std::shared_ptr<Context>(std::make_shared<Context>());
  return *none;
}

}  // namespace uhca::check

using namespace uhca::check;

CHECK_EXPORT ibv_context* ibv_open_device(ibv_device* d) {
  ibv_context* c = next_ibv_open_device(d);
  return Inside::active() ? c : opened(c, here());
}
CHECK_EXPORT ibv_context* ibv_import_device(int fd) {
  ibv_context* c = next_ibv_import_device(fd);
  return Inside::active() ? c : opened(c, here());
}
CHECK_EXPORT int ibv_close_device(ibv_context* c) {
  const int r = next_ibv_close_device(c);
  if (r != 0) return r;
  Inside inside;
  Lock lock(state().lock);
  state().contexts.erase(c);
  // What the program has left in it goes with it.
  std::erase_if(state().objects, [&](const auto& o) { return o.second.context == c; });
  return r;
}
CHECK_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* c) {
  ibv_pd* pd = next_ibv_alloc_pd(c);
  if (Inside::active()) return pd;
  Inside inside;
  made(Kind::kPd, c, pd, pd ? pd->handle : 0, here());
  return pd;
}
CHECK_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return destroy(pd, [=] { return next_ibv_dealloc_pd(pd); });
}
CHECK_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  ibv_mr* mr = next_ibv_reg_mr(pd, addr, length, access);
  if (Inside::active()) return mr;
  Inside inside;
  return registered_mr(mr, addr, length, reinterpret_cast<std::uint64_t>(addr), static_cast<unsigned>(access), here());
}
CHECK_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) {
  ibv_mr* mr = next_ibv_reg_mr_iova(pd, addr, length, iova, access);
  if (Inside::active()) return mr;
  Inside inside;
  return registered_mr(mr, addr, length, iova, static_cast<unsigned>(access), here());
}
CHECK_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) {
  ibv_mr* mr = next_ibv_reg_mr_iova2(pd, addr, length, iova, access);
  if (Inside::active()) return mr;
  Inside inside;
  return registered_mr(mr, addr, length, iova, access, here());
}
CHECK_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  ibv_mr* mr = next_ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
  if (Inside::active()) return mr;
  Inside inside;
  return registered_mr(mr, nullptr, length, iova, static_cast<unsigned>(access), here());
}
CHECK_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  const std::uint32_t lkey = mr->lkey, rkey = mr->rkey;
  const int r = next_ibv_dereg_mr(mr);
  if (r != 0 || Inside::active()) return r;
  Inside inside;
  const Site site = here();
  const std::string where = "deregistered at " + one_line(site);
  Lock lock(state().lock);
  State& s = state();
  s.objects.erase(mr);
  auto it = s.mrs.find(lkey);
  if (it == s.mrs.end() || it->second.dead) return r;
  Mr& m = it->second;
  if (s.by_address.erase({m.memory.addr, lkey})) registered.fetch_sub(1);
  m.dead = true;
  m.ended = site;
  s.host.note_key(Host::KeyIs::kDead, rkey, where);
  return r;
}
CHECK_EXPORT ibv_comp_channel* ibv_create_comp_channel(ibv_context* c) {
  ibv_comp_channel* channel = next_ibv_create_comp_channel(c);
  if (Inside::active()) return channel;
  Inside inside;
  made(Kind::kChannel, c, channel, 0, here());
  return channel;
}
CHECK_EXPORT int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return destroy(channel, [=] { return next_ibv_destroy_comp_channel(channel); });
}
CHECK_EXPORT ibv_cq* ibv_create_cq(ibv_context* c, int cqe, void* context, ibv_comp_channel* channel, int vector) {
  ibv_cq* cq = next_ibv_create_cq(c, cqe, context, channel, vector);
  if (Inside::active()) return cq;
  Inside inside;
  made(Kind::kCq, c, cq, cq ? cq->handle : 0, here());
  return cq;
}
CHECK_EXPORT int ibv_destroy_cq(ibv_cq* cq) {
  return destroy(cq, [=] {
    const int r = next_ibv_destroy_cq(cq);
    if (r == 0) forget_cq_ex(cq);
    return r;
  });
}
CHECK_EXPORT ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp* qp = next_ibv_create_qp(pd, attr);
  return Inside::active() ? qp : made_qp(qp, attr->qp_type, attr->cap.max_send_wr, attr->sq_sig_all, attr->srq != nullptr, here());
}
CHECK_EXPORT ibv_qp* mlx5dv_create_qp(ibv_context* c, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* more) {
  ibv_qp* qp = next_mlx5dv_create_qp(c, attr, more);
  if (Inside::active()) return qp;
  made_qp(qp, attr->qp_type, attr->cap.max_send_wr, attr->sq_sig_all, attr->srq != nullptr, here());
  if (qp && (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) wrap_wr_api(qp);
  return qp;
}
CHECK_EXPORT int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  if (Inside::active()) return next_ibv_modify_qp(qp, attr, mask);
  const Site site = here();
  if (mask & IBV_QP_AV) check_address(qp->context, attr->ah_attr, fmt::format("the address of QP {:#x}", qp->qp_num), site);
  const int r = next_ibv_modify_qp(qp, attr, mask);
  if (r != 0) return r;
  Inside inside;
  Lock lock(state().lock);
  auto it = state().qps.find(qp->qp_num);
  if (it == state().qps.end()) return r;
  Qp& q = it->second;
  if (mask & IBV_QP_DEST_QPN) q.dest = attr->dest_qp_num;
  if (mask & IBV_QP_RNR_RETRY) q.rnr_retry = attr->rnr_retry;
  if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) {
    q.sends.clear();
    q.recvs.clear();
    q.consumers = 0;
    q.dest = 0;
    state().host.reset_receives(q.number);
  }
  return r;
}
CHECK_EXPORT int ibv_destroy_qp(ibv_qp* qp) {
  const std::uint32_t number = qp->qp_num;
  return destroy(qp, [=] {
    const int r = next_ibv_destroy_qp(qp);
    if (r != 0) return r;
    Inside inside;
    Lock lock(state().lock);
    state().qps.erase(number);
    state().host.remove_qp(number);
    return r;
  });
}
CHECK_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  ibv_srq* srq = next_ibv_create_srq(pd, attr);
  if (Inside::active()) return srq;
  Inside inside;
  made(Kind::kSrq, pd->context, srq, srq ? srq->handle : 0, here());
  return srq;
}
CHECK_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return destroy(srq, [=] { return next_ibv_destroy_srq(srq); });
}
CHECK_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (Inside::active()) return next_ibv_create_ah(pd, attr);
  const Site site = here();
  check_address(pd->context, *attr, "the address handle", site);
  ibv_ah* ah = next_ibv_create_ah(pd, attr);
  Inside inside;
  made(Kind::kAh, pd->context, ah, ah ? ah->handle : 0, site);
  return ah;
}
CHECK_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return destroy(ah, [=] { return next_ibv_destroy_ah(ah); });
}
