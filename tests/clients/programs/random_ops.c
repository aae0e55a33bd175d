/* SPDX-License-Identifier: MIT
 *
 * A random program of RC operations, drawn from a seed, run by two ends in step. Its output is the whole visible outcome: completions in
 * their order, memory after each round, asynchronous events at the end. Two runs with one seed must print the same, whatever path the
 * operations take. Environment: SEED, ROUNDS.
 */
#include <fcntl.h>
#include <poll.h>

#include "ends.h"

/* Requests of a batch have local memory of their own: small answers lie in CQEs until they are polled, so what a later request would find
 * in the destination of an earlier one depends on timing. */
enum { kBytes = 1 << 16, kBatch = 6, kSlot = kBytes / kBatch / 64 * 64 };

static uint64_t rng_state;
static uint32_t rnd(uint32_t n) { /* the same sequence at both ends */
  rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(rng_state >> 33) % n;
}

struct memory {
  uint8_t *shared, *local;                               /* what the peer works on; what we send from and receive into */
  struct ibv_mr *mr, *mr_local, *mr_shut, *mr_elsewhere; /* shut: no remote rights; elsewhere: another PD */
  struct ibv_pd* other_pd;
};
struct keys {
  uint64_t va;
  uint32_t open, shut, elsewhere, spare;
};

struct op {
  enum ibv_wr_opcode opcode;
  uint32_t len, at, local_at, room;
  int flaw;
};
enum flaw { kNone, kVariant, kNoKey, kRange, kRight, kPd, kLkey, kTooShort, kFlaws };

static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static void map_all(struct end* e, struct memory* m) {
  NEED(m->shared = aligned_alloc(4096, kBytes));
  NEED(m->local = aligned_alloc(4096, kBytes));
  for (int i = 0; i < kBytes; ++i) m->shared[i] = (uint8_t)(i * 7 + e->a), m->local[i] = (uint8_t)(i * 13 + 100 + e->a);
  NEED(m->other_pd = ibv_alloc_pd(e->ctx));
  NEED(m->mr_local = ibv_reg_mr(e->pd, m->local, kBytes, IBV_ACCESS_LOCAL_WRITE));
  NEED(m->mr_shut = ibv_reg_mr(e->pd, m->shared, kBytes, IBV_ACCESS_LOCAL_WRITE));
  NEED(m->mr_elsewhere = ibv_reg_mr(m->other_pd, m->shared, kBytes, kAll));
  NEED(m->mr = ibv_reg_mr(e->pd, m->shared, kBytes, kAll));
}

static struct keys tell_keys(struct end* e, struct memory* m) {
  struct keys mine = {(uintptr_t)m->shared, m->mr->rkey, m->mr_shut->rkey, m->mr_elsewhere->rkey, 0}, theirs;
  swap(e->fd, &mine, &theirs, sizeof mine);
  return theirs;
}

static uint64_t digest(const uint8_t* p, size_t n) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < n; ++i) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

static int takes_receive(const struct op* o) {
  return o->opcode == IBV_WR_SEND || o->opcode == IBV_WR_SEND_WITH_IMM || o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
static int is_atomic(const struct op* o) {
  return o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static struct op draw(int slot) {
  static const enum ibv_wr_opcode kOps[] = {
      IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE,          IBV_WR_RDMA_READ,          IBV_WR_RDMA_READ,           IBV_WR_SEND,
      IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
  struct op o = {0};
  o.opcode = kOps[rnd(sizeof kOps / sizeof *kOps)];
  uint32_t kind = rnd(10);
  o.len = kind < 5 ? rnd(65) : kind < 8 ? rnd(3000) : rnd(kSlot - 200);
  o.at = rnd(kBytes - o.len);
  o.local_at = (uint32_t)slot * kSlot + rnd(100);
  o.room = o.len + rnd(100);
  if (is_atomic(&o)) {
    o.len = 8;
    o.at &= ~7u;
    o.local_at &= ~7u;
  }
  if (rnd(14) == 0) o.flaw = 1 + (int)rnd(kFlaws - 1);
  int send = o.opcode == IBV_WR_SEND || o.opcode == IBV_WR_SEND_WITH_IMM;
  int remote = !send && o.len > 0; /* has a key that is looked at */
  if (o.flaw >= kVariant && o.flaw <= kPd && !remote) o.flaw = kNone;
  if (o.flaw == kTooShort && (!send || o.len < 2)) o.flaw = kNone;
  if (o.flaw == kLkey && o.len == 0) o.flaw = kNone;
  if (o.flaw == kTooShort) o.room = o.len / 2;
  return o;
}

static void start_op(struct end* e, struct memory* m, const struct keys* k, const struct op* o, uint64_t id) {
  struct ibv_sge s = sge_of(m->local + o->local_at, o->len, m->mr_local);
  if (o->flaw == kLkey) s.lkey ^= 0x5a;
  uint32_t rkey = k->open;
  uint64_t va = k->va + o->at;
  switch (o->flaw) {
    case kVariant: rkey ^= 0x3c; break;
    case kNoKey: rkey += 0x7f0000; break;
    case kRange: va = k->va + kBytes - o->len + 1; break;
    case kRight: rkey = k->shut; break;
    case kPd: rkey = k->elsewhere; break;
    default: break;
  }
  if (o->flaw == kRange && is_atomic(o)) va = k->va + kBytes;
  /* Without the fence the data of a READ may land before or after a later request has taken its own from the same place. */
  struct ibv_send_wr *bad,
      wr = {.wr_id = id, .sg_list = &s, .num_sge = o->len > 0, .opcode = o->opcode, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE};
  if (is_atomic(o)) {
    wr.wr.atomic.remote_addr = va;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = o->room;
    wr.wr.atomic.swap = ~(uint64_t)o->room;
  } else {
    wr.wr.rdma.remote_addr = va;
    wr.wr.rdma.rkey = rkey;
    wr.imm_data = htonl(0x89abcd00u + (uint32_t)id);
  }
  int r = ibv_post_send(e->qp, &wr, &bad);
  if (r) FAIL("ibv_post_send: %d", r);
}

static void say(const char* what, struct ibv_wc wc, int receive) {
  printf("  %s %lu status %d vendor 0x%x", what, (unsigned long)wc.wr_id, wc.status, wc.status ? wc.vendor_err : 0);
  if (!wc.status) printf(" opcode %d flags %d", wc.opcode, wc.wc_flags);
  if (!wc.status && receive) printf(" bytes %u imm 0x%x", wc.byte_len, wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : 0);
  printf("\n");
}

static void play(struct end* e) {
  const char *seed = getenv("SEED"), *rounds = getenv("ROUNDS");
  rng_state = (seed ? strtoull(seed, NULL, 0) : 1) * 2654435761u + 99;
  struct memory m;
  open_end(e);
  map_all(e, &m);
  join(e, &kTuning);
  struct keys theirs = tell_keys(e, &m);
  int n = rounds ? atoi(rounds) : 200;
  for (int round = 0; round < n; ++round) {
    int asks = (int)rnd(2) == e->a;
    struct op ops[kBatch];
    int count = 1 + (int)rnd(kBatch), broken = 0, receives = 0;
    for (int i = 0; i < count; ++i) {
      ops[i] = draw(i);
      if (ops[i].flaw && i > 0) ops[i].flaw = kNone, ops[i].room = ops[i].len;
      receives += takes_receive(&ops[i]);
      if (ops[i].flaw) { /* the request alone: what is flushed behind it depends on timing */
        broken = 1;
        count = 1;
      }
    }
    printf("round %d: %d of end %d%s\n", round, count, asks ? e->a : !e->a, broken ? ", flawed" : "");
    if (!asks) {
      for (int i = 0; i < count; ++i)
        if (takes_receive(&ops[i])) post_receive(e, (uint64_t)i, sge_of(m.local + ops[i].local_at, ops[i].room, m.mr_local));
    }
    meet(e);
    if (asks) {
      for (int i = 0; i < count; ++i) start_op(e, &m, &theirs, &ops[i], (uint64_t)i);
      for (int i = 0; i < count; ++i) say("send", next_wc(e->scq), 0);
    } else if (!broken || (ops[0].flaw == kTooShort)) {
      for (int i = 0; i < receives && i < count; ++i) say("receive", next_wc(e->rcq), 1);
      /* How much of a message that is too long lies in the buffer is nobody's promise. */
      if (broken) memset(m.local + ops[0].local_at, 0, ops[0].room);
    }
    meet(e);
    printf("  shared %016lx local %016lx\n", digest(m.shared, kBytes), digest(m.local, kBytes));
    if (broken) {
      part(e);
      join(e, &kTuning);
    }
    if (rnd(10) == 0) { /* new keys */
      NEED(ibv_dereg_mr(m.mr) == 0);
      NEED(m.mr = ibv_reg_mr(e->pd, m.shared, kBytes, kAll));
      theirs = tell_keys(e, &m);
    }
  }
  part(e);
  NEED(fcntl(e->ctx->async_fd, F_SETFL, O_NONBLOCK) == 0);
  struct ibv_async_event event;
  int events[64] = {0};
  while (ibv_get_async_event(e->ctx, &event) == 0) {
    events[event.event_type & 63]++;
    ibv_ack_async_event(&event);
  }
  for (int i = 0; i < 64; ++i)
    if (events[i]) printf("async event %d: %d times\n", i, events[i]);
  NEED(ibv_dereg_mr(m.mr) == 0 && ibv_dereg_mr(m.mr_shut) == 0 && ibv_dereg_mr(m.mr_elsewhere) == 0 && ibv_dereg_mr(m.mr_local) == 0);
  NEED(ibv_dealloc_pd(m.other_pd) == 0);
  close_end(e);
  free(m.shared);
  free(m.local);
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, play);
}
