// SPDX-License-Identifier: MIT
// Completions.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "check/state.h"

namespace uhca::check {
namespace {

struct Changed {
  Request request;
  std::uint32_t qpn;
};

// Whether the device may have written there since the request was posted.
bool device_wrote(State& s, const Request& r) {
  if (s.written_dropped >= r.number) return true;
  auto meets = [&](const Range& w) { return std::any_of(r.reads.begin(), r.reads.end(), [&](const Range& m) { return m.meets(w); }); };
  for (auto it = s.written.rbegin(); it != s.written.rend() && it->first >= r.number; ++it)
    if (meets(it->second)) return true;
  for (const auto& [n, q] : s.qps) {
    for (const auto& ranges : q.recvs)
      if (std::any_of(ranges.begin(), ranges.end(), meets)) return true;
    for (const Request& other : q.sends)
      if (std::any_of(other.writes.begin(), other.writes.end(), meets)) return true;
  }
  return false;
}

// Takes what this completion covers off its queue; of that, what was sent.
std::vector<Request> covered(State& s, std::uint32_t qpn, std::uint64_t wr_id, bool ok, bool receive) {
  std::vector<Request> done;
  auto it = s.qps.find(qpn);
  if (it == s.qps.end()) return done;
  Qp& q = it->second;
  if (receive) {
    if (q.recvs.empty()) return done;
    for (const Range& r : q.recvs.front()) note_write(s, r);
    q.recvs.pop_front();
    return done;
  }
  auto end = std::find_if(q.sends.begin(), q.sends.end(), [&](const Request& r) { return r.wr_id == wr_id && (!ok || r.signaled); });
  if (end == q.sends.end()) return done;  // posted in a way that we do not see
  ++end;
  for (auto r = q.sends.begin(); r != end; ++r) {
    for (const Range& w : r->writes) note_write(s, w);
    if (!r->reads.empty() && r->hash) done.push_back(std::move(*r));
  }
  q.sends.erase(q.sends.begin(), end);
  return done;
}

// With a failed completion, which queue it belongs to is not said: that whose request has the wr_id.
bool is_receive(State& s, std::uint32_t qpn, std::uint64_t wr_id) {
  auto it = s.qps.find(qpn);
  return it != s.qps.end() &&
         std::none_of(it->second.sends.begin(), it->second.sends.end(), [&](const Request& r) { return r.wr_id == wr_id; });
}

void completed(std::uint32_t qpn, std::uint64_t wr_id, int status, bool receive, const Site& site) {
  std::vector<Request> sent;
  std::string dead;
  Site posted;
  {
    Lock lock(state().lock);
    State& s = state();
    const bool ok = status == IBV_WC_SUCCESS;
    if (!ok) receive = is_receive(s, qpn, wr_id);
    if (status == IBV_WC_REM_ACCESS_ERR)
      if (auto q = s.qps.find(qpn); q != s.qps.end() && q->second.dest)
        for (const Request& r : q->second.sends)
          if (std::string where;
              r.wr_id == wr_id && r.rkey && s.host.ask_key(s.host.owner_of(q->second.dest), r.rkey, &where) == Host::KeyIs::kDead) {
            dead = fmt::format("the request used rkey {:#x} of process {}, which is no longer valid: {}", r.rkey,
                               s.host.owner_of(q->second.dest), where);
            posted = r.posted;
            break;
          }
    sent = covered(s, qpn, wr_id, ok, receive);
  }
  if (!dead.empty()) found("dead-key", dead, {{"posted at", &posted}});
  for (const Request& r : sent) {
    if (hash_of(r.reads) == r.hash) continue;
    {
      Lock lock(state().lock);
      if (device_wrote(state(), r)) continue;
      // It has been unmapped meanwhile, which is told elsewhere.
      bool there = std::all_of(r.reads.begin(), r.reads.end(), [&](const Range& m) {
        return std::any_of(state().mrs.begin(), state().mrs.end(),
                           [&](const auto& mr) { return !mr.second.dead && !mr.second.gone && mr.second.memory.meets(m); });
      });
      if (!there) continue;
    }
    found("buffer-changed",
          fmt::format(
              "the buffer {:#x}+{} of a request on QP {:#x} has changed between its post and its completion: what was sent is undefined",
              r.reads.front().addr, r.length, qpn),
          {{"posted at", &r.posted}, {"completion polled at", &site}});
  }
}

// What ibv_poll_cq(3) leaves undefined of a failed completion: all but wr_id, status, qp_num and vendor_err.
void poison(ibv_wc* wc) {
  constexpr std::uint32_t kPoison = 0xdeadbeef;
  const ibv_wc kept = *wc;
  std::memset(static_cast<void*>(wc), 0, sizeof *wc);
  wc->opcode = static_cast<ibv_wc_opcode>(kPoison);
  wc->byte_len = kPoison;
  wc->imm_data = kPoison;
  wc->src_qp = kPoison;
  wc->wc_flags = kPoison;
  wc->wr_id = kept.wr_id;
  wc->status = kept.status;
  wc->vendor_err = kept.vendor_err;
  wc->qp_num = kept.qp_num;
}

bool is_receive(ibv_wc_opcode op) {
  return op & IBV_WC_RECV;
}

struct CqEx {
  int (*start)(ibv_cq_ex*, ibv_poll_cq_attr*);
  int (*next)(ibv_cq_ex*);
  ibv_wc_opcode (*opcode)(ibv_cq_ex*);
  std::uint32_t (*byte_len)(ibv_cq_ex*);
  __be32 (*imm)(ibv_cq_ex*);
  unsigned (*flags)(ibv_cq_ex*);
  std::uint32_t (*src_qp)(ibv_cq_ex*);
  std::uint32_t (*qpn)(ibv_cq_ex*);
};
std::map<ibv_cq_ex*, CqEx>& cqs() {
  static auto* all = new std::map<ibv_cq_ex*, CqEx>;
  return *all;
}
CqEx functions_of(ibv_cq_ex* cq) {
  Lock lock(state().lock);
  return cqs()[cq];
}

void completed(ibv_cq_ex* cq, const CqEx& f, const Site& site) {
  Inside inside;
  if (f.qpn == nullptr) return;  // the program did not ask for the QP's number, and without it nothing is known
  const bool ok = cq->status == IBV_WC_SUCCESS && f.opcode != nullptr;
  completed(f.qpn(cq), cq->wr_id, cq->status, ok && is_receive(f.opcode(cq)), site);
}
int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
  const CqEx f = functions_of(cq);
  const int r = f.start(cq, attr);
  if (r == 0 && !Inside::active()) completed(cq, f, here());
  return r;
}
int next_poll(ibv_cq_ex* cq) {
  const CqEx f = functions_of(cq);
  const int r = f.next(cq);
  if (r == 0 && !Inside::active()) completed(cq, f, here());
  return r;
}
void undefined(ibv_cq_ex* cq, const char* what) {
  if (Inside::active() || cq->status == IBV_WC_SUCCESS) return;
  const Site site = here();
  found("error-field",
        fmt::format("{} of a completion with status {}: defined are wr_id, status, qp_num and vendor_err", what,
                    static_cast<int>(cq->status)),
        {{"read at", &site}});
}
ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return undefined(cq, "ibv_wc_read_opcode"), functions_of(cq).opcode(cq);
}
std::uint32_t read_byte_len(ibv_cq_ex* cq) {
  return undefined(cq, "ibv_wc_read_byte_len"), functions_of(cq).byte_len(cq);
}
__be32 read_imm(ibv_cq_ex* cq) {
  return undefined(cq, "ibv_wc_read_imm_data"), functions_of(cq).imm(cq);
}
unsigned read_flags(ibv_cq_ex* cq) {
  return undefined(cq, "ibv_wc_read_wc_flags"), functions_of(cq).flags(cq);
}
std::uint32_t read_src_qp(ibv_cq_ex* cq) {
  return undefined(cq, "ibv_wc_read_src_qp"), functions_of(cq).src_qp(cq);
}

}  // namespace

int poll_cq(ibv_cq* cq, int n, ibv_wc* wc) {
  auto c = context_of(cq->context);
  if (Inside::active()) return c->ops.poll_cq(cq, n, wc);
  unwatch();
  const int got = c->ops.poll_cq(cq, n, wc);
  if (got <= 0) return got;
  const Site site = here();
  Inside inside;
  bool watched = false;
  for (int i = 0; i < got; ++i) {
    completed(wc[i].qp_num, wc[i].wr_id, wc[i].status, wc[i].status == IBV_WC_SUCCESS && is_receive(wc[i].opcode), site);
    if (wc[i].status == IBV_WC_SUCCESS) {
      if (is_receive(wc[i].opcode) && (wc[i].wc_flags & IBV_WC_WITH_INV)) {
        Lock lock(state().lock);
        state().host.note_key(Host::KeyIs::kDead, wc[i].invalidated_rkey, "invalidated by the peer's SEND_WITH_INV");
      }
      continue;
    }
    poison(&wc[i]);
    // There are four debug registers: the first one that is not a mere consequence.
    if (!watched && (wc[i].status != IBV_WC_WR_FLUSH_ERR || i == got - 1)) watch_fields(&wc[i], site), watched = true;
  }
  return got;
}

void wrap_cq_ex(ibv_cq_ex* cq) {
  Lock lock(state().lock);
  cqs()[cq] = {cq->start_poll,    cq->next_poll,     cq->read_opcode, cq->read_byte_len,
               cq->read_imm_data, cq->read_wc_flags, cq->read_src_qp, cq->read_qp_num};
  cq->start_poll = start_poll;
  cq->next_poll = next_poll;
  if (cq->read_opcode) cq->read_opcode = read_opcode;
  if (cq->read_byte_len) cq->read_byte_len = read_byte_len;
  if (cq->read_imm_data) cq->read_imm_data = read_imm;
  if (cq->read_wc_flags) cq->read_wc_flags = read_flags;
  if (cq->read_src_qp) cq->read_src_qp = read_src_qp;
}

void forget_cq_ex(ibv_cq* cq) {
  Lock lock(state().lock);
  cqs().erase(reinterpret_cast<ibv_cq_ex*>(cq));
}

}  // namespace uhca::check
