/* SPDX-License-Identifier: MIT
 *
 * Completion errors, case by case: wrong keys, ranges, rights and domains, and memory that goes away while it is registered. Every
 * case has a fresh pair; "== NAME" on stderr separates them, so that what a log says can be told apart.
 */
#include <sys/mman.h>
#include <sys/shm.h>

#include "ends.h"

enum { kPage = 4096, kBytes = 2 * kPage };
static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

static char* fresh(size_t n) {
  char* p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(p != MAP_FAILED);
  memset(p, 0x77, n);
  return p;
}
static struct ibv_mr* reg(struct ibv_pd* pd, void* p, size_t n, int access) {
  struct ibv_mr* mr = ibv_reg_mr(pd, p, n, access);
  if (!mr) FAIL("ibv_reg_mr: %s", strerror(errno));
  return mr;
}
static void only(const char* p, int value, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (p[i] != (char)value) FAIL("byte %zu is 0x%x, not 0x%x", i, (unsigned char)p[i], value);
}

/* Memory of each end for cases that need nothing special. */
struct memory {
  char* p;
  struct ibv_mr* mr;
};
static struct memory get(struct end* e) {
  struct memory m = {fresh(kBytes), NULL};
  m.mr = reg(e->pd, m.p, kBytes, kAll);
  return m;
}
static void put(struct memory m) {
  NEED(ibv_dereg_mr(m.mr) == 0);
  munmap(m.p, kBytes);
}

/* ---- cases.md A */

static void no_receive_no_retries(struct end* e) {
  struct tuning t = kTuning;
  t.rnr_retry = 0;
  struct memory m = get(e);
  join(e, &t);
  if (e->a) {
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 64, m.mr), 0, 0);
    post(e, IBV_WR_SEND, 2, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_RNR_RETRY_EXC_ERR, 0x87);
    want(e->scq, 2, IBV_WC_WR_FLUSH_ERR, 0xf9);
    post(e, IBV_WR_SEND, 3, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 3, IBV_WC_WR_FLUSH_ERR, 0xf9);
    NEED(qp_state(e->qp) == IBV_QPS_ERR);
    meet(e);
  } else {
    meet(e);
    want_nothing(e->rcq);
    NEED(qp_state(e->qp) == IBV_QPS_RTS);
  }
  part(e);
  put(m);
}

static void no_receive_yet(struct end* e) {
  struct memory m = get(e);
  join(e, &kTuning);
  if (e->a) {
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 64, m.mr), 0, 0);
    want_nothing(e->scq);
    meet(e);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
  } else {
    meet(e);
    post_receive(e, 7, sge_of(m.p, 64, m.mr));
    want(e->rcq, 7, IBV_WC_SUCCESS, -1);
  }
  part(e);
  put(m);
}

static void no_such_qp(struct end* e) {
  struct tuning t = kTuning;
  t.timeout = 10;
  t.retry_cnt = 3;
  t.dest_qpn = 0xabcde;
  struct memory m = get(e);
  join(e, &t);
  if (e->a) {
    double start = seconds();
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 64, m.mr), 0, 0);
    post(e, IBV_WR_SEND, 2, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_RETRY_EXC_ERR, 0x81);
    double took = seconds() - start;
    if (took < 4 * 0.0041) FAIL("gave up after %.1f ms", took * 1e3);
    want(e->scq, 2, IBV_WC_WR_FLUSH_ERR, 0xf9);
  }
  part(e);
  put(m);
}

static void error_then_flushes(struct end* e) {
  struct memory m = get(e);
  e->me.va = (uintptr_t)m.p;
  e->me.rkey = m.mr->rkey;
  join(e, &kTuning);
  if (e->a) {
    post(e, IBV_WR_RDMA_READ, 1, sge_of(m.p, 64, m.mr), e->peer.va, e->peer.rkey ^ 1);
    post(e, IBV_WR_SEND, 2, sge_of(m.p, 64, m.mr), 0, 0);
    post(e, IBV_WR_SEND, 3, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_REM_ACCESS_ERR, 0x88);
    want(e->scq, 2, IBV_WC_WR_FLUSH_ERR, 0xf9);
    want(e->scq, 3, IBV_WC_WR_FLUSH_ERR, 0xf9);
  }
  part(e);
  put(m);
}

static void flush_by_command(struct end* e) {
  struct tuning t = kTuning;
  t.signal_some = 1;
  struct memory m = get(e);
  join(e, &t);
  if (e->a) {
    /* The peer has no receive posted: the sends stay where they are. */
    struct ibv_sge s = sge_of(m.p, 64, m.mr);
    struct ibv_send_wr *bad, silent = {.wr_id = 1, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND};
    NEED(ibv_post_send(e->qp, &silent, &bad) == 0);
    post(e, IBV_WR_SEND, 2, s, 0, 0);
    post_receive(e, 11, s);
    post_receive(e, 12, s);
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
    NEED(ibv_modify_qp(e->qp, &err, IBV_QP_STATE) == 0);
    post(e, IBV_WR_SEND, 3, s, 0, 0);
    post_receive(e, 13, s);
    for (uint64_t i = 1; i <= 3; ++i) want(e->scq, i, IBV_WC_WR_FLUSH_ERR, 0xf9);
    for (uint64_t i = 11; i <= 13; ++i) want(e->rcq, i, IBV_WC_WR_FLUSH_ERR, 0xf9);
    want_nothing(e->scq);
    want_nothing(e->rcq);
  }
  part(e);
  put(m);
}

/* A SEND that the requester's own memory refuses. */
static void bad_send(struct end* e, struct ibv_sge s) {
  struct memory m = get(e);
  join(e, &kTuning);
  if (e->a) {
    post(e, IBV_WR_SEND, 1, s, 0, 0);
    want(e->scq, 1, IBV_WC_LOC_PROT_ERR, 0x52);
    NEED(qp_state(e->qp) == IBV_QPS_ERR);
    meet(e);
  } else {
    post_receive(e, 7, sge_of(m.p, kBytes, m.mr));
    meet(e);
    want_nothing(e->rcq);
    NEED(qp_state(e->qp) == IBV_QPS_RTS);
    only(m.p, 0x77, kBytes);
  }
  part(e);
  put(m);
}
static void send_past_mr(struct end* e) {
  struct memory m = get(e);
  bad_send(e, sge_of(m.p + kBytes - 63, 64, m.mr));
  put(m);
}
static void send_wrong_lkey(struct end* e) {
  struct memory m = get(e);
  struct ibv_sge s = sge_of(m.p, 64, m.mr);
  s.lkey ^= 1;
  bad_send(e, s);
  put(m);
}
static void send_other_pd(struct end* e) {
  struct ibv_pd* pd = ibv_alloc_pd(e->ctx);
  NEED(pd);
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(pd, p, kBytes, kAll);
  bad_send(e, sge_of(p, 64, mr));
  NEED(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
  munmap(p, kBytes);
}
static void send_deregistered(struct end* e) {
  struct memory m = get(e);
  struct ibv_sge s = sge_of(m.p, 64, m.mr);
  put(m);
  bad_send(e, s);
}

static void receive_not_writable(struct end* e) {
  struct memory m = get(e);
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, 0);
  if (!e->a) {
    join(e, &kTuning);
    post_receive(e, 7, sge_of(p, 64, mr));
    meet(e);
    want(e->rcq, 7, IBV_WC_LOC_PROT_ERR, 0x51);
    only(p, 0x77, kBytes);
    NEED(qp_state(e->qp) == IBV_QPS_ERR);
  } else {
    join(e, &kTuning);
    meet(e);
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_REM_OP_ERR, 0x89);
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, kBytes);
  put(m);
}

static void read_into_not_writable(struct end* e) {
  struct memory m = get(e);
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, 0);
  e->me.va = (uintptr_t)m.p;
  e->me.rkey = m.mr->rkey;
  join(e, &kTuning);
  if (e->a) {
    post(e, IBV_WR_RDMA_READ, 1, sge_of(p, 64, mr), e->peer.va, e->peer.rkey);
    want(e->scq, 1, IBV_WC_LOC_PROT_ERR, 0x51);
    only(p, 0x77, kBytes);
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, kBytes);
  put(m);
}

static void receive_too_short(struct end* e) {
  struct memory m = get(e);
  join(e, &kTuning);
  if (e->a) {
    meet(e);
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 128, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_REM_INV_REQ_ERR, 0x8a);
  } else {
    post_receive(e, 7, sge_of(m.p, 64, m.mr));
    meet(e);
    want(e->rcq, 7, IBV_WC_LOC_LEN_ERR, -1);
  }
  part(e);
  put(m);
}

static void sum_of_lengths(struct end* e) {
  struct memory m = get(e);
  join(e, &kTuning);
  if (e->a) {
    struct ibv_sge s[4];
    for (int i = 0; i < 4; ++i) s[i] = sge_of(m.p, 1u << 30, m.mr);
    struct ibv_send_wr *bad, wr = {.wr_id = 1, .sg_list = s, .num_sge = 4, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    NEED(ibv_post_send(e->qp, &wr, &bad) == 0);
    want(e->scq, 1, IBV_WC_LOC_PROT_ERR, 0x52);
  }
  part(e);
  put(m);
}

/* ---- what the responder refuses: WRITE and READ, each on a pair of its own */

static void refused_remotely(struct end* e, struct ibv_mr* mr, uint64_t va, uint32_t rkey_xor, uint32_t n) {
  static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
  for (int i = 0; i < 2; ++i) {
    struct memory m = get(e);
    e->me.va = va;
    e->me.rkey = mr ? mr->rkey ^ rkey_xor : 0;
    join(e, &kTuning);
    if (e->a) {
      memset(m.p, 0x33, kBytes);
      post(e, ops[i], 1, sge_of(m.p, n, m.mr), e->peer.va, e->peer.rkey);
      want(e->scq, 1, IBV_WC_REM_ACCESS_ERR, 0x88);
      only(m.p, 0x33, kBytes);
      NEED(qp_state(e->qp) == IBV_QPS_ERR);
      meet(e);
    } else {
      post_receive(e, 7, sge_of(m.p, 64, m.mr));
      meet(e);
      want(e->rcq, 7, IBV_WC_WR_FLUSH_ERR, 0xf9);
      NEED(qp_state(e->qp) == IBV_QPS_ERR);
    }
    part(e);
    put(m);
  }
}
static void rkey_wrong(struct end* e) {
  struct memory m = get(e);
  refused_remotely(e, m.mr, (uintptr_t)m.p, 1, 64);
  only(m.p, 0x77, kBytes);
  put(m);
}
static void rkey_past_mr(struct end* e) {
  struct memory m = get(e);
  refused_remotely(e, m.mr, (uintptr_t)m.p + kBytes - 63, 0, 64);
  refused_remotely(e, m.mr, (uintptr_t)m.p - 1, 0, 64);
  only(m.p, 0x77, kBytes);
  put(m);
}
static void rkey_end_of_space(struct end* e) {
  struct memory m = get(e);
  refused_remotely(e, m.mr, ~UINT64_C(0) - 7, 0, 16);
  put(m);
}
static void rkey_no_right(struct end* e) {
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, IBV_ACCESS_LOCAL_WRITE);
  refused_remotely(e, mr, (uintptr_t)p, 0, 64);
  only(p, 0x77, kBytes);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, kBytes);
}
static void rkey_other_pd(struct end* e) {
  struct ibv_pd* pd = ibv_alloc_pd(e->ctx);
  NEED(pd);
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(pd, p, kBytes, kAll);
  refused_remotely(e, mr, (uintptr_t)p, 0, 64);
  only(p, 0x77, kBytes);
  NEED(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(pd) == 0);
  munmap(p, kBytes);
}

/* ---- memory that goes away while it is registered */

/* What moves nothing takes nothing away: a crooked address, a break that stays in its page, one that the kernel refuses. */
static void take_nothing(char* p) {
  NEED(munmap(p + 1, kPage) == -1 && errno == EINVAL);
  char* end = sbrk(0);
  brk((void*)kPage);
  NEED(sbrk(0) == end);
  if (end == p + kBytes) NEED(sbrk(-1) == p + kBytes && sbrk(1) == p + kBytes - 1);
}

/* Registers [p, kBytes), lets the peer write there, takes it away by `go` (which returns what is there now: `value` in `n` bytes)
 * and lets the peer try again. */
static void taken_away(struct end* e, char* p, char* (*go)(char*), int value, size_t n) {
  struct memory m = get(e);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, kAll);
  if (!e->a) fprintf(stderr, "MR 0x%x [0x%lx, 0x%lx)\n", mr->rkey, (unsigned long)(uintptr_t)p, (unsigned long)((uintptr_t)p + kBytes));
  e->me.va = (uintptr_t)p;
  e->me.rkey = mr->rkey;
  join(e, &kTuning);
  if (!e->a) take_nothing(p);
  meet(e);
  if (e->a) {
    memset(m.p, 0x11, kBytes);
    post(e, IBV_WR_RDMA_WRITE, 1, sge_of(m.p, kBytes, m.mr), e->peer.va, e->peer.rkey);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
  }
  meet(e);
  part(e);
  char* now = p;
  /* In one process the other end must not map anything meanwhile: it could get the address. */
  meet(e);
  if (!e->a) {
    only(p, 0x11, kBytes);
    now = go(p);
    if (value >= 0) only(now, value, n);
  }
  meet(e);
  refused_remotely(e, mr, (uintptr_t)p, 0, 64);
  refused_remotely(e, mr, (uintptr_t)p + kPage, 0, 64);
  if (!e->a && value >= 0) only(now, value, n);
  e->me.va = (uintptr_t)p;
  e->me.rkey = mr->rkey;
  NEED(ibv_dereg_mr(mr) == 0);
  if (!e->a && value >= 0) {
    /* What is there now can be registered like any other memory. */
    mr = reg(e->pd, now, kBytes, kAll);
    e->me.rkey = mr->rkey;
  }
  join(e, &kTuning);
  if (e->a) {
    post(e, IBV_WR_RDMA_WRITE, 1, sge_of(m.p, kBytes, m.mr), e->peer.va, e->peer.rkey);
    want(e->scq, 1, value >= 0 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR, -1);
    meet(e);
  } else {
    meet(e);
    if (value >= 0) only(now, 0x11, kBytes);
  }
  part(e);
  if (!e->a && value >= 0) NEED(ibv_dereg_mr(mr) == 0);
  put(m);
}

static char* again(char* at, size_t n) {
  char* p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  NEED(p == at);
  memset(p, 0x77, n);
  return p;
}
static char* go_same(char* p) {
  NEED(munmap(p, kBytes) == 0);
  return again(p, kBytes);
}
static char* go_longer(char* p) {
  NEED(munmap(p, 8 * kPage) == 0);
  return again(p, 8 * kPage);
}
static char* go_nothing(char* p) {
  NEED(munmap(p, kBytes) == 0);
  return p;
}
static char* go_second_page(char* p) {
  memset(p, 0x77, kBytes);
  NEED(munmap(p + kPage, kPage) == 0);
  again(p + kPage, kPage);
  return p;
}
static char* go_mremap(char* p) {
  char* q = mremap(p, kBytes, 4 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, fresh(4 * kPage));
  NEED(q != MAP_FAILED);
  only(q, 0x11, kBytes);
  return again(p, kBytes);
}
static char* go_dontneed(char* p) {
  NEED(madvise(p, kBytes, MADV_DONTNEED) == 0);
  return p;
}
static char* go_fixed(char* p) {
  char* q = mmap(p, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  NEED(q == p);
  memset(p, 0x77, kBytes);
  return p;
}
static char* go_moved_over(char* p) {
  char* q = fresh(kBytes);
  NEED(mremap(q, kBytes, kBytes, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
  return p;
}
static char* go_break(char* p) {
  NEED(sbrk(-kBytes) == p + kBytes);
  NEED(sbrk(kBytes) == p);
  memset(p, 0x77, kBytes);
  return p;
}
static char* go_detach(char* p) {
  NEED(shmdt(p) == 0);
  return again(p, kBytes);
}

static void unmapped_same(struct end* e) {
  taken_away(e, fresh(kBytes), go_same, 0x77, kBytes);
}
static void unmapped_longer(struct end* e) {
  taken_away(e, fresh(8 * kPage), go_longer, 0x77, 8 * kPage);
}
static void unmapped_nothing_there(struct end* e) {
  taken_away(e, fresh(kBytes), go_nothing, -1, 0);
}
static void unmapped_in_part(struct end* e) {
  taken_away(e, fresh(kBytes), go_second_page, 0x77, kBytes);
}
static void mremapped(struct end* e) {
  taken_away(e, fresh(kBytes), go_mremap, 0x77, kBytes);
}
static void discarded(struct end* e) {
  taken_away(e, fresh(kBytes), go_dontneed, 0, kBytes);
}
static void mapped_over(struct end* e) {
  taken_away(e, fresh(kBytes), go_fixed, 0x77, kBytes);
}
static void moved_over(struct end* e) {
  taken_away(e, fresh(kBytes), go_moved_over, 0x77, kBytes);
}
static void broken(struct end* e) {
  /* The break is one for the process: only the answering end moves it. */
  if (e->a) {
    taken_away(e, fresh(kBytes), go_same, 0x77, kBytes);
    return;
  }
  uintptr_t odd = (uintptr_t)sbrk(0) % kPage;
  if (odd) NEED(sbrk((intptr_t)(kPage - odd)) != (void*)-1);
  char* p = sbrk(kBytes);
  NEED(p != (void*)-1);
  memset(p, 0x77, kBytes);
  taken_away(e, p, go_break, 0x77, kBytes);
}
static void detached(struct end* e) {
  int id = shmget(IPC_PRIVATE, kBytes, 0600);
  NEED(id >= 0);
  char* p = shmat(id, NULL, 0);
  NEED(p != (void*)-1 && shmctl(id, IPC_RMID, NULL) == 0);
  taken_away(e, p, go_detach, 0x77, kBytes);
}

static void send_unmapped(struct end* e) {
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, kAll);
  if (e->a) fprintf(stderr, "MR 0x%x [0x%lx, 0x%lx)\n", mr->lkey, (unsigned long)(uintptr_t)p, (unsigned long)((uintptr_t)p + kBytes));
  meet(e);
  if (e->a) go_same(p);
  meet(e);
  bad_send(e, sge_of(p, 64, mr));
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, kBytes);
}

static void receive_unmapped(struct end* e) {
  struct memory m = get(e);
  char* p = fresh(kBytes);
  struct ibv_mr* mr = reg(e->pd, p, kBytes, kAll);
  if (!e->a) fprintf(stderr, "MR 0x%x [0x%lx, 0x%lx)\n", mr->lkey, (unsigned long)(uintptr_t)p, (unsigned long)((uintptr_t)p + kBytes));
  join(e, &kTuning);
  if (!e->a) {
    post_receive(e, 7, sge_of(p, 64, mr));
    go_same(p);
    meet(e);
    want(e->rcq, 7, IBV_WC_LOC_PROT_ERR, 0x51);
    only(p, 0x77, kBytes);
  } else {
    meet(e);
    post(e, IBV_WR_SEND, 1, sge_of(m.p, 64, m.mr), 0, 0);
    want(e->scq, 1, IBV_WC_REM_OP_ERR, 0x89);
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, kBytes);
  put(m);
}

static const struct named_case kCases[] = {
    CASE(no_receive_no_retries),
    CASE(no_receive_yet),
    CASE(no_such_qp),
    CASE(error_then_flushes),
    CASE(flush_by_command),
    CASE(send_past_mr),
    CASE(send_wrong_lkey),
    CASE(send_other_pd),
    CASE(send_deregistered),
    CASE(receive_not_writable),
    CASE(read_into_not_writable),
    CASE(receive_too_short),
    CASE(sum_of_lengths),
    CASE(rkey_wrong),
    CASE(rkey_past_mr),
    CASE(rkey_end_of_space),
    CASE(rkey_no_right),
    CASE(rkey_other_pd),
    CASE(unmapped_same),
    CASE(unmapped_longer),
    CASE(unmapped_nothing_there),
    CASE(unmapped_in_part),
    CASE(mremapped),
    CASE(discarded),
    CASE(mapped_over),
    CASE(moved_over),
    CASE(broken),
    CASE(detached),
    CASE(send_unmapped),
    CASE(receive_unmapped),
};

static void all(struct end* e) {
  run_cases(e, kCases, sizeof kCases / sizeof *kCases);
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, all);
}
