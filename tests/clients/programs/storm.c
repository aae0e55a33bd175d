/* SPDX-License-Identifier: MIT
 *
 * End A writes to and reads from memory of end B without a pause, while B registers, deregisters, unmaps and replaces it. What B has
 * taken back is never written again. Environment: SECONDS; KILLED=1: A may be killed at any moment.
 */
#include <sys/mman.h>

#include "ends.h"

enum { kBytes = 1 << 16, kTaken = 0xcc };
enum { kKey = 1, kReset, kEnd };

struct news {
  uint32_t kind, rkey;
  uint64_t va;
};

static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static unsigned rnd_state;
static uint32_t rnd(uint32_t n) {
  return (uint32_t)rand_r(&rnd_state) % n;
}

static void* map_at(void* where) {
  void* p = mmap(where, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
  NEED(p != MAP_FAILED);
  return p;
}

static int tell(struct end* e, uint32_t kind, uint32_t rkey, void* va) {
  struct news n = {kind, rkey, (uintptr_t)va};
  return send(e->fd, &n, sizeof n, MSG_NOSIGNAL) == (ssize_t)sizeof n;
}

static void watch(const volatile uint8_t* p, const char* what) {
  double end = seconds() + 0.0005 * rnd(4);
  do {
    for (uint32_t i = 0; i < kBytes; i += 61)
      if (p[i] != kTaken) FAIL("%s: byte %u was written afterwards: 0x%02x", what, i, p[i]);
  } while (seconds() < end);
  for (uint32_t i = 0; i < kBytes; ++i)
    if (p[i] != kTaken) FAIL("%s: byte %u was written afterwards: 0x%02x", what, i, p[i]);
}

/* A wait in which the queues are served. */
static void serve(struct end* e, double s) {
  struct ibv_wc wc;
  double end = seconds() + s;
  do {
    NEED(ibv_poll_cq(e->rcq, 1, &wc) >= 0);
  } while (seconds() < end);
}

/* 0: the other end is gone. */
static int reconnect(struct end* e) {
  char c = 'm', d;
  if (!swap_or_gone(e->fd, &c, &d, 1)) return 0;
  NEED(ibv_destroy_qp(e->qp) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0 && ibv_destroy_cq(e->rcq) == 0);
  make_qp(e, &kTuning);
  if (!swap_or_gone(e->fd, &e->me, &e->peer, sizeof e->me)) return 0;
  NEED(to_rts(e, &kTuning) == 0);
  return swap_or_gone(e->fd, &c, &d, 1);
}

static void take_back(struct end* e, int may_die) {
  const char* s = getenv("SECONDS");
  double end = seconds() + (s ? atof(s) : 2);
  unsigned long rounds = 0, resets = 0;
  int alive = 1;
  while (seconds() < end && alive) {
    uint8_t* p = map_at(NULL);
    memset(p, 0xb0, kBytes);
    struct ibv_mr* mr = ibv_reg_mr(e->pd, p, kBytes, kAll);
    NEED(mr);
    alive = tell(e, kKey, mr->rkey, p);
    serve(e, 0.0002 * rnd(10));
    switch (rnd(4)) {
      case 0:
        NEED(ibv_dereg_mr(mr) == 0);
        memset(p, kTaken, kBytes);
        watch(p, "deregistered");
        break;
      case 1:
        map_at(p);
        memset(p, kTaken, kBytes);
        watch(p, "replaced by mmap");
        NEED(ibv_dereg_mr(mr) == 0);
        break;
      case 2:
        NEED(munmap(p, kBytes) == 0);
        map_at(p);
        memset(p, kTaken, kBytes);
        watch(p, "unmapped and mapped again");
        NEED(ibv_dereg_mr(mr) == 0);
        break;
      default: {
        struct ibv_mr* again = ibv_reg_mr(e->pd, p, kBytes, IBV_ACCESS_LOCAL_WRITE);
        NEED(again);
        NEED(ibv_dereg_mr(mr) == 0);
        memset(p, kTaken, kBytes);
        watch(p, "registered without remote rights");
        NEED(ibv_dereg_mr(again) == 0);
      }
    }
    NEED(munmap(p, kBytes) == 0);
    ++rounds;
    char c;
    ssize_t n = recv(e->fd, &c, 1, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) alive = 0;
    if (n == 1) {
      ++resets;
      alive = tell(e, kReset, 0, NULL) && reconnect(e);
    }
  }
  if (!alive && !may_die) FAIL("the other end is gone");
  if (alive) {
    char c;
    NEED(tell(e, kEnd, 0, NULL));
    if (recv(e->fd, &c, 1, 0) != 1 && !may_die) FAIL("the other end is gone");
  }
  printf("%lu rounds, %lu reconnections\n", rounds, resets);
  if (rounds < 10 && !may_die) FAIL("only %lu rounds", rounds);
}

/* The newest word of the other end; 0: nothing new. With `wait` until there is one. */
static int hear(struct end* e, struct news* n, int wait) {
  int any = 0;
  for (;;) {
    struct news in;
    ssize_t r = recv(e->fd, &in, sizeof in, (wait && !any ? MSG_WAITALL : MSG_DONTWAIT));
    if (r < 0) return any;
    if (r == 0) FAIL("the other end is gone");
    size_t done = (size_t)r;
    while (done < sizeof in) {
      r = recv(e->fd, (char*)&in + done, sizeof in - done, 0);
      if (r <= 0) FAIL("the other end is gone");
      done += (size_t)r;
    }
    *n = in;
    any = 1;
    if (in.kind != kKey) return 1;
  }
}

static void hammer(struct end* e) {
  struct news n = {0};
  uint8_t* buf = map_at(NULL);
  memset(buf, 0xa1, kBytes);
  struct ibv_mr* mr = ibv_reg_mr(e->pd, buf, kBytes, kAll);
  unsigned long good = 0, bad = 0;
  NEED(mr && hear(e, &n, 1));
  while (n.kind != kEnd) {
    uint32_t len = rnd(3) ? 1 + rnd(64) : 1 + rnd(kBytes);
    uint32_t off = rnd(kBytes - len + 1);
    int read = rnd(3) == 0;
    post(e, read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 1, sge_of(buf + off, len, mr), n.va + off, n.rkey);
    struct ibv_wc wc = next_wc(e->scq);
    if (wc.status == IBV_WC_SUCCESS) {
      ++good;
      hear(e, &n, 0);
      continue;
    }
    ++bad;
    if (wc.status != IBV_WC_REM_ACCESS_ERR) FAIL("status %d vendor_err 0x%x", wc.status, wc.vendor_err);
    NEED(send(e->fd, "r", 1, MSG_NOSIGNAL) == 1);
    do {
      hear(e, &n, 1);
    } while (n.kind == kKey);
    if (n.kind == kEnd) break;
    if (!reconnect(e)) FAIL("the other end is gone");
    hear(e, &n, 1);
  }
  send(e->fd, "e", 1, MSG_NOSIGNAL);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(buf, kBytes);
  printf("%lu done, %lu refused\n", good, bad);
  if (good < 10) FAIL("only %lu operations", good);
}

static void play(struct end* e) {
  const char* s = getenv("SECONDS");
  alarm((unsigned)(s ? atoi(s) : 2) + 40);
  rnd_state = (unsigned)getpid() * 2u + (unsigned)e->a;
  open_end(e);
  join(e, &kTuning);
  if (e->a) {
    hammer(e);
  } else {
    take_back(e, getenv("KILLED") != NULL);
  }
  NEED(ibv_destroy_qp(e->qp) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0 && ibv_destroy_cq(e->rcq) == 0);
  close_end(e);
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, play);
}
