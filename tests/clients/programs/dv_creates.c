/* SPDX-License-Identifier: MIT
 *
 * Makes one object of every kind and destroys them all. What fails is said and tried once more, which has to work: dv_creates GID. The last line
 * says how many failed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;
static void say(const char* what, int err) {
  ++failed;
  printf("failed: %.60s: %s\n", what, strerrorname_np(err) ? strerrorname_np(err) : "no errno");
}
static void lost(const char* what, int err) {
  printf("FAILED TWICE: %s: %s\n", what, strerror(err));
  exit(1);
}
#define MAKE(object, expression)                                \
  do {                                                          \
    errno = 0;                                                  \
    if (!((object) = (expression))) {                           \
      say(#expression, errno);                                  \
      errno = 0;                                                \
      if (!((object) = (expression))) lost(#expression, errno); \
    }                                                           \
  } while (0)
#define DO(expression)                                \
  do {                                                \
    int r_ = (expression);                            \
    if (r_) {                                         \
      say(#expression, r_ < 0 ? errno : r_);          \
      r_ = (expression);                              \
      if (r_) lost(#expression, r_ < 0 ? errno : r_); \
    }                                                 \
  } while (0)

static const int kAll =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
static struct ibv_context* ctx;
static struct ibv_pd* pd;
static struct ibv_cq* cq;
static int gid_index;

static struct ibv_qp* make_qp(enum ibv_qp_type type) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = type, .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
  return ibv_create_qp(pd, &init);
}

static void to_rts(struct ibv_qp* qp) {
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = kAll & 0xf};
  DO(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  union ibv_gid gid;
  DO(ibv_query_gid(ctx, 1, gid_index, &gid));
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = qp->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}}};
  DO(ibv_modify_qp(
      qp, &rtr,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  DO(ibv_modify_qp(qp, &rts,
                   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void memory(void) {
  static char buf[1 << 16] __attribute__((aligned(4096)));
  struct ibv_mr *mr, *implicit, *odp;
  struct ibv_mw *one, *two;
  MAKE(mr, ibv_reg_mr(pd, buf, sizeof buf, kAll));
  MAKE(odp, ibv_reg_mr(pd, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
  MAKE(implicit, ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND));
  MAKE(one, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
  MAKE(two, ibv_alloc_mw(pd, IBV_MW_TYPE_2));
  struct ibv_alloc_dm_attr wants = {.length = 4096};
  struct ibv_dm* dm;
  struct ibv_mr* dm_mr;
  MAKE(dm, ibv_alloc_dm(ctx, &wants));
  MAKE(dm_mr, ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED));
  struct mlx5dv_mkey* key;
  struct mlx5dv_mkey_init_attr list = {.pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4};
  MAKE(key, mlx5dv_create_mkey(&list));
  struct mlx5dv_devx_umem* umem;
  MAKE(umem, mlx5dv_devx_umem_reg(ctx, buf, sizeof buf, IBV_ACCESS_LOCAL_WRITE));
  DO(mlx5dv_devx_umem_dereg(umem));
  DO(mlx5dv_destroy_mkey(key));
  DO(ibv_dereg_mr(dm_mr));
  DO(ibv_free_dm(dm));
  DO(ibv_dealloc_mw(two));
  DO(ibv_dealloc_mw(one));
  DO(ibv_dereg_mr(implicit));
  DO(ibv_dereg_mr(odp));
  DO(ibv_dereg_mr(mr));
}

static void queue_pairs(void) {
  struct ibv_qp *rc, *uc, *ud, *xs;
  MAKE(rc, make_qp(IBV_QPT_RC));
  MAKE(uc, make_qp(IBV_QPT_UC));
  MAKE(ud, make_qp(IBV_QPT_UD));
  to_rts(rc);
  struct ibv_srq_init_attr basic = {.attr = {.max_wr = 8, .max_sge = 1}};
  struct ibv_srq* srq;
  MAKE(srq, ibv_create_srq(pd, &basic));
  struct ibv_xrcd_init_attr domain = {
      .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = 0100 /* O_CREAT */};
  struct ibv_xrcd* xrcd;
  MAKE(xrcd, ibv_open_xrcd(ctx, &domain));
  struct ibv_srq_init_attr_ex shared = {
      .attr = basic.attr,
      .srq_type = IBV_SRQT_XRC,
      .xrcd = xrcd,
      .cq = cq,
      .pd = pd,
      .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD};
  struct ibv_srq* xsrq;
  MAKE(xsrq, ibv_create_srq_ex(ctx, &shared));
  MAKE(xs, make_qp(IBV_QPT_XRC_SEND));
  struct ibv_qp_init_attr_ex target = {.qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
  struct ibv_qp* xr;
  MAKE(xr, ibv_create_qp_ex(ctx, &target));
  struct ibv_qp_init_attr_ex dc = {
      .send_cq = cq, .recv_cq = cq, .srq = srq, .pd = pd, .qp_type = IBV_QPT_DRIVER, .comp_mask = IBV_QP_INIT_ATTR_PD};
  struct mlx5dv_qp_init_attr dct = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
                                    .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCT, .dct_access_key = 7}};
  struct ibv_qp_init_attr_ex di = dc;
  struct mlx5dv_qp_init_attr dci = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};
  di.cap.max_send_wr = 8, di.cap.max_send_sge = 1, di.srq = NULL;
  struct ibv_qp *t, *i;
  MAKE(i, mlx5dv_create_qp(ctx, &di, &dci));
  MAKE(t, mlx5dv_create_qp(ctx, &dc, &dct));
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  DO(ibv_modify_qp(t, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .min_rnr_timer = 12,
                            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = (uint8_t)gid_index, .hop_limit = 64}}};
  DO(ibv_modify_qp(t, &rtr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU));
  union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 224, [13] = 0, [14] = 9, [15] = 9}};
  struct ibv_qp_attr u = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
  DO(ibv_modify_qp(ud, &u, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
  DO(ibv_attach_mcast(ud, &group, 0));
  DO(ibv_detach_mcast(ud, &group, 0));
  DO(ibv_destroy_qp(t));
  DO(ibv_destroy_qp(i));
  DO(ibv_destroy_qp(xr));
  DO(ibv_destroy_qp(xs));
  DO(ibv_destroy_srq(xsrq));
  DO(ibv_close_xrcd(xrcd));
  DO(ibv_destroy_srq(srq));
  DO(ibv_destroy_qp(ud));
  DO(ibv_destroy_qp(uc));
  DO(ibv_destroy_qp(rc));
}

static void ethernet(void) {
  struct ibv_wq_init_attr rq = {.wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cq};
  struct ibv_wq* wq;
  MAKE(wq, ibv_create_wq(ctx, &rq));
  struct ibv_wq_attr ready = {.attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY};
  DO(ibv_modify_wq(wq, &ready));
  struct ibv_rwq_ind_table_init_attr entries = {.log_ind_tbl_size = 0, .ind_tbl = &wq};
  struct ibv_rwq_ind_table* table;
  MAKE(table, ibv_create_rwq_ind_table(ctx, &entries));
  static uint8_t hash[40] = {1};
  struct ibv_qp_init_attr_ex rss = {.qp_type = IBV_QPT_RAW_PACKET,
                                    .pd = pd,
                                    .rwq_ind_tbl = table,
                                    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
                                    .rx_hash_conf = {.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ,
                                                     .rx_hash_key_len = sizeof hash,
                                                     .rx_hash_key = hash,
                                                     .rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4}};
  struct ibv_qp *spread, *raw;
  MAKE(spread, ibv_create_qp_ex(ctx, &rss));
  MAKE(raw, make_qp(IBV_QPT_RAW_PACKET));
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1}, rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
  DO(ibv_modify_qp(raw, &init, IBV_QP_STATE | IBV_QP_PORT));
  DO(ibv_modify_qp(raw, &rtr, IBV_QP_STATE));
  DO(ibv_modify_qp(raw, &rts, IBV_QP_STATE));
  struct ibv_counters_init_attr none = {0};
  struct ibv_counters* counters;
  MAKE(counters, ibv_create_counters(ctx, &none));
  struct {
    struct ibv_flow_attr attr;
    struct ibv_flow_spec_eth eth;
  } __attribute__((packed, aligned(8))) rule = {{.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 1, .port = 1},
                                                {.type = IBV_FLOW_SPEC_ETH,
                                                 .size = sizeof rule.eth,
                                                 .val = {.dst_mac = {2, 1, 2, 3, 4, 5}},
                                                 .mask = {.dst_mac = {255, 255, 255, 255, 255, 255}}}};
  struct ibv_flow *first, *second;
  MAKE(first, ibv_create_flow(raw, (struct ibv_flow_attr*)(void*)&rule));
  rule.eth.val.dst_mac[5] = 6;
  MAKE(second, ibv_create_flow(spread, (struct ibv_flow_attr*)(void*)&rule));
  DO(ibv_destroy_flow(second));
  DO(ibv_destroy_flow(first));
  DO(ibv_destroy_counters(counters));
  DO(ibv_destroy_qp(raw));
  DO(ibv_destroy_qp(spread));
  DO(ibv_destroy_rwq_ind_table(table));
  DO(ibv_destroy_wq(wq));
}

static void direct(void) {
  struct mlx5dv_devx_uar* uar;
  MAKE(uar, mlx5dv_devx_alloc_uar(ctx, MLX5DV_UAR_ALLOC_TYPE_NC));
  struct mlx5dv_var* var;
  MAKE(var, mlx5dv_alloc_var(ctx, 0));
  uint32_t in[4] = {htonl(0x816u << 16)}, out[4]; /* ALLOC_TRANSPORT_DOMAIN */
  struct mlx5dv_devx_obj* domain;
  MAKE(domain, mlx5dv_devx_obj_create(ctx, in, sizeof in, out, sizeof out));
  struct mlx5dv_devx_event_channel* events;
  MAKE(events, mlx5dv_devx_create_event_channel(ctx, 0));
  struct ibv_td_init_attr plain = {0};
  struct ibv_td* td;
  MAKE(td, ibv_alloc_td(ctx, &plain));
  struct ibv_parent_domain_init_attr both = {.pd = pd, .td = td};
  struct ibv_pd* parent;
  MAKE(parent, ibv_alloc_parent_domain(ctx, &both));
  struct mlx5dv_flow_match_parameters* mask = calloc(1, sizeof *mask + 64 * 8);
  mask->match_sz = 64;
  memset((uint8_t*)mask->match_buf, 0xff, 6); /* outer_headers.smac, its first bytes */
  struct mlx5dv_flow_matcher_attr wants = {.type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1, .match_mask = mask};
  struct mlx5dv_flow_matcher* matcher;
  MAKE(matcher, mlx5dv_create_flow_matcher(ctx, &wants));
  DO(mlx5dv_destroy_flow_matcher(matcher));
  free(mask);
  DO(ibv_dealloc_pd(parent));
  DO(ibv_dealloc_td(td));
  mlx5dv_devx_destroy_event_channel(events);
  DO(mlx5dv_devx_obj_destroy(domain));
  mlx5dv_free_var(var);
  mlx5dv_devx_free_uar(uar);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  gid_index = atoi(argv[1]);
  struct ibv_device** list = ibv_get_device_list(NULL);
  if (!list || !list[0]) return 1;
  struct mlx5dv_context_attr devx = {.flags = MLX5DV_CONTEXT_FLAGS_DEVX};
  MAKE(ctx, mlx5dv_open_device(list[0], &devx));
  ibv_free_device_list(list);
  MAKE(pd, ibv_alloc_pd(ctx));
  struct ibv_comp_channel* channel;
  MAKE(channel, ibv_create_comp_channel(ctx));
  MAKE(cq, ibv_create_cq(ctx, 16, NULL, channel, 0));
  DO(ibv_resize_cq(cq, 64));
  union ibv_gid gid;
  DO(ibv_query_gid(ctx, 1, gid_index, &gid));
  struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = (uint8_t)gid_index, .hop_limit = 64}};
  struct ibv_ah* ah;
  MAKE(ah, ibv_create_ah(pd, &to));
  memory();
  queue_pairs();
  ethernet();
  direct();
  DO(ibv_destroy_ah(ah));
  DO(ibv_destroy_cq(cq));
  DO(ibv_destroy_comp_channel(channel));
  DO(ibv_dealloc_pd(pd));
  DO(ibv_close_device(ctx));
  printf("%d failed\n", failed);
  return 0;
}
