/* SPDX-License-Identifier: MIT
 *
 * What users of hardware rely on (their reports' numbers in brackets), between two ends: the same completions and counters whichever way
 * the frames go. Completion errors and memory that goes away: faults.c.
 */
#include <poll.h>
#include <sys/mman.h>

#include "ends.h"

enum { kBytes = 32768 };
static const int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct memory {
  uint8_t* p;
  struct ibv_mr* mr;
};
static struct memory get(struct end* e, int access) {
  struct memory m = {mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), NULL};
  NEED(m.p != MAP_FAILED);
  for (int i = 0; i < kBytes; ++i) m.p[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + (e->a ? 1 : 100));
  NEED(m.mr = ibv_reg_mr(e->pd, m.p, kBytes, access));
  e->me.va = (uintptr_t)m.p;
  e->me.rkey = m.mr->rkey;
  return m;
}
static void put(struct memory m) {
  NEED(ibv_dereg_mr(m.mr) == 0);
  munmap(m.p, kBytes);
}
/* What the other end's memory held at the beginning. */
static int others(struct end* e, const uint8_t* p, int from, int n) {
  for (int i = from; i < from + n; ++i)
    if (p[i - from] != (uint8_t)(i * 7 + (i >> 8) * 13 + (e->a ? 100 : 1))) return 0;
  return 1;
}

/* An event of the device, or none in so many milliseconds. */
static int async_event(struct end* e, int ms) {
  struct pollfd f = {e->ctx->async_fd, POLLIN, 0};
  struct ibv_async_event event;
  int r = poll(&f, 1, ms);
  NEED(r >= 0);
  if (r == 0) return -1;
  NEED(ibv_get_async_event(e->ctx, &event) == 0);
  ibv_ack_async_event(&event);
  return event.event_type;
}
static void want_event(struct end* e, int type) {
  int got = async_event(e, 20000);
  while (got == IBV_EVENT_COMM_EST || got == IBV_EVENT_GID_CHANGE) got = async_event(e, 20000);
  if (got != type) FAIL("event %d, expected %d", got, type);
}

static int try_send(struct end* e, struct ibv_send_wr* wr) {
  struct ibv_send_wr* bad = NULL;
  return ibv_post_send(e->qp, wr, &bad);
}

/* [C1] Slots come back with a later signaled completion only. */
static void full_of_unsignaled(struct end* e) {
  struct tuning t = kTuning;
  t.signal_some = 1;
  struct memory m = get(e, kAll);
  join(e, &t);
  if (e->a) {
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    NEED(ibv_query_qp(e->qp, &attr, IBV_QP_CAP, &init) == 0);
    struct ibv_sge s = sge_of(m.p, 8, m.mr);
    struct ibv_send_wr wr = {.sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = {e->peer.va, e->peer.rkey}};
    int posted = 0;
    while (try_send(e, &wr) == 0)
      if (++posted > 4096) FAIL("it never is full");
    NEED(posted >= (int)init.cap.max_send_wr);
    usleep(50000);
    want_nothing(e->scq);
    NEED(try_send(e, &wr) == ENOMEM);
  }
  part(e);
  put(m);
}

/* [C4] */
static void inline_too_long(struct end* e) {
  struct memory m = get(e, kAll);
  join(e, &kTuning);
  if (e->a) {
    struct ibv_sge s[3] = {{(uintptr_t)m.p, 1u << 31, 0}, {(uintptr_t)m.p, 1u << 31, 0}, {(uintptr_t)m.p, 8, 0}};
    struct ibv_send_wr wr = {.sg_list = s, .num_sge = 3, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
    int r = try_send(e, &wr);
    NEED(r == EINVAL || r == ENOMEM);
    /* The queue goes on. */
    post(e, IBV_WR_RDMA_WRITE, 3, sge_of(m.p, 8, m.mr), e->peer.va, e->peer.rkey);
    want(e->scq, 3, IBV_WC_SUCCESS, -1);
  }
  part(e);
  put(m);
}

/* [C5] */
static void inline_needs_no_key(struct end* e) {
  struct memory m = get(e, kAll);
  join(e, &kTuning);
  if (e->a) {
    uint8_t text[16] = "as it was then.";
    meet(e);
    struct ibv_sge s = {(uintptr_t)text, sizeof text, 0xdead};
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    NEED(ibv_query_qp(e->qp, &attr, IBV_QP_CAP, &init) == 0);
    if (init.cap.max_inline_data < sizeof text) FAIL("inline: %u bytes", init.cap.max_inline_data);
    struct ibv_send_wr wr = {
        .wr_id = 5, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED};
    NEED(try_send(e, &wr) == 0);
    memset(text, 0, sizeof text);
    want(e->scq, 5, IBV_WC_SUCCESS, -1);
  } else {
    post_receive(e, 6, sge_of(m.p, 64, m.mr));
    meet(e);
    want(e->rcq, 6, IBV_WC_SUCCESS, -1);
    NEED(memcmp(m.p, "as it was then.", 16) == 0);
  }
  part(e);
  put(m);
}

/* [C7] Each takes exactly one PSN; no key is looked at. */
static void zero_lengths(struct end* e) {
  struct memory m = get(e, kAll);
  join(e, &kTuning);
  if (e->a) {
    struct ibv_qp_attr before, after;
    struct ibv_qp_init_attr init;
    meet(e);
    NEED(ibv_query_qp(e->qp, &before, IBV_QP_SQ_PSN, &init) == 0);
    struct ibv_send_wr none = {.wr_id = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    NEED(try_send(e, &none) == 0);
    post(e, IBV_WR_SEND, 2, sge_of(m.p, 0, m.mr), 0, 0);
    post(e, IBV_WR_RDMA_WRITE, 3, sge_of(m.p, 0, m.mr), 0, 0);
    post(e, IBV_WR_RDMA_WRITE_WITH_IMM, 4, sge_of(m.p, 0, m.mr), 0, 0);
    post(e, IBV_WR_RDMA_READ, 5, sge_of(m.p, 0, m.mr), 0, 0);
    for (uint64_t i = 1; i <= 5; ++i) want(e->scq, i, IBV_WC_SUCCESS, -1);
    NEED(ibv_query_qp(e->qp, &after, IBV_QP_SQ_PSN, &init) == 0);
    NEED(((after.sq_psn - before.sq_psn) & 0xffffff) == 5);
  } else {
    for (uint64_t i = 11; i <= 13; ++i) post_receive(e, i, sge_of(m.p, 64, m.mr));
    meet(e);
    for (uint64_t i = 11; i <= 13; ++i) want(e->rcq, i, IBV_WC_SUCCESS, -1);
  }
  part(e);
  put(m);
}

/* [C8] */
static void write_with_immediate(struct end* e) {
  struct memory m = get(e, kAll);
  join(e, &kTuning);
  if (e->a) {
    struct ibv_sge s = sge_of(m.p, 300, m.mr);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &s,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(0x89abcdef),
                             .wr.rdma = {e->peer.va + 1000, e->peer.rkey}};
    NEED(try_send(e, &wr) == 0); /* no receive is there yet */
    usleep(20000);
    want_nothing(e->scq);
    meet(e);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    meet(e);
  } else {
    meet(e);
    struct ibv_recv_wr *bad, empty = {.wr_id = 7};
    NEED(ibv_post_recv(e->qp, &empty, &bad) == 0);
    struct ibv_wc wc = next_wc(e->rcq);
    NEED(wc.status == 0 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc.wc_flags & IBV_WC_WITH_IMM) && wc.byte_len == 300 &&
         ntohl(wc.imm_data) == 0x89abcdef);
    NEED(others(e, m.p + 1000, 0, 300));
    want_nothing(e->rcq);
    meet(e);
  }
  part(e);
  put(m);
}

/* [C10] The ring has one place more than ibv_create_cq() says (mlx5: a power of two, less one). */
static void queue_overrun(struct end* e) {
  struct tuning t = kTuning;
  struct memory m = get(e, kAll);
  make_qp(e, &t);
  struct ibv_cq* roomy = e->scq;
  struct ibv_qp* first = e->qp;
  if (e->a) {
    NEED(ibv_destroy_qp(first) == 0);
    NEED(e->scq = ibv_create_cq(e->ctx, 1, e, NULL, 0));
    struct ibv_qp_init_attr init = {.send_cq = e->scq,
                                    .recv_cq = e->rcq,
                                    .cap = {.max_send_wr = 64, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    NEED(e->qp = ibv_create_qp(e->pd, &init));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    e->me.qpn = e->qp->qp_num;
  }
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  NEED(to_rts(e, &t) == 0);
  meet(e);
  if (e->a) {
    for (int i = 0; i < e->scq->cqe + 2; ++i) post(e, IBV_WR_RDMA_WRITE, (uint64_t)i, sge_of(m.p, 8, m.mr), e->peer.va, e->peer.rkey);
    want_event(e, IBV_EVENT_CQ_ERR);
    want_event(e, IBV_EVENT_QP_FATAL);
    NEED(qp_state(e->qp) == IBV_QPS_ERR);
  }
  part(e);
  if (e->a) NEED(ibv_destroy_cq(roomy) == 0);
  put(m);
}

/* [C11] */
static int events_in(struct ibv_comp_channel* channel, int ms) {
  struct pollfd f = {channel->fd, POLLIN, 0};
  int n = 0;
  while (poll(&f, 1, ms) > 0) {
    struct ibv_cq* cq;
    void* context;
    NEED(ibv_get_cq_event(channel, &cq, &context) == 0);
    ibv_ack_cq_events(cq, 1);
    ++n;
    ms = 20;
  }
  return n;
}
static void say(struct end* e, uint64_t id, unsigned flags, struct memory m) {
  struct ibv_sge s = sge_of(m.p, 8, m.mr);
  struct ibv_send_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags};
  NEED(try_send(e, &wr) == 0);
  want(e->scq, id, IBV_WC_SUCCESS, -1);
}
static void arming(struct end* e) {
  struct memory m = get(e, kAll);
  if (!e->a) NEED(e->channel = ibv_create_comp_channel(e->ctx));
  join(e, &kTuning);
  if (e->a) {
    meet(e);
    say(e, 1, 0, m);
    meet(e);
    meet(e);
    for (uint64_t i = 2; i <= 4; ++i) say(e, i, 0, m);
    meet(e);
    meet(e);
    say(e, 5, 0, m);
    meet(e);
    meet(e);
    say(e, 6, IBV_SEND_SOLICITED, m);
    meet(e);
  } else {
    for (uint64_t i = 1; i <= 6; ++i) post_receive(e, i, sge_of(m.p, 8, m.mr));
    meet(e);
    meet(e);
    want(e->rcq, 1, IBV_WC_SUCCESS, -1); /* came before the arm and was taken */
    NEED(ibv_req_notify_cq(e->rcq, 0) == 0);
    NEED(events_in(e->channel, 50) == 0);
    meet(e);
    meet(e);
    NEED(events_in(e->channel, 5000) == 1); /* one for three */
    for (uint64_t i = 2; i <= 4; ++i) want(e->rcq, i, IBV_WC_SUCCESS, -1);
    NEED(ibv_req_notify_cq(e->rcq, 1) == 0); /* solicited only */
    meet(e);
    meet(e);
    NEED(events_in(e->channel, 50) == 0);
    want(e->rcq, 5, IBV_WC_SUCCESS, -1);
    meet(e);
    meet(e);
    NEED(events_in(e->channel, 5000) == 1);
    want(e->rcq, 6, IBV_WC_SUCCESS, -1);
  }
  part(e);
  if (!e->a) {
    NEED(ibv_destroy_comp_channel(e->channel) == 0);
    e->channel = NULL;
  }
  put(m);
}

/* [C13] [C14] [C16] */
static void shared_receives(struct end* e) {
  struct memory m = get(e, kAll);
  make_qp(e, &kTuning);
  struct ibv_srq* srq = NULL;
  if (!e->a) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 16, .max_sge = 1}};
    NEED(srq = ibv_create_srq(e->pd, &attr));
    NEED(ibv_destroy_qp(e->qp) == 0);
    struct ibv_qp_init_attr init = {.send_cq = e->scq,
                                    .recv_cq = e->rcq,
                                    .srq = srq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = 4, .max_recv_wr = 0x7fffffff, .max_send_sge = 1, .max_recv_sge = 1}};
    /* uhca's library asks the kernel for no receives at all; rdma-core hands the number on, and Linux looks at it (set_rq_size). */
    if (!(e->qp = ibv_create_qp(e->pd, &init))) {
      NEED(errno == EINVAL);
      init.cap.max_recv_wr = 4;
      NEED(e->qp = ibv_create_qp(e->pd, &init));
    }
    struct ibv_qp_attr to_init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    NEED(ibv_modify_qp(e->qp, &to_init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    e->me.qpn = e->qp->qp_num;
    for (uint64_t i = 0; i < 10; ++i) {
      struct ibv_sge s = sge_of(m.p, 64, m.mr);
      struct ibv_recv_wr *bad, wr = {.wr_id = 20 + i, .sg_list = &s, .num_sge = 1};
      NEED(ibv_post_srq_recv(srq, &wr, &bad) == 0);
    }
    struct ibv_srq_attr limit = {.srq_limit = 8};
    NEED(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) == 0);
  }
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  NEED(to_rts(e, &kTuning) == 0);
  meet(e);
  if (e->a) {
    for (uint64_t i = 1; i <= 3; ++i) say(e, i, 0, m);
    meet(e);
  } else {
    for (uint64_t i = 0; i < 3; ++i) want(e->rcq, 20 + i, IBV_WC_SUCCESS, -1);
    meet(e);
    want_event(e, IBV_EVENT_SRQ_LIMIT_REACHED);
    struct ibv_srq_attr now;
    NEED(ibv_query_srq(srq, &now) == 0 && now.srq_limit == 0);
    struct ibv_srq_attr above = {.srq_limit = 12};
    NEED(ibv_modify_srq(srq, &above, IBV_SRQ_LIMIT) == 0);
    want_event(e, IBV_EVENT_SRQ_LIMIT_REACHED); /* pin: 7 are there, so it is reached already */
    struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
    NEED(ibv_modify_qp(e->qp, &err, IBV_QP_STATE) == 0);
    want_event(e, IBV_EVENT_QP_LAST_WQE_REACHED);
    int more = async_event(e, 50);
    if (more != -1 && more != IBV_EVENT_COMM_EST && more != IBV_EVENT_GID_CHANGE) FAIL("another event: %d", more);
  }
  part(e);
  if (srq) NEED(ibv_destroy_srq(srq) == 0);
  put(m);
}

/* [E2] */
static void psns_wrap(struct end* e) {
  struct memory m = get(e, kAll);
  make_qp(e, &kTuning);
  e->me.psn = 0xfffffe;
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  NEED(to_rts(e, &kTuning) == 0);
  if (!e->a)
    for (uint64_t i = 0; i < 5; ++i) post_receive(e, 11 + i, sge_of(m.p + i * 3000, 3000, m.mr));
  meet(e);
  for (uint64_t i = 0; i < 5; ++i) {
    if (e->a) {
      post(e, IBV_WR_SEND, 1 + i, sge_of(m.p + i * 3000, 3000, m.mr), 0, 0);
    } else {
      want(e->rcq, 11 + i, IBV_WC_SUCCESS, -1);
    }
  }
  if (e->a) {
    for (uint64_t i = 0; i < 5; ++i) want(e->scq, 1 + i, IBV_WC_SUCCESS, -1);
  } else {
    NEED(others(e, m.p, 0, 15000));
  }
  part(e);
  put(m);
}

/* [E8] What is wrong about an atomic, and what that is called. */
static void bad_atomic(struct end* e, int peer_access, int qp_allows, uint64_t off, uint32_t len, int status) {
  struct memory m = get(e, e->a ? kAll : peer_access);
  make_qp(e, &kTuning);
  if (!e->a && !qp_allows) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  }
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  NEED(to_rts(e, &kTuning) == 0);
  uint8_t before[64];
  memcpy(before, m.p, sizeof before);
  meet(e);
  if (e->a) {
    struct ibv_sge s = sge_of(m.p, len, m.mr);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &s,
                             .num_sge = 1,
                             .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.atomic = {.remote_addr = e->peer.va + off, .rkey = e->peer.rkey, .compare_add = 1}};
    NEED(try_send(e, &wr) == 0);
    want(e->scq, 1, status, -1);
    if (status != IBV_WC_SUCCESS) NEED(qp_state(e->qp) == IBV_QPS_ERR);
    meet(e);
  } else {
    meet(e);
    NEED((memcmp(before, m.p, sizeof before) == 0) == (status != IBV_WC_SUCCESS));
  }
  part(e);
  put(m);
}
static void atomics(struct end* e) {
  bad_atomic(e, kAll, 1, 0, 8, IBV_WC_SUCCESS);
  bad_atomic(e, kAll, 1, 4, 8, IBV_WC_REM_INV_REQ_ERR);
  bad_atomic(e, kAll, 1, 0, 4, IBV_WC_SUCCESS); /* pin: libmlx5 writes 8 into the WQE whatever the length (set_data_ptr_seg_atomic) */
  bad_atomic(e, kAll, 0, 0, 8, IBV_WC_REM_INV_REQ_ERR);
  bad_atomic(e, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 1, 0, 8, IBV_WC_REM_ACCESS_ERR);
}

/* [E10] Datagrams: room for the GRH, Q_Keys, the path MTU. */
static void datagrams(struct end* e) {
  struct memory m = get(e, kAll);
  struct ibv_port_attr port;
  NEED(ibv_query_port(e->ctx, 1, &port) == 0);
  uint32_t mtu = 128u << port.active_mtu;
  NEED(e->scq = ibv_create_cq(e->ctx, 16, e, NULL, 0));
  NEED(e->rcq = ibv_create_cq(e->ctx, 16, e, NULL, 0));
  struct ibv_qp_init_attr init = {.send_cq = e->scq,
                                  .recv_cq = e->rcq,
                                  .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_UD,
                                  .sq_sig_all = 1};
  NEED(e->qp = ibv_create_qp(e->pd, &init));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234};
  NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  NEED(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  e->me.qpn = e->qp->qp_num;
  NEED(ibv_query_gid(e->ctx, 1, e->gid_index, &e->me.gid) == 0);
  if (!e->a) post_receive(e, 11, sge_of(m.p, 40 + mtu, m.mr));
  swap(e->fd, &e->me, &e->peer, sizeof e->me);
  if (e->a) {
    struct ibv_ah_attr to = {.is_global = 1,
                             .port_num = 1,
                             .grh = {.dgid = e->peer.gid, .sgid_index = (uint8_t)e->gid_index, .hop_limit = 9, .traffic_class = 0x20}};
    struct ibv_ah* ah = ibv_create_ah(e->pd, &to);
    NEED(ah);
    struct ibv_sge s = sge_of(m.p, mtu, m.mr);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &s,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.ud = {ah, e->peer.qpn, 0x9999}};
    NEED(try_send(e, &wr) == 0); /* a wrong Q_Key: sent, and dropped there */
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    /* A datagram may get lost on the way, whatever the transport does. */
    char seen = 0, mine = 0;
    wr.wr.ud.remote_qkey = 0x1234;
    while (!seen) {
      NEED(try_send(e, &wr) == 0);
      struct ibv_wc wc;
      while (ibv_poll_cq(e->scq, 1, &wc) == 0) continue;
      NEED(wc.status == IBV_WC_SUCCESS);
      swap(e->fd, &mine, &seen, 1);
    }
    s.length = mtu + 1;
    wr.wr_id = 3;
    NEED(try_send(e, &wr) == 0);
    want(e->scq, 3, IBV_WC_LOC_LEN_ERR, -1);
    NEED(ibv_destroy_ah(ah) == 0);
  } else {
    char seen = 0, theirs;
    while (!seen) {
      struct ibv_wc wc;
      double until = seconds() + 0.2;
      int n;
      while ((n = ibv_poll_cq(e->rcq, 1, &wc)) == 0 && seconds() < until) continue;
      if (n > 0) {
        transcribe(e->rcq, &wc);
        NEED(wc.wr_id == 11 && wc.status == 0 && wc.byte_len == 40 + mtu && (wc.wc_flags & IBV_WC_GRH) && others(e, m.p + 40, 0, (int)mtu));
        NEED(m.p[20] == 0x45 && m.p[21] == 0x20); /* the IPv4 header lies behind 20 bytes */
        seen = 1;
      }
      swap(e->fd, &seen, &theirs, 1);
    }
  }
  part(e);
  put(m);
}

/* [E13] What was written before is seen before. */
static void write_then_flag(struct end* e) {
  struct memory m = get(e, kAll);
  volatile uint8_t* flag = m.p + kBytes - 1;
  if (!e->a) *flag = 0;
  join(e, &kTuning);
  if (e->a) {
    m.p[kBytes - 1] = 0x77;
    post(e, IBV_WR_RDMA_WRITE, 1, sge_of(m.p, 30000, m.mr), e->peer.va, e->peer.rkey);
    post(e, IBV_WR_RDMA_WRITE, 2, sge_of(m.p + kBytes - 1, 1, m.mr), e->peer.va + kBytes - 1, e->peer.rkey);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    want(e->scq, 2, IBV_WC_SUCCESS, -1);
  } else {
    struct ibv_wc wc;
    double end = seconds() + 30;
    while (*flag != 0x77) {
      NEED(seconds() < end);
      NEED(ibv_poll_cq(e->rcq, 1, &wc) == 0);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    NEED(others(e, m.p, 0, 30000));
  }
  part(e);
  put(m);
}

/* [E14] 8 MiB and a byte go; more than 1 GiB does not. */
static void long_messages(struct end* e) {
  const size_t big = ((size_t)1 << 30) + 4096, some = (8 << 20) + 1;
  uint8_t* p = mmap(NULL, big, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  NEED(p != MAP_FAILED);
  struct ibv_mr* mr = ibv_reg_mr(e->pd, p, big, kAll);
  NEED(mr);
  e->me.va = (uintptr_t)p;
  e->me.rkey = mr->rkey;
  struct tuning t = kTuning;
  join(e, &t);
  if (e->a) {
    for (size_t i = 0; i < some; i += 4096) p[i] = (uint8_t)(i >> 12);
    p[some - 1] = 0x99;
    meet(e);
    post(e, IBV_WR_SEND, 1, sge_of(p, (uint32_t)some, mr), 0, 0);
    want(e->scq, 1, IBV_WC_SUCCESS, -1);
    post(e, IBV_WR_RDMA_WRITE, 2, sge_of(p, (1u << 30) + 1, mr), e->peer.va, e->peer.rkey);
    want(e->scq, 2, IBV_WC_LOC_LEN_ERR, -1);
  } else {
    post_receive(e, 11, sge_of(p, (uint32_t)some, mr));
    meet(e);
    want(e->rcq, 11, IBV_WC_SUCCESS, -1);
    for (size_t i = 0; i + 4096 < some; i += 4096) NEED(p[i] == (uint8_t)(i >> 12));
    NEED(p[some - 1] == 0x99);
  }
  part(e);
  NEED(ibv_dereg_mr(mr) == 0);
  munmap(p, big);
}

static const struct named_case kCases[] = {
    CASE(full_of_unsignaled), CASE(inline_too_long), CASE(inline_needs_no_key), CASE(zero_lengths), CASE(write_with_immediate),
    CASE(queue_overrun),      CASE(arming),          CASE(shared_receives),     CASE(psns_wrap),    CASE(atomics),
    CASE(datagrams),          CASE(write_then_flag), CASE(long_messages),
};

static void all(struct end* e) {
  run_cases(e, kCases, sizeof kCases / sizeof *kCases);
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, all);
}
