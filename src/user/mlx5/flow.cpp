// SPDX-License-Identifier: MIT
// Flow rules, and the counters that they count in.
#include <vector>

#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

namespace {

// What the program attached is told to the kernel by the first rule that counts here, and stays as it is while one does.
struct Counters {
  verbs_counters v;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  std::vector<mlx5_ib_flow_counters_desc> attached;
  unsigned flows = 0;
};
Counters* to_counters(ibv_counters* c) {
  return reinterpret_cast<Counters*>(c);
}

struct Flow {
  ibv_flow flow;
  Counters* counters = nullptr;
};

// The set that the rule counts in, if any. EINVAL: more than one.
int counters_of(const ibv_flow_attr* attr, Counters** out) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(attr + 1);
  for (unsigned i = 0; i < attr->num_of_specs; ++i) {
    const auto* spec = reinterpret_cast<const ibv_flow_spec*>(at);
    if (spec->hdr.type == IBV_FLOW_SPEC_ACTION_COUNT) {
      if (*out) return refuse(EINVAL, "create_flow: one rule counts in one set of counters").value;
      *out = to_counters(spec->flow_count.counters);
    }
    at += spec->hdr.size;
  }
  return 0;
}

// mlx5_ib_create_flow with at most one set of counters.
struct Request {
  std::uint32_t ncounters_data = 0, reserved = 0;
  mlx5_ib_flow_counters_data data = {};
};
static_assert(offsetof(Request, data) == offsetof(mlx5_ib_create_flow, data));

int create(ibv_qp* qp, ibv_flow_attr* attr, Flow* flow) {
  Request in;
  std::size_t len = offsetof(Request, data);
  if (!flow->counters) {
    verbs_udata udata{&in, len, nullptr, 0};
    return ibv_cmd_create_flow(qp, &flow->flow, attr, &udata);
  }
  MutexGuard guard(flow->counters->lock);
  if (!flow->counters->flows) {
    if (flow->counters->attached.empty()) return refuse(EINVAL, "create_flow: nothing is attached to the counters").value;
    in.ncounters_data = 1;
    in.data.counters_data = flow->counters->attached.data();
    in.data.ncounters = static_cast<std::uint32_t>(flow->counters->attached.size());
    len = sizeof in;
  }
  verbs_udata udata{&in, len, nullptr, 0};
  int err = ibv_cmd_create_flow(qp, &flow->flow, attr, &udata);
  if (!err) ++flow->counters->flows;
  return err;
}

ibv_flow* create_flow(ibv_qp* qp, ibv_flow_attr* attr) {
  Flow* flow = make<Flow>();
  if (!flow) return nullptr;
  int err = counters_of(attr, &flow->counters);
  if (!err) err = create(qp, attr, flow);
  if (!err) return &flow->flow;
  delete flow;
  errno = err;
  return nullptr;
}

int destroy_flow(ibv_flow* ibflow) {
  auto* flow = reinterpret_cast<Flow*>(ibflow);
  if (int err = ibv_cmd_destroy_flow(ibflow)) return err;
  if (flow->counters) {
    MutexGuard guard(flow->counters->lock);
    --flow->counters->flows;
  }
  delete flow;
  return 0;
}

ibv_counters* create_counters(ibv_context* context, ibv_counters_init_attr* attr) {
  if (attr->comp_mask) return fail(refuse(EOPNOTSUPP, "create_counters: comp_mask {:#x}", attr->comp_mask));
  Counters* c = make<Counters>();
  if (!c) return nullptr;
  if (int err = ibv_cmd_create_counters(context, attr, &c->v, nullptr)) {
    delete c;
    errno = err;
    return nullptr;
  }
  return &c->v.counters;
}

int destroy_counters(ibv_counters* counters) {
  Counters* c = to_counters(counters);
  if (int err = ibv_cmd_destroy_counters(&c->v)) return err;
  delete c;
  return 0;
}

int attach_counters_point_flow(ibv_counters* counters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  Counters* c = to_counters(counters);
  // Counters are bound by the rule that names them, when it is created.
  if (flow) return refuse(ENOTSUP, "attach_counters_point_flow: to a rule that exists").value;
  if (attr->comp_mask) return refuse(EOPNOTSUPP, "attach_counters_point_flow: comp_mask {:#x}", attr->comp_mask).value;
  if (attr->counter_desc != IBV_COUNTER_PACKETS && attr->counter_desc != IBV_COUNTER_BYTES)
    return refuse(ENOTSUP, "attach_counters_point_flow: counter {}", static_cast<int>(attr->counter_desc)).value;
  MutexGuard guard(c->lock);
  if (c->flows) return refuse(EBUSY, "attach_counters_point_flow: a rule counts here already").value;
  c->attached.push_back({static_cast<std::uint32_t>(attr->counter_desc), attr->index});
  return 0;
}

int read_counters(ibv_counters* counters, std::uint64_t* values, std::uint32_t n, std::uint32_t flags) {
  return ibv_cmd_read_counters(&to_counters(counters)->v, values, n, flags, nullptr);
}

}  // namespace

ibv_flow* make_raw_flow() {
  Flow* flow = make<Flow>();
  return flow ? &flow->flow : nullptr;
}
void free_raw_flow(ibv_flow* flow) {
  delete reinterpret_cast<Flow*>(flow);
}

void fill_flow_ops(verbs_context_ops* ops) {
  ops->create_flow = create_flow;
  ops->destroy_flow = destroy_flow;
  ops->create_counters = create_counters;
  ops->destroy_counters = destroy_counters;
  ops->attach_counters_point_flow = attach_counters_point_flow;
  ops->read_counters = read_counters;
}

}  // namespace uhca::mlx5
