/* SPDX-License-Identifier: MIT
 *
 * Whole lives of connections, one after the other: open, register, create, connect, traffic, destroy, close. Either side may be killed
 * at any moment.  life keeper PORT GID: takes one peer after the other, for ever.  life peer HOST PORT GID ROUNDS.
 */
#include <dirent.h>
#include <signal.h>

#include "ends.h"

/* A peer that is dead shows after 5 x 67 ms; one that only waits for a processor does not seem so. */
static const struct tuning kFast = {7, 4, 14, 1, 0, 0};

static int open_descriptors(void) {
  int n = 0;
  DIR* d = opendir("/proc/self/fd");
  NEED(d);
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}

/* 0: the peer is gone, as the stream or an error completion says. */
static int traffic(struct end* e, struct ibv_mr* mr, char* buf) {
  for (int i = 0; i < 200; ++i) {
    post(e, IBV_WR_RDMA_WRITE, 1, sge_of(buf, 2048, mr), e->peer.va, e->peer.rkey);
    struct ibv_wc wc = next_wc(e->scq);
    if (wc.status == IBV_WC_RETRY_EXC_ERR) return 0;
    /* The peer destroyed its QP or its key because the connection was over for it: it has seen less than we have. */
    if (wc.status != IBV_WC_SUCCESS) FAIL("status %d vendor_err 0x%x", wc.status, wc.vendor_err);
  }
  return 1;
}

static int round_of_life(struct end* e) {
  open_end(e);
  char* buf = aligned_alloc(4096, 4096);
  NEED(buf);
  memset(buf, 0x22, 4096);
  struct ibv_mr* mr = ibv_reg_mr(e->pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  NEED(mr);
  e->me.va = (uintptr_t)buf + 2048;
  e->me.rkey = mr->rkey;
  make_qp(e, &kFast);
  char c = 'm', d;
  int there = swap_or_gone(e->fd, &e->me, &e->peer, sizeof e->me);
  if (there) {
    NEED(to_rts(e, &kFast) == 0);
    there = swap_or_gone(e->fd, &c, &d, 1);
  }
  if (there) there = traffic(e, mr, buf);
  if (there) there = swap_or_gone(e->fd, &c, &d, 1);
  NEED(ibv_destroy_qp(e->qp) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0);
  NEED(ibv_destroy_cq(e->rcq) == 0);
  NEED(ibv_dereg_mr(mr) == 0);
  close_end(e);
  free(buf);
  return there;
}

static int keeper(int port, int gid) {
  int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  NEED(bind(s, (struct sockaddr*)&a, sizeof a) == 0 && listen(s, 64) == 0);
  for (;;) {
    struct end e = {.fd = accept(s, NULL, NULL), .gid_index = gid};
    NEED(e.fd >= 0);
    setsockopt(e.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int rounds = 0;
    while (round_of_life(&e)) ++rounds;
    close(e.fd);
    fprintf(stderr, "peer gone after %d rounds; %d descriptors\n", rounds, open_descriptors());
  }
}

int main(int argc, char** argv) {
  signal(SIGPIPE, SIG_IGN);
  if (argc == 4 && strcmp(argv[1], "keeper") == 0) return keeper(atoi(argv[2]), atoi(argv[3]));
  if (argc != 6 || strcmp(argv[1], "peer") != 0) return 2;
  alarm(50);
  struct end e = {.a = 1, .fd = connect_to(argv[2], atoi(argv[3])), .gid_index = atoi(argv[4])};
  for (int i = atoi(argv[5]); i > 0; --i) {
    if (round_of_life(&e)) continue;
    fprintf(stderr, "keeper gone\n");
    return 3;
  }
  return 0;
}
