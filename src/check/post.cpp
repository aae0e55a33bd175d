// SPDX-License-Identifier: MIT
// Requests on their way to the device.
#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "check/state.h"

namespace uhca::check {
namespace {

constexpr std::size_t kWritesRemembered = 8192;

bool sends_memory(int op) {
  return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV || op == IBV_WR_RDMA_WRITE ||
         op == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool fetches(int op) {
  return op == IBV_WR_RDMA_READ || op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool takes_receive(int op) {
  return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_SEND_WITH_INV || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool has_rkey(int op) {
  return fetches(op) || op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool connected(ibv_qp_type t) {
  return t == IBV_QPT_RC || t == IBV_QPT_UC;
}

// A finding that is told once the lock is free.
struct Told {
  const char* rule = nullptr;
  std::string text;
  const char* label = nullptr;
  Site other;
};

void tell(const std::vector<Told>& all, const Site& site, const char* doing) {
  for (const Told& t : all) {
    if (t.label)
      found(t.rule, t.text, {{doing, &site}, {t.label, &t.other}});
    else
      found(t.rule, t.text, {{doing, &site}});
  }
}

// Memory of one SGE, if it is the program's and its key says so; what is wrong with the SGE goes to `told`.
Range memory_of(State& s, const ibv_sge& g, std::uint32_t pd, const char* what, std::vector<Told>* told) {
  auto it = s.mrs.find(g.lkey);
  if (it == s.mrs.end()) return {};
  const Mr& m = it->second;
  if (m.dead) {
    told->push_back(
        {"dead-key", fmt::format("{} uses lkey {:#x}, whose MR has been deregistered", what, g.lkey), "deregistered at", m.ended});
    return {};
  }
  if (m.on_demand || m.memory.length == 0) return {};
  if (m.pd != pd) {
    told->push_back(
        {"bad-sge", fmt::format("{} uses lkey {:#x}, which belongs to another PD than its QP", what, g.lkey), "registered at", m.made});
    return {};
  }
  const std::uint64_t at = g.addr - m.iova;
  if (g.addr < m.iova || at > m.memory.length || g.length > m.memory.length - at) {
    told->push_back(
        {"bad-sge",
         fmt::format("{} names {:#x}+{}, outside of its MR {:#x} ({:#x}+{})", what, g.addr, g.length, g.lkey, m.iova, m.memory.length),
         "registered at", m.made});
    return {};
  }
  return m.gone ? Range{} : Range{m.memory.addr + at, g.length};
}

}  // namespace

// FNV-1a over words, of what can be read. The pages may be gone: the kernel copies.
std::uint64_t hash_of(const std::vector<Range>& ranges) {
  std::uint64_t h = 0xcbf29ce484222325;
  alignas(8) static thread_local char piece[1 << 14] __attribute__((tls_model("initial-exec")));
  for (const Range& r : ranges) {
    for (std::uint64_t done = 0; done < r.length;) {
      const std::size_t n = std::min<std::uint64_t>(r.length - done, sizeof piece - 8);
      iovec to{piece, n}, from{reinterpret_cast<void*>(r.addr + done), n};
      if (const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0); got != static_cast<ssize_t>(n)) {
        if (got != -1 || (errno != EPERM && errno != ENOSYS)) return 0;
        std::memcpy(piece, from.iov_base, n);
      }
      std::memset(piece + n, 0, 8);
      for (std::size_t i = 0; i < n; i += 8) {
        std::uint64_t word;
        std::memcpy(&word, piece + i, 8);
        h = (h ^ word) * 0x100000001b3;
        h ^= h >> 29;
      }
      done += n;
    }
  }
  return h;
}

void note_write(State& s, const Range& r) {
  s.written.push_back({s.requests, r});
  if (s.written.size() <= kWritesRemembered) return;
  s.written_dropped = s.written.front().first;
  s.written.pop_front();
}

Request examine(std::uint32_t qpn, const Plan& plan, const Site& site) {
  Request r;
  r.wr_id = plan.wr_id;
  r.opcode = plan.opcode;
  r.rkey = plan.rkey;
  r.posted = site;
  std::vector<Told> told;
  {
    Lock lock(state().lock);
    State& s = state();
    r.number = ++s.requests;
    auto it = s.qps.find(qpn);
    if (it == s.qps.end()) return r;
    Qp& q = it->second;
    r.signaled = q.all_signaled || (plan.flags & IBV_SEND_SIGNALED);
    for (const ibv_sge& g : plan.sges) {
      r.length += g.length;
      if (plan.is_inline || g.length == 0) continue;
      const Range m = memory_of(s, g, q.pd, "the request", &told);
      if (m.length == 0) continue;
      if (sends_memory(plan.opcode)) r.reads.push_back(m);
      if (fetches(plan.opcode)) r.writes.push_back(m);
    }

    // What an earlier READ fetches is not there yet (IBTA o9-... ordering: only a fence makes the request wait for it).
    if (!(plan.flags & IBV_SEND_FENCE)) {
      for (const Request& earlier : q.sends)
        for (const Range& w : earlier.writes)
          for (const Range& m : r.reads)
            if (w.meets(m) && (told.empty() || std::strcmp(told.back().rule, "read-fence") != 0))
              told.push_back({"read-fence",
                              fmt::format("the request sends {:#x}+{}, where an earlier {} on QP {:#x} that has not completed puts its "
                                          "data; it has no IBV_SEND_FENCE",
                                          m.addr, m.length, earlier.opcode == IBV_WR_RDMA_READ ? "READ" : "atomic", qpn),
                              "the earlier one at", earlier.posted});
    }

    const int peer = q.dest && connected(q.type) ? s.host.owner_of(q.dest) : 0;
    if (has_rkey(plan.opcode) && r.length + (plan.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) != 0) {
      std::string where;
      const auto is = s.host.ask_key(peer, plan.rkey, &where);
      if (is == Host::KeyIs::kDead)
        told.push_back(
            {"dead-key", fmt::format("the request uses rkey {:#x} of process {}, which is no longer valid: {}", plan.rkey, peer, where)});
      if (is == Host::KeyIs::kWeaklyOrdered && plan.opcode == IBV_WR_RDMA_WRITE && r.length <= 8 && !q.order_told) {
        for (const Request& earlier : q.sends)
          if (earlier.opcode == IBV_WR_RDMA_WRITE && earlier.length > 8 &&
              s.host.ask_key(peer, earlier.rkey, nullptr) == Host::KeyIs::kWeaklyOrdered) {
            q.order_told = true;
            told.push_back({"write-order",
                            fmt::format("a WRITE of {} bytes behind one of {} that has not completed: with IBV_ACCESS_RELAXED_ORDERING on "
                                        "the peer's MR (rkey {:#x}, {}) "
                                        "it may be seen first, so it is no sign that the data is there; use WRITE_WITH_IMM or SEND, or "
                                        "wait for the data's completion",
                                        r.length, earlier.length, plan.rkey, where),
                            "the data at", earlier.posted});
            break;
          }
      }
    }

    if (takes_receive(plan.opcode) && connected(q.type) && q.rnr_retry < 7 && !q.rnr_told) {
      const std::int64_t posted = q.dest ? s.host.receives_of(q.dest) : -1;
      if (posted >= 0 && q.consumers + 1 > static_cast<std::uint64_t>(posted)) {
        q.rnr_told = true;
        told.push_back({"short-receive-queue", fmt::format("request {} on QP {:#x} that takes a receive, but its peer (QP {:#x}, process "
                                                           "{}) has posted {} so far: it waits {} times for "
                                                           "another (rnr_retry), then fails with RNR_RETRY_EXC_ERR",
                                                           q.consumers + 1, qpn, q.dest, peer, posted, q.rnr_retry)});
      }
    }
  }
  tell(told, site, "posted at");
  if (!r.reads.empty()) r.hash = hash_of(r.reads);
  return r;
}

void accepted(std::uint32_t qpn, const Plan& plan, Request&& r) {
  const std::string where = plan.invalidate ? one_line(r.posted) : std::string();
  Lock lock(state().lock);
  State& s = state();
  auto it = s.qps.find(qpn);
  if (it == s.qps.end()) return;
  Qp& q = it->second;
  if (takes_receive(plan.opcode)) ++q.consumers;
  if (plan.opcode == IBV_WR_LOCAL_INV) s.host.note_key(Host::KeyIs::kDead, plan.invalidate, "invalidated at " + where);
  if (plan.opcode == IBV_WR_SEND_WITH_INV && q.dest)
    if (int peer = s.host.owner_of(q.dest))
      s.host.note_key(Host::KeyIs::kDead, plan.invalidate, "invalidated by SEND_WITH_INV at " + where, peer);
  if (plan.opcode == IBV_WR_BIND_MW) s.host.forget_key(plan.rkey);
  q.sends.push_back(std::move(r));
  // Completions that are taken past the Verbs API are not seen: what cannot be in the queue any more is not kept.
  while (q.max_send_wr != 0 && q.sends.size() > 2 * std::size_t{q.max_send_wr}) q.sends.erase(q.sends.begin());
}

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  auto c = context_of(qp->context);
  if (Inside::active()) return c->ops.post_send(qp, wr, bad);
  const Site site = here();
  std::vector<Plan> plans;
  std::vector<Request> requests;
  {
    Inside inside;
    for (ibv_send_wr* w = wr; w; w = w->next) {
      Plan p;
      p.opcode = w->opcode;
      p.flags = w->send_flags;
      p.wr_id = w->wr_id;
      p.is_inline = w->send_flags & IBV_SEND_INLINE;
      if (w->num_sge > 0 && w->num_sge < 256 && w->opcode != IBV_WR_LOCAL_INV && w->opcode != IBV_WR_BIND_MW)
        p.sges.assign(w->sg_list, w->sg_list + w->num_sge);
      if (w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || w->opcode == IBV_WR_RDMA_READ)
        p.rkey = w->wr.rdma.rkey, p.remote_addr = w->wr.rdma.remote_addr;
      if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) p.rkey = w->wr.atomic.rkey;
      if (w->opcode == IBV_WR_LOCAL_INV || w->opcode == IBV_WR_SEND_WITH_INV) p.invalidate = w->invalidate_rkey;
      if (w->opcode == IBV_WR_BIND_MW) p.rkey = w->bind_mw.rkey;
      requests.push_back(examine(qp->qp_num, p, site));
      plans.push_back(std::move(p));
    }
    // Before the device has them: a completion may be polled before this call returns.
    for (std::size_t i = 0; i < plans.size(); ++i) accepted(qp->qp_num, plans[i], std::move(requests[i]));
  }
  const int ret = c->ops.post_send(qp, wr, bad);
  if (ret == 0) return 0;
  Inside inside;
  std::size_t refused = 0;
  for (ibv_send_wr* w = bad ? *bad : wr; w; w = w->next) ++refused;
  std::string full;
  {
    Lock lock(state().lock);
    auto it = state().qps.find(qp->qp_num);
    if (it == state().qps.end()) return ret;
    Qp& q = it->second;
    for (; refused > 0 && !q.sends.empty(); --refused) {
      if (takes_receive(q.sends.back().opcode)) --q.consumers;
      q.sends.pop_back();
    }
    if (ret == ENOMEM && q.sends.size() >= q.max_send_wr &&
        std::none_of(q.sends.begin(), q.sends.end(), [](const Request& r) { return r.signaled; }))
      full = fmt::format(
          "the send queue of QP {:#x} is full of {} requests without IBV_SEND_SIGNALED: no completion can free it; signal one at least "
          "every {}",
          qp->qp_num, q.sends.size(), q.max_send_wr);
  }
  if (!full.empty()) found("unsignalled-overflow", full, {{"posted at", &site}});
  return ret;
}

namespace {

std::vector<std::vector<Range>> receives(const ibv_recv_wr* wr, std::uint32_t pd, const Site& site) {
  std::vector<std::vector<Range>> all;
  std::vector<Told> told;
  {
    Lock lock(state().lock);
    for (; wr; wr = wr->next) {
      auto& ranges = all.emplace_back();
      for (int i = 0; i < wr->num_sge && i < 256; ++i)
        if (wr->sg_list[i].length)
          if (Range m = memory_of(state(), wr->sg_list[i], pd, "the receive", &told); m.length) ranges.push_back(m);
    }
  }
  tell(told, site, "posted at");
  return all;
}

}  // namespace

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  auto c = context_of(qp->context);
  if (Inside::active()) return c->ops.post_recv(qp, wr, bad);
  {
    Inside inside;
    auto posted = receives(wr, qp->pd->handle, here());
    Lock lock(state().lock);
    if (auto it = state().qps.find(qp->qp_num); it != state().qps.end()) {
      for (auto& ranges : posted) it->second.recvs.push_back(std::move(ranges));
      state().host.posted_receives(qp->qp_num, static_cast<unsigned>(posted.size()));
    }
  }
  const int ret = c->ops.post_recv(qp, wr, bad);
  if (ret == 0) return 0;
  Inside inside;
  int refused = 0;
  for (ibv_recv_wr* w = bad ? *bad : wr; w; w = w->next) ++refused;
  Lock lock(state().lock);
  if (auto it = state().qps.find(qp->qp_num); it != state().qps.end()) {
    for (int i = 0; i < refused && !it->second.recvs.empty(); ++i) it->second.recvs.pop_back();
    state().host.posted_receives(qp->qp_num, static_cast<unsigned>(-refused));
  }
  return ret;
}

// Which receive of an SRQ a completion takes cannot be told, so what they cover counts as written all the time.
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  auto c = context_of(srq->context);
  if (!Inside::active()) {
    Inside inside;
    for (auto& ranges : receives(wr, srq->pd->handle, here())) {
      Lock lock(state().lock);
      for (const Range& r : ranges) note_write(state(), r);
    }
  }
  return c->ops.post_srq_recv(srq, wr, bad);
}

}  // namespace uhca::check
