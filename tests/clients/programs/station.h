/* SPDX-License-Identifier: MIT
 *
 * A raw packet QP with what belongs to it, UDP frames that it sends, and what must or must not arrive.
 */
#ifndef STATION_H
#define STATION_H

#include <net/ethernet.h>

#include "ends.h"

enum { kFrames = 200, kOthers = 50, kSize = 512, kPort = 4242, kOtherPort = 4243, kDepth = 512 };
static uint8_t to_mac[6] = {0x02, 0, 0, 0, 0, 0x51};
static const uint8_t kFrom[6] = {0x02, 0, 0, 0, 0, 0x52};

struct station {
  struct ibv_context* ctx;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  uint8_t (*buf)[kSize];
};

static inline struct ibv_context* open_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  NEED(list && list[0]);
  struct ibv_context* ctx = ibv_open_device(list[0]);
  NEED(ctx);
  ibv_free_device_list(list);
  return ctx;
}

static inline void to_ready(struct ibv_qp* qp) {
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT) == 0);
  a.qp_state = IBV_QPS_RTR;
  NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
  a.qp_state = IBV_QPS_RTS;
  NEED(ibv_modify_qp(qp, &a, IBV_QP_STATE) == 0);
}

static inline void post_recv(struct station* s, unsigned i) {
  struct ibv_sge g = {(uintptr_t)s->buf[i], kSize, s->mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &g, .num_sge = 1}, *bad;
  NEED(ibv_post_recv(s->qp, &wr, &bad) == 0);
}

static inline void set_up(struct station* s) {
  s->ctx = open_device();
  NEED((s->pd = ibv_alloc_pd(s->ctx)));
  NEED((s->cq = ibv_create_cq(s->ctx, 2 * kDepth, NULL, NULL, 0)));
  NEED((s->buf = calloc(kDepth, kSize)));
  NEED((s->mr = ibv_reg_mr(s->pd, s->buf, kDepth * kSize, IBV_ACCESS_LOCAL_WRITE)));
  struct ibv_qp_init_attr a = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RAW_PACKET, .sq_sig_all = 1};
  a.cap.max_send_wr = 16;
  a.cap.max_recv_wr = kDepth;
  a.cap.max_send_sge = 2;
  a.cap.max_recv_sge = 1;
  NEED((s->qp = ibv_create_qp(s->pd, &a)));
}

static inline void tear_down(struct station* s) {
  NEED(ibv_destroy_qp(s->qp) == 0);
  NEED(ibv_dereg_mr(s->mr) == 0);
  NEED(ibv_destroy_cq(s->cq) == 0);
  NEED(ibv_dealloc_pd(s->pd) == 0);
  NEED(ibv_close_device(s->ctx) == 0);
  free(s->buf);
}

static inline void put16(uint8_t* p, unsigned v) {
  p[0] = (uint8_t)(v >> 8);
  p[1] = (uint8_t)v;
}

/* An Ethernet frame of kSize bytes with an IPv4 UDP packet; the checksums are left to the device. */
static inline void fill(uint8_t* f, unsigned port, unsigned number) {
  memset(f, 0, kSize);
  memcpy(f, to_mac, 6);
  memcpy(f + 6, kFrom, 6);
  put16(f + 12, ETHERTYPE_IP);
  f[14] = 0x45;
  put16(f + 16, kSize - 14);
  f[22] = 64;
  f[23] = 17;
  memcpy(f + 26, (uint8_t[8]){10, 9, 8, 7, 10, 9, 8, 6}, 8);
  put16(f + 34, 1000);
  put16(f + 36, port);
  put16(f + 38, kSize - 34);
  for (unsigned i = 42; i < kSize; ++i) f[i] = (uint8_t)(number * 7 + i);
  put16(f + 42, number);
}

static inline void poll_one(struct ibv_cq* cq, struct ibv_wc* wc) {
  double end = seconds() + 20;
  for (;;) {
    int n = ibv_poll_cq(cq, 1, wc);
    NEED(n >= 0);
    if (n == 1) return;
    if (seconds() > end) FAIL("nothing for 20 s");
  }
}

static inline void send_frame(struct station* s, unsigned port, unsigned number) {
  fill(s->buf[0], port, number);
  /* In two pieces: headers and data. */
  struct ibv_sge g[2] = {{(uintptr_t)s->buf[0], 60, s->mr->lkey}, {(uintptr_t)s->buf[0] + 60, kSize - 60, s->mr->lkey}};
  struct ibv_send_wr wr = {.wr_id = 1, .sg_list = g, .num_sge = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_IP_CSUM}, *bad;
  NEED(ibv_post_send(s->qp, &wr, &bad) == 0);
  struct ibv_wc wc;
  poll_one(s->cq, &wc);
  if (wc.status || wc.opcode != IBV_WC_SEND) FAIL("status %d, opcode %d", wc.status, wc.opcode);
}

static inline void check_frame(struct station* s, const struct ibv_wc* wc, unsigned port, unsigned number) {
  uint8_t want[kSize];
  fill(want, port, number);
  const uint8_t* got = s->buf[wc->wr_id];
  if (wc->status || wc->opcode != IBV_WC_RECV || wc->byte_len != kSize)
    FAIL("status %d, opcode %d, %u bytes", wc->status, wc->opcode, wc->byte_len);
  if (!(wc->wc_flags & IBV_WC_IP_CSUM_OK)) FAIL("frame %u: checksums are not said to be right", number);
  if (memcmp(got, want, 24) || memcmp(got + 26, want + 26, 14) || memcmp(got + 42, want + 42, kSize - 42))
    FAIL("frame %u is not what was sent", number);
  if (!(got[24] | got[25]) || !(got[40] | got[41])) FAIL("frame %u: the device filled in no checksums", number);
}

static inline void expect_nothing(struct station* s) {
  struct ibv_wc wc;
  for (int i = 0; i < 1000; ++i)
    if (ibv_poll_cq(s->cq, 1, &wc)) FAIL("a frame where none should be");
}

static inline void expect_one(struct station* s, unsigned port, unsigned number) {
  struct ibv_wc wc;
  poll_one(s->cq, &wc);
  check_frame(s, &wc, port, number);
  post_recv(s, (unsigned)wc.wr_id);
}

#define REFUSED(want, what)                                                                      \
  do {                                                                                           \
    errno = 0;                                                                                   \
    if ((what) != NULL) FAIL("%s succeeded", #what);                                             \
    if (errno != (want)) FAIL("%s: errno %d (%s), not %d", #what, errno, strerror(errno), want); \
  } while (0)
#define ANSWERS(want, what)                                              \
  do {                                                                   \
    int answer_ = (what);                                                \
    if (answer_ != (want)) FAIL("%s: %d, not %d", #what, answer_, want); \
  } while (0)

#endif
