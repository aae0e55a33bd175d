/* SPDX-License-Identifier: MIT
 *
 * Raw packet QPs and flow rules with plain verbs: "receive" waits for UDP frames of one port behind a rule that counts them, "send" sends
 * them among others; "rules" has both in one process, and rules of several kinds; "refusals" is a table of what must be refused, with which
 * errno. Nothing here knows uhca.
 */
/* The matches of a rule lie behind each other without gaps, whatever their alignment. */
#pragma GCC diagnostic ignored "-Waddress-of-packed-member"

#include "station.h"

struct rule {
  struct ibv_flow_attr attr;
  struct ibv_flow_spec_eth eth;
  struct ibv_flow_spec_ipv4 ip;
  struct ibv_flow_spec_tcp_udp udp;
  struct ibv_flow_spec_counter_action count;
} __attribute__((packed));

/* To our address, IPv4, UDP, this port. */
static struct rule udp_rule(unsigned port) {
  struct rule r;
  memset(&r, 0, sizeof r);
  r.attr.type = IBV_FLOW_ATTR_NORMAL;
  r.attr.size = sizeof r - sizeof r.count;
  r.attr.num_of_specs = 3;
  r.attr.port = 1;
  r.eth.type = IBV_FLOW_SPEC_ETH;
  r.eth.size = sizeof r.eth;
  memcpy(r.eth.val.dst_mac, to_mac, 6);
  memset(r.eth.mask.dst_mac, 0xff, 6);
  r.ip.type = IBV_FLOW_SPEC_IPV4;
  r.ip.size = sizeof r.ip;
  r.ip.val.dst_ip = htonl(0x0a090806);
  r.ip.mask.dst_ip = 0xffffffff;
  r.udp.type = IBV_FLOW_SPEC_UDP;
  r.udp.size = sizeof r.udp;
  r.udp.val.dst_port = htons((uint16_t)port);
  r.udp.mask.dst_port = 0xffff;
  return r;
}

static struct ibv_counters* counters_for(struct ibv_context* ctx, struct rule* r) {
  struct ibv_counters_init_attr none = {0};
  struct ibv_counters* c = ibv_create_counters(ctx, &none);
  NEED(c);
  struct ibv_counter_attach_attr packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0},
                                 bytes = {.counter_desc = IBV_COUNTER_BYTES, .index = 1};
  NEED(ibv_attach_counters_point_flow(c, &packets, NULL) == 0);
  NEED(ibv_attach_counters_point_flow(c, &bytes, NULL) == 0);
  r->count.type = IBV_FLOW_SPEC_ACTION_COUNT;
  r->count.size = sizeof r->count;
  r->count.counters = c;
  r->attr.size = sizeof *r;
  r->attr.num_of_specs = 4;
  return c;
}

static void receive_all(struct station* s, unsigned port, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    struct ibv_wc wc;
    poll_one(s->cq, &wc);
    check_frame(s, &wc, port, i);
    post_recv(s, (unsigned)wc.wr_id);
  }
}

static int receive(void) {
  struct station s;
  set_up(&s);
  to_ready(s.qp);
  for (unsigned i = 0; i < kDepth; ++i) post_recv(&s, i);
  struct rule r = udp_rule(kPort);
  struct ibv_counters* c = counters_for(s.ctx, &r);
  struct ibv_flow* f = ibv_create_flow(s.qp, &r.attr);
  NEED(f);
  printf("ready\n");
  fflush(stdout);
  receive_all(&s, kPort, kFrames);
  uint64_t v[2];
  NEED(ibv_read_counters(c, v, 2, 0) == 0);
  if (v[0] != kFrames || v[1] != (uint64_t)kFrames * kSize) FAIL("counted %lu frames, %lu bytes", (unsigned long)v[0], (unsigned long)v[1]);
  NEED(ibv_destroy_counters(c) == EBUSY);
  NEED(ibv_destroy_flow(f) == 0);
  NEED(ibv_destroy_counters(c) == 0);
  tear_down(&s);
  printf("ok\n");
  return 0;
}

static int send_all(void) {
  struct station s;
  set_up(&s);
  to_ready(s.qp);
  for (unsigned i = 0; i < kFrames; ++i) {
    if (i < kOthers) send_frame(&s, kOtherPort, i);
    send_frame(&s, kPort, i);
  }
  tear_down(&s);
  printf("ok\n");
  return 0;
}

/* Two contexts of one process, so that frames come back. */
static int rules(void) {
  struct station out, first, second;
  struct station* both[2] = {&first, &second};
  to_mac[0] = 3; /* a group's: such frames come back to the port that they leave by */
  set_up(&out);
  to_ready(out.qp);
  for (int k = 0; k < 2; ++k) {
    set_up(both[k]);
    to_ready(both[k]->qp);
    for (unsigned i = 0; i < kDepth; ++i) post_recv(both[k], i);
  }
  /* All of this sender, of any kind; or, with the action, dropped. */
  struct {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
    struct ibv_flow_spec_action_drop drop;
  } __attribute__((packed)) wide;
  memset(&wide, 0, sizeof wide);
  wide.attr.size = sizeof wide - sizeof wide.drop;
  wide.attr.num_of_specs = 1;
  wide.attr.port = 1;
  wide.eth.type = IBV_FLOW_SPEC_ETH;
  wide.eth.size = sizeof wide.eth;
  memcpy(wide.eth.val.src_mac, kFrom, 6);
  memset(wide.eth.mask.src_mac, 0xff, 6);

  /* The same rule for two QPs: both get the frame. A rule of higher priority takes it from them; one that drops, from all. */
  struct rule r = udp_rule(kPort);
  r.eth.mask.dst_mac[0] = 0xfe; /* with the group bit, it would be among the rules for groups, which come last */
  r.eth.val.dst_mac[0] = 2;
  r.attr.priority = 2;
  struct ibv_flow *a = ibv_create_flow(first.qp, &r.attr), *b = ibv_create_flow(second.qp, &r.attr);
  NEED(a && b);
  send_frame(&out, kPort, 1);
  expect_one(&first, kPort, 1);
  expect_one(&second, kPort, 1);
  send_frame(&out, kOtherPort, 2);
  expect_nothing(&first);

  struct ibv_flow* of_all = ibv_create_flow(second.qp, &wide.attr);
  NEED(of_all);
  send_frame(&out, kPort, 3);
  expect_one(&second, kPort, 3);
  expect_nothing(&first);
  NEED(ibv_destroy_flow(of_all) == 0);

  wide.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
  of_all = ibv_create_flow(second.qp, &wide.attr);
  NEED(of_all);
  send_frame(&out, kPort, 4);
  expect_one(&first, kPort, 4);
  expect_one(&second, kPort, 4);
  expect_one(&second, kPort, 4);
  NEED(ibv_destroy_flow(of_all) == 0);
  wide.attr.flags = 0;

  wide.attr.size = sizeof wide;
  wide.attr.num_of_specs = 2;
  wide.drop.type = IBV_FLOW_SPEC_ACTION_DROP;
  wide.drop.size = sizeof wide.drop;
  of_all = ibv_create_flow(second.qp, &wide.attr);
  NEED(of_all);
  send_frame(&out, kPort, 5);
  expect_nothing(&first);
  expect_nothing(&second);
  NEED(ibv_destroy_flow(of_all) == 0);
  NEED(ibv_destroy_flow(a) == 0);

  /* What no rule takes goes to the default. */
  struct ibv_flow_attr rest = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .size = sizeof rest, .port = 1};
  NEED((a = ibv_create_flow(first.qp, &rest)));
  send_frame(&out, kOtherPort, 6);
  expect_one(&first, kOtherPort, 6);
  send_frame(&out, kPort, 7);
  expect_one(&second, kPort, 7);
  expect_nothing(&first);
  NEED(ibv_destroy_flow(a) == 0);
  NEED(ibv_destroy_flow(b) == 0);
  send_frame(&out, kPort, 8);
  expect_nothing(&second);
  tear_down(&out);
  tear_down(&first);
  tear_down(&second);
  printf("ok\n");
  return 0;
}

static void refused_rules(struct station* s) {
  struct rule r = udp_rule(kPort);
  r.attr.priority = 16;
  REFUSED(ENOMEM, ibv_create_flow(s->qp, &r.attr));
  r = udp_rule(kPort);
  r.attr.port = 2;
  REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  r = udp_rule(kPort);
  r.attr.flags = 1 << 3;
  REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  r.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
  REFUSED(EOPNOTSUPP, ibv_create_flow(s->qp, &r.attr));
  r = udp_rule(kPort);
  r.eth.val.ether_type = htons(ETHERTYPE_ARP);
  r.eth.mask.ether_type = 0xffff;
  REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  r = udp_rule(kPort);
  r.udp.type = IBV_FLOW_SPEC_TCP;
  r.attr.num_of_specs = 4;
  r.attr.size = sizeof r;
  memset(&r.count, 0, sizeof r.count);
  struct ibv_flow_spec_tcp_udp second = r.udp;
  second.type = IBV_FLOW_SPEC_UDP;
  memcpy(&r.count, &second, sizeof second);
  REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  struct ibv_flow_attr all = {.type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof all, .port = 1};
  REFUSED(EOPNOTSUPP, ibv_create_flow(s->qp, &all));
  all.type = IBV_FLOW_ATTR_ALL_DEFAULT;
  all.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
  REFUSED(EINVAL, ibv_create_flow(s->qp, &all));
  struct ibv_qp_init_attr rc = {.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(s->pd, &rc);
  NEED(qp);
  r = udp_rule(kPort);
  REFUSED(EINVAL, ibv_create_flow(qp, &r.attr));
  NEED(ibv_destroy_qp(qp) == 0);
  struct ibv_counters_init_attr none = {0};
  struct ibv_counters* c = ibv_create_counters(s->ctx, &none);
  NEED(c);
  uint64_t v[2];
  ANSWERS(EINVAL, ibv_read_counters(c, v, 2, 0));
  struct ibv_counter_attach_attr odd = {.counter_desc = 7, .index = 0}, packets = {.counter_desc = IBV_COUNTER_PACKETS, .index = 1};
  ANSWERS(ENOTSUP, ibv_attach_counters_point_flow(c, &odd, NULL));
  r.count.type = IBV_FLOW_SPEC_ACTION_COUNT;
  r.count.size = sizeof r.count;
  r.count.counters = c;
  r.attr.size = sizeof r;
  r.attr.num_of_specs = 4;
  REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  NEED(ibv_destroy_counters(c) == 0); /* rdma-core has left it locked */
  NEED((c = ibv_create_counters(s->ctx, &none)));
  r.count.counters = c;
  ANSWERS(0, ibv_attach_counters_point_flow(c, &packets, NULL));
  struct ibv_flow* f = ibv_create_flow(s->qp, &r.attr);
  NEED(f);
  ANSWERS(ENOTSUP, ibv_attach_counters_point_flow(c, &packets, f));
  ANSWERS(EBUSY, ibv_attach_counters_point_flow(c, &packets, NULL));
  ANSWERS(EINVAL, ibv_read_counters(c, v, 1, 0));
  ANSWERS(EBUSY, ibv_destroy_counters(c));
  ANSWERS(EBUSY, ibv_destroy_qp(s->qp));
  NEED(ibv_destroy_flow(f) == 0 && ibv_destroy_counters(c) == 0);
  /* An index that no answer could have. */
  struct ibv_counter_attach_attr far = {.counter_desc = IBV_COUNTER_PACKETS, .index = 0xffffffff};
  NEED((c = ibv_create_counters(s->ctx, &none)));
  r.count.counters = c;
  if (ibv_attach_counters_point_flow(c, &far, NULL) == 0) REFUSED(EINVAL, ibv_create_flow(s->qp, &r.attr));
  NEED(ibv_destroy_counters(c) == 0);
}

static void refused_rss(struct station* s) {
  struct ibv_wq_init_attr w = {.wq_type = IBV_WQT_RQ, .max_wr = 16, .max_sge = 1, .pd = s->pd, .cq = s->cq};
  struct ibv_wq* wq[2] = {ibv_create_wq(s->ctx, &w), ibv_create_wq(s->ctx, &w)};
  NEED(wq[0] && wq[1]);
  w.max_wr = 0;
  REFUSED(EINVAL, ibv_create_wq(s->ctx, &w));
  w.max_wr = 16;
  w.comp_mask = IBV_WQ_INIT_ATTR_FLAGS;
  w.create_flags = IBV_WQ_FLAGS_SCATTER_FCS;
  REFUSED(EOPNOTSUPP, ibv_create_wq(s->ctx, &w));
  struct ibv_wq_attr m = {.attr_mask = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, .wq_state = IBV_WQS_ERR, .curr_wq_state = IBV_WQS_RDY};
  ANSWERS(EINVAL, ibv_modify_wq(wq[0], &m));
  struct ibv_rwq_ind_table_init_attr ti = {.log_ind_tbl_size = 1, .ind_tbl = wq};
  struct ibv_rwq_ind_table* table = ibv_create_rwq_ind_table(s->ctx, &ti);
  NEED(table);
  ANSWERS(EBUSY, ibv_destroy_wq(wq[0]));
  uint8_t key[40] = {1, 2, 3};
  struct ibv_qp_init_attr_ex q = {.qp_type = IBV_QPT_RAW_PACKET,
                                  .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
                                  .pd = s->pd,
                                  .rwq_ind_tbl = table};
  q.rx_hash_conf = (struct ibv_rx_hash_conf){IBV_RX_HASH_FUNC_TOEPLITZ, 40, key, IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4};
  q.rx_hash_conf.rx_hash_key_len = 39;
  REFUSED(EINVAL, ibv_create_qp_ex(s->ctx, &q));
  q.rx_hash_conf.rx_hash_key_len = 40;
  q.rx_hash_conf.rx_hash_function = 2;
  REFUSED(EOPNOTSUPP, ibv_create_qp_ex(s->ctx, &q));
  q.rx_hash_conf.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  q.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV6;
  REFUSED(EINVAL, ibv_create_qp_ex(s->ctx, &q));
  q.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP;
  REFUSED(EINVAL, ibv_create_qp_ex(s->ctx, &q));
  q.rx_hash_conf.rx_hash_fields_mask = 0;
  REFUSED(EINVAL, ibv_create_qp_ex(s->ctx, &q));
  q.rx_hash_conf.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4;
  q.qp_type = IBV_QPT_UD;
  REFUSED(EINVAL, ibv_create_qp_ex(s->ctx, &q));
  q.qp_type = IBV_QPT_RAW_PACKET;
  struct ibv_qp* qp = ibv_create_qp_ex(s->ctx, &q);
  NEED(qp && qp->qp_num == 0);
  ANSWERS(EBUSY, ibv_destroy_rwq_ind_table(table));
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  ANSWERS(EOPNOTSUPP, ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PORT));
  NEED(ibv_destroy_qp(qp) == 0 && ibv_destroy_rwq_ind_table(table) == 0 && ibv_destroy_wq(wq[0]) == 0 && ibv_destroy_wq(wq[1]) == 0);
}

static void refused_posts(struct station* s) {
  struct ibv_sge g = {(uintptr_t)s->buf[0], 100, s->mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &g, .num_sge = 1, .opcode = IBV_WR_TSO}, *bad = NULL;
  uint8_t headers[54] = {0};
  wr.tso.hdr = headers;
  wr.tso.hdr_sz = sizeof headers;
  wr.tso.mss = 64;
  ANSWERS(EINVAL, ibv_post_send(s->qp, &wr, &bad)); /* the QP was made without room for headers */
  NEED(bad == &wr);
  wr.opcode = IBV_WR_SEND;
  wr.num_sge = 0;
  ANSWERS(EINVAL, ibv_post_send(s->qp, &wr, &bad));
}

static int refusals(void) {
  struct station s;
  set_up(&s);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
  ANSWERS(EINVAL, ibv_modify_qp(s.qp, &a, IBV_QP_STATE));
  ANSWERS(EINVAL, ibv_modify_qp(s.qp, &a, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_QKEY));
  to_ready(s.qp);
  refused_rules(&s);
  refused_rss(&s);
  refused_posts(&s);
  tear_down(&s);
  printf("ok\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  if (!strcmp(argv[1], "receive")) return receive();
  if (!strcmp(argv[1], "send")) return send_all();
  if (!strcmp(argv[1], "rules")) return rules();
  if (!strcmp(argv[1], "refusals")) return refusals();
  return 2;
}
