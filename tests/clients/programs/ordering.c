/* SPDX-License-Identifier: MIT
 *
 * What one-sided operations must not overtake, and that they need nothing of the target but its memory. Environment: WATCH: how often the
 * last byte is watched for; STOP=1 adds the target that is stopped (two processes that can reach each other's memory).
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>

#include "ends.h"

enum { kBytes = 1 << 16 };

static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct pair {
  struct end* e;
  volatile uint8_t* buf;
  struct ibv_mr* mr;
};

static struct ibv_sge at(struct pair* p, uint32_t offset, uint32_t n) {
  return sge_of((const void*)(p->buf + offset), n, p->mr);
}
static void write_to(struct pair* p, uint64_t id, uint32_t from, uint32_t n, uint32_t to) {
  post(p->e, IBV_WR_RDMA_WRITE, id, at(p, from, n), p->e->peer.va + to, p->e->peer.rkey);
}

/* The peer serves its queues while it waits, as programs do. */
static void idle_for(struct pair* p, double s) {
  struct ibv_wc wc;
  double end = seconds() + s;
  while (seconds() < end) NEED(ibv_poll_cq(p->e->rcq, 1, &wc) == 0);
}

/* E13: `blocker` needs a receive that is not there: the WRITE posted behind it must not be seen before it. */
static void behind(struct pair* p, enum ibv_wr_opcode blocker, const char* name) {
  struct end* e = p->e;
  p->buf[0] = e->a ? 0x77 : 0x11;
  p->buf[100] = 0x22;
  /* One operation first, so that the ends know each other and the direct way is open. */
  if (e->a) {
    write_to(p, 1, 200, 8, 300);
    want(e->scq, 1, 0, -1);
    write_to(p, 2, 200, 8, 300);
    want(e->scq, 2, 0, -1);
  } else {
    idle_for(p, 0.002);
  }
  meet(e);
  if (e->a) {
    post(e, blocker, 3, at(p, 200, 8), e->peer.va + 400, e->peer.rkey);
    write_to(p, 4, 0, 1, 0);
    meet(e);
    want(e->scq, 3, 0, -1);
    want(e->scq, 4, 0, -1);
  } else {
    meet(e);
    idle_for(p, 0.02);
    if (p->buf[0] != 0x11) FAIL("%s: the WRITE behind it has overtaken", name);
    post_receive(e, 9, at(p, 500, 64));
    want(e->rcq, 9, 0, -1);
    double end = seconds() + 20;
    while (p->buf[0] != 0x77)
      if (seconds() > end) FAIL("%s: the WRITE behind it never came", name);
  }
  meet(e);
}

static void read_after_write(struct pair* p) {
  struct end* e = p->e;
  if (e->a) {
    for (int i = 0; i < 2000; ++i) {
      p->buf[0] = (uint8_t)i;
      p->buf[1000] = (uint8_t)~i;
      write_to(p, 1, 0, 1, 64);
      post(e, IBV_WR_RDMA_READ, 2, at(p, 1000, 1), e->peer.va + 64, e->peer.rkey);
      want(e->scq, 1, 0, -1);
      want(e->scq, 2, 0, -1);
      if (p->buf[1000] != (uint8_t)i) FAIL("read %d after write of %d", p->buf[1000], (uint8_t)i);
    }
  }
  meet(e);
}

/* An atomic between two WRITEs of the word that it works on. */
static void atomic_between(struct pair* p) {
  struct end* e = p->e;
  if (e->a) {
    for (uint64_t i = 1; i < 500; ++i) {
      *(volatile uint64_t*)(p->buf + 0) = i * 10;
      *(volatile uint64_t*)(p->buf + 8) = i * 100;
      write_to(p, 1, 0, 8, 64);
      struct ibv_sge s = at(p, 16, 8);
      struct ibv_send_wr *bad,
          wr = {.wr_id = 2, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED};
      wr.wr.atomic.remote_addr = e->peer.va + 64;
      wr.wr.atomic.rkey = e->peer.rkey;
      wr.wr.atomic.compare_add = 1;
      NEED(ibv_post_send(e->qp, &wr, &bad) == 0);
      write_to(p, 3, 8, 8, 64);
      post(e, IBV_WR_RDMA_READ, 4, at(p, 24, 8), e->peer.va + 64, e->peer.rkey);
      for (uint64_t id = 1; id <= 4; ++id) want(e->scq, id, 0, -1);
      if (*(volatile uint64_t*)(p->buf + 16) != i * 10) FAIL("the atomic found %lu", *(volatile uint64_t*)(p->buf + 16));
      if (*(volatile uint64_t*)(p->buf + 24) != i * 100) FAIL("the last WRITE was overtaken: %lu", *(volatile uint64_t*)(p->buf + 24));
    }
  }
  meet(e);
}

/* The target polls the last byte and then believes all others. */
static void last_byte_last(struct pair* p, uint32_t n) {
  struct end* e = p->e;
  const char* watch = getenv("WATCH");
  int rounds = (watch ? atoi(watch) : 100) / (int)(1 + n / 512);
  for (int i = 1; i <= rounds; ++i) {
    uint8_t v = (uint8_t)(i % 250 + 1);
    if (e->a) {
      for (uint32_t j = 0; j < n; ++j) p->buf[j] = v;
      write_to(p, 1, 0, n, 4096);
      want(e->scq, 1, 0, -1);
      /* The answer, likewise. */
      double end = seconds() + 20;
      for (unsigned spins = 0; p->buf[20000] != v; ++spins)
        if (spins % 4096 == 0 && seconds() > end) FAIL("no answer");
    } else {
      double end = seconds() + 20;
      for (unsigned spins = 0; p->buf[4096 + n - 1] != v; ++spins)
        if (spins % 4096 == 0 && seconds() > end) FAIL("the last byte never came");
      for (uint32_t j = 0; j < n; ++j)
        if (p->buf[4096 + j] != v) FAIL("%u bytes, round %d: byte %u was not there when the last one was", n, i, j);
      p->buf[0] = v;
      write_to(p, 1, 0, 1, 20000);
      want(e->scq, 1, 0, -1);
    }
  }
  meet(e);
}

/* A target that has failed by itself takes nothing any more, though nobody has asked it to change its state. */
static void failed_target(struct pair* p) {
  struct end* e = p->e;
  p->buf[64] = 0x31;
  if (e->a) {
    for (int i = 0; i < 3; ++i) { /* the direct way is open */
      write_to(p, 1, 0, 1, 65);
      want(e->scq, 1, 0, -1);
    }
    meet(e);
    meet(e);
    p->buf[0] = 0x32;
    write_to(p, 2, 0, 1, 64);
    want(e->scq, 2, IBV_WC_RETRY_EXC_ERR, 0x81);
  } else {
    meet(e);
    struct ibv_sge s = at(p, 0, 8);
    s.lkey ^= 0x5a;
    post(e, IBV_WR_SEND, 3, s, 0, 0);
    want(e->scq, 3, IBV_WC_LOC_PROT_ERR, -1);
    meet(e);
  }
  meet(e);
  if (!e->a && p->buf[64] != 0x31) FAIL("written through a QP in error");
}

static char state_of(int pid) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
  if (fd >= 0) close(fd);
  if (n <= 0) return '?';
  line[n] = 0;
  char* p = strrchr(line, ')');
  return p ? p[2] : '?';
}

static void stopped_target(struct pair* p) {
  struct end* e = p->e;
  int mine = getpid(), theirs;
  swap(e->fd, &mine, &theirs, sizeof mine);
  if (e->a) {
    NEED(kill(theirs, SIGSTOP) == 0);
    double end = seconds() + 20;
    while (state_of(theirs) != 'T')
      if (seconds() > end) FAIL("the target does not stop");
    for (int i = 0; i < 100; ++i) {
      p->buf[0] = (uint8_t)(i + 1);
      p->buf[1000] = 0;
      write_to(p, 1, 0, 1, 64);
      want(e->scq, 1, 0, -1);
      post(e, IBV_WR_RDMA_READ, 2, at(p, 1000, 1), e->peer.va + 64, e->peer.rkey);
      want(e->scq, 2, 0, -1);
      if (p->buf[1000] != (uint8_t)(i + 1)) FAIL("read %d, wrote %d", p->buf[1000], i + 1);
    }
    NEED(state_of(theirs) == 'T');
    NEED(kill(theirs, SIGCONT) == 0);
  }
  meet(e);
  if (!e->a) NEED(p->buf[64] == 100);
}

static void play(struct end* e) {
  open_end(e);
  struct pair p = {e, aligned_alloc(4096, kBytes), NULL};
  NEED(p.buf);
  memset((void*)p.buf, 0, kBytes);
  NEED(p.mr = ibv_reg_mr(e->pd, (void*)p.buf, kBytes, kAll));
  e->me.va = (uintptr_t)p.buf;
  e->me.rkey = p.mr->rkey;
  join(e, &kTuning);
  behind(&p, IBV_WR_SEND, "SEND");
  behind(&p, IBV_WR_RDMA_WRITE_WITH_IMM, "WRITE with immediate");
  read_after_write(&p);
  atomic_between(&p);
  last_byte_last(&p, 8);
  last_byte_last(&p, 64);
  last_byte_last(&p, 1000);
  last_byte_last(&p, 8192);
  if (getenv("STOP")) stopped_target(&p);
  part(e);
  struct tuning quick = kTuning;
  quick.timeout = 10;
  quick.retry_cnt = 2;
  e->me.va = (uintptr_t)p.buf;
  e->me.rkey = p.mr->rkey;
  join(e, &quick);
  failed_target(&p);
  part(e);
  NEED(ibv_dereg_mr(p.mr) == 0);
  close_end(e);
  free((void*)p.buf);
  printf("in order\n");
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, play);
}
