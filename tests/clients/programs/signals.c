/* SPDX-License-Identifier: MIT
 *
 * Threads that are cancelled, and handlers that leave by longjmp or do verbs themselves, in the middle of the data path. After each case
 * the device must still work from another thread.  signals GID
 */
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "ends.h"

/* A loopback pair in one process: two QPs connected to each other. */
struct loop {
  struct end x, y;
  char buf[2][4096];
  struct ibv_mr* mr;
};
static int gid;
static struct ibv_context* ctx;
static struct ibv_pd* pd;

static void make(struct loop* l) {
  memset(l, 0, sizeof *l);
  struct end* e[2] = {&l->x, &l->y};
  for (int i = 0; i < 2; ++i) {
    e[i]->ctx = ctx;
    e[i]->pd = pd;
    e[i]->gid_index = gid;
    make_qp(e[i], &kTuning);
  }
  l->x.peer = l->y.me;
  l->y.peer = l->x.me;
  NEED(to_rts(&l->x, &kTuning) == 0 && to_rts(&l->y, &kTuning) == 0);
  NEED(l->mr = ibv_reg_mr(pd, l->buf, sizeof l->buf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
}
static void unmake(struct loop* l) {
  struct end* e[2] = {&l->x, &l->y};
  for (int i = 0; i < 2; ++i) {
    NEED(ibv_destroy_qp(e[i]->qp) == 0);
    NEED(ibv_destroy_cq(e[i]->scq) == 0);
    NEED(ibv_destroy_cq(e[i]->rcq) == 0);
  }
  NEED(ibv_dereg_mr(l->mr) == 0);
}
/* One WRITE if there is room, and whatever completions there are. */
static void turn(struct loop* l) {
  struct ibv_sge s = sge_of(l->buf[0], 64, l->mr);
  struct ibv_send_wr *bad, wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
  wr.wr.rdma.remote_addr = (uintptr_t)l->buf[1];
  wr.wr.rdma.rkey = l->mr->rkey;
  int r = ibv_post_send(l->x.qp, &wr, &bad);
  if (r != 0 && r != ENOMEM) FAIL("ibv_post_send: %d", r);
  struct ibv_wc wc[4];
  int n = ibv_poll_cq(l->x.scq, 4, wc);
  if (n < 0) FAIL("ibv_poll_cq: %d", n);
  for (int i = 0; i < n; ++i)
    if (wc[i].status != IBV_WC_SUCCESS) FAIL("status %d vendor_err 0x%x", wc[i].status, wc[i].vendor_err);
}
/* Takes what is outstanding, then sends one message for certain. */
static void still_works(struct loop* l) {
  double end = seconds() + 20;
  struct ibv_sge s = sge_of(l->buf[0], 64, l->mr);
  l->buf[0][0]++;
  for (;;) {
    struct ibv_send_wr *bad, wr = {.wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    wr.wr.rdma.remote_addr = (uintptr_t)l->buf[1];
    wr.wr.rdma.rkey = l->mr->rkey;
    int r = ibv_post_send(l->x.qp, &wr, &bad);
    if (r == 0) break;
    if (r != ENOMEM || seconds() > end) FAIL("no room in the send queue any more: %d", r);
    struct ibv_wc wc;
    ibv_poll_cq(l->x.scq, 1, &wc);
  }
  for (;;) {
    struct ibv_wc wc;
    int n = ibv_poll_cq(l->x.scq, 1, &wc);
    if (n == 1 && wc.status != IBV_WC_SUCCESS) FAIL("status %d", wc.status);
    if (n == 1 && wc.wr_id == 99) break;
    if (seconds() > end) FAIL("the last WRITE never completed");
  }
  if (l->buf[1][0] != l->buf[0][0]) FAIL("the data did not arrive");
}
static void* in_another_thread(void* arg) {
  still_works(arg);
  return NULL;
}
static void works_elsewhere(struct loop* l) {
  pthread_t t;
  NEED(pthread_create(&t, NULL, in_another_thread, l) == 0);
  NEED(pthread_join(t, NULL) == 0);
}
static unsigned some(unsigned below) {
  static unsigned seed = 1;
  seed = seed * 1103515245 + 12345;
  return (seed >> 8) % below;
}

/* ---- cancellation */

static atomic_int running;
static int cancel_type;
static void* turns_for_ever(void* arg) {
  pthread_setcanceltype(cancel_type, NULL);
  atomic_store(&running, 1);
  for (;;) {
    turn(arg);
    if (cancel_type == PTHREAD_CANCEL_DEFERRED) pthread_testcancel();
  }
  return NULL;
}
static void cancel_posts_and_polls(int type) {
  struct loop* l = malloc(sizeof *l);
  make(l);
  for (int i = 0; i < 200; ++i) {
    pthread_t t;
    cancel_type = type;
    atomic_store(&running, 0);
    NEED(pthread_create(&t, NULL, turns_for_ever, l) == 0);
    while (!atomic_load(&running)) sched_yield();
    if (i % 4) usleep(some(100));
    NEED(pthread_cancel(t) == 0);
    void* how = NULL;
    NEED(pthread_join(t, &how) == 0 && how == PTHREAD_CANCELED);
    if (i % 10 == 0) works_elsewhere(l);
  }
  works_elsewhere(l);
  unmake(l);
  free(l);
}
static void cancelled_deferred(void) {
  cancel_posts_and_polls(PTHREAD_CANCEL_DEFERRED);
}
static void cancelled_asynchronously(void) {
  cancel_posts_and_polls(PTHREAD_CANCEL_ASYNCHRONOUS);
}

static void* waits_for_events(void* arg) {
  pthread_setcanceltype(cancel_type, NULL);
  for (;;) {
    struct ibv_cq* cq;
    void* cookie;
    atomic_store(&running, 1);
    if (ibv_get_cq_event(arg, &cq, &cookie)) FAIL("ibv_get_cq_event: %s", strerror(errno));
  }
  return NULL;
}
static void cancelled_waiting(void) {
  struct ibv_comp_channel* channel = ibv_create_comp_channel(ctx);
  NEED(channel);
  for (int i = 0; i < 60; ++i) {
    pthread_t t;
    cancel_type = i % 2 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
    atomic_store(&running, 0);
    NEED(pthread_create(&t, NULL, waits_for_events, channel) == 0);
    while (!atomic_load(&running)) sched_yield();
    if (i % 3) usleep(some(500));
    NEED(pthread_cancel(t) == 0);
    void* how = NULL;
    NEED(pthread_join(t, &how) == 0 && how == PTHREAD_CANCELED);
  }
  /* The channel still delivers. */
  struct loop* l = malloc(sizeof *l);
  make(l);
  struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, channel, 0), *got = NULL;
  void* cookie;
  NEED(cq && ibv_req_notify_cq(cq, 0) == 0);
  struct ibv_qp* old = l->y.qp;
  NEED(ibv_destroy_qp(old) == 0);
  struct ibv_cq* rcq = l->y.rcq;
  l->y.rcq = cq;
  struct ibv_qp_init_attr init = {.send_cq = l->y.scq,
                                  .recv_cq = cq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  NEED(l->y.qp = ibv_create_qp(pd, &init));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  NEED(ibv_modify_qp(l->y.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
  NEED(ibv_modify_qp(l->x.qp, &reset, IBV_QP_STATE) == 0);
  NEED(ibv_modify_qp(l->x.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  l->x.peer.qpn = l->y.qp->qp_num;
  NEED(to_rts(&l->x, &kTuning) == 0 && to_rts(&l->y, &kTuning) == 0);
  post_receive(&l->y, 7, sge_of(l->buf[1], 64, l->mr));
  post(&l->x, IBV_WR_SEND, 1, sge_of(l->buf[0], 64, l->mr), 0, 0);
  NEED(ibv_get_cq_event(channel, &got, &cookie) == 0 && got == cq);
  ibv_ack_cq_events(cq, 1);
  want(cq, 7, IBV_WC_SUCCESS, -1);
  want(l->x.scq, 1, IBV_WC_SUCCESS, -1);
  unmake(l);
  NEED(ibv_destroy_cq(rcq) == 0);
  NEED(ibv_destroy_comp_channel(channel) == 0);
  free(l);
}

/* ---- handlers */

/* `body` on this thread, with a signal for it about every 100 us. */
static void under_fire(void (*body)(struct loop*), struct loop* l, void (*handler)(int), int flags) {
  struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
  sigaction(SIGUSR1, &act, NULL);
  struct sigevent to_me = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
  to_me._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  timer_t timer;
  NEED(timer_create(CLOCK_MONOTONIC, &to_me, &timer) == 0);
  struct itimerspec often = {.it_interval = {.tv_nsec = 101000}, .it_value = {.tv_nsec = 101000}};
  NEED(timer_settime(timer, 0, &often, NULL) == 0);
  body(l);
  NEED(timer_delete(timer) == 0);
  signal(SIGUSR1, SIG_IGN);
}

static sigjmp_buf back;
static volatile sig_atomic_t may_jump;
static volatile unsigned long jumps;
static void jumps_out(int sig) {
  (void)sig;
  if (!may_jump) return;
  may_jump = 0;
  jumps = jumps + 1;
  siglongjmp(back, 1);
}
static void turns_with_jumps(struct loop* l) {
  double end = seconds() + 15;
  while (jumps < 500 && seconds() < end) {
    sigsetjmp(back, 1);
    for (;;) {
      if (jumps >= 500) break;
      may_jump = 1;
      turn(l);
      may_jump = 0;
    }
  }
  may_jump = 0;
}
static void jumped_out(void) {
  struct loop* l = malloc(sizeof *l);
  make(l);
  under_fire(turns_with_jumps, l, jumps_out, 0);
  if (jumps < 500) FAIL("only %lu jumps", jumps);
  still_works(l);
  works_elsewhere(l);
  unmake(l);
  free(l);
}

static struct loop *shared_loop, *own_loop;
static volatile unsigned long handled;
static void verbs_in_handler(int sig) {
  (void)sig;
  int saved = errno;
  turn(own_loop);
  turn(shared_loop); /* the very QP and CQ that the thread was working on */
  errno = saved;
  handled = handled + 1;
}
static void many_turns(struct loop* l) {
  double end = seconds() + 15;
  while (handled < 500 && seconds() < end) turn(l);
}
static void verbs_from_handlers(void) {
  shared_loop = malloc(sizeof *shared_loop);
  own_loop = malloc(sizeof *own_loop);
  make(shared_loop);
  make(own_loop);
  under_fire(many_turns, shared_loop, verbs_in_handler, SA_RESTART);
  if (handled < 500) FAIL("only %lu handlers ran", handled);
  still_works(shared_loop);
  works_elsewhere(own_loop);
  unmake(shared_loop);
  unmake(own_loop);
}

/* ---- small stacks, everything blocked */

static void* small_and_deaf(void* arg) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, NULL);
  for (int i = 0; i < 300; ++i) turn(arg);
  still_works(arg);
  return NULL;
}
static void small_stacks(void) {
  struct loop* l = malloc(sizeof *l);
  make(l);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  NEED(pthread_attr_setstacksize(&attr, 16384) == 0);
  for (int i = 0; i < 50; ++i) {
    pthread_t t;
    int r = pthread_create(&t, &attr, small_and_deaf, l);
    if (r) FAIL("pthread_create: %s", strerror(r));
    NEED(pthread_join(t, NULL) == 0);
  }
  works_elsewhere(l);
  unmake(l);
  free(l);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"cancelled_deferred", cancelled_deferred},   {"cancelled_asynchronously", cancelled_asynchronously},
               {"cancelled_waiting", cancelled_waiting},     {"jumped_out", jumped_out},
               {"verbs_from_handlers", verbs_from_handlers}, {"small_stacks", small_stacks}};
  if (argc < 2) return 2;
  alarm(50);
  gid = atoi(argv[1]);
  ctx = open_first();
  NEED(pd = ibv_alloc_pd(ctx));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (argc > 2 && strcmp(argv[2], cases[i].name) != 0) continue;
    fprintf(stderr, "== %s\n", cases[i].name);
    double start = seconds();
    cases[i].run();
    fprintf(stderr, "ok %s\n(%.2f s)\n", cases[i].name, seconds() - start);
  }
  NEED(ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(ctx) == 0);
  return 0;
}
