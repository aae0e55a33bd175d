// SPDX-License-Identifier: MIT
// Flow rules in the device's own format (mlx5dv_create_flow): matchers, and rules that name one. Linux: hw/mlx5/fs.c.
#include "kernel/mlx5_ib/raw_flow.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <cstring>

#include "base/log.h"
#include "kernel/mlx5_ib/devx.h"
#include "kernel/mlx5_ib/flow.h"
#include "kernel/mlx5_ib/raw_packet.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/capable.h"
#include "prm/cmd_eth.h"
#include "prm/opcode.h"
#include "uapi/mlx5_next.h"

namespace uhca::kernel::mlx5 {
namespace {

using Outer = prm::fte_match_set_lyr_2_4;

constexpr std::uint32_t kMaxTag = 1 << 24;
constexpr std::uint8_t kOuterEnabled = 1 << 0;  // MATCH_CRITERIA_ENABLE_OUTER_BIT

Status destroy_matcher(ib_uobject& u, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* m = static_cast<mlx5_ib_flow_matcher*>(u.object);
  if (int n = m->usecnt.load()) return refuse(EBUSY, "flow matcher: {} rule(s) use it", n);
  delete m;
  u.object = nullptr;
  return success();
}

// Which tables; only those of NIC receive exist here, which the first rule finds out. Linux: mlx5_ib_matcher_ns.
Status read_tables(uverbs_attr_bundle& b, mlx5_ib_flow_matcher& m) {
  const bool typed = uverbs_attr_is_valid(b, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE);
  if (typed && uverbs_attr_is_valid(b, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS))
    return refuse(EINVAL, "flow matcher: a kind of table and flags that say another");
  if (typed) {
    std::uint64_t type;
    UHCA_CHECK(uverbs_get_const(&type, b, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE));
    if (type > uapi::MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TRANSPORT_TX) return refuse(EINVAL, "flow matcher: tables of kind {}", type);
    if (type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB) return refuse(EINVAL, "flow matcher: the device has no e-switch");
    m.receive = type == MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX;
    return success();
  }
  std::uint32_t flags = 0;
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS))
    UHCA_CHECK(uverbs_get_flags32(&flags, b, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, IB_FLOW_ATTR_FLAGS_EGRESS));
  m.receive = flags == 0;
  return success();
}

Status create_matcher(uverbs_attr_bundle& b) {
  ib_uobject& u = *uverbs_attr_get_uobject(b, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE);
  auto m = std::make_unique<mlx5_ib_flow_matcher>();
  UHCA_CHECK(uverbs_copy_from(m->spec.criteria.data(), b, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, m->spec.criteria.size()));
  m->type = UHCA_TRY(uverbs_attr_get_enum_id(b, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE));
  if (m->type == MLX5_IB_FLOW_TYPE_NORMAL) UHCA_CHECK(uverbs_copy_from(&m->priority, b, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE));
  UHCA_CHECK(uverbs_copy_from(&m->spec.enable, b, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA));
  UHCA_CHECK(read_tables(b, *m));
  // Only the tables of RDMA transports are those of a port, and they are not offered.
  if (uverbs_attr_is_valid(b, uapi::MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT))
    return refuse(EINVAL, "flow matcher: a port for tables that have none");
  u.object = m.release();
  u.hw_obj_valid = true;
  return success();
}

// Where a rule leads.
struct Destination {
  ib_qp* qp = nullptr;
  FlowAct act;
};

// The TIR behind an object of DEVX. Linux: is_flow_dest.
Result<std::uint32_t> tir_of(const DevxObject& o) {
  using Destroy = prm::destroy_tir_in;
  const auto opcode = static_cast<prm::Opcode>(prm::get<Destroy::opcode>(o.destroy.data()));
  if (opcode == prm::Opcode::DESTROY_TIR) return static_cast<std::uint32_t>(prm::get<Destroy::tirn>(o.destroy.data()));
  if (opcode == prm::Opcode::DESTROY_FLOW_TABLE) return refuse(EOPNOTSUPP, "flow rule: to a table of the program's own");
  return refuse(EINVAL, "flow rule: its destination is neither TIR nor flow table");
}

// Linux: get_dests.
Result<Destination> read_destination(uverbs_attr_bundle& b, const mlx5_ib_flow_matcher& m) {
  std::uint32_t flags = 0;
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_CREATE_FLOW_FLAGS))
    UHCA_CHECK(uverbs_get_flags32(&flags, b, MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
                                  MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP));
  const bool miss = flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS, drop = flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP;
  if (miss && drop) return refuse(EINVAL, "flow rule: dropped and passed on");
  auto* devx = uverbs_attr_get_obj<DevxObject>(b, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX);
  auto* qp = uverbs_attr_get_obj<ib_qp>(b, MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
  if (m.receive && ((devx != nullptr) + (qp != nullptr) + (flags != 0)) > 1) return refuse(EINVAL, "flow rule: several destinations");
  Destination d;
  // What passes the tables of programs comes to those of the host's network stack, which has no part in this adapter.
  d.act.drop = miss || drop;
  if (devx != nullptr) {
    d.act.tirn = UHCA_TRY(tir_of(*devx));
  } else if (qp != nullptr) {
    auto& raw = to_mqp(*qp);
    if (qp->qp_type != ib_qp_type::RAW_PACKET || !raw.raw || !raw.raw->has_tir)
      return refuse(EINVAL, "flow rule: QP {:#x} is no raw packet QP that receives", qp->qp_num);
    d.qp = qp;
    d.act.tirn = raw.raw->tirn;
  }
  if (d.act.tirn && !m.receive) return refuse(EINVAL, "flow rule: what is sent cannot be received");
  return d;
}

// Linux: is_flow_counter.
Status read_counter(uverbs_attr_bundle& b, FlowAct& act) {
  const auto& counters = uverbs_attr_get_uobjs_arr(b, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
  if (counters.empty()) return success();
  std::uint32_t offset = 0;
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET)) {
    if (UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET)) != sizeof offset)
      return refuse(EINVAL, "flow rule: not one offset for one counter");
    std::memcpy(&offset, uverbs_attr_get_alloced_ptr(b, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET), sizeof offset);
  }
  const auto& o = *static_cast<const DevxObject*>(counters[0]->object);
  using Dealloc = prm::dealloc_flow_counter_in;
  if (static_cast<prm::Opcode>(prm::get<Dealloc::opcode>(o.destroy.data())) != prm::Opcode::DEALLOC_FLOW_COUNTER ||
      (offset != 0 && offset >= o.bulk))
    return refuse(EINVAL, "flow rule: no flow counter {} of that object", offset);
  act.counter = static_cast<std::uint32_t>(prm::get<Dealloc::flow_counter_id>(o.destroy.data())) + offset;
  return success();
}

// Linux: raw_fs_is_multicast.
bool is_multicast(const FlowSpec& spec) {
  if ((spec.enable & kOuterEnabled) == 0) return false;
  const std::uint8_t* mask = spec.criteria.data() + prm::fte_match_param::outer_headers.offset / 8;
  const std::uint8_t* value = spec.value.data() + prm::fte_match_param::outer_headers.offset / 8;
  constexpr std::size_t mac = Outer::dmac_47_16.offset / 8;
  if ((mask[mac] & value[mac] & 1) != 0) return true;
  constexpr std::size_t ipv4 = Outer::dst_ipv4_dst_ipv6.offset / 8 + 12;  // the last four of 16 bytes
  return (mask[ipv4] & 0xf0) == 0xe0 && (value[ipv4] & 0xf0) == 0xe0;
}

Status create_raw_flow(uverbs_attr_bundle& b) {
  if (!rdma_uattrs_has_raw_cap()) return refuse(EPERM, "flow rule: needs CAP_NET_RAW");
  auto& matcher = *uverbs_attr_get_obj<mlx5_ib_flow_matcher>(b, MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
  ib_uobject& u = *uverbs_attr_get_uobject(b, MLX5_IB_ATTR_CREATE_FLOW_HANDLE);
  auto& dev = to_mdev(*b.device);
  Destination d = UHCA_TRY(read_destination(b, matcher));
  UHCA_CHECK(read_counter(b, d.act));
  FlowSpec spec = matcher.spec;
  const std::size_t len = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE));
  std::memcpy(spec.value.data(), uverbs_attr_get_alloced_ptr(b, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE), std::min(len, spec.value.size()));
  if (uverbs_attr_is_valid(b, MLX5_IB_ATTR_CREATE_FLOW_TAG)) {
    UHCA_CHECK(uverbs_copy_from(&spec.tag, b, MLX5_IB_ATTR_CREATE_FLOW_TAG));
    if (spec.tag >= kMaxTag) return refuse(EINVAL, "flow rule: tag {:#x} has more than 24 bits", spec.tag);
    spec.has_tag = true;
  }
  if (matcher.type != MLX5_IB_FLOW_TYPE_NORMAL) return refuse(EOPNOTSUPP, "flow rule: by a matcher of type {}", matcher.type);
  if (matcher.priority >= kFlowPriorities) return refuse(ENOMEM, "flow rule: priority {} of {}", matcher.priority, kFlowPriorities);
  if (!dev.flows || !matcher.receive) return refuse(EOPNOTSUPP, "flow rule: the device has no such tables");

  auto flow = std::make_unique<mlx5_ib_flow>();
  const unsigned priority = is_multicast(spec) ? kFlowMulticast : 2u * matcher.priority + 1;
  flow->rules.push_back(UHCA_TRY(dev.flows->add(priority, spec, d.act)));
  flow->device = b.device;
  flow->qp = d.qp;
  if (d.qp) d.qp->usecnt.fetch_add(1);
  flow->matcher = &matcher;
  matcher.usecnt.fetch_add(1);
  u.object = flow.release();
  u.hw_obj_valid = true;
  return success();
}

constexpr uverbs_size kMatch = UVERBS_ATTR_SIZE(1, prm::fte_match_param::kBytes);
constexpr uverbs_size kTypeSizes[] = {UVERBS_ATTR_TYPE(std::uint16_t),  // MLX5_IB_FLOW_TYPE_NORMAL: the priority
                                      UVERBS_ATTR_SIZE(0, 0), UVERBS_ATTR_SIZE(0, 0), UVERBS_ATTR_SIZE(0, 0)};

constexpr uverbs_attr_def kMatcherCreate[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, MLX5_IB_OBJECT_FLOW_MATCHER, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, kMatch, UA_MANDATORY),
    UVERBS_ATTR_ENUM_IN(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, kTypeSizes, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, UVERBS_ATTR_TYPE(std::uint8_t), UA_MANDATORY),
    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS),
    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE),
    UVERBS_ATTR_PTR_IN(uapi::MLX5_IB_ATTR_FLOW_MATCHER_IB_PORT, UVERBS_ATTR_TYPE(std::uint32_t)),
};
constexpr uverbs_attr_def kMatcherDestroy[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, MLX5_IB_OBJECT_FLOW_MATCHER, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kMatcherMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_FLOW_MATCHER_CREATE, kMatcherCreate, create_matcher),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, kMatcherDestroy),
};
constexpr uverbs_obj_type kMatcherType = UVERBS_TYPE_ALLOC_IDR(destroy_matcher);

constexpr uverbs_attr_def kFlowCreate[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, UVERBS_OBJECT_FLOW, UVERBS_ACCESS_NEW, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, kMatch, UA_MANDATORY | UA_ALLOC_AND_COPY),
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, MLX5_IB_OBJECT_FLOW_MATCHER, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ),
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_ACCESS_READ),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_CREATE_FLOW_TAG, UVERBS_ATTR_TYPE(std::uint32_t)),
    UVERBS_ATTR_IDRS_ARR(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_ACCESS_READ, 1, 1),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, UVERBS_ATTR_MIN_SIZE(sizeof(std::uint32_t)), UA_ALLOC_AND_COPY),
    UVERBS_ATTR_FLAGS_IN(MLX5_IB_ATTR_CREATE_FLOW_FLAGS),
};
constexpr uverbs_attr_def kFlowDestroy[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, UVERBS_OBJECT_FLOW, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_method_def kFlowMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_CREATE_FLOW, kFlowCreate, create_raw_flow),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_DESTROY_FLOW, kFlowDestroy),
};

}  // namespace

constinit const uverbs_object_def flow_matcher_object_def = UVERBS_OBJECT(MLX5_IB_OBJECT_FLOW_MATCHER, &kMatcherType, kMatcherMethods);
constinit const uverbs_object_def raw_flow_object_def = UVERBS_OBJECT(UVERBS_OBJECT_FLOW, nullptr, kFlowMethods);

}  // namespace uhca::kernel::mlx5
