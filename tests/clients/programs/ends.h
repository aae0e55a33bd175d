/* SPDX-License-Identifier: MIT
 *
 * Two ends of one RC connection for test clients: set-up over a stream socket, expectations that say what was wrong and end the
 * program with status 1. Plain verbs; nothing here knows uhca.
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FAIL(...)                                        \
  do {                                                   \
    fprintf(stderr, "FAIL %s:%d: ", __func__, __LINE__); \
    fprintf(stderr, __VA_ARGS__);                        \
    fprintf(stderr, "\n");                               \
    _exit(1);                                            \
  } while (0)
#define NEED(x)                                                      \
  do {                                                               \
    if (!(x)) FAIL("%s (errno %d, %s)", #x, errno, strerror(errno)); \
  } while (0)

#ifndef ENDS_QUEUE
#define ENDS_QUEUE 16
#endif
enum { kQueue = ENDS_QUEUE };

struct address {
  uint32_t qpn, psn, rkey, spare;
  uint64_t va;
  union ibv_gid gid;
};

struct end {
  int a; /* 1: the side that asks, 0: the side that answers */
  int fd;
  int gid_index;
  struct ibv_context* ctx;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel; /* of its CQs, if it sleeps */
  struct ibv_cq *scq, *rcq;
  struct ibv_qp* qp;
  struct address me, peer;
  const char* name; /* of the case */
  long counted[16]; /* when it began */
};

struct tuning {
  int rnr_retry, retry_cnt, timeout, min_rnr_timer, signal_some;
  uint32_t dest_qpn; /* 0: the peer's */
};
static enum ibv_mtu ends_mtu = IBV_MTU_1024;
static const struct tuning kTuning = {7, 7, 14, 1, 0, 0};

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the stream between the ends */

/* 0: the peer is gone. */
static inline int swap_or_gone(int fd, const void* out, void* in, size_t n) {
  size_t done = 0;
  if (send(fd, out, n, MSG_NOSIGNAL) != (ssize_t)n) return 0;
  while (done < n) {
    ssize_t r = recv(fd, (char*)in + done, n - done, 0);
    if (r < 0 && errno == EINTR) continue;
    if (r <= 0) return 0;
    done += (size_t)r;
  }
  return 1;
}
static inline void swap(int fd, const void* out, void* in, size_t n) {
  if (!swap_or_gone(fd, out, in, n)) FAIL("the other end is gone");
}
/* Both ends have come here. */
static inline void meet(struct end* e) {
  char c = 'm', d;
  swap(e->fd, &c, &d, 1);
}

static inline int listen_once(int port) {
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  NEED(s >= 0);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  NEED(bind(s, (struct sockaddr*)&a, sizeof a) == 0 && listen(s, 1) == 0);
  int c = accept(s, NULL, NULL);
  NEED(c >= 0);
  close(s);
  setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return c;
}
static inline int connect_to(const char* host, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  NEED(inet_pton(AF_INET, host, &a.sin_addr) == 1);
  for (int i = 0; i < 500; ++i) {
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr*)&a, sizeof a) == 0) {
      setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      return s;
    }
    close(s);
    usleep(20000);
  }
  FAIL("cannot connect");
}

/* ---- the device */

static inline struct ibv_context* open_first(void) {
  int n = 0;
  struct ibv_device** list = ibv_get_device_list(&n);
  NEED(list && n > 0);
  struct ibv_context* ctx = ibv_open_device(list[0]);
  NEED(ctx);
  ibv_free_device_list(list);
  return ctx;
}
static inline void open_end(struct end* e) {
  e->ctx = open_first();
  NEED(e->pd = ibv_alloc_pd(e->ctx));
}
static inline void close_end(struct end* e) {
  NEED(ibv_dealloc_pd(e->pd) == 0);
  NEED(ibv_close_device(e->ctx) == 0);
}

static inline void make_qp(struct end* e, const struct tuning* t) {
  NEED(e->scq = ibv_create_cq(e->ctx, 4 * kQueue, e, e->channel, 0));
  NEED(e->rcq = ibv_create_cq(e->ctx, 4 * kQueue, e, e->channel, 0));
  struct ibv_qp_init_attr init = {.send_cq = e->scq,
                                  .recv_cq = e->rcq,
                                  .cap = {.max_send_wr = kQueue, .max_recv_wr = kQueue, .max_send_sge = 4, .max_recv_sge = 4},
                                  .qp_type = IBV_QPT_RC,
                                  .sq_sig_all = !t->signal_some};
  NEED(e->qp = ibv_create_qp(e->pd, &init));
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  e->me.qpn = e->qp->qp_num;
  e->me.psn = 0x10;
  NEED(ibv_query_gid(e->ctx, 1, e->gid_index, &e->me.gid) == 0);
}

static inline int to_rts(struct end* e, const struct tuning* t) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = ends_mtu,
      .dest_qp_num = t->dest_qpn ? t->dest_qpn : e->peer.qpn,
      .rq_psn = e->peer.psn,
      .max_dest_rd_atomic = 4,
      .min_rnr_timer = (uint8_t)t->min_rnr_timer,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e->peer.gid, .sgid_index = (uint8_t)e->gid_index, .hop_limit = 64}}};
  int r = ibv_modify_qp(
      e->qp, &rtr,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (r) return r;
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .timeout = (uint8_t)t->timeout,
                            .retry_cnt = (uint8_t)t->retry_cnt,
                            .rnr_retry = (uint8_t)t->rnr_retry,
                            .sq_psn = e->me.psn,
                            .max_rd_atomic = 4};
  return ibv_modify_qp(e->qp, &rts,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

/* One process, two QPs of it: what `a` asks, `b` answers. */
struct both {
  struct end a, b;
};
static inline void connect_within(struct both* p, int gid) {
  memset(p, 0, sizeof *p);
  p->a.gid_index = gid;
  open_end(&p->a);
  p->b = p->a;
  make_qp(&p->a, &kTuning);
  make_qp(&p->b, &kTuning);
  p->a.peer = p->b.me;
  p->b.peer = p->a.me;
  NEED(to_rts(&p->a, &kTuning) == 0 && to_rts(&p->b, &kTuning) == 0);
}

/* A connected pair; what `me.va` and `me.rkey` hold is told to the peer. */
static inline void join(struct end* e, const struct tuning* t) {
  make_qp(e, t);
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  if (to_rts(e, t) != 0) FAIL("modify_qp");
  meet(e);
}
static inline void part(struct end* e) {
  meet(e); /* nobody destroys while the other still checks */
  NEED(ibv_destroy_qp(e->qp) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0);
  NEED(ibv_destroy_cq(e->rcq) == 0);
  e->me.rkey = 0;
  e->me.va = 0;
}

static inline enum ibv_qp_state qp_state(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  NEED(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  return attr.qp_state;
}

/* ---- work */

static inline struct ibv_sge sge_of(const void* p, uint32_t n, const struct ibv_mr* mr) {
  struct ibv_sge s = {.addr = (uintptr_t)p, .length = n, .lkey = mr ? mr->lkey : 0};
  return s;
}
static inline void post(struct end* e, enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge s, uint64_t remote, uint32_t rkey) {
  struct ibv_send_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  int r = ibv_post_send(e->qp, &wr, &bad);
  if (r) FAIL("ibv_post_send: %d", r);
}
static inline void post_receive(struct end* e, uint64_t id, struct ibv_sge s) {
  struct ibv_recv_wr *bad, wr = {.wr_id = id, .sg_list = &s, .num_sge = 1};
  int r = ibv_post_recv(e->qp, &wr, &bad);
  if (r) FAIL("ibv_post_recv: %d", r);
}

/* With TRANSCRIPT in the environment: every completion of the CQs that make_qp() made, on stdout, each end in its order. What a failed
 * one does not define is left out (ibv_poll_cq(3)). */
static inline int transcript_wanted(void) {
  static int wanted = -1;
  if (wanted < 0) wanted = getenv("TRANSCRIPT") != NULL;
  return wanted;
}
static inline void transcribe(const struct ibv_cq* cq, const struct ibv_wc* wc) {
  const struct end* e = cq->cq_context;
  if (!transcript_wanted() || !e) return;
  char line[160];
  int n = snprintf(line, sizeof line, "%c %s wr %lu status %d", e->a ? 'a' : 'b', cq == e->scq ? "send" : "recv", (unsigned long)wc->wr_id,
                   wc->status);
  size_t left = sizeof line - (size_t)n;
  if (wc->status != IBV_WC_SUCCESS) {
    n += snprintf(line + n, left, " vendor 0x%x", wc->vendor_err);
  } else if (!(wc->opcode & IBV_WC_RECV)) {
    n += snprintf(line + n, left, " opcode %d", wc->opcode);
  } else {
    n += snprintf(line + n, left, " opcode %d flags 0x%x len %u imm 0x%x", wc->opcode, wc->wc_flags, wc->byte_len,
                  wc->wc_flags & IBV_WC_WITH_IMM ? ntohl(wc->imm_data) : 0);
  }
  line[n++] = '\n';
  if (write(1, line, (size_t)n) != n) FAIL("stdout");
}

static inline struct ibv_wc next_wc(struct ibv_cq* cq) {
  struct ibv_wc wc;
  double end = seconds() + 30;
  int n;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
    if (seconds() > end) FAIL("no completion in 30 s");
  if (n < 0) FAIL("ibv_poll_cq: %d", n);
  transcribe(cq, &wc);
  return wc;
}
/* vendor < 0: any. */
static inline void want(struct ibv_cq* cq, uint64_t id, int status, int vendor) {
  struct ibv_wc wc = next_wc(cq);
  if (wc.wr_id != id || (int)wc.status != status || (vendor >= 0 && (int)wc.vendor_err != vendor))
    FAIL("completion of wr %lu with status %d vendor_err 0x%x; expected wr %lu with %d 0x%x", (unsigned long)wc.wr_id, wc.status,
         wc.vendor_err, (unsigned long)id, status, vendor);
}
static inline void want_nothing(struct ibv_cq* cq) {
  struct ibv_wc wc;
  double end = seconds() + 0.01;
  do {
    int n = ibv_poll_cq(cq, 1, &wc);
    if (n != 0) FAIL("unexpected completion of wr %lu: status %d vendor_err 0x%x", (unsigned long)wc.wr_id, wc.status, wc.vendor_err);
  } while (seconds() < end);
}

/* ---- cases, one after the other. On stderr "== NAME" and "ok NAME"; with TRANSCRIPT in the environment "a == NAME", "b == NAME" on
 * stdout, and what the device counted meanwhile. */

/* Counters that say what was done, not how it went on the way. */
static const char* const kCounters[] = {
    "rx_write_requests", "rx_read_requests",           "rx_atomic_requests",       "resp_local_length_error", "resp_cqe_error",
    "req_cqe_error",     "req_remote_invalid_request", "req_remote_access_errors", "resp_cqe_flush_error",    "req_cqe_flush_error"};
enum { kCounted = sizeof kCounters / sizeof *kCounters };
static inline void read_counters(struct end* e, long* values) {
  for (int i = 0; i < kCounted; ++i) {
    char path[256], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s", ibv_get_device_name(e->ctx->device), kCounters[i]);
    int fd = open(path, O_RDONLY);
    NEED(fd >= 0);
    NEED(read(fd, text, sizeof text - 1) > 0);
    close(fd);
    values[i] = atol(text);
  }
}
static inline void begin_case(struct end* e, const char* name) {
  char line[128];
  e->name = name;
  meet(e);
  fprintf(stderr, "== %s\n", name);
  if (!transcript_wanted()) return;
  read_counters(e, e->counted);
  int n = snprintf(line, sizeof line, "%c == %s\n", e->a ? 'a' : 'b', name);
  NEED(write(1, line, (size_t)n) == n);
  meet(e);
}
static inline void end_case(struct end* e) {
  char line[512];
  meet(e);
  if (transcript_wanted()) {
    long now[kCounted];
    read_counters(e, now);
    int n = snprintf(line, sizeof line, "%c counters", e->a ? 'a' : 'b');
    for (int k = 0; k < kCounted; ++k) n += snprintf(line + n, sizeof line - (size_t)n, " %ld", now[k] - e->counted[k]);
    line[n++] = '\n';
    NEED(write(1, line, (size_t)n) == n);
    meet(e);
  }
  fprintf(stderr, "ok %s\n", e->name);
}

/* ---- main: PROGRAM both GID | server PORT GID | client HOST PORT GID */

static inline void* second_end(void* arg);
typedef void (*end_function)(struct end*);

struct named_case {
  const char* name;
  end_function run;
};
#define CASE(f) \
  { #f, f }
/* All of them on one end, but for those that the environment's WITHOUT names; with its CASE, that one. */
static inline void run_cases(struct end* e, const struct named_case* cases, size_t n) {
  const char *one = getenv("CASE"), *without = getenv("WITHOUT");
  open_end(e);
  for (size_t i = 0; i < n; ++i) {
    if (one && strcmp(one, cases[i].name) != 0) continue;
    if (without && strstr(without, cases[i].name)) continue;
    begin_case(e, cases[i].name);
    cases[i].run(e);
    end_case(e);
  }
  close_end(e);
}
struct start {
  struct end end;
  end_function run;
};
static inline void* second_end(void* arg) {
  struct start* s = arg;
  s->run(&s->end);
  return NULL;
}
static inline int run_ends(int argc, char** argv, end_function run) {
  alarm(50);
  if (argc == 3 && strcmp(argv[1], "both") == 0) {
    int fds[2];
    NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    struct start b = {{0, fds[1], atoi(argv[2])}, run}, a = {{1, fds[0], atoi(argv[2])}, run};
    pthread_t t;
    NEED(pthread_create(&t, NULL, second_end, &b) == 0);
    run(&a.end);
    NEED(pthread_join(t, NULL) == 0);
  } else if (argc == 4 && strcmp(argv[1], "server") == 0) {
    struct end e = {0, listen_once(atoi(argv[2])), atoi(argv[3])};
    run(&e);
  } else if (argc == 5 && strcmp(argv[1], "client") == 0) {
    struct end e = {1, connect_to(argv[2], atoi(argv[3])), atoi(argv[4])};
    run(&e);
  } else {
    fprintf(stderr, "usage: %s both GID | server PORT GID | client HOST PORT GID\n", argv[0]);
    return 2;
  }
  return 0;
}
