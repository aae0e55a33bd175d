/* SPDX-License-Identifier: MIT
 *
 * Programs with one mistake each, as people make them; each ends with status 1 at what the mistake leads to. `uhca why` must name the
 * mistake. mistakes NAME GID_INDEX
 */
#include <stddef.h>

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

static int never_signaled(int gid) {
  return full_queue(gid, 0);
}
static int never_polls(int gid) {
  return full_queue(gid, 1);
}

/* ---- calls that are refused */

/* What a pointer-returning call has left in errno. */
#define REFUSED(call) ((call) ? 0 : errno)

static struct end alone(int gid) {
  struct end e = {.a = 1, .gid_index = gid};
  open_end(&e);
  make_qp(&e, &kTuning);
  return e;
}
enum {
  kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
};
static struct ibv_qp_attr rtr_of(const struct end* e) {
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
                          .path_mtu = IBV_MTU_1024,
                          .dest_qp_num = e->me.qpn,
                          .max_dest_rd_atomic = 1,
                          .min_rnr_timer = 1,
                          .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = e->me.gid, .sgid_index = (uint8_t)e->gid_index}}};
  return a;
}

static int rtr_without_grh(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_attr a = rtr_of(&e);
  a.ah_attr.is_global = 0;
  return ibv_modify_qp(e.qp, &a, kRtrMask);
}
static int rtr_empty_sgid(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_attr a = rtr_of(&e);
  a.ah_attr.grh.sgid_index = 200;
  return ibv_modify_qp(e.qp, &a, kRtrMask);
}
static int straight_to_rts(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  return ibv_modify_qp(e.qp, &a,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}
static int qkey_for_rc(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_attr a = rtr_of(&e);
  a.qkey = 0x11111111;
  return ibv_modify_qp(e.qp, &a, kRtrMask | IBV_QP_QKEY);
}
static int too_many_reads(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_attr a = rtr_of(&e);
  a.max_dest_rd_atomic = 200;
  return ibv_modify_qp(e.qp, &a, kRtrMask);
}
static int port_9(int gid) {
  struct end e = {.gid_index = gid};
  open_end(&e);
  make_qp(&e, &kTuning);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 9};
  return ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}
static int register_nothing(int gid) {
  struct end e = alone(gid);
  return REFUSED(ibv_reg_mr(e.pd, (void*)(uintptr_t)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE));
}
static int register_constants(int gid) {
  struct end e = alone(gid);
  static const char text[4096] __attribute__((aligned(4096))) = "constant";
  return REFUSED(ibv_reg_mr(e.pd, (void*)(uintptr_t)text, sizeof text, IBV_ACCESS_LOCAL_WRITE));
}
static int remote_without_local(int gid) {
  struct end e = alone(gid);
  return REFUSED(ibv_reg_mr(e.pd, memory, kBytes, IBV_ACCESS_REMOTE_WRITE));
}
static int pd_in_use(int gid) {
  struct end e = alone(gid);
  return ibv_dealloc_pd(e.pd);
}
static int cq_in_use(int gid) {
  struct end e = alone(gid);
  return ibv_destroy_cq(e.scq);
}
static int deep_queue(int gid) {
  struct end e = alone(gid);
  struct ibv_qp_init_attr init = {
      .send_cq = e.scq, .recv_cq = e.rcq, .cap = {.max_send_wr = 1 << 20, .max_send_sge = 1}, .qp_type = IBV_QPT_RC};
  return REFUSED(ibv_create_qp(e.pd, &init));
}
static int deep_cq(int gid) {
  struct end e = alone(gid);
  return REFUSED(ibv_create_cq(e.ctx, 1 << 30, NULL, NULL, 0));
}
static int ah_without_grh(int gid) {
  struct end e = alone(gid);
  struct ibv_ah_attr ah = {.dlid = 1, .port_num = 1};
  return REFUSED(ibv_create_ah(e.pd, &ah));
}
static int many_sges(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_sge sge[64];
  for (int i = 0; i < 64; ++i) sge[i] = sge_of(memory, 1, p.mr);
  struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 64, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
  return ibv_post_send(p.e.qp, &wr, &bad);
}
static int long_inline(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_sge sge = sge_of(memory, 2048, p.mr);
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE}, *bad;
  return ibv_post_send(p.e.qp, &wr, &bad);
}
static int many_receives(int gid) {
  struct end e = alone(gid);
  struct ibv_mr* mr = ibv_reg_mr(e.pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  NEED(mr);
  struct ibv_sge sge = sge_of(memory, 64, mr);
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  int r = 0;
  for (int i = 0; i < 1000 && r == 0; ++i) r = ibv_post_recv(e.qp, &wr, &bad);
  return r;
}

/* ---- requests that fail */

static int ask(struct peers* p, enum ibv_wr_opcode op, const void* at, uint32_t length, uint32_t lkey, uint64_t remote) {
  struct ibv_sge sge = {(uintptr_t)at, length, lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED}, *bad;
  if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = remote;
    wr.wr.atomic.rkey = p->e.peer.rkey;
  } else {
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = p->e.peer.rkey;
  }
  NEED(ibv_post_send(p->e.qp, &wr, &bad) == 0);
  return completion(p->e.scq);
}
static struct peers joined(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  return p;
}
static int read_not_allowed(int gid) {
  struct peers p = joined(gid);
  return ask(&p, IBV_WR_RDMA_READ, memory, 64, p.mr->lkey, p.e.peer.va);
}
static int beyond_the_peer(int gid) {
  struct peers p = joined(gid);
  return ask(&p, IBV_WR_RDMA_WRITE, memory, 64, p.mr->lkey, p.e.peer.va + kBytes - 32);
}
static int beyond_our_own(int gid) {
  struct peers p = joined(gid);
  return ask(&p, IBV_WR_RDMA_WRITE, memory + kBytes - 32, 64, p.mr->lkey, p.e.peer.va);
}
static int wrong_lkey(int gid) {
  struct peers p = joined(gid);
  return ask(&p, IBV_WR_RDMA_WRITE, memory, 64, p.mr->lkey ^ 1, p.e.peer.va);
}
static int other_pd(int gid) {
  struct peers p = joined(gid);
  struct ibv_pd* pd = ibv_alloc_pd(p.e.ctx);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  NEED(mr);
  return ask(&p, IBV_WR_RDMA_WRITE, memory, 64, mr->lkey, p.e.peer.va);
}
static int odd_atomic(int gid) {
  memory_access |= IBV_ACCESS_REMOTE_ATOMIC;
  struct peers p = joined(gid);
  return ask(&p, IBV_WR_ATOMIC_FETCH_AND_ADD, memory, 8, p.mr->lkey, p.e.peer.va + 4);
}
static int read_into_constants(int gid) {
  memory_access |= IBV_ACCESS_REMOTE_READ;
  struct peers p = joined(gid);
  struct ibv_mr* mr = ibv_reg_mr(p.e.pd, memory, kBytes, 0);
  NEED(mr);
  return ask(&p, IBV_WR_RDMA_READ, memory, 64, mr->lkey, p.e.peer.va);
}
static int peer_deregisters(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  if (!p.e.a) NEED(ibv_dereg_mr(p.mr) == 0);
  meet(&p.e);
  wait_for_the_other(&p);
  return ask(&p, IBV_WR_RDMA_WRITE, memory, 64, p.mr->lkey, p.e.peer.va);
}
static int peer_in_error(int gid) {
  struct tuning t = kTuning;
  t.retry_cnt = 1;
  t.timeout = 12;
  struct peers p = pair_up(gid, &t, 0);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
  if (!p.e.a) NEED(ibv_modify_qp(p.e.qp, &a, IBV_QP_STATE) == 0);
  meet(&p.e);
  wait_for_the_other(&p);
  return ask(&p, IBV_WR_RDMA_WRITE, memory, 64, p.mr->lkey, p.e.peer.va);
}
static int receive_not_writable(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  if (!p.e.a) {
    struct ibv_mr* mr = ibv_reg_mr(p.e.pd, memory, kBytes, 0);
    NEED(mr);
    post_receive(&p.e, 1, sge_of(memory, 64, mr));
  }
  meet(&p.e);
  wait_for_the_other(&p);
  return ask(&p, IBV_WR_SEND, memory, 64, p.mr->lkey, 0);
}

static const struct {
  const char* name;
  int (*make)(int gid);
} kMistakes[] = {{"wrong-qpn", wrong_qpn},
                 {"wrong-rkey", wrong_rkey},
                 {"no-receive", no_receive},
                 {"short-receive", short_receive},
                 {"no-dest-qpn", no_dest_qpn},
                 {"all-unsignaled", never_signaled},
                 {"never-polls", never_polls},
                 {"rtr-without-grh", rtr_without_grh},
                 {"rtr-empty-sgid", rtr_empty_sgid},
                 {"straight-to-rts", straight_to_rts},
                 {"qkey-for-rc", qkey_for_rc},
                 {"too-many-reads", too_many_reads},
                 {"port-9", port_9},
                 {"register-nothing", register_nothing},
                 {"register-constants", register_constants},
                 {"remote-without-local", remote_without_local},
                 {"pd-in-use", pd_in_use},
                 {"cq-in-use", cq_in_use},
                 {"deep-queue", deep_queue},
                 {"deep-cq", deep_cq},
                 {"ah-without-grh", ah_without_grh},
                 {"many-sges", many_sges},
                 {"long-inline", long_inline},
                 {"many-receives", many_receives},
                 {"read-not-allowed", read_not_allowed},
                 {"beyond-the-peer", beyond_the_peer},
                 {"beyond-our-own", beyond_our_own},
                 {"wrong-lkey", wrong_lkey},
                 {"other-pd", other_pd},
                 {"odd-atomic", odd_atomic},
                 {"read-into-constants", read_into_constants},
                 {"peer-deregisters", peer_deregisters},
                 {"peer-in-error", peer_in_error},
                 {"receive-not-writable", receive_not_writable}};

int main(int argc, char** argv) {
  NEED(argc == 3);
  if (!strcmp(argv[1], "none")) return 0;
  for (size_t i = 0; i < sizeof kMistakes / sizeof *kMistakes; ++i)
    if (!strcmp(argv[1], kMistakes[i].name)) return kMistakes[i].make(atoi(argv[2])) != 0;
  FAIL("no mistake %s", argv[1]);
}
