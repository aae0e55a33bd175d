// SPDX-License-Identifier: MIT
// General commands and objects. Linux: hw/mlx5/devx.c.
#include "kernel/mlx5_ib/devx.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>

#include "base/log.h"
#include "kernel/mlx5_ib/dct.h"
#include "kernel/mlx5_ib/devx_cmd.h"
#include "kernel/uverbs/capable.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/cmd_flow.h"
#include "prm/cmd_object.h"
#include "prm/cmd_qp.h"
#include "prm/context.h"

namespace uhca::kernel::mlx5 {
namespace {

using Hdr = prm::general_obj_in_cmd_hdr;
// Answers are read up to the last field that names an object.
constexpr std::size_t kMinOut = 64;

devx::Input input(const DevxCommand& c) {
  return {c.in.data(), c.in.size()};
}
const char* name_of(prm::Opcode op) {
  const char* n = prm::opcode_name(static_cast<std::uint16_t>(op));
  return n != nullptr ? n : "unknown command";
}

Status copy_answer(uverbs_attr_bundle& b, std::uint16_t attr, const DevxCommand& cmd) {
  std::size_t len = UHCA_TRY(uverbs_attr_get_len(b, attr));
  return uverbs_copy_to(b, attr, cmd.out.data(), len);
}

// The answer reaches the program when the firmware refused, too: the error says so.
Status exec_and_answer(uverbs_attr_bundle& b, mlx5_ib_dev& dev, std::uint16_t attr, DevxCommand& cmd) {
  Status s = devx_exec(dev, cmd);
  if (!s && s.code() != EREMOTEIO) return s;
  UHCA_CHECK(copy_answer(b, attr, cmd));
  return s;
}

// ---------------------------------------------------------------- DEVX: about no object

Status other(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  std::size_t outlen = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT));
  auto cmd = UHCA_TRY(devx_command(b, c, MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, outlen));
  auto op = devx::opcode_of(input(cmd));
  if (!devx::is_general(op)) return refuse(EINVAL, "DEVX: {} ({:#x}) is no general command", name_of(op), static_cast<unsigned>(op));
  return exec_and_answer(b, to_mdev(*c.device), MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, cmd);
}

Status query_eqn(uverbs_attr_bundle& b) {
  std::uint32_t vector;
  UHCA_CHECK(uverbs_copy_from(&vector, b, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC));
  auto& c = *UHCA_TRY(context_of(b));
  std::uint32_t eqn = UHCA_TRY(to_mdev(*c.device).mdev->comp_eqn(vector));
  return uverbs_copy_to(b, MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn);
}

// Of a dynamic bfreg that was mapped with MLX5_IB_MMAP_ALLOC_WC; here pages beyond the static ones are UAR objects, which say their
// number themselves.
Status query_uar(uverbs_attr_bundle& b) {
  UHCA_TRY(context_of(b));
  std::uint32_t bfreg;
  UHCA_CHECK(uverbs_copy_from(&bfreg, b, MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX));
  return refuse(EINVAL, "DEVX: query_uar: bfreg {} is no dynamic one of this context; UAR objects carry their page id", bfreg);
}

constexpr uverbs_attr_def kOtherAttrs[] = {
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, UVERBS_ATTR_MIN_SIZE(Hdr::kBytes), UA_MANDATORY | UA_ALLOC_AND_COPY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, UVERBS_ATTR_MIN_SIZE(prm::general_obj_out_cmd_hdr::kBytes), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryEqnAttrs[] = {
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kQueryUarAttrs[] = {
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, UVERBS_ATTR_TYPE(std::uint32_t), UA_MANDATORY),
};
constexpr uverbs_attr_def kSubscribeAttrs[] = {
    UVERBS_ATTR_FD(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_ACCESS_READ, UA_OPTIONAL),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, UVERBS_ATTR_MIN_SIZE(sizeof(std::uint16_t)),
                       UA_MANDATORY | UA_ALLOC_AND_COPY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, UVERBS_ATTR_TYPE(std::uint64_t), UA_OPTIONAL),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, UVERBS_ATTR_TYPE(std::uint32_t), UA_OPTIONAL),
};
constexpr uverbs_method_def kDevxMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OTHER, kOtherAttrs, other),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_QUERY_UAR, kQueryUarAttrs, query_uar),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_QUERY_EQN, kQueryEqnAttrs, query_eqn),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, kSubscribeAttrs, devx_subscribe_event),
};

// ---------------------------------------------------------------- DEVX_OBJ

void cq_completed(mlx5_core_cq& cq, const std::uint8_t* eqe) {
  static_cast<DevxObject::Cq&>(cq).events->deliver(eqe);
}
// The error event itself comes by deliver(), as for every object.
void cq_event(mlx5_core_cq&, EventType) {}

// Linux: mlx5_core_destroy_dct. What is under way to a DCT ends first.
Status drain_dct(DevxObject& o) {
  if (o.drained) return success();
  std::vector<std::uint8_t> in = o.destroy;  // the number and the uid are at the same place
  std::uint8_t out[prm::drain_dct_out::kBytes] = {};
  prm::set<prm::drain_dct_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::DRAIN_DCT));
  UHCA_CHECK(o.dev->mdev->cmd().exec(in.data(), in.size(), out, sizeof out));
  o.drained = true;
  return success();
}

Status destroy_in_hardware(DevxObject& o) {
  if (devx::creator_of(o.id) == prm::Opcode::CREATE_DCT) UHCA_CHECK(drain_dct(o));
  if (o.cq) o.dev->mdev->untrack_cq(*o.cq);
  std::vector<std::uint8_t> out(kMinOut);
  Status s = o.dev->mdev->cmd().exec(o.destroy.data(), o.destroy.size(), out.data(), out.size());
  if (!s && o.cq && !o.dev->mdev->track_cq(*o.cq)) log::error("CQ {:#x}: no place in the table", o.cq->cqn);
  return s;
}

Status obj_cleanup(ib_uobject& uobj, rdma_remove_reason, uverbs_attr_bundle*) {
  auto* o = static_cast<DevxObject*>(uobj.object);
  UHCA_CHECK(destroy_in_hardware(*o));
  o->dev->devx_events->forget_object(*o);
  delete o;
  uobj.object = nullptr;
  return success();
}

// Direct keys take their pages from a umem; what programs say of physical pages does not count.
Status prepare_mkey(DevxCommand& cmd) {
  constexpr std::size_t kNeeded = prm::byte_of<prm::create_mkey_in::memory_key_mkey_entry> + prm::mkc::kBytes;
  if (cmd.in.size() < kNeeded) return refuse(EINVAL, "DEVX: CREATE_MKEY of {} bytes, {} are needed", cmd.in.size(), kNeeded);
  const void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(static_cast<const void*>(cmd.in.data()));
  std::uint32_t mode = prm::get<prm::mkc::access_mode_1_0>(mkc) | prm::get<prm::mkc::access_mode_4_2>(mkc) << 2;
  if (mode != prm::kMkeyModeKlms && mode != prm::kMkeyModeKsm) prm::set<prm::create_mkey_in::mkey_umem_valid>(cmd.in.data(), 1);
  return success();
}

std::uint32_t counter_bulk(const DevxCommand& cmd) {
  using In = prm::alloc_flow_counter_in;
  if (cmd.in.size() < In::kBytes) return 0;
  if (std::uint32_t log = prm::get<In::flow_counter_bulk_log_size>(cmd.in.data())) return 1u << log;
  return 128 * prm::get<In::flow_counter_bulk>(cmd.in.data());
}

Status obj_create(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  auto& dev = to_mdev(*c.device);
  ib_uobject* uobj = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
  std::size_t outlen = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT));
  auto cmd = UHCA_TRY(devx_command(b, c, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, outlen));
  auto op = devx::opcode_of(input(cmd));
  if (!devx::is_create(input(cmd))) return refuse(EINVAL, "DEVX: {} ({:#x}) creates no object", name_of(op), static_cast<unsigned>(op));
  if (op == prm::Opcode::CREATE_MKEY) {
    UHCA_CHECK(prepare_mkey(cmd));
  } else {
    devx::set_umem_valid(cmd.in);
  }
  if (Status s = devx_exec(dev, cmd); !s) {
    if (s.code() == EREMOTEIO) UHCA_CHECK(copy_answer(b, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, cmd));
    return s;
  }
  auto o = std::make_unique<DevxObject>();
  o->dev = &dev;
  o->id = devx::created_id(input(cmd), cmd.out.data());
  o->destroy = devx::destroy_command(input(cmd), cmd.out.data());
  if (op == prm::Opcode::ALLOC_FLOW_COUNTER) o->bulk = counter_bulk(cmd);
  if (op == prm::Opcode::CREATE_CQ) {
    auto cq = std::make_unique<DevxObject::Cq>();
    cq->cqn = static_cast<std::uint32_t>(o->id);
    cq->comp_eqe = cq_completed;
    cq->event = cq_event;
    cq->events = dev.devx_events.get();
    if (dev.mdev->track_cq(*cq)) {
      o->cq = std::move(cq);
    } else {
      if (Status f = destroy_in_hardware(*o); !f) log::error("DEVX: CQ {:#x} could not be destroyed", cq->cqn);
      return refuse(ENOMEM, "DEVX: CQ {:#x}: no place in the table", cq->cqn);
    }
  }
  uobj->object = o.release();
  uverbs_finalize_uobj_create(b, MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
  return copy_answer(b, MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, cmd);
}

Status obj_modify(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  std::size_t outlen = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT));
  auto cmd = UHCA_TRY(devx_object_command(b, c, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, outlen,
                                          devx::is_modify, "modifies"));
  devx::set_umem_valid(cmd.in);
  return exec_and_answer(b, to_mdev(*c.device), MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, cmd);
}

Status obj_query(uverbs_attr_bundle& b) {
  auto& c = *UHCA_TRY(context_of(b));
  std::size_t outlen = UHCA_TRY(uverbs_attr_get_len(b, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT));
  auto cmd = UHCA_TRY(
      devx_object_command(b, c, MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, outlen, devx::is_query, "queries"));
  return exec_and_answer(b, to_mdev(*c.device), MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, cmd);
}

#define CMD_IN(id) UVERBS_ATTR_PTR_IN(id, UVERBS_ATTR_MIN_SIZE(Hdr::kBytes), UA_MANDATORY | UA_ALLOC_AND_COPY)
#define CMD_OUT(id) UVERBS_ATTR_PTR_OUT(id, UVERBS_ATTR_MIN_SIZE(prm::general_obj_out_cmd_hdr::kBytes), UA_MANDATORY)
constexpr uverbs_attr_def kCreateAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_ACCESS_NEW, UA_MANDATORY),
    CMD_IN(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN),
    CMD_OUT(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT),
};
constexpr uverbs_attr_def kDestroyAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, MLX5_IB_OBJECT_DEVX_OBJ, UVERBS_ACCESS_DESTROY, UA_MANDATORY),
};
constexpr uverbs_attr_def kModifyAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, UVERBS_IDR_ANY_OBJECT, UVERBS_ACCESS_READ, UA_MANDATORY),
    CMD_IN(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN),
    CMD_OUT(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT),
};
constexpr uverbs_attr_def kQueryAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, UVERBS_IDR_ANY_OBJECT, UVERBS_ACCESS_READ, UA_MANDATORY),
    CMD_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN),
    CMD_OUT(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT),
};
constexpr uverbs_attr_def kAsyncQueryAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, UVERBS_IDR_ANY_OBJECT, UVERBS_ACCESS_READ, UA_MANDATORY),
    CMD_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN),
    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, UA_MANDATORY),
    UVERBS_ATTR_FD(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_method_def kObjMethods[] = {
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_CREATE, kCreateAttrs, obj_create),
    UVERBS_METHOD_DESTROY(MLX5_IB_METHOD_DEVX_OBJ_DESTROY, kDestroyAttrs),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_MODIFY, kModifyAttrs, obj_modify),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_QUERY, kQueryAttrs, obj_query),
    UVERBS_METHOD(MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, kAsyncQueryAttrs, devx_obj_async_query),
};
constexpr uverbs_obj_type kObjType = UVERBS_TYPE_ALLOC_IDR(obj_cleanup);

}  // namespace

constinit const uverbs_object_def devx_object_def = {MLX5_IB_OBJECT_DEVX, "MLX5_IB_OBJECT_DEVX",   nullptr,
                                                     kDevxMethods,        std::size(kDevxMethods), devx_supported};
constinit const uverbs_object_def devx_obj_object_def = {
    MLX5_IB_OBJECT_DEVX_OBJ, "MLX5_IB_OBJECT_DEVX_OBJ", &kObjType, kObjMethods, std::size(kObjMethods), devx_supported};

bool devx_supported(const ib_device& dev) {
  return static_cast<const mlx5_ib_dev&>(dev).mdev->cap_gen<prm::cmd_hca_cap::log_max_uctx>() != 0;
}

Result<mlx5_ib_ucontext*> context_of(uverbs_attr_bundle& b) {
  if (b.context == nullptr) return refuse(EINVAL, "no context has been opened on this file");
  return &to_mucontext(*b.context);
}

Result<DevxCommand> devx_command(uverbs_attr_bundle& b, mlx5_ib_ucontext& c, std::uint16_t in_attr, std::size_t outlen) {
  const auto* data = static_cast<const std::uint8_t*>(uverbs_attr_get_alloced_ptr(b, in_attr));
  std::size_t inlen = UHCA_TRY(uverbs_attr_get_len(b, in_attr));
  DevxCommand cmd;
  cmd.in.assign(data, data + inlen);
  cmd.out.resize(std::max(outlen, kMinOut));
  if (prm::get<Hdr::vhca_tunnel_id>(data)) return refuse(EINVAL, "DEVX: commands for another function (vhca_tunnel_id) are not offered");
  auto op = devx::opcode_of(input(cmd));
  std::uint16_t uid = c.devx_uid;
  if (uid == 0 && devx::is_whitelisted(op)) {
    uid = to_mdev(*c.device).devx_whitelist_uid;
    if (uid == 0) return refuse(EOPNOTSUPP, "DEVX: {}: the driver has no user context for it", name_of(op));
  }
  if (uid == 0) return refuse(EINVAL, "DEVX: {} ({:#x}) needs a context that was opened for DEVX", name_of(op), static_cast<unsigned>(op));
  prm::set<Hdr::uid>(cmd.in.data(), uid);
  return cmd;
}

Status devx_exec(mlx5_ib_dev& dev, DevxCommand& cmd) {
  UHCA_CHECK(dev.mdev->cmd().exec_raw(cmd.in.data(), cmd.in.size(), cmd.out.data(), cmd.out.size()));
  auto status = static_cast<std::uint8_t>(prm::get<prm::cmd_out::status>(cmd.out.data()));
  if (status == 0) return success();
  auto op = devx::opcode_of(input(cmd));
  const char* text = prm::cmd_status_name(static_cast<prm::CmdStatus>(status));
  return refuse(EREMOTEIO, "DEVX: {} ({:#x}): firmware status {} ({:#x}), syndrome {:#x}", name_of(op), static_cast<unsigned>(op),
                text != nullptr ? text : "?", status, prm::get<prm::cmd_out::syndrome>(cmd.out.data()));
}

Result<DevxCommand> devx_object_command(uverbs_attr_bundle& b, mlx5_ib_ucontext& c, std::uint16_t in_attr, std::uint16_t handle_attr,
                                        std::size_t outlen, bool (*is_kind)(const devx::Input&), const char* does) {
  auto cmd = UHCA_TRY(devx_command(b, c, in_attr, outlen));
  auto op = devx::opcode_of(input(cmd));
  if (!is_kind(input(cmd))) return refuse(EINVAL, "DEVX: {} ({:#x}) {} no object", name_of(op), static_cast<unsigned>(op), does);
  if (!devx_is_about(*uverbs_attr_get_uobject(b, handle_attr), cmd))
    return refuse(EINVAL, "DEVX: {} names another object than the handle", name_of(op));
  return cmd;
}

bool devx_is_about(const ib_uobject& uobj, const DevxCommand& cmd) {
  std::uint64_t id = devx::named_id(input(cmd));
  if (id == 0) return false;
  switch (uobj.type_id) {
    case UVERBS_OBJECT_CQ: return id == devx::encode(prm::Opcode::CREATE_CQ, static_cast<const ib_cq*>(uobj.object)->hw_cqn());
    case UVERBS_OBJECT_QP: {
      const auto* qp = static_cast<const ib_qp*>(uobj.object);
      if (const auto& dct = static_cast<const mlx5_ib_qp*>(qp)->dct; dct)
        return dct->dctn != 0 && id == devx::encode(prm::Opcode::CREATE_DCT, dct->dctn);
      return qp->qp_type != ib_qp_type::RAW_PACKET && id == devx::encode(prm::Opcode::CREATE_QP, qp->qp_num);
    }
    case UVERBS_OBJECT_SRQ: {
      const auto& srq = static_cast<const mlx5_ib_srq&>(*static_cast<const ib_srq*>(uobj.object));
      return id == devx::encode(srq.kind == SrqKind::kXrc ? prm::Opcode::CREATE_XRC_SRQ : prm::Opcode::CREATE_RMP, srq.srqn);
    }
    case MLX5_IB_OBJECT_DEVX_OBJ: {
      const auto* o = static_cast<const DevxObject*>(uobj.object);
      if (devx::opcode_of(input(cmd)) == prm::Opcode::QUERY_FLOW_COUNTER && o->bulk != 0) return id >= o->id && id < o->id + o->bulk;
      return id == o->id;
    }
    default: return false;
  }
}

Result<std::uint16_t> devx_create(mlx5_ib_dev& dev) {
  if (dev.mdev->cap_gen<prm::cmd_hca_cap::log_max_uctx>() == 0)
    return refuse(EINVAL, "DEVX is not supported by the device (log_max_uctx 0)");
  std::uint32_t caps = rdma_uattrs_has_raw_cap() ? prm::kUctxCapRawTx : 0;
  return dev.mdev->create_uctx(caps & dev.mdev->cap_gen<prm::cmd_hca_cap::uctx_cap>());
}

void devx_destroy(mlx5_ib_dev& dev, std::uint16_t uid) {
  if (uid == 0) return;
  if (Status s = dev.mdev->destroy_uctx(uid); !s) log::error("DEVX: user context {} could not be destroyed", uid);
}

void devx_init(mlx5_ib_dev& dev) {
  dev.devx_events = std::make_unique<DevxEvents>();
  dev.mdev->set_event_tap([](void* events, const std::uint8_t* eqe) { static_cast<DevxEvents*>(events)->deliver(eqe); },
                          dev.devx_events.get());
  if (auto uid = devx_create(dev)) dev.devx_whitelist_uid = *uid;
}

void devx_cleanup(mlx5_ib_dev& dev) {
  devx_destroy(dev, dev.devx_whitelist_uid);
  dev.devx_whitelist_uid = 0;
}

}  // namespace uhca::kernel::mlx5
