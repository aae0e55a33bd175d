/* SPDX-License-Identifier: MIT
 *
 * A multicast group whose member (end B) and whose speaker (end A) are different processes, on one host or two. Only while B is attached
 * it receives, each datagram once. The group is an IPv4 one for GIDs of IPv4, else an IPv6 one.
 */
#include "ends.h"

enum { kGrh = 40, kBytes = 64, kTimes = 50, kQkey = 0x1234 };

static struct ibv_qp* datagram_qp(struct end* e) {
  struct ibv_qp_init_attr init = {.send_cq = e->scq,
                                  .recv_cq = e->rcq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 2 * kTimes, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_UD};
  struct ibv_qp* q = ibv_create_qp(e->pd, &init);
  NEED(q);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = kQkey};
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  NEED(ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return q;
}

static void play(struct end* e) {
  static uint8_t memory[2][2 * kTimes][128];
  uint8_t(*mem)[128] = memory[e->a];
  open_end(e);
  NEED(e->scq = ibv_create_cq(e->ctx, 64, NULL, NULL, 0));
  NEED(e->rcq = ibv_create_cq(e->ctx, 4 * kTimes, NULL, NULL, 0));
  e->qp = datagram_qp(e);
  struct ibv_mr* mr = ibv_reg_mr(e->pd, mem, sizeof memory[0], IBV_ACCESS_LOCAL_WRITE);
  NEED(mr && ibv_query_gid(e->ctx, 1, e->gid_index, &e->me.gid) == 0);
  static const uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  int ipv4 = memcmp(e->me.gid.raw, kMapped, sizeof kMapped) == 0;
  union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 77, 2, 3}};
  if (!ipv4) memcpy(group.raw, (uint8_t[16]){0xff, 0x15, [15] = 0x77}, 16);

  for (int attached = 1; attached >= 0; --attached) {
    if (!e->a) {
      for (int i = 0; i < kTimes; ++i) post_receive(e, (uint64_t)i, sge_of(mem[i + (attached ? 0 : kTimes)], kGrh + kBytes, mr));
      if (attached) {
        NEED(ibv_attach_mcast(e->qp, &group, 0) == 0);
      } else {
        NEED(ibv_detach_mcast(e->qp, &group, 0) == 0);
      }
    }
    meet(e);
    if (e->a) {
      struct ibv_ah_attr at = {.is_global = 1, .port_num = 1, .grh = {.dgid = group, .sgid_index = (uint8_t)e->gid_index, .hop_limit = 1}};
      struct ibv_ah* ah = ibv_create_ah(e->pd, &at);
      NEED(ah);
      for (int i = 0; i < kTimes; ++i) {
        memset(mem[0], i + 1, kBytes);
        struct ibv_sge s = sge_of(mem[0], kBytes, mr);
        struct ibv_send_wr *bad, wr = {.wr_id = 9, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
        wr.wr.ud.ah = ah;
        wr.wr.ud.remote_qpn = 0xffffff;
        wr.wr.ud.remote_qkey = kQkey;
        NEED(ibv_post_send(e->qp, &wr, &bad) == 0);
        want(e->scq, 9, IBV_WC_SUCCESS, -1);
      }
      NEED(ibv_destroy_ah(ah) == 0);
      meet(e);
    } else {
      for (int i = 0; i < (attached ? kTimes : 0); ++i) {
        struct ibv_wc wc = next_wc(e->rcq);
        if (wc.status != IBV_WC_SUCCESS || wc.byte_len != kGrh + kBytes || !(wc.wc_flags & IBV_WC_GRH) || wc.wr_id != (uint64_t)i)
          FAIL("datagram %d: status %d, %u bytes, wr %lu", i, wc.status, wc.byte_len, (unsigned long)wc.wr_id);
        for (int k = 0; k < kBytes; ++k) NEED(mem[i][kGrh + k] == i + 1);
        if (ipv4) {
          NEED(memcmp(mem[i] + 20 + 16, group.raw + 12, 4) == 0);
        } else {
          NEED(memcmp(mem[i] + 24, group.raw, 16) == 0);
        }
      }
      meet(e);
      want_nothing(e->rcq);
    }
  }
  meet(e);
  NEED(ibv_destroy_qp(e->qp) == 0 && ibv_dereg_mr(mr) == 0);
  NEED(ibv_destroy_cq(e->scq) == 0 && ibv_destroy_cq(e->rcq) == 0);
  close_end(e);
  printf("ok\n");
}

int main(int argc, char** argv) {
  return run_ends(argc, argv, play);
}
