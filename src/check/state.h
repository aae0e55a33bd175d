// SPDX-License-Identifier: MIT
// What is remembered of the program's objects. Everything is under `lock`, which is held for moments and never while anything foreign is
// called.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "check/host.h"
#include "check/report.h"

namespace uhca::check {

// What is freed under it is ours.
class Lock {
 public:
  explicit Lock(std::mutex& m) : guard_(m) {}

 private:
  Inside inside_;
  std::lock_guard<std::mutex> guard_;
};

struct Range {
  std::uint64_t addr = 0, length = 0;
  bool meets(const Range& o) const { return addr < o.addr + o.length && o.addr < addr + length; }
};

struct Context {
  ibv_context_ops ops;  // as they were
  decltype(verbs_context::create_qp_ex) create_qp_ex = nullptr;
  decltype(verbs_context::create_cq_ex) create_cq_ex = nullptr;
};

struct Mr {
  std::uint32_t lkey = 0, rkey = 0, pd = 0;
  std::uint64_t iova = 0;  // what SGEs say
  Range memory;            // length 0: none of the program's (dma-buf, device memory)
  unsigned access = 0;
  bool on_demand = false;  // whole address space, or pages that come and go: may be unmapped
  bool gone = false;       // it has been unmapped or freed
  bool dead = false;
  Site made, ended;
};

// A posted send request that no completion has covered yet.
struct Request {
  std::uint64_t wr_id = 0, number = 0;
  int opcode = 0;
  bool signaled = false;
  std::uint32_t rkey = 0;
  std::uint64_t length = 0;
  std::vector<Range> reads;   // memory that the device sends, of MRs whose pages can be looked at
  std::vector<Range> writes;  // memory that the answer goes to
  std::uint64_t hash = 0;
  Site posted;
};

struct QpEx;  // ibv_wr_* of one QP (wr_api.cpp)

struct Qp {
  ibv_qp* qp = nullptr;
  std::uint32_t number = 0, pd = 0, dest = 0;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t max_send_wr = 0;
  bool all_signaled = false, has_srq = false;
  unsigned rnr_retry = 0;
  std::deque<Request> sends;
  std::deque<std::vector<Range>> recvs;  // posted and not completed, of its own receive queue
  std::uint64_t consumers = 0;           // requests posted that take a receive at the peer
  bool rnr_told = false, order_told = false;
  std::shared_ptr<QpEx> ex;
  Site made;
};

enum class Kind { kContext, kPd, kCq, kQp, kSrq, kAh, kChannel, kMw, kMr };
struct Object {
  Kind kind;
  ibv_context* context;
  std::uint32_t number;
  Site made;
};

struct State {
  std::mutex lock, found_lock;
  std::unordered_map<ibv_context*, std::shared_ptr<Context>> contexts;
  std::unordered_map<std::uint32_t, Qp> qps;                     // by number
  std::map<std::uint32_t, Mr> mrs;                               // by lkey; the dead stay until their key comes again
  std::map<void*, Object> objects;                               // alive
  std::set<std::pair<std::uint64_t, std::uint32_t>> by_address;  // start of memory, lkey: of the living
  std::uint64_t longest = 0;                                     // MR that ever was
  std::uint64_t requests = 0;
  // Where the device has written of late: a change there is no fault of the program's.
  std::deque<std::pair<std::uint64_t, Range>> written;  // number of the last request before, range
  std::uint64_t written_dropped = 0;                    // numbers up to here are no longer all there
  Host host;
};
State& state();

// Living MRs with program memory; without the lock.
extern std::atomic<unsigned> registered;

// The program's operations on an opened context (post.cpp, poll.cpp, objects.cpp).
std::shared_ptr<Context> context_of(ibv_context* c);

// ---- post.cpp
int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
// One request with its SGEs before it is posted. Tells what is wrong with it; called without the lock.
struct Plan {
  int opcode = 0;
  unsigned flags = 0;
  std::uint64_t wr_id = 0, remote_addr = 0;
  std::uint32_t rkey = 0, invalidate = 0;
  std::vector<ibv_sge> sges;
  bool is_inline = false;
};
Request examine(std::uint32_t qpn, const Plan& plan, const Site& site);
// It was posted.
void accepted(std::uint32_t qpn, const Plan& plan, Request&& r);
std::uint64_t hash_of(const std::vector<Range>& ranges);
void note_write(State& s, const Range& r);  // with the lock

// ---- wr_api.cpp
void wrap_wr_api(ibv_qp* qp);

// ---- poll.cpp
int poll_cq(ibv_cq* cq, int n, ibv_wc* wc);
void wrap_cq_ex(ibv_cq_ex* cq);
void forget_cq_ex(ibv_cq* cq);

// ---- watch.cpp: the fields of this completion that are undefined are watched for reads, on this thread, until it polls again.
void watch_fields(ibv_wc* wc, const Site& polled);
void unwatch();

}  // namespace uhca::check
