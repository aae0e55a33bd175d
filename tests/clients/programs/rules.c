/* SPDX-License-Identifier: MIT
 *
 * What verbs answer by rule, between two queue pairs of one process: state changes, limits, keys, chains of requests, queues that go away,
 * events that wait for company. The GID index is the argument; the numbers name cases of hardware's users.
 */
#include "ends.h"

enum { kBytes = 4096 };

static struct end x, y;
static uint8_t memory[2 * kBytes];
static struct ibv_mr* mr;

static void connect_both(void) {
  make_qp(&x, &kTuning);
  make_qp(&y, &kTuning);
  x.peer = y.me;
  y.peer = x.me;
  NEED(to_rts(&x, &kTuning) == 0 && to_rts(&y, &kTuning) == 0);
}
static void drop(struct end* e) {
  NEED(ibv_destroy_qp(e->qp) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0 && ibv_destroy_cq(e->rcq) == 0);
}

static int to(enum ibv_qp_state s) {
  struct ibv_qp_attr attr = {.qp_state = s, .port_num = 1};
  int mask = IBV_QP_STATE;
  if (s == IBV_QPS_INIT) mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return ibv_modify_qp(x.qp, &attr, mask);
}
/* B7 */
static void states(void) {
  connect_both();
  NEED(to(IBV_QPS_RESET) == 0);
  NEED(to(IBV_QPS_RESET) == 0);
  NEED(to(IBV_QPS_RTS) == EINVAL);
  NEED(qp_state(x.qp) == IBV_QPS_RESET);
  NEED(to(IBV_QPS_INIT) == 0);
  NEED(to(IBV_QPS_INIT) == 0);
  NEED(to(IBV_QPS_ERR) == 0);
  NEED(to(IBV_QPS_ERR) == 0);
  NEED(to(IBV_QPS_RESET) == 0);
  NEED(to(IBV_QPS_ERR) == EINVAL); /* pin: Linux's table has no such row */
  NEED(to(IBV_QPS_INIT) == 0);
  NEED(to_rts(&x, &kTuning) == 0);
  struct ibv_qp_attr same = {.qp_state = IBV_QPS_RTS};
  NEED(ibv_modify_qp(x.qp, &same, IBV_QP_STATE) == 0);
  NEED(to(IBV_QPS_ERR) == 0);
  NEED(qp_state(x.qp) == IBV_QPS_ERR);
  drop(&x);
  drop(&y);
}

/* B11 */
static void read_depth_is_limited(void) {
  struct ibv_device_attr cap;
  NEED(ibv_query_device(x.ctx, &cap) == 0 && cap.max_qp_init_rd_atom > 0);
  for (int more = 1; more >= 0; --more) {
    make_qp(&x, &kTuning);
    make_qp(&y, &kTuning);
    x.peer = y.me;
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = y.me.qpn,
        .rq_psn = y.me.psn,
        .max_dest_rd_atomic = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = y.me.gid, .sgid_index = (uint8_t)x.gid_index, .hop_limit = 64}}};
    NEED(ibv_modify_qp(x.qp, &rtr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                           IBV_QP_MIN_RNR_TIMER) == 0);
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .max_rd_atomic = (uint8_t)(cap.max_qp_init_rd_atom + more)};
    int r = ibv_modify_qp(x.qp, &rts,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    if (r != (more ? EINVAL : 0)) FAIL("max_rd_atomic %d of %d: %d", rts.max_rd_atomic, cap.max_qp_init_rd_atom, r);
    drop(&x);
    drop(&y);
  }
}

/* A10 */
static void lkey_for_rkey(void) {
  connect_both();
  memset(memory, 0x5a, sizeof memory);
  memset(memory, 0, 100);
  post(&x, IBV_WR_RDMA_READ, 1, sge_of(memory, 100, mr), (uintptr_t)memory + kBytes, mr->lkey);
  want(x.scq, 1, IBV_WC_SUCCESS, -1);
  for (int i = 0; i < 100; ++i) NEED(memory[i] == 0x5a);
  drop(&x);
  drop(&y);
}

/* C2 */
static void chain_with_a_bad_one(void) {
  connect_both();
  struct ibv_sge sge[64];
  struct ibv_send_wr wr[5], *bad = NULL;
  struct ibv_qp_init_attr init;
  struct ibv_qp_attr attr;
  NEED(ibv_query_qp(x.qp, &attr, IBV_QP_CAP, &init) == 0 && init.cap.max_send_sge < 63);
  for (int i = 0; i < 64; ++i) sge[i] = sge_of(memory, 1, mr);
  memset(wr, 0, sizeof wr);
  for (int i = 0; i < 5; ++i) {
    wr[i].wr_id = (uint64_t)i;
    wr[i].next = i < 4 ? &wr[i + 1] : NULL;
    wr[i].sg_list = sge;
    wr[i].num_sge = i == 2 ? (int)init.cap.max_send_sge + 1 : 1;
    wr[i].opcode = IBV_WR_RDMA_WRITE;
    wr[i].send_flags = IBV_SEND_SIGNALED;
    wr[i].wr.rdma.remote_addr = (uintptr_t)memory + kBytes + (unsigned)i;
    wr[i].wr.rdma.rkey = mr->rkey;
  }
  memset(memory, 0x33, kBytes);
  memset(memory + kBytes, 0, kBytes);
  int r = ibv_post_send(x.qp, wr, &bad);
  if (r <= 0 || bad != &wr[2]) FAIL("%d, bad_wr %ld", r, bad ? (long)(bad - wr) : -1);
  want(x.scq, 0, IBV_WC_SUCCESS, -1);
  want(x.scq, 1, IBV_WC_SUCCESS, -1);
  want_nothing(x.scq);
  for (int i = 0; i < 5; ++i)
    if (memory[kBytes + i] != (i < 2 ? 0x33 : 0)) FAIL("request %d", i);
  post(&x, IBV_WR_RDMA_WRITE, 7, sge_of(memory, 1, mr), (uintptr_t)memory + kBytes + 9, mr->rkey); /* the queue goes on */
  want(x.scq, 7, IBV_WC_SUCCESS, -1);
  drop(&x);
  drop(&y);
}

/* C17 */
static void completions_of_the_dead(void) {
  connect_both();
  for (int i = 0; i < 3; ++i) post(&x, IBV_WR_RDMA_WRITE, 40 + (uint64_t)i, sge_of(memory, 1, mr), (uintptr_t)memory + kBytes, mr->rkey);
  post(&x, IBV_WR_RDMA_READ, 43, sge_of(memory, 1, mr), (uintptr_t)memory + kBytes, mr->rkey);
  usleep(50000); /* all four lie in the queue */
  uint32_t dead = x.qp->qp_num;
  struct ibv_cq *scq = x.scq, *rcq = x.rcq;
  NEED(ibv_destroy_qp(x.qp) == 0);
  want_nothing(scq);
  struct ibv_qp_init_attr init = {.send_cq = scq,
                                  .recv_cq = rcq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  for (int i = 0; i < 100; ++i) {
    struct ibv_qp* again = ibv_create_qp(x.pd, &init);
    NEED(again && again->qp_num != dead);
    NEED(ibv_destroy_qp(again) == 0);
  }
  want_nothing(scq);
  NEED(ibv_destroy_cq(scq) == 0 && ibv_destroy_cq(rcq) == 0);
  drop(&y);
}

/* Posts `n` WRITEs, sleeps until the event of their CQ comes, takes their completions. */
static void writes_and_an_event(int n) {
  struct ibv_cq* cq;
  void* context;
  NEED(ibv_req_notify_cq(x.scq, 0) == 0);
  for (int i = 0; i < n; ++i) post(&x, IBV_WR_RDMA_WRITE, (uint64_t)i, sge_of(memory, 1, mr), (uintptr_t)memory + kBytes, mr->rkey);
  NEED(ibv_get_cq_event(x.channel, &cq, &context) == 0 && cq == x.scq);
  ibv_ack_cq_events(cq, 1);
  for (int i = 0; i < n; ++i) want(x.scq, (uint64_t)i, IBV_WC_SUCCESS, -1);
}
/* A moderated CQ tells of each completion in the end, and not more often than once in its period as long as they are few. */
static void moderated_events(void) {
  enum { kRounds = 20, kMicroseconds = 4000 };
  NEED(x.channel = ibv_create_comp_channel(x.ctx));
  connect_both();
  struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 4, .cq_period = kMicroseconds}};
  NEED(ibv_modify_cq(x.scq, &attr) == 0);
  double start = seconds();
  for (int i = 0; i < kRounds; ++i) writes_and_an_event(1);
  double took = seconds() - start, least = (kRounds - 1) * kMicroseconds * 1e-6;
  if (took < least) FAIL("%d events in %.3f s; they are to come once in %d us", kRounds, took, kMicroseconds);
  for (int i = 0; i < kRounds; ++i) writes_and_an_event(4);
  attr.moderate.cq_count = attr.moderate.cq_period = 0;
  NEED(ibv_modify_cq(x.scq, &attr) == 0);
  for (int i = 0; i < kRounds; ++i) writes_and_an_event(1);
  drop(&x);
  drop(&y);
  NEED(ibv_destroy_comp_channel(x.channel) == 0);
  x.channel = NULL;
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"states", states},
               {"read_depth_is_limited", read_depth_is_limited},
               {"lkey_for_rkey", lkey_for_rkey},
               {"chain_with_a_bad_one", chain_with_a_bad_one},
               {"completions_of_the_dead", completions_of_the_dead},
               {"moderated_events", moderated_events}};
  if (argc < 2) return 2;
  alarm(50);
  x.gid_index = y.gid_index = atoi(argv[1]);
  open_end(&x);
  y.ctx = x.ctx;
  y.pd = x.pd;
  NEED(mr = ibv_reg_mr(x.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (argc > 2 && strcmp(argv[2], cases[i].name) != 0) continue;
    fprintf(stderr, "== %s\n", cases[i].name);
    cases[i].run();
    fprintf(stderr, "ok %s\n", cases[i].name);
  }
  NEED(ibv_dereg_mr(mr) == 0);
  close_end(&x);
  return 0;
}
