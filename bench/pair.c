/* SPDX-License-Identifier: MIT
 *
 * One row of the benchmark between two ends: pair ROW BYTES (server PORT GID | client HOST PORT GID). The client prints nanoseconds an
 * operation.
 */
#define ENDS_QUEUE 256
#include "ends.h"

enum { kRegion = 1 << 22, kDepth = 16 };
static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static const char* row;
static uint32_t bytes;

struct pair {
  struct end* e;
  volatile uint8_t* buf;
  struct ibv_mr* mr;
};

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void put(struct pair* p, enum ibv_wr_opcode opcode, uint32_t to, int signaled) {
  struct end* e = p->e;
  struct ibv_sge s = sge_of((const void*)p->buf, bytes, p->mr);
  struct ibv_send_wr *bad, wr = {.sg_list = &s, .num_sge = 1, .opcode = opcode, .send_flags = signaled ? IBV_SEND_SIGNALED : 0};
  wr.wr.rdma.remote_addr = e->peer.va + to;
  wr.wr.rdma.rkey = e->peer.rkey;
  int r = ibv_post_send(e->qp, &wr, &bad);
  if (r) FAIL("ibv_post_send: %d", r);
}

static void done(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int n;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
  }
  if (n < 0 || wc.status) FAIL("status %d vendor_err 0x%x", wc.status, wc.vendor_err);
}

/* Both ends bounce a message; half of a round trip. */
static double send_lat(struct pair* p, int n) {
  struct end* e = p->e;
  post_receive(e, 0, sge_of((const void*)(p->buf + kRegion / 2), bytes, p->mr));
  meet(e);
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i) {
    if (e->a) put(p, IBV_WR_SEND, 0, 1);
    done(e->rcq);
    post_receive(e, 0, sge_of((const void*)(p->buf + kRegion / 2), bytes, p->mr));
    if (!e->a) put(p, IBV_WR_SEND, 0, 1);
    done(e->scq);
  }
  return (double)(now_ns() - start) / n / 2;
}

/* The next receive completion, asleep until it comes. */
static void woken(struct end* e) {
  struct ibv_wc wc;
  for (;;) {
    NEED(ibv_req_notify_cq(e->rcq, 0) == 0);
    int n = ibv_poll_cq(e->rcq, 1, &wc);
    if (n < 0 || (n && wc.status)) FAIL("status %d vendor_err 0x%x", wc.status, wc.vendor_err);
    if (n) return;
    struct ibv_cq* cq;
    void* context;
    NEED(ibv_get_cq_event(e->channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
  }
}

/* send_lat between ends that sleep. */
static double wake_lat(struct pair* p, int n) {
  struct end* e = p->e;
  post_receive(e, 0, sge_of((const void*)(p->buf + kRegion / 2), bytes, p->mr));
  meet(e);
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i) {
    if (e->a) put(p, IBV_WR_SEND, 0, 1);
    woken(e);
    post_receive(e, 0, sge_of((const void*)(p->buf + kRegion / 2), bytes, p->mr));
    if (!e->a) put(p, IBV_WR_SEND, 0, 1);
    if (i) done(e->scq); /* that of the round before */
  }
  done(e->scq);
  return (double)(now_ns() - start) / n / 2;
}

static double write_lat(struct pair* p, int n) {
  struct end* e = p->e;
  volatile uint8_t* seen = p->buf + kRegion / 2 + bytes - 1;
  *seen = 0;
  meet(e);
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i) {
    uint8_t v = (uint8_t)(i % 255 + 1);
    p->buf[bytes - 1] = v;
    if (e->a) put(p, IBV_WR_RDMA_WRITE, kRegion / 2, 1);
    while (*seen != v) {
    }
    if (!e->a) put(p, IBV_WR_RDMA_WRITE, kRegion / 2, 1);
    done(e->scq);
  }
  return (double)(now_ns() - start) / n / 2;
}

/* The initiator alone. */
static double one_sided(struct pair* p, int n, enum ibv_wr_opcode opcode, int depth) {
  meet(p->e);
  if (!p->e->a) return 0;
  uint64_t start = now_ns();
  for (int i = 0; i < n + depth; ++i) {
    if (i >= depth) done(p->e->scq);
    if (i < n) put(p, opcode, 0, 1);
  }
  return (double)(now_ns() - start) / n;
}

/* Many WRITEs under way, one completion for every 32. */
static double write_rate(struct pair* p, int n) {
  enum { kEvery = 32, kUnderWay = 7 };
  meet(p->e);
  if (!p->e->a) return 0;
  n = n / kEvery * kEvery;
  int under_way = 0;
  uint64_t start = now_ns();
  for (int i = 1; i <= n; ++i) {
    put(p, IBV_WR_RDMA_WRITE, 0, i % kEvery == 0);
    if (i % kEvery == 0 && ++under_way == kUnderWay) done(p->e->scq), --under_way;
  }
  while (under_way-- > 0) done(p->e->scq);
  return (double)(now_ns() - start) / n;
}

static double send_bw(struct pair* p, int n) {
  struct end* e = p->e;
  struct ibv_sge s = sge_of((const void*)(p->buf + kRegion / 2), bytes, p->mr);
  if (!e->a)
    for (int i = 0; i < kDepth / 2; ++i) post_receive(e, 0, s);
  meet(e);
  uint64_t start = now_ns();
  for (int i = 0; i < n + kDepth / 2; ++i) {
    if (e->a) {
      if (i >= kDepth / 2) done(e->scq);
      if (i < n) put(p, IBV_WR_SEND, 0, 1);
    } else if (i < n) {
      done(e->rcq);
      post_receive(e, 0, s);
    }
  }
  return (double)(now_ns() - start) / n;
}

static double poll_empty(struct pair* p, int n) {
  struct ibv_wc wc;
  meet(p->e);
  if (!p->e->a) return 0;
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i)
    if (ibv_poll_cq(p->e->scq, 1, &wc) != 0) FAIL("not empty");
  return (double)(now_ns() - start) / n;
}

static double reg_mr(struct pair* p, int n) {
  meet(p->e);
  if (!p->e->a) return 0;
  uint64_t spent = 0;
  for (int i = 0; i < n; ++i) {
    uint64_t start = now_ns();
    struct ibv_mr* mr = ibv_reg_mr(p->e->pd, (void*)p->buf, bytes, kAll);
    spent += now_ns() - start;
    NEED(mr && ibv_dereg_mr(mr) == 0);
  }
  return (double)spent / n;
}

/* A queue pair from nothing to where it may send, and away. */
static double qp_life(struct pair* p, int n) {
  meet(p->e);
  if (!p->e->a) return 0;
  struct end e = *p->e;
  static const struct tuning tuning = {7, 7, 14, 1, 1, 0};
  struct ibv_qp_init_attr init = {.send_cq = e.scq,
                                  .recv_cq = e.rcq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
  uint64_t start = now_ns();
  for (int i = 0; i < n; ++i) {
    NEED(e.qp = ibv_create_qp(e.pd, &init));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    NEED(ibv_modify_qp(e.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    NEED(to_rts(&e, &tuning) == 0);
    NEED(ibv_destroy_qp(e.qp) == 0);
  }
  return (double)(now_ns() - start) / n;
}

/* Independent of the size: registering is. */
static int times_of(int n) {
  return n < 2000 ? 2000 : n / 10;
}

static double run(struct pair* p, int n) {
  if (!strcmp(row, "send_lat")) return send_lat(p, n);
  if (!strcmp(row, "wake_lat")) return wake_lat(p, n / 10);
  if (!strcmp(row, "write_lat")) return write_lat(p, n);
  if (!strcmp(row, "read_lat")) return one_sided(p, n, IBV_WR_RDMA_READ, 1);
  if (!strcmp(row, "write_bw")) return one_sided(p, n, IBV_WR_RDMA_WRITE, kDepth / 2);
  if (!strcmp(row, "write_rate")) return write_rate(p, n);
  if (!strcmp(row, "read_bw")) return one_sided(p, n, IBV_WR_RDMA_READ, kDepth / 2);
  if (!strcmp(row, "send_bw")) return send_bw(p, n);
  if (!strcmp(row, "poll_empty")) return poll_empty(p, n * 10);
  if (!strcmp(row, "qp_life")) return qp_life(p, 2000);
  if (!strcmp(row, "reg_mr")) return reg_mr(p, times_of(n));
  FAIL("no row '%s'", row);
}

static void play(struct end* e) {
  open_end(e);
  struct ibv_port_attr port;
  NEED(ibv_query_port(e->ctx, 1, &port) == 0);
  ends_mtu = port.active_mtu;
  if (!strcmp(row, "wake_lat")) NEED(e->channel = ibv_create_comp_channel(e->ctx));
  struct pair p = {e, aligned_alloc(1 << 21, kRegion), NULL};
  NEED(p.buf);
  memset((void*)p.buf, 1, kRegion);
  NEED(p.mr = ibv_reg_mr(e->pd, (void*)p.buf, kRegion, kAll));
  e->me.va = (uintptr_t)p.buf;
  e->me.rkey = p.mr->rkey;
  static const struct tuning tuning = {7, 7, 14, 1, 1, 0};
  join(e, &tuning);
  const char* times = getenv("BENCH_N"); /* longer, for a profiler */
  int n = times ? atoi(times) : bytes <= 4096 ? 20000 : (int)(2000000000u / bytes / 8) + 50;
  run(&p, n / 10 + 20); /* warm; the direct way opens with the first frames */
  meet(e);
  usleep(20000);
  double ns = run(&p, n);
  meet(e);
  if (e->a) printf("ns %.2f\n", ns);
  part(e);
  NEED(ibv_dereg_mr(p.mr) == 0);
  if (e->channel) NEED(ibv_destroy_comp_channel(e->channel) == 0);
  close_end(e);
}

int main(int argc, char** argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s ROW BYTES (server PORT GID | client HOST PORT GID)\n", argv[0]);
    return 2;
  }
  row = argv[1];
  bytes = (uint32_t)atoi(argv[2]);
  return run_ends(argc - 2, argv + 2, play);
}
