/* SPDX-License-Identifier: MIT
 *
 * Multicast groups and what their verbs refuse: two UD queue pairs of one context in a group, one outside. The GID index is the argument.
 */
#include "ends.h"

enum { kGrh = 40, kBytes = 64, kQps = 3 };

static struct ibv_context* ctx;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static struct ibv_qp* qp[kQps];
static struct ibv_mr* mr;
static unsigned char memory[(kQps + 1) * 256];

static struct ibv_qp* datagram_qp(void) {
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_UD};
  struct ibv_qp* q = ibv_create_qp(pd, &init);
  NEED(q);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234};
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return q;
}

static void receive_into(int i) {
  struct ibv_sge s = {.addr = (uintptr_t)memory + 256u * (unsigned)i, .length = kGrh + kBytes, .lkey = mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &s, .num_sge = 1}, *bad;
  NEED(ibv_post_recv(qp[i], &wr, &bad) == 0);
}

/* Which QPs have received, as bits, once the send is complete and nothing has come for a while. */
static unsigned say(struct ibv_ah* ah) {
  unsigned got = 0;
  struct ibv_sge s = {.addr = (uintptr_t)memory + 256u * kQps, .length = kBytes, .lkey = mr->lkey};
  struct ibv_send_wr wr = {.wr_id = 99, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = 0xffffff;
  wr.wr.ud.remote_qkey = 0x1234;
  NEED(ibv_post_send(qp[0], &wr, &bad) == 0);
  int sent = 0;
  for (double end = seconds() + 0.3; seconds() < end || !sent;) {
    struct ibv_wc wc;
    if (ibv_poll_cq(cq, 1, &wc) != 1) continue;
    if (wc.status != IBV_WC_SUCCESS) FAIL("completion %s", ibv_wc_status_str(wc.status));
    if (wc.wr_id == 99) {
      sent = 1;
      continue;
    }
    NEED(wc.byte_len == kGrh + kBytes && (wc.wc_flags & IBV_WC_GRH));
    NEED(memcmp(memory + 256 * wc.wr_id + kGrh, memory + 256 * kQps, kBytes) == 0);
    NEED(!(got & 1u << wc.wr_id));
    got |= 1u << wc.wr_id;
  }
  return got;
}

int main(int argc, char** argv) {
  NEED(argc == 2);
  ctx = open_first();
  struct ibv_device_attr dev;
  NEED(ibv_query_device(ctx, &dev) == 0 && dev.max_mcast_grp > 0 && dev.max_mcast_qp_attach > 0);
  NEED(pd = ibv_alloc_pd(ctx));
  NEED(cq = ibv_create_cq(ctx, 64, NULL, NULL, 0));
  NEED(mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  for (int i = 0; i < kQps; ++i) qp[i] = datagram_qp();
  for (int i = 0; i < kBytes; ++i) memory[256 * kQps + i] = (unsigned char)(i * 7 + 1);

  union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}}, plain = group;
  plain.raw[12] = 10;
  NEED(ibv_attach_mcast(qp[0], &plain, 0) == EINVAL);
  NEED(ibv_detach_mcast(qp[0], &group, 0) == EINVAL);
  struct ibv_ah_attr at = {.is_global = 1, .port_num = 1, .grh = {.dgid = group, .sgid_index = (uint8_t)atoi(argv[1]), .hop_limit = 1}};
  struct ibv_ah* ah = ibv_create_ah(pd, &at);
  NEED(ah);

  for (int i = 0; i < kQps; ++i) receive_into(i);
  NEED(say(ah) == 0);
  NEED(ibv_attach_mcast(qp[0], &group, 0) == 0);
  NEED(ibv_attach_mcast(qp[1], &group, 0) == 0);
  NEED(ibv_attach_mcast(qp[1], &group, 0) == 0); /* once more is the same */
  NEED(say(ah) == 3);
  NEED(ibv_destroy_qp(qp[1]) == EBUSY);
  NEED(ibv_detach_mcast(qp[1], &group, 0) == 0);
  NEED(ibv_detach_mcast(qp[1], &group, 0) == EINVAL);
  receive_into(0);
  receive_into(1);
  NEED(say(ah) == 1);
  NEED(ibv_detach_mcast(qp[0], &group, 0) == 0);

  for (int i = 0; i < kQps; ++i) NEED(ibv_destroy_qp(qp[i]) == 0);
  NEED(ibv_destroy_ah(ah) == 0 && ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 &&
       ibv_close_device(ctx) == 0);
  printf("ok\n");
  return 0;
}
