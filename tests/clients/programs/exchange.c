/* SPDX-License-Identifier: MIT
 *
 * One of many processes that all talk with each other over RC queue pairs, whoever of them dies meanwhile.
 *   exchange TAG INDEX COUNT GID SECONDS PAIRS MAY_DIE
 * The process with the higher index connects to the lower one (an abstract socket "TAG-INDEX"), PAIRS queue pairs for each two processes.
 * On each, the one that connected WRITEs a block and SENDs its number; the other checks both and answers the same way. MAY_DIE: others
 * may be killed and started again; without it every failure is one. At the end all say how many rounds they have seen.
 */
#include <poll.h>
#include <stddef.h>
#include <sys/un.h>

#include "ends.h"

enum { kMost = 128, kBlock = 1024, kNote = 64, kSlot = 4096 };
enum { kSendAt = 0, kNoteAt = kBlock, kIn = 2048, kNoteIn = 3072 }; /* of a queue pair's slot in memory */

struct lane {
  struct ibv_qp* qp;
  struct peer* peer;
  uint8_t* mem;
  uint64_t number; /* of the round */
  int waiting;     /* for the answer */
};
struct peer {
  int fd; /* -1: not connected */
  int asks;
  int met;
  int broken;   /* a completion with an error: the end of the stream must follow */
  double since; /* when it broke */
  double retry; /* connect again from then on */
  struct lane* lanes;
  struct ibv_mr* mr;
  uint8_t* mem;
};
struct offer {
  uint32_t index, rkey;
  uint64_t va;
  union ibv_gid gid;
};

static const char* tag;
static unsigned me, count, pairs;
static int gid_index, may_die, listener;
static double last;
static struct ibv_context* ctx;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static union ibv_gid gid;
static struct peer peers[kMost];
static struct lane** by_qpn; /* hashed by the low bits */
static unsigned by_qpn_mask;
static unsigned long rounds, losses;

static socklen_t name_of(unsigned index, struct sockaddr_un* a) {
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s-%u", tag, index);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static struct lane** place_of(uint32_t qpn) {
  unsigned i = qpn & by_qpn_mask;
  while (by_qpn[i] && by_qpn[i]->qp->qp_num != qpn) i = (i + 1) & by_qpn_mask;
  return &by_qpn[i];
}
static void index_lanes(void) {
  memset(by_qpn, 0, (by_qpn_mask + 1) * sizeof *by_qpn);
  for (unsigned i = 0; i < count; ++i)
    for (unsigned j = 0; peers[i].lanes && j < pairs; ++j) *place_of(peers[i].lanes[j].qp->qp_num) = &peers[i].lanes[j];
}

static void forget(struct peer* p) {
  if (p->lanes) {
    for (unsigned j = 0; j < pairs; ++j) NEED(ibv_destroy_qp(p->lanes[j].qp) == 0);
    free(p->lanes);
    p->lanes = NULL;
    NEED(ibv_dereg_mr(p->mr) == 0);
    free(p->mem);
    index_lanes();
  }
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  p->broken = 0;
  p->retry = seconds() + 0.05;
}
static void lost(struct peer* p, const char* how) {
  if (!may_die) FAIL("process %u, peer %ld: %s", me, (long)(p - peers), how);
  ++losses;
  forget(p);
}

static void receive_note(struct lane* l) {
  struct ibv_sge s = sge_of(l->mem + kNoteIn, kNote, l->peer->mr);
  struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &s, .num_sge = 1};
  NEED(ibv_post_recv(l->qp, &wr, &bad) == 0);
}

static void prepare(struct peer* p) {
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {.max_send_wr = 8, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  NEED(p->mem = aligned_alloc(4096, (size_t)pairs * kSlot));
  memset(p->mem, 0, (size_t)pairs * kSlot);
  NEED(p->mr = ibv_reg_mr(pd, p->mem, (size_t)pairs * kSlot, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  NEED(p->lanes = calloc(pairs, sizeof *p->lanes));
  for (unsigned j = 0; j < pairs; ++j) {
    struct lane* l = &p->lanes[j];
    l->peer = p;
    l->mem = p->mem + (size_t)j * kSlot;
    NEED(l->qp = ibv_create_qp(pd, &init));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    NEED(ibv_modify_qp(l->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    receive_note(l);
  }
  index_lanes();
}

/* Both sides say who they are and which queue pairs they have. 0: the other one is gone. */
static struct offer theirs[kMost];
static int agree(struct peer* p, const struct offer* known) {
  struct offer mine = {me, p->mr->rkey, (uintptr_t)p->mem, gid};
  struct offer* other = &theirs[p - peers];
  uint32_t *out = malloc(pairs * 4), *in = malloc(pairs * 4);
  for (unsigned j = 0; j < pairs; ++j) out[j] = p->lanes[j].qp->qp_num;
  int ok;
  if (known) {
    *other = *known;
    ok = send(p->fd, &mine, sizeof mine, MSG_NOSIGNAL) == (ssize_t)sizeof mine;
  } else {
    ok = swap_or_gone(p->fd, &mine, other, sizeof mine);
  }
  ok = ok && swap_or_gone(p->fd, out, in, pairs * 4);
  for (unsigned j = 0; ok && j < pairs; ++j) {
    struct end e = {.gid_index = gid_index, .qp = p->lanes[j].qp};
    struct tuning t = kTuning;
    t.timeout = 17; /* many processes share few processors */
    e.peer.qpn = in[j];
    e.peer.gid = other->gid;
    NEED(to_rts(&e, &t) == 0);
  }
  free(out);
  free(in);
  char c = 'm', d;
  return ok && swap_or_gone(p->fd, &c, &d, 1);
}

static void say(struct lane* l) {
  unsigned i = (unsigned)(l->peer - peers);
  memset(l->mem + kSendAt, (int)(l->number * 7 + me), kBlock);
  memcpy(l->mem + kNoteAt, &l->number, sizeof l->number);
  struct ibv_sge block = sge_of(l->mem + kSendAt, kBlock, l->peer->mr), note = sge_of(l->mem + kNoteAt, kNote, l->peer->mr);
  struct ibv_send_wr *bad, second = {.wr_id = 2, .sg_list = &note, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                           first = {.wr_id = 2, .next = &second, .sg_list = &block, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
  first.wr.rdma.remote_addr = theirs[i].va + (uint64_t)(l->mem - l->peer->mem) + kIn;
  first.wr.rdma.rkey = theirs[i].rkey;
  int r = ibv_post_send(l->qp, &first, &bad);
  if (r) FAIL("ibv_post_send: %d", r);
}
static void next_round(struct lane* l) {
  if (seconds() >= last && l->number > 0) return;
  ++l->number;
  l->waiting = 1;
  say(l);
}
static void heard(struct lane* l) {
  unsigned i = (unsigned)(l->peer - peers);
  uint64_t n;
  memcpy(&n, l->mem + kNoteIn, sizeof n);
  uint64_t expected = l->peer->asks ? l->number : l->number + 1;
  if (n != expected) FAIL("process %u: peer %u sent %lu, expected %lu", me, i, (unsigned long)n, (unsigned long)expected);
  for (unsigned k = 0; k < kBlock; ++k)
    if (l->mem[kIn + k] != (uint8_t)(n * 7 + i)) FAIL("process %u: byte %u of round %lu of peer %u", me, k, (unsigned long)n, i);
  receive_note(l);
  ++rounds;
  if (l->peer->asks) {
    l->waiting = 0;
    next_round(l);
  } else {
    l->number = n;
    say(l);
  }
}

static void serve(void) {
  struct ibv_wc wc[32];
  int n = ibv_poll_cq(cq, 32, wc);
  NEED(n >= 0);
  for (int i = 0; i < n; ++i) {
    struct lane* l = *place_of(wc[i].qp_num);
    if (!l) FAIL("completion of QP 0x%x, which is gone", wc[i].qp_num);
    if (wc[i].status != IBV_WC_SUCCESS) {
      if (!may_die)
        FAIL("process %u, peer %ld: %s vendor_err 0x%x", me, (long)(l->peer - peers), ibv_wc_status_str(wc[i].status), wc[i].vendor_err);
      if (!l->peer->broken) l->peer->since = seconds();
      l->peer->broken = 1;
    } else if (wc[i].opcode & IBV_WC_RECV) {
      if (!l->peer->broken) heard(l);
    }
  }
}

static void take_one(void) {
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) return;
  struct offer o;
  if (recv(fd, &o, sizeof o, MSG_WAITALL) != (ssize_t)sizeof o || o.index >= count || o.index <= me) {
    close(fd);
    return;
  }
  struct peer* p = &peers[o.index];
  if (p->fd >= 0) lost(p, "a new one of this index came");
  p->fd = fd;
  p->met = 1;
  p->asks = 0;
  prepare(p);
  if (!agree(p, &o)) lost(p, "gone while connecting");
}
static void reach(unsigned i) {
  struct peer* p = &peers[i];
  struct sockaddr_un a;
  socklen_t n = name_of(i, &a);
  if (p->fd >= 0 || seconds() < p->retry || (seconds() >= last && (may_die || p->met))) return;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  NEED(fd >= 0);
  if (connect(fd, (struct sockaddr*)&a, n) != 0) {
    close(fd);
    p->retry = seconds() + 0.1;
    return;
  }
  p->fd = fd;
  p->met = p->asks = 1;
  prepare(p);
  if (!agree(p, NULL)) {
    lost(p, "gone while connecting");
    return;
  }
  for (unsigned j = 0; j < pairs; ++j) next_round(&p->lanes[j]);
}

/* A byte on the stream says good-bye, its end that the process is gone. */
static int listen_to(struct peer* p) {
  char c;
  ssize_t n = recv(p->fd, &c, 1, MSG_DONTWAIT);
  if (n == 1) {
    forget(p);
    return 1;
  }
  if (n == 0 || (errno != EAGAIN && errno != EINTR)) lost(p, "gone");
  return 0;
}
static void good_bye(struct peer* p) {
  for (unsigned j = 0; j < pairs; ++j)
    if (p->lanes[j].waiting) return;
  send(p->fd, "b", 1, MSG_NOSIGNAL);
  char c;
  while (recv(p->fd, &c, 1, 0) > 0) {
  }
  forget(p);
}

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  tag = argv[1];
  me = (unsigned)atoi(argv[2]);
  count = (unsigned)atoi(argv[3]);
  gid_index = atoi(argv[4]);
  last = seconds() + atof(argv[5]);
  pairs = (unsigned)atoi(argv[6]);
  may_die = atoi(argv[7]);
  NEED(count <= kMost);
  alarm((unsigned)atoi(argv[5]) + 100);
  for (by_qpn_mask = 1; by_qpn_mask < 4 * count * pairs; by_qpn_mask *= 2) {
  }
  --by_qpn_mask;
  NEED(by_qpn = calloc(by_qpn_mask + 1, sizeof *by_qpn));
  for (unsigned i = 0; i < count; ++i) peers[i].fd = -1;
  struct sockaddr_un a;
  socklen_t n = name_of(me, &a);
  listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  NEED(listener >= 0 && bind(listener, (struct sockaddr*)&a, n) == 0 && listen(listener, kMost) == 0);
  ctx = open_first();
  NEED(pd = ibv_alloc_pd(ctx));
  NEED(cq = ibv_create_cq(ctx, (int)(count * pairs * 8), NULL, NULL, 0));
  NEED(ibv_query_gid(ctx, 1, gid_index, &gid) == 0);

  int busy = 1;
  double look = 0;
  while (busy || seconds() < last) {
    serve();
    if (seconds() < look) continue;
    look = seconds() + 0.005;
    take_one();
    for (unsigned i = 0; i < me; ++i) reach(i);
    busy = 0;
    for (unsigned i = 0; i < count; ++i) {
      struct peer* p = &peers[i];
      if (!may_die && i != me && !p->met) busy = 1; /* each talks with each, however late they come */
      if (p->fd < 0 || listen_to(p) || p->fd < 0) continue;
      if (p->broken && seconds() > p->since + 20) FAIL("process %u: a request to peer %u failed, which lives", me, i);
      busy = 1;
      if (p->asks && !p->broken && seconds() >= last) good_bye(p);
    }
    struct pollfd nothing;
    poll(&nothing, 0, 0); /* others want the processor, too */
  }
  for (unsigned i = 0; i < count; ++i) forget(&peers[i]);
  NEED(ibv_destroy_cq(cq) == 0);
  NEED(ibv_dealloc_pd(pd) == 0);
  NEED(ibv_close_device(ctx) == 0);
  printf("%lu rounds, %lu peers lost\n", rounds, losses);
  return 0;
}
