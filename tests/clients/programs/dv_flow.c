/* SPDX-License-Identifier: MIT
 *
 * Flow rules in the device's own format (mlx5dv_create_flow), with traffic that they take, drop, tag and count, and what must be refused.
 * Nothing here knows uhca.
 */
#include <infiniband/mlx5dv.h>

#include "station.h"

/* fte_match_param (Linux mlx5_ifc.h): its outer headers come first. */
enum { kMatchBytes = 512, kSmac = 0, kOuter = 1 }; /* bytes; match_criteria_enable */
struct match {
  size_t size;
  uint8_t bytes[kMatchBytes];
};
static struct mlx5dv_flow_match_parameters* params(struct match* m) {
  _Static_assert(sizeof(size_t) == sizeof(((struct mlx5dv_flow_match_parameters*)0)->match_sz), "as mlx5dv.h has it");
  m->size = kMatchBytes;
  return (struct mlx5dv_flow_match_parameters*)m;
}

/* Matches the sender's address. */
static struct mlx5dv_flow_matcher* matcher_of(struct ibv_context* ctx, unsigned priority, uint64_t comp_mask, int ft_type, unsigned flags) {
  static struct match mask;
  memset(&mask, 0, sizeof mask);
  memset(mask.bytes + kSmac, 0xff, 6);
  struct mlx5dv_flow_matcher_attr a = {.type = IBV_FLOW_ATTR_NORMAL,
                                       .flags = flags,
                                       .priority = (uint16_t)priority,
                                       .match_criteria_enable = kOuter,
                                       .match_mask = params(&mask),
                                       .comp_mask = comp_mask,
                                       .ft_type = (enum mlx5dv_flow_table_type)ft_type};
  return mlx5dv_create_flow_matcher(ctx, &a);
}
static struct match of_sender(void) {
  struct match v = {0};
  memcpy(v.bytes + kSmac, kFrom, 6);
  return v;
}

static struct ibv_flow* rule(struct mlx5dv_flow_matcher* m, size_t n, struct mlx5dv_flow_action_attr* actions) {
  struct match v = of_sender();
  return mlx5dv_create_flow(m, params(&v), n, actions);
}

/* ALLOC_FLOW_COUNTER, QUERY_FLOW_COUNTER (mlx5_ifc.h). */
static struct mlx5dv_devx_obj* flow_counter(struct ibv_context* ctx, uint32_t* id) {
  uint8_t in[16] = {0x09, 0x39}, out[16] = {0};
  struct mlx5dv_devx_obj* o = mlx5dv_devx_obj_create(ctx, in, sizeof in, out, sizeof out);
  if (!o) FAIL("flow counter: errno %d, status %#x", errno, out[0]);
  memcpy(id, out + 8, 4);
  return o;
}
static uint64_t packets_of(struct mlx5dv_devx_obj* counter, uint32_t id) {
  uint8_t in[32] = {0x09, 0x3b}, out[32] = {0};
  memcpy(in + 28, &id, 4);
  int err = mlx5dv_devx_obj_query(counter, in, sizeof in, out, sizeof out);
  if (err) FAIL("query of the counter: %d, status %#x", err, out[0]);
  uint64_t v;
  memcpy(&v, out + 16, 8);
  return be64toh(v);
}

static int traffic(void) {
  struct station out, in;
  to_mac[0] = 3; /* a group's: such frames come back to the port that they leave by */
  set_up(&out);
  to_ready(out.qp);
  set_up(&in);
  to_ready(in.qp);
  for (unsigned i = 0; i < kDepth; ++i) post_recv(&in, i);
  struct mlx5dv_flow_matcher *first = matcher_of(in.ctx, 0, 0, 0, 0), *later = matcher_of(in.ctx, 3, 0, 0, 0);
  NEED(first && later);
  uint32_t id;
  struct mlx5dv_devx_obj* counter = flow_counter(in.ctx, &id);
  struct mlx5dv_flow_action_attr to_qp[3] = {{.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = in.qp},
                                             {.type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 0xabcdef},
                                             {.type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter}};
  struct mlx5dv_flow_action_attr drop = {.type = MLX5DV_FLOW_ACTION_DROP}, miss = {.type = MLX5DV_FLOW_ACTION_DEFAULT_MISS};

  struct ibv_flow* f = rule(later, 3, to_qp);
  NEED(f);
  send_frame(&out, kPort, 1);
  expect_one(&in, kPort, 1);
  NEED(packets_of(counter, id) == 1);
  /* An earlier table drops what the rule would take, or passes it by. */
  for (int i = 0; i < 2; ++i) {
    struct ibv_flow* g = rule(first, 1, i ? &miss : &drop);
    NEED(g);
    send_frame(&out, kPort, 2);
    expect_nothing(&in);
    NEED(ibv_destroy_flow(g) == 0);
  }
  send_frame(&out, kOtherPort, 3);
  expect_one(&in, kOtherPort, 3);
  NEED(packets_of(counter, id) == 2);

  ANSWERS(EBUSY, mlx5dv_destroy_flow_matcher(later));
  NEED(ibv_destroy_flow(f) == 0);
  send_frame(&out, kPort, 4);
  expect_nothing(&in);
  NEED(mlx5dv_destroy_flow_matcher(later) == 0);
  NEED(mlx5dv_destroy_flow_matcher(first) == 0);
  NEED(mlx5dv_devx_obj_destroy(counter) == 0);
  tear_down(&out);
  tear_down(&in);
  printf("ok\n");
  return 0;
}

static int refusals(void) {
  struct station s;
  set_up(&s);
  to_ready(s.qp);
  const uint64_t ft = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
  REFUSED(EOPNOTSUPP, matcher_of(s.ctx, 0, 1 << 20, 0, 0));
  REFUSED(EINVAL, matcher_of(s.ctx, 0, ft, MLX5DV_FLOW_TABLE_TYPE_FDB, 0));
  REFUSED(EINVAL, matcher_of(s.ctx, 0, ft, 77, 0));
  REFUSED(EINVAL, matcher_of(s.ctx, 0, ft, MLX5DV_FLOW_TABLE_TYPE_NIC_RX, IBV_FLOW_ATTR_FLAGS_EGRESS));
  REFUSED(EINVAL, matcher_of(s.ctx, 0, 0, 0, IBV_FLOW_ATTR_FLAGS_DONT_TRAP));
  struct match mask = {0};
  struct mlx5dv_flow_matcher_attr odd = {.type = IBV_FLOW_ATTR_ALL_DEFAULT, .match_mask = params(&mask)};
  REFUSED(EOPNOTSUPP, mlx5dv_create_flow_matcher(s.ctx, &odd));

  struct mlx5dv_flow_matcher *m = matcher_of(s.ctx, 0, 0, 0, 0), *far = matcher_of(s.ctx, 16, 0, 0, 0),
                             *sent = matcher_of(s.ctx, 0, ft, MLX5DV_FLOW_TABLE_TYPE_NIC_TX, 0),
                             *egress = matcher_of(s.ctx, 0, 0, 0, IBV_FLOW_ATTR_FLAGS_EGRESS);
  NEED(m && far && sent && egress);
  struct mlx5dv_flow_action_attr to_qp = {.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = s.qp}, drop = {.type = MLX5DV_FLOW_ACTION_DROP};
  REFUSED(ENOMEM, rule(far, 1, &to_qp));
  REFUSED(EINVAL, rule(sent, 1, &to_qp));
  REFUSED(EINVAL, rule(egress, 1, &to_qp));
  REFUSED(EOPNOTSUPP, rule(sent, 1, &drop));
  struct mlx5dv_flow_action_attr two[2] = {to_qp, drop};
  REFUSED(EOPNOTSUPP, rule(m, 2, two));
  two[1] = (struct mlx5dv_flow_action_attr){.type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 1 << 24};
  REFUSED(EINVAL, rule(m, 2, two));
  two[0] = two[1];
  REFUSED(EINVAL, rule(m, 2, two));
  struct mlx5dv_flow_action_attr unknown = {.type = 99};
  REFUSED(EOPNOTSUPP, rule(m, 1, &unknown));
  struct ibv_qp_init_attr rc = {.send_cq = s.cq, .recv_cq = s.cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
  struct mlx5dv_flow_action_attr wrong = {.type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = ibv_create_qp(s.pd, &rc)};
  NEED(wrong.qp);
  REFUSED(EINVAL, rule(m, 1, &wrong));
  NEED(ibv_destroy_qp(wrong.qp) == 0);
  /* A counter is no destination. */
  uint32_t id;
  struct mlx5dv_devx_obj* counter = flow_counter(s.ctx, &id);
  struct mlx5dv_flow_action_attr counts = {.type = MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = counter};
  REFUSED(EINVAL, rule(m, 1, &counts));
  NEED(mlx5dv_devx_obj_destroy(counter) == 0);
  /* A QP with a rule cannot go; what holds on to nothing can. */
  struct ibv_flow* f = rule(m, 1, &to_qp);
  NEED(f);
  ANSWERS(EBUSY, ibv_destroy_qp(s.qp));
  NEED(ibv_destroy_flow(f) == 0);
  struct mlx5dv_flow_matcher* all[] = {m, far, sent, egress};
  for (int i = 0; i < 4; ++i) NEED(mlx5dv_destroy_flow_matcher(all[i]) == 0);
  tear_down(&s);
  printf("ok\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) FAIL("usage: dv_flow traffic|refusals");
  if (!strcmp(argv[1], "traffic")) return traffic();
  if (!strcmp(argv[1], "refusals")) return refusals();
  FAIL("no mode '%s'", argv[1]);
}
