// SPDX-License-Identifier: MIT
// mlx5dv: scheduling trees, packet pacing entries, what a QP changes beyond its first 32 parameters (UDP source port, DCI streams), address
// handles that share a QP's congestion control.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cstring>
#include <vector>

#include "base/log.h"
#include "prm/cmd_core.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"
#include "prm/hca_cap.h"
#include "prm/opcode.h"
#include "prm/other_caps.h"
#include "prm/qos.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

// Opaque in <infiniband/mlx5dv.h>.
struct mlx5dv_sched_node {
  mlx5dv_devx_obj* obj;
};
struct mlx5dv_sched_leaf {
  mlx5dv_devx_obj* obj;
};

namespace uhca::mlx5 {
namespace {

namespace q = prm::qos;
using Words = std::vector<std::uint8_t>;
constexpr unsigned kCapGeneral = 0, kCapQos = 0xc;

void set_opcode(Words& in, prm::Opcode op) {
  prm::set<prm::cmd_in::opcode>(in.data(), static_cast<std::uint16_t>(op));
}

constexpr std::uint64_t kAllFlags = MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE | MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW;
static_assert(MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE == q::kSelectShare && MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW == q::kSelectMaxBw);

// 0 or an errno. A root has no rates of its own.
int check(ibv_context* context, const mlx5dv_sched_attr* attr, bool node) {
  if (!ours(context)) return EOPNOTSUPP;
  if (!attr || attr->comp_mask || (attr->flags & ~kAllFlags) || (node && !attr->parent && attr->flags) || (!node && !attr->parent))
    return refuse(EINVAL, "mlx5dv_sched: attributes of a {}", node ? "node" : "leaf").value;
  Words general = current_caps(context, kCapGeneral);
  if (!prm::get<prm::cmd_hca_cap::qos>(general.data())) return refuse(EOPNOTSUPP, "mlx5dv_sched: the device has no QoS").value;
  Words c = current_caps(context, kCapQos);
  constexpr std::uint32_t elements = q::kCanTsar | q::kCanQueueGroup;
  if ((prm::get<prm::qos_cap::nic_element_type>(c.data()) & elements) != elements ||
      !(prm::get<prm::qos_cap::nic_tsar_type>(c.data()) & q::kCanDwrr))
    return refuse(EOPNOTSUPP, "mlx5dv_sched: the device has no scheduling elements").value;
  bool scheduling = prm::get<prm::qos_cap::nic_sq_scheduling>(c.data());
  if ((attr->flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE) && !(scheduling && prm::get<prm::qos_cap::nic_bw_share>(c.data())))
    return refuse(EOPNOTSUPP, "mlx5dv_sched: the device has no shares").value;
  if ((attr->flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW) && !(scheduling && prm::get<prm::qos_cap::nic_rate_limit>(c.data())))
    return refuse(EOPNOTSUPP, "mlx5dv_sched: the device has no rates").value;
  return 0;
}

Words element(prm::Opcode op, const mlx5dv_sched_attr& attr, std::uint32_t type) {
  Words in(q::kElemInBytes);
  set_opcode(in, op);
  prm::set<prm::general_obj_in_cmd_hdr::obj_type>(in.data(), q::kObjSchedulingElement);
  prm::set<q::elem_select>(in.data(), attr.flags);
  prm::set<q::elem_hierarchy>(in.data(), q::kHierarchyNic);
  prm::set<q::elem_type>(in.data(), type);
  prm::set<q::elem_tsar_type>(in.data(), q::kTsarDwrr);
  if (attr.flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE) prm::set<q::elem_bw_share>(in.data(), attr.bw_share);
  if (attr.flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW) prm::set<q::elem_max_bw>(in.data(), attr.max_avg_bw);
  return in;
}

template <class T>
T* create(ibv_context* context, const mlx5dv_sched_attr* attr, bool node) {
  if (int err = check(context, attr, node)) return fail(Errno{err});
  T* t = make<T>();
  if (!t) return nullptr;
  Words in = element(prm::Opcode::CREATE_GENERAL_OBJECT, *attr, node ? q::kTypeTsar : q::kTypeQueueGroup);
  Words out(prm::general_obj_out_cmd_hdr::kBytes);
  if (attr->parent) prm::set<q::elem_parent>(in.data(), attr->parent->obj->object_id);
  t->obj = mlx5dv_devx_obj_create(context, in.data(), in.size(), out.data(), out.size());
  if (t->obj) return t;
  int err = command_error(errno, out.data());
  delete t;
  errno = err;
  return nullptr;
}

int modify(mlx5dv_devx_obj* obj, const mlx5dv_sched_attr* attr, bool node) {
  if (int err = check(obj->context, attr, node)) return fail_int(Errno{err});
  Words in = element(prm::Opcode::MODIFY_GENERAL_OBJECT, *attr, node ? q::kTypeTsar : q::kTypeQueueGroup);
  Words out(prm::general_obj_out_cmd_hdr::kBytes);
  prm::set<prm::general_obj_in_cmd_hdr::obj_id>(in.data(), obj->object_id);
  int err = mlx5dv_devx_obj_modify(obj, in.data(), in.size(), out.data(), out.size());
  return err ? command_error(err, out.data()) : 0;
}

template <class T>
int destroy(T* t) {
  if (int err = mlx5dv_devx_obj_destroy(t->obj)) return err;
  delete t;
  return 0;
}

// A change of optional parameters beyond the first 32.
int modify_more(ibv_qp* qp, prm::Opcode op, Words& in, std::uint64_t mask) {
  Words out(prm::rts2rts_qp_out::kBytes);
  set_opcode(in, op);
  prm::set<prm::rts2rts_qp_in::qpn>(in.data(), qp->qp_num);
  prm::set<q::qp_opt_mask_95_32>(in.data(), mask);
  int err = mlx5dv_devx_qp_modify(qp, in.data(), in.size(), out.data(), out.size());
  return err ? command_error(err, out.data()) : 0;
}

struct PpObject {
  mlx5dv_pp dv;
  ibv_context* context;
  std::uint32_t handle;
};

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_sched_node* mlx5dv_sched_node_create(ibv_context* context, const mlx5dv_sched_attr* attr) {
  return mlx5::create<mlx5dv_sched_node>(context, attr, true);
}
UHCA_EXPORT mlx5dv_sched_leaf* mlx5dv_sched_leaf_create(ibv_context* context, const mlx5dv_sched_attr* attr) {
  return mlx5::create<mlx5dv_sched_leaf>(context, attr, false);
}
UHCA_EXPORT int mlx5dv_sched_node_modify(mlx5dv_sched_node* node, const mlx5dv_sched_attr* attr) {
  return mlx5::modify(node->obj, attr, true);
}
UHCA_EXPORT int mlx5dv_sched_leaf_modify(mlx5dv_sched_leaf* leaf, const mlx5dv_sched_attr* attr) {
  return mlx5::modify(leaf->obj, attr, false);
}
UHCA_EXPORT int mlx5dv_sched_node_destroy(mlx5dv_sched_node* node) {
  return mlx5::destroy(node);
}
UHCA_EXPORT int mlx5dv_sched_leaf_destroy(mlx5dv_sched_leaf* leaf) {
  return mlx5::destroy(leaf);
}

UHCA_EXPORT int mlx5dv_modify_qp_sched_elem(ibv_qp* qp, const mlx5dv_sched_leaf* requestor, const mlx5dv_sched_leaf* responder) {
  if (!ours(qp->context)) return EOPNOTSUPP;
  bool reliable = qp->qp_type == IBV_QPT_RC;
  if (!reliable && qp->qp_type != IBV_QPT_UC && qp->qp_type != IBV_QPT_UD)
    return refuse(EOPNOTSUPP, "modify_qp_sched_elem: QP type {}", static_cast<int>(qp->qp_type)).value;
  if (!reliable && responder) return refuse(EINVAL, "modify_qp_sched_elem: only RC QPs answer").value;
  Words general = current_caps(qp->context, kCapGeneral), qos = current_caps(qp->context, kCapQos);
  if (!prm::get<q::cap_qpc_extension>(general.data()) || !prm::get<q::cap_nic_qp_scheduling>(qos.data()))
    return refuse(EOPNOTSUPP, "modify_qp_sched_elem: the device does not schedule QPs").value;
  if (qp->state != IBV_QPS_INIT && qp->state != IBV_QPS_RTS)
    return refuse(EOPNOTSUPP, "modify_qp_sched_elem: the QP is neither in INIT nor in RTS").value;
  Words in(q::kExtendedQpInBytes);
  prm::set<q::qp_has_ext>(in.data(), 1);
  prm::set<q::qp_group_requester>(in.data(), requestor ? requestor->obj->object_id : 0);
  prm::set<q::qp_group_responder>(in.data(), responder ? responder->obj->object_id : 0);
  return modify_more(qp, qp->state == IBV_QPS_INIT ? prm::Opcode::INIT2INIT_QP : prm::Opcode::RTS2RTS_QP, in, q::kOptQueueGroup);
}

UHCA_EXPORT int mlx5dv_modify_qp_udp_sport(ibv_qp* qp, std::uint16_t udp_sport) {
  if (!ours(qp->context)) return EOPNOTSUPP;
  if ((qp->qp_type != IBV_QPT_RC && qp->qp_type != IBV_QPT_UC) || qp->state != IBV_QPS_RTS ||
      !prm::get<q::cap_rts2rts_qp_udp_sport>(current_caps(qp->context, kCapGeneral).data()))
    return refuse(EOPNOTSUPP, "modify_qp_udp_sport: RC and UC QPs in RTS, on devices that can").value;
  Words in(prm::rts2rts_qp_in::kBytes);
  void* qpc = prm::at<prm::rts2rts_qp_in::qpc>(static_cast<void*>(in.data()));
  prm::set<prm::ads::udp_sport>(prm::at<prm::qpc::primary_address_path>(qpc), udp_sport);
  return modify_more(qp, prm::Opcode::RTS2RTS_QP, in, q::kOptUdpSport);
}

UHCA_EXPORT int mlx5dv_dci_stream_id_reset(ibv_qp* qp, std::uint16_t stream_id) {
  if (!ours(qp->context)) return EOPNOTSUPP;
  if (!to_ctx(qp->context)->caps.dci_streams_caps.max_log_num_errored || qp->state != IBV_QPS_RTS ||
      !prm::get<q::cap_qpc_extension>(current_caps(qp->context, kCapGeneral).data()))
    return refuse(EOPNOTSUPP, "dci_stream_id_reset: QPs in RTS, on devices that have streams").value;
  if (qp->qp_type != IBV_QPT_DRIVER || to_qp(qp)->dc_type != MLX5DV_DCTYPE_DCI)
    return refuse(EINVAL, "dci_stream_id_reset: QPN {:#x} is no DCI", qp->qp_num).value;
  Words in(q::kExtendedQpInBytes);
  prm::set<q::qp_has_ext>(in.data(), 1);
  prm::set<q::qp_dci_stream>(in.data(), stream_id);
  return modify_more(qp, prm::Opcode::RTS2RTS_QP, in, q::kOptDciStream);
}

UHCA_EXPORT int mlx5dv_map_ah_to_qp(ibv_ah* ibah, std::uint32_t qp_num) {
  if (!ours(ibah->context)) return EOPNOTSUPP;
  Words general = current_caps(ibah->context, kCapGeneral);
  // On RoCE every address handle is global.
  if (!(prm::get<prm::cmd_hca_cap::general_obj_types>(general.data()) & q::kObjTypesAvQpMapping))
    return refuse(EOPNOTSUPP, "map_ah_to_qp: the device maps no addresses").value;
  Ah* ah = to_ah(ibah);
  if (ah->mapping.load(std::memory_order_acquire)) return 0;  // a hint: the first one stays
  Words in(q::kAvMapInBytes), out(prm::general_obj_out_cmd_hdr::kBytes);
  set_opcode(in, prm::Opcode::CREATE_GENERAL_OBJECT);
  prm::set<prm::general_obj_in_cmd_hdr::obj_type>(in.data(), q::kObjAvQpMapping);
  prm::set<q::avmap_qpn>(in.data(), qp_num);
  prm::set<q::avmap_eth_prio>(in.data(), prm::get<prm::wqe_av::stat_rate_sl>(ah->av) & 0xf);
  prm::set<q::avmap_src_addr_index>(in.data(), prm::get<prm::wqe_av::grh_gid_fl>(ah->av) >> 20 & 0xff);
  std::memcpy(prm::at<q::avmap_rgid>(static_cast<void*>(in.data())), prm::at<prm::wqe_av::rgid>(ah->av), 16);
  mlx5dv_devx_obj* mapping = mlx5dv_devx_obj_create(ibah->context, in.data(), in.size(), out.data(), out.size());
  if (!mapping) return command_error(errno, out.data());
  mlx5dv_devx_obj* other = nullptr;
  if (!ah->mapping.compare_exchange_strong(other, mapping)) mlx5dv_devx_obj_destroy(mapping);  // another thread was first
  return 0;
}

UHCA_EXPORT mlx5dv_pp* mlx5dv_pp_alloc(ibv_context* context, std::size_t size, const void* pp_context, std::uint32_t flags) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  if (flags & ~std::uint32_t{MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX})
    return mlx5::fail(refuse(EOPNOTSUPP, "mlx5dv_pp_alloc: flags {:#x}", flags));
  auto* p = make<PpObject>();
  if (!p) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_ALLOC);
  cmd.out_obj(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE);
  cmd.in(MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX, pp_context, size);
  cmd.const_in(MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS, flags);
  cmd.out(MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX, &p->dv.index, sizeof p->dv.index);
  if (int err = execute_ioctl(context, &cmd)) {
    delete p;
    errno = err;
    return nullptr;
  }
  p->context = context;
  p->handle = cmd.handle(MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE);
  return &p->dv;
}
UHCA_EXPORT void mlx5dv_pp_free(mlx5dv_pp* dv) {
  auto* p = reinterpret_cast<PpObject*>(dv);
  ibv_command_buffer cmd(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_DESTROY);
  cmd.in_obj(MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE, p->handle);
  if (int err = execute_ioctl(p->context, &cmd)) log::warn("packet pacing entry {} could not be freed, errno {}", dv->index, err);
  delete p;
}
