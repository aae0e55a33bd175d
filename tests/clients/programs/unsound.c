/* SPDX-License-Identifier: MIT
 *
 * Programs that break one rule of RDMA each, and their twins that do the same work and keep it: unsound RULE bad|clean GID_INDEX. Most bad
 * ones "work": nothing fails, on this machine and today. `uhca run --check` must name the rule and the function bad_place() (or leaky()).
 */
#include <stddef.h>
#include <sys/mman.h>

#include "peers.h"

#define PLACE __attribute__((noinline))

static int bad; /* else the twin */

static void done(struct ibv_cq* cq) {
  struct ibv_wc wc;
  int n;
  do n = ibv_poll_cq(cq, 1, &wc);
  while (n == 0);
  NEED(n == 1 && wc.status == IBV_WC_SUCCESS);
}
static void tear_down(struct peers* p) {
  if (p->mr) NEED(ibv_dereg_mr(p->mr) == 0);
  NEED(ibv_destroy_qp(p->e.qp) == 0);
  NEED(ibv_destroy_cq(p->e.scq) == 0);
  NEED(ibv_destroy_cq(p->e.rcq) == 0);
  close_end(&p->e);
}
static PLACE void post_one(struct peers* p, enum ibv_wr_opcode op, int flags, struct ibv_sge sge, uint64_t remote, uint32_t rkey) {
  struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = (unsigned)flags}, *refused;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  NEED(ibv_post_send(p->e.qp, &wr, &refused) == 0);
  __asm__ volatile("");
}
static PLACE void bad_place(struct peers* p, enum ibv_wr_opcode op, int flags, struct ibv_sge sge, uint64_t remote, uint32_t rkey) {
  post_one(p, op, flags, sge, remote, rkey);
  __asm__ volatile("");
}
static struct ibv_sge piece(struct peers* p, int offset, int length) {
  return sge_of(memory + offset, (uint32_t)length, p->mr);
}

/* ---- buffers */

static void buffer_changed(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 0, 1024), p.e.peer.va, p.e.peer.rkey);
  if (bad) memory[100] ^= 1;
  done(p.e.scq);
  memory[101] ^= 1;

  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 0, 1024), p.e.peer.va, p.e.peer.rkey);
  done(p.e.scq);
  tear_down(&p);
}

static void buffer_changed_unsignalled(int gid) {
  struct tuning t = kTuning;
  t.signal_some = 1;
  struct peers p = pair_up(gid, &t, 0);
  wait_for_the_other(&p);
  bad_place(&p, IBV_WR_RDMA_WRITE, 0, piece(&p, 0, 64), p.e.peer.va, p.e.peer.rkey);
  if (bad) memory[10] ^= 1;
  post_one(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 128, 64), p.e.peer.va, p.e.peer.rkey);
  done(p.e.scq);
  memory[10] ^= 1;
  tear_down(&p);
}

static PLACE void leave(void* at, size_t n, int freed) {
  if (freed)
    free(at);
  else
    NEED(munmap(at, n) == 0);
  __asm__ volatile("");
}
static void memory_gone(int gid, int freed) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  const size_t n = 1 << 16;
  char* at = freed ? aligned_alloc(4096, n) : mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct ibv_mr* mr = ibv_reg_mr(p.e.pd, at, n, IBV_ACCESS_LOCAL_WRITE);
  NEED(at && mr);
  memset(at, 5, n);
  post_one(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge_of(at, 64, mr), p.e.peer.va, p.e.peer.rkey);
  done(p.e.scq);
  if (bad) leave(at, n, freed);
  NEED(ibv_dereg_mr(mr) == 0);
  if (!bad) leave(at, n, freed);
  tear_down(&p);
}
static void memory_unmapped(int gid) {
  memory_gone(gid, 0);
}
static void memory_freed(int gid) {
  memory_gone(gid, 1);
}

static void read_fence(int gid) {
  memory_access |= IBV_ACCESS_REMOTE_READ;
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  post_one(&p, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, piece(&p, 0, 64), p.e.peer.va, p.e.peer.rkey);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | (bad ? 0 : IBV_SEND_FENCE), piece(&p, 32, 64), p.e.peer.va + 1024, p.e.peer.rkey);
  done(p.e.scq);
  done(p.e.scq);
  tear_down(&p);
}

static void sge_outside(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_mr* small = ibv_reg_mr(p.e.pd, memory, 512, IBV_ACCESS_LOCAL_WRITE);
  NEED(small);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge_of(memory + 256, bad ? 257 : 256, small), p.e.peer.va, p.e.peer.rkey);
  if (bad)
    completion(p.e.scq);
  else
    done(p.e.scq);
  NEED(ibv_dereg_mr(small) == 0);
  tear_down(&p);
}
static void sge_of_other_pd(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_pd* other = ibv_alloc_pd(p.e.ctx);
  struct ibv_mr* mr = ibv_reg_mr(bad ? other : p.e.pd, memory, 512, IBV_ACCESS_LOCAL_WRITE);
  NEED(other && mr);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge_of(memory, 256, mr), p.e.peer.va, p.e.peer.rkey);
  if (bad)
    completion(p.e.scq);
  else
    done(p.e.scq);
  NEED(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(other) == 0);
  tear_down(&p);
}

/* ---- keys */

static void dead_lkey(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_mr* mr = ibv_reg_mr(p.e.pd, memory, 512, IBV_ACCESS_LOCAL_WRITE);
  NEED(mr);
  struct ibv_sge sge = sge_of(memory, 256, mr);
  if (bad) NEED(ibv_dereg_mr(mr) == 0);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, sge, p.e.peer.va, p.e.peer.rkey);
  if (bad) {
    completion(p.e.scq);
  } else {
    done(p.e.scq);
    NEED(ibv_dereg_mr(mr) == 0);
  }
  tear_down(&p);
}

/* The peer deregisters too early. */
static void dead_rkey(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  if (!p.e.a && bad) NEED(ibv_dereg_mr(p.mr) == 0);
  meet(&p.e);
  wait_for_the_other(&p);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 0, 64), p.e.peer.va, p.e.peer.rkey);
  if (bad)
    completion(p.e.scq);
  else
    done(p.e.scq);
  tear_down(&p);
}

/* The peer's window is invalidated by a SEND that comes before the WRITE. */
static void invalidated_rkey(int gid) {
  memory_access |= IBV_ACCESS_MW_BIND;
  struct peers p = pair_up(gid, &kTuning, 0);
  uint32_t key = 0, mine = 0;
  struct ibv_mw* mw = NULL;
  if (!p.e.a) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *refused;
    NEED(mw = ibv_alloc_mw(p.e.pd, IBV_MW_TYPE_2));
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = mine = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){p.mr, (uintptr_t)memory, kBytes, IBV_ACCESS_REMOTE_WRITE};
    NEED(ibv_post_send(p.e.qp, &wr, &refused) == 0);
    done(p.e.scq);
    post_receive(&p.e, 1, sge_of(memory, 64, p.mr));
  }
  swap(p.e.fd, &mine, &key, sizeof key);
  wait_for_the_other(&p);
  struct ibv_sge sge = piece(&p, 0, 8);
  struct ibv_send_wr inv = {.sg_list = &sge,
                            .num_sge = 1,
                            .opcode = IBV_WR_SEND_WITH_INV,
                            .send_flags = IBV_SEND_SIGNALED,
                            .invalidate_rkey = key},
                     *refused;
  if (bad) NEED(ibv_post_send(p.e.qp, &inv, &refused) == 0);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 0, 64), p.e.peer.va, key);
  if (bad) {
    done(p.e.scq);
    completion(p.e.scq);
  } else {
    done(p.e.scq);
    NEED(ibv_post_send(p.e.qp, &inv, &refused) == 0);
    done(p.e.scq);
  }
  tear_down(&p);
}

/* ---- completions */

static PLACE unsigned look(volatile struct ibv_wc* wc) {
  unsigned v = wc->opcode;
  __asm__ volatile("");
  return v;
}
static void error_field(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  request(&p, IBV_WR_RDMA_WRITE, 64, p.e.peer.rkey ^ 1);
  struct ibv_wc wc;
  while (ibv_poll_cq(p.e.scq, 1, &wc) == 0) continue;
  NEED(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 0 && wc.vendor_err == 0x88 && wc.qp_num == p.e.qp->qp_num);
  struct ibv_wc copy = wc; /* reads all of it, and uses nothing */
  __asm__ volatile("" : : "m"(copy));
  if (bad) fprintf(stderr, "opcode %#x\n", look(&wc));
  memset(&wc, 0, sizeof wc); /* its memory has other uses */
  NEED(look(&wc) == 0);
  tear_down(&p);
}

static PLACE unsigned look_ex(struct ibv_cq_ex* cq) {
  unsigned v = ibv_wc_read_opcode(cq);
  __asm__ volatile("");
  return v;
}
static void error_field_ex(int gid) {
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
  struct ibv_cq_ex* cq = ibv_create_cq_ex(p.e.ctx, &attr);
  NEED(cq);
  struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(cq),
                                  .recv_cq = ibv_cq_ex_to_cq(cq),
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  struct ibv_qp* qp = ibv_create_qp(p.e.pd, &init);
  NEED(qp);
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  NEED(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  struct ibv_sge sge = piece(&p, 0, 64);
  struct ibv_recv_wr wr = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *refused;
  NEED(ibv_post_recv(qp, &wr, &refused) == 0);
  to.qp_state = IBV_QPS_ERR;
  NEED(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
  struct ibv_poll_cq_attr none = {0};
  while (ibv_start_poll(cq, &none) == ENOENT) continue;
  NEED(cq->status == IBV_WC_WR_FLUSH_ERR && cq->wr_id == 3 && ibv_wc_read_qp_num(cq) == qp->qp_num);
  if (bad) look_ex(cq);
  ibv_end_poll(cq);
  NEED(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  tear_down(&p);
}

/* ---- queues */

static void short_receive_queue(int gid) {
  struct tuning t = kTuning;
  t.rnr_retry = 6;
  t.min_rnr_timer = 14; /* 1.28 ms */
  struct peers p = pair_up(gid, &t, 0);
  if (!p.e.a) {
    post_receive(&p.e, 1, sge_of(memory, 64, p.mr));
    if (!bad) post_receive(&p.e, 2, sge_of(memory, 64, p.mr));
  }
  meet(&p.e);
  wait_for_the_other(&p);
  post_one(&p, IBV_WR_SEND, IBV_SEND_SIGNALED, piece(&p, 0, 64), 0, 0);
  done(p.e.scq);
  bad_place(&p, IBV_WR_SEND, IBV_SEND_SIGNALED, piece(&p, 0, 64), 0, 0);
  if (bad)
    NEED(completion(p.e.scq) == IBV_WC_RNR_RETRY_EXC_ERR);
  else
    done(p.e.scq);
  tear_down(&p);
}

static PLACE int fill(struct peers* p, int signal_every) {
  struct ibv_sge sge = piece(p, 0, 8);
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *refused;
  wr.wr.rdma.remote_addr = p->e.peer.va;
  wr.wr.rdma.rkey = p->e.peer.rkey;
  int r = 0;
  for (int i = 1; i <= 1000 && r == 0; ++i) {
    const int signaled = signal_every && i % signal_every == 0;
    wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
    r = ibv_post_send(p->e.qp, &wr, &refused);
    if (signaled) done(p->e.scq);
  }
  return r;
}
static void unsignalled(int gid) {
  struct tuning t = kTuning;
  t.signal_some = 1;
  struct peers p = pair_up(gid, &t, 0);
  wait_for_the_other(&p);
  NEED(fill(&p, bad ? 0 : 8) == (bad ? ENOMEM : 0));
  tear_down(&p);
}

static void write_order(int gid) {
  memory_access |= IBV_ACCESS_RELAXED_ORDERING;
  struct peers p = pair_up(gid, &kTuning, 0);
  wait_for_the_other(&p);
  post_one(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 0, 2048), p.e.peer.va, p.e.peer.rkey);
  if (!bad) done(p.e.scq);
  bad_place(&p, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, piece(&p, 2048, 8), p.e.peer.va + 2048, p.e.peer.rkey);
  done(p.e.scq);
  if (bad) done(p.e.scq);
  tear_down(&p);
}

/* ---- addresses */

static PLACE int connect_as(struct end* e, struct ibv_ah_attr ah) {
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = e->me.qpn,
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 1,
                            .ah_attr = ah};
  int r = ibv_modify_qp(
      e->qp, &rtr,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  __asm__ volatile("");
  return r;
}
static void address(int gid, int what) {
  struct peers p = {.e = {.a = 1, .gid_index = gid}};
  open_end(&p.e);
  make_qp(&p.e, &kTuning);
  struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.dgid = p.e.me.gid, .sgid_index = (uint8_t)gid, .hop_limit = 64}};
  if (bad && what == 0) ah.is_global = 0;
  if (bad && what == 1) ah.grh.sgid_index = 200;
  if (bad && what == 2) ah.grh.dgid.raw[0] = 0xfe, ah.grh.dgid.raw[1] = 0x80;
  int r = connect_as(&p.e, ah);
  NEED(bad || r == 0);
  tear_down(&p);
}
static void no_grh(int gid) {
  address(gid, 0);
}
static void empty_sgid(int gid) {
  address(gid, 1);
}
static void other_kind_of_gid(int gid) {
  address(gid, 2);
}

static PLACE struct ibv_mr* leaky(struct ibv_pd* pd) {
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, kBytes, IBV_ACCESS_LOCAL_WRITE);
  __asm__ volatile("");
  return mr;
}
static void leak(int gid) {
  struct peers p = {.e = {.a = 1, .gid_index = gid}};
  open_end(&p.e);
  make_qp(&p.e, &kTuning);
  p.mr = leaky(p.e.pd);
  NEED(p.mr);
  if (!bad) tear_down(&p);
}

static const struct {
  const char* name;
  void (*run)(int gid);
} kRules[] = {{"buffer-changed", buffer_changed},
              {"buffer-changed-unsignalled", buffer_changed_unsignalled},
              {"memory-unmapped", memory_unmapped},
              {"memory-freed", memory_freed},
              {"read-fence", read_fence},
              {"sge-outside", sge_outside},
              {"sge-of-other-pd", sge_of_other_pd},
              {"dead-lkey", dead_lkey},
              {"dead-rkey", dead_rkey},
              {"invalidated-rkey", invalidated_rkey},
              {"error-field", error_field},
              {"error-field-ex", error_field_ex},
              {"short-receive-queue", short_receive_queue},
              {"unsignalled", unsignalled},
              {"write-order", write_order},
              {"no-grh", no_grh},
              {"empty-sgid", empty_sgid},
              {"other-kind-of-gid", other_kind_of_gid},
              {"leak", leak}};

int main(int argc, char** argv) {
  NEED(argc == 4);
  bad = !strcmp(argv[2], "bad");
  for (size_t i = 0; i < sizeof kRules / sizeof *kRules; ++i)
    if (!strcmp(argv[1], kRules[i].name)) {
      kRules[i].run(atoi(argv[3]));
      return 0;
    }
  FAIL("no rule %s", argv[1]);
}
