/* SPDX-License-Identifier: MIT
 *
 * Two connected processes of one program, for programs with mistakes: the parent asks (a = 1), the child answers.
 */
#pragma once

#include <sys/wait.h>

#include "ends.h"

enum { kBytes = 4096 };
static char memory[kBytes] __attribute__((aligned(4096)));
static int memory_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

static inline int completion(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int n;
  do n = ibv_poll_cq(cq, 1, &wc);
  while (n == 0);
  NEED(n == 1);
  fprintf(stderr, "completion status %d\n", wc.status);
  return wc.status;
}

struct peers {
  struct end e;
  struct ibv_mr* mr;
};

/* Two processes; in the one that answers (a = 0) this returns too. */
static inline struct peers pair_up(int gid_index, const struct tuning* t, int off_by) {
  int fds[2];
  NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  struct peers p = {.e = {.gid_index = gid_index}};
  p.e.a = fork() != 0;
  p.e.fd = fds[p.e.a];
  close(fds[!p.e.a]);
  open_end(&p.e);
  NEED(p.mr = ibv_reg_mr(p.e.pd, memory, kBytes, memory_access));
  make_qp(&p.e, t);
  p.e.me.rkey = p.mr->rkey;
  p.e.me.va = (uintptr_t)memory;
  swap(p.e.fd, &p.e.me, &p.e.peer, sizeof p.e.me);
  if (p.e.a) p.e.peer.qpn += (uint32_t)off_by;
  NEED(to_rts(&p.e, t) == 0);
  meet(&p.e);
  return p;
}

/* The answering process stays until the other has seen its failure. */
static inline void wait_for_the_other(struct peers* p) {
  char c;
  if (!p->e.a) {
    while (recv(p->e.fd, &c, 1, 0) > 0) continue;
    _exit(0);
  }
}

static inline void request(struct peers* p, enum ibv_wr_opcode op, uint32_t length, uint32_t rkey) {
  struct ibv_sge sge = {(uintptr_t)memory, length, p->mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;
  wr.wr.rdma.remote_addr = p->e.peer.va;
  wr.wr.rdma.rkey = rkey;
  NEED(ibv_post_send(p->e.qp, &wr, &bad) == 0);
}
