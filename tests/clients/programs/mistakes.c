/* SPDX-License-Identifier: MIT
 *
 * Programs with one mistake each, as people make them; each ends with status 1 at what the mistake leads to. `uhca why` must name the
 * mistake. mistakes NAME GID_INDEX
 */
#include "peers.h"

static int wrong_qpn(int gid) {
  struct tuning t = kTuning;
  t.retry_cnt = 1;
  t.timeout = 12;
  struct peers p = pair_up(gid, &t, 1);
  wait_for_the_other(&p);
  request(&p, IBV_WR_SEND, 64, 0);
  return completion(p.e.scq);
}

static int wrong_rkey(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  request(&p, IBV_WR_RDMA_WRITE, 64, p.e.peer.rkey ^ 1);
  return completion(p.e.scq);
}

static int no_receive(int gid) {
  struct tuning t = kTuning;
  t.rnr_retry = 0;
  struct peers p = pair_up(gid, &t, 0);
  wait_for_the_other(&p);
  request(&p, IBV_WR_SEND, 64, 0);
  return completion(p.e.scq);
}

static int short_receive(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  if (!p.e.a) {
    struct ibv_sge sge = {(uintptr_t)memory, 32, p.mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    NEED(ibv_post_recv(p.e.qp, &wr, &bad) == 0);
  }
  meet(&p.e);
  wait_for_the_other(&p);
  request(&p, IBV_WR_SEND, 64, 0);
  return completion(p.e.scq);
}

static int no_dest_qpn(int gid) {
  struct end e = {.gid_index = gid};
  open_end(&e);
  make_qp(&e, &kTuning);
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e.me.gid, .sgid_index = (uint8_t)gid}}};
  return ibv_modify_qp(e.qp, &rtr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

/* `signaled`: completions would come, but nobody polls. */
static int full_queue(int gid, int signaled) {
  struct tuning t = kTuning;
  t.signal_some = 1;
  struct peers p = pair_up(gid, &t, 0);
  wait_for_the_other(&p);
  struct ibv_sge sge = {(uintptr_t)memory, 8, p.mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = signaled ? IBV_SEND_SIGNALED : 0},
                     *bad;
  wr.wr.rdma.remote_addr = p.e.peer.va;
  wr.wr.rdma.rkey = p.e.peer.rkey;
  int r = 0;
  for (int i = 0; i < 100000 && r == 0; ++i) r = ibv_post_send(p.e.qp, &wr, &bad);
  fprintf(stderr, "post_send: %s\n", strerror(r));
  return r;
}

int main(int argc, char** argv) {
  NEED(argc == 3);
  const char* name = argv[1];
  int gid = atoi(argv[2]), r = 0;
  if (!strcmp(name, "none")) return 0;
  if (!strcmp(name, "wrong-qpn"))
    r = wrong_qpn(gid);
  else if (!strcmp(name, "wrong-rkey"))
    r = wrong_rkey(gid);
  else if (!strcmp(name, "no-receive"))
    r = no_receive(gid);
  else if (!strcmp(name, "short-receive"))
    r = short_receive(gid);
  else if (!strcmp(name, "no-dest-qpn"))
    r = no_dest_qpn(gid);
  else if (!strcmp(name, "all-unsignaled"))
    r = full_queue(gid, 0);
  else if (!strcmp(name, "never-polls"))
    r = full_queue(gid, 1);
  else
    FAIL("no mistake %s", name);
  return r != 0;
}
