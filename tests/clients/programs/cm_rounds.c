/* SPDX-License-Identifier: MIT
 * Connect, one message, disconnect, again and again: `cm_rounds server PORT ROUNDS`, `cm_rounds client PORT ROUNDS ADDRESS`. Prints what
 * the process holds five times. */
#include <arpa/inet.h>
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NEED(x)                                                                \
  do {                                                                         \
    if (!(x)) {                                                                \
      printf("FAIL line %d, round %d: %s (errno %m)\n", __LINE__, round_, #x); \
      exit(1);                                                                 \
    }                                                                          \
  } while (0)

static int round_, rounds;
static struct rdma_event_channel* channel;

static int descriptors(void) {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}

static long resident_kib(void) {
  long pages = 0, skip;
  FILE* f = fopen("/proc/self/statm", "r");
  NEED(f && fscanf(f, "%ld %ld", &skip, &pages) == 2);
  fclose(f);
  return pages * 4;
}

static void report(void) {
  if (round_ % (rounds / 5) == 0) printf("round %d: %d descriptors, %ld KiB\n", round_, descriptors(), resident_kib());
}

/* The next event must be this one; its id is returned. */
static struct rdma_cm_id* expect(enum rdma_cm_event_type type) {
  struct rdma_cm_event* e;
  NEED(rdma_get_cm_event(channel, &e) == 0);
  if (e->event != type) printf("%s instead of %s, status %d\n", rdma_event_str(e->event), rdma_event_str(type), e->status);
  NEED(e->event == type);
  struct rdma_cm_id* id = e->id;
  rdma_ack_cm_event(e);
  return id;
}

static void make_qp(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr a;
  memset(&a, 0, sizeof a);
  a.qp_type = IBV_QPT_RC;
  a.sq_sig_all = 1;
  a.cap.max_send_wr = a.cap.max_recv_wr = a.cap.max_send_sge = a.cap.max_recv_sge = 1;
  a.cap.max_inline_data = sizeof(int);
  NEED(rdma_create_qp(id, NULL, &a) == 0);
}

static void gone(struct rdma_cm_id* id) {
  rdma_destroy_qp(id);
  NEED(rdma_destroy_id(id) == 0);
}

static void serve(struct sockaddr_in* at) {
  struct rdma_cm_id* listener;
  NEED(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  NEED(rdma_bind_addr(listener, (struct sockaddr*)at) == 0 && rdma_listen(listener, 8) == 0);
  for (round_ = 1; round_ <= rounds; ++round_) {
    struct rdma_cm_id* id = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    make_qp(id);
    int got = 0;
    struct ibv_mr* mr = rdma_reg_msgs(id, &got, sizeof got);
    NEED(mr && rdma_post_recv(id, NULL, &got, sizeof got, mr) == 0);
    struct rdma_conn_param p;
    memset(&p, 0, sizeof p);
    p.rnr_retry_count = 7;
    NEED(rdma_accept(id, &p) == 0);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_wc wc;
    NEED(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS && got == round_);
    expect(RDMA_CM_EVENT_DISCONNECTED);
    NEED(rdma_disconnect(id) == 0 && rdma_dereg_mr(mr) == 0);
    gone(id);
    report();
  }
  NEED(rdma_destroy_id(listener) == 0);
}

static void call(struct sockaddr_in* to) {
  for (round_ = 1; round_ <= rounds; ++round_) {
    struct rdma_cm_id* id;
    NEED(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    NEED(rdma_resolve_addr(id, NULL, (struct sockaddr*)to, 2000) == 0);
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    NEED(rdma_resolve_route(id, 2000) == 0);
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_qp(id);
    struct rdma_conn_param p;
    memset(&p, 0, sizeof p);
    p.retry_count = p.rnr_retry_count = 7;
    NEED(rdma_connect(id, &p) == 0);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_wc wc;
    NEED(rdma_post_send(id, NULL, &round_, sizeof round_, NULL, IBV_SEND_INLINE) == 0);
    NEED(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    NEED(rdma_disconnect(id) == 0);
    expect(RDMA_CM_EVENT_DISCONNECTED);
    gone(id);
    report();
  }
}

int main(int argc, char** argv) {
  NEED(argc >= 4);
  setvbuf(stdout, NULL, _IOLBF, 0);
  rounds = atoi(argv[3]);
  struct sockaddr_in a;
  memset(&a, 0, sizeof a);
  a.sin_family = AF_INET;
  a.sin_port = htons((unsigned short)atoi(argv[2]));
  channel = rdma_create_event_channel();
  NEED(channel);
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  if (strcmp(argv[1], "server") == 0) {
    serve(&a);
  } else {
    NEED(argc == 5 && inet_pton(AF_INET, argv[4], &a.sin_addr) == 1);
    call(&a);
  }
  clock_gettime(CLOCK_MONOTONIC, &to);
  double s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
  printf("%d rounds, %.0f a second\n", rounds, rounds / s);
  rdma_destroy_event_channel(channel);
  return 0;
}
