// SPDX-License-Identifier: MIT
// mlx5dv_create_flow_matcher, mlx5dv_create_flow: rules in the device's own format. Conventions are those of <infiniband/mlx5dv.h>.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cstddef>
#include <cstring>

#include "base/log.h"
#include "uapi/mlx5_next.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

struct mlx5dv_flow_matcher {
  ibv_context* context;
  std::uint32_t handle;
};

namespace uhca::mlx5 {
namespace {

// Of <infiniband/mlx5dv.h> of rdma-core v65, where the installed one is older.
constexpr std::uint64_t kMatcherFtType = 1 << 0, kMatcherIbPort = 1 << 1;  // MLX5DV_FLOW_MATCHER_MASK_*
constexpr int kCountersWithOffset = 8;                                     // MLX5DV_FLOW_ACTION_COUNTERS_DEVX_WITH_OFFSET
std::uint32_t port_of(const mlx5dv_flow_matcher_attr* attr) {
  std::uint32_t port;
  std::memcpy(&port, reinterpret_cast<const char*>(attr) + offsetof(mlx5dv_flow_matcher_attr, ft_type) + sizeof attr->ft_type, sizeof port);
  return port;
}

// mlx5dv_flow_action_attr.
struct Action {
  int type;
  union {
    ibv_qp* qp;
    std::uint32_t tag;
    mlx5dv_devx_obj* obj;
    struct {
      mlx5dv_devx_obj* obj;
      std::uint32_t offset;
    } bulk;
  };
};
constexpr std::size_t kOldAction = offsetof(Action, obj) + sizeof(mlx5dv_devx_obj*);

// What the actions of one rule come to.
struct Actions {
  bool destination = false, tag = false, counter = false;
  std::uint32_t counter_handle = 0, counter_offset = 0;
};

int add_destination(Actions& all) {
  if (all.destination) return refuse(EOPNOTSUPP, "mlx5dv_create_flow: several destinations").value;
  all.destination = true;
  return 0;
}

int add_counter(Actions& all, ibv_command_buffer& cmd, const mlx5dv_devx_obj* obj) {
  if (all.counter) return refuse(EOPNOTSUPP, "mlx5dv_create_flow: several counters").value;
  all.counter = true;
  all.counter_handle = obj->handle;
  cmd.in_objs(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, &all.counter_handle, 1);
  return 0;
}

int add_action(Actions& all, ibv_command_buffer& cmd, const Action& a) {
  switch (a.type) {
    case MLX5DV_FLOW_ACTION_DEST_IBV_QP: cmd.in_obj(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, a.qp->handle); return add_destination(all);
    case MLX5DV_FLOW_ACTION_DEST_DEVX: cmd.in_obj(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, a.obj->handle); return add_destination(all);
    case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
      cmd.in_u32(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS);
      return add_destination(all);
    case MLX5DV_FLOW_ACTION_DROP:
      cmd.in_u32(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP);
      return add_destination(all);
    case MLX5DV_FLOW_ACTION_TAG:
      if (all.tag) return refuse(EINVAL, "mlx5dv_create_flow: several tags").value;
      all.tag = true;
      cmd.in_u32(MLX5_IB_ATTR_CREATE_FLOW_TAG, a.tag);
      return 0;
    case MLX5DV_FLOW_ACTION_COUNTERS_DEVX: return add_counter(all, cmd, a.obj);
    case kCountersWithOffset:
      if (int err = add_counter(all, cmd, a.bulk.obj)) return err;
      all.counter_offset = a.bulk.offset;
      cmd.in(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, &all.counter_offset, sizeof all.counter_offset);
      return 0;
    // The device has no actions that change packets, and counters of the Verbs API are for rules of the Verbs API.
    default: return refuse(EOPNOTSUPP, "mlx5dv_create_flow: action {}", a.type).value;
  }
}

ibv_flow* create_raw_flow(mlx5dv_flow_matcher* matcher, const mlx5dv_flow_match_parameters* value, std::size_t n, const void* actions,
                          std::size_t stride) {
  ibv_flow* flow = make_raw_flow();
  if (!flow) return nullptr;
  ibv_command_buffer cmd(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW);
  cmd.out_obj(MLX5_IB_ATTR_CREATE_FLOW_HANDLE);
  cmd.in(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value->match_buf, value->match_sz);
  cmd.in_obj(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher->handle);
  Actions all;
  int err = 0;
  for (std::size_t i = 0; i < n && !err; ++i) {
    Action a{};
    std::memcpy(&a, static_cast<const char*>(actions) + i * stride, stride < sizeof a ? stride : sizeof a);
    err = add_action(all, cmd, a);
  }
  if (!err) err = execute_ioctl(matcher->context, &cmd);
  if (err) {
    free_raw_flow(flow);
    errno = err;
    return nullptr;
  }
  flow->context = matcher->context;
  flow->handle = cmd.handle(MLX5_IB_ATTR_CREATE_FLOW_HANDLE);
  return flow;
}

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_flow_matcher* mlx5dv_create_flow_matcher(ibv_context* context, mlx5dv_flow_matcher_attr* attr) {
  if (!ours(context)) return fail(Errno{EOPNOTSUPP});
  if (attr->comp_mask & ~(kMatcherFtType | kMatcherIbPort))
    return fail(refuse(EOPNOTSUPP, "create_flow_matcher: comp_mask {:#x}", static_cast<std::uint64_t>(attr->comp_mask)));
  if (attr->type != IBV_FLOW_ATTR_NORMAL) return fail(refuse(EOPNOTSUPP, "create_flow_matcher: type {}", static_cast<int>(attr->type)));
  // Programs of before v65 have no field for the port, and say nothing of it.
  const bool port = attr->comp_mask & kMatcherIbPort;
  const auto ft_type = static_cast<std::uint32_t>(attr->ft_type);
  const bool of_a_port = (attr->comp_mask & kMatcherFtType) && (ft_type == uapi::MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TRANSPORT_RX ||
                                                                ft_type == uapi::MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TRANSPORT_TX);
  if (of_a_port && !port) return fail(refuse(EINVAL, "create_flow_matcher: RDMA transport tables of no port"));
  if (port && !of_a_port) return fail(refuse(EOPNOTSUPP, "create_flow_matcher: a port for tables that have none"));

  auto* m = make<mlx5dv_flow_matcher>();
  if (!m) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE);
  cmd.out_obj(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE);
  cmd.in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, attr->match_mask->match_buf, attr->match_mask->match_sz);
  cmd.in(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, &attr->match_criteria_enable, sizeof attr->match_criteria_enable);
  cmd.in_enum(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, IBV_FLOW_ATTR_NORMAL, &attr->priority, sizeof attr->priority);
  if (attr->comp_mask & kMatcherFtType) cmd.const_in(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, ft_type);
  if (port) cmd.in_u32(uapi::MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT, port_of(attr));
  if (attr->flags) cmd.const_in(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, attr->flags);
  if (int err = execute_ioctl(context, &cmd)) {
    delete m;
    errno = err;
    return nullptr;
  }
  m->context = context;
  m->handle = cmd.handle(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE);
  return m;
}

UHCA_EXPORT int mlx5dv_destroy_flow_matcher(mlx5dv_flow_matcher* m) {
  ibv_command_buffer cmd(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY);
  cmd.in_obj(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, m->handle);
  if (int err = execute_ioctl(m->context, &cmd)) return err;
  delete m;
  return 0;
}

// Programs that were built before actions grew.
UHCA_EXPORT ibv_flow* mlx5dv_create_flow(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value, std::size_t n,
                                         mlx5dv_flow_action_attr* actions) {
  return create_raw_flow(matcher, value, n, actions, kOldAction);
}

UHCA_EXPORT ibv_flow* __mlx5dv_create_flow(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value, std::size_t n,
                                           mlx5dv_flow_action_attr* actions, std::size_t attr_len) {
  return create_raw_flow(matcher, value, n, actions, attr_len);
}
