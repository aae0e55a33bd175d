// SPDX-License-Identifier: MIT
// mlx5dv_devx_*: objects, memory and queries. Conventions are those of <infiniband/mlx5dv.h>; where a command fails because the firmware
// refused it, errno is EREMOTEIO and the answer says why.
#include "user/mlx5/devx.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

#include "base/log.h"
#include "prm/cmd_core.h"
#include "prm/cmd_object.h"
#include "prm/opcode.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {
namespace {

constexpr std::uint64_t kPage = 4096;

struct DevxUmem {
  mlx5dv_devx_umem dv{};
  ibv_context* context = nullptr;
  std::uint32_t handle = 0;
  void* addr = nullptr;  // kept out of children; nullptr: imported
  std::size_t size = 0;
};

// What the firmware called the new object. General objects tell their kind; every other answer has the number at the same place.
void identify(mlx5dv_devx_obj& o, const void* in, std::size_t inlen, const void* out, std::size_t outlen) {
  if (outlen < prm::general_obj_out_cmd_hdr::kBytes || inlen < prm::general_obj_in_cmd_hdr::kBytes) return;
  o.object_id = prm::get<prm::general_obj_out_cmd_hdr::obj_id>(out);
  if (prm::get<prm::general_obj_in_cmd_hdr::opcode>(in) != static_cast<std::uint16_t>(prm::Opcode::CREATE_GENERAL_OBJECT)) return;
  o.type = prm::get<prm::general_obj_in_cmd_hdr::obj_type>(in);
  o.log_range = static_cast<std::uint8_t>(prm::get<prm::general_obj_in_cmd_hdr::log_obj_range>(in));
}

int query(ibv_context* c, std::uint32_t handle, const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  if (!ours(c)) return EOPNOTSUPP;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY);
  cmd.in_obj(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, handle);
  cmd.in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, in, inlen);
  cmd.out(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, out, outlen);
  return execute_ioctl(c, &cmd);
}

int modify(ibv_context* c, std::uint32_t handle, const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  if (!ours(c)) return EOPNOTSUPP;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY);
  cmd.in_obj(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE, handle);
  cmd.in(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN, in, inlen);
  cmd.out(MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT, out, outlen);
  return execute_ioctl(c, &cmd);
}

// `sized`: the program names the page sizes that it can live with, and a kernel that does not know the attribute must refuse.
mlx5dv_devx_umem* umem_reg(ibv_context* context, const mlx5dv_devx_umem_in& in, bool sized) {
  if (!ours(context)) return fail(Errno{EOPNOTSUPP});
  if (in.comp_mask & ~std::uint64_t{MLX5DV_UMEM_MASK_DMABUF})
    return fail(refuse(EOPNOTSUPP, "devx_umem_reg: comp_mask {:#x}", static_cast<std::uint64_t>(in.comp_mask)));
  bool dmabuf = in.comp_mask & MLX5DV_UMEM_MASK_DMABUF;
  if (dmabuf && in.dmabuf_fd == -1) return fail(refuse(EBADF, "devx_umem_reg: no dma-buf"));
  auto* u = make<DevxUmem>();
  if (!u) return nullptr;
  if (ibv_dontfork_range(in.addr, in.size)) {
    delete u;
    return nullptr;
  }
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG);
  cmd.out_obj(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
  cmd.in_u64(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, reinterpret_cast<std::uintptr_t>(in.addr));
  cmd.in_u64(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, in.size);
  cmd.in_u32(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, in.access);
  if (dmabuf) cmd.in_raw_fd(MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD, in.dmabuf_fd);
  ib_uverbs_attr* sizes = cmd.in_u64(MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP, in.pgsz_bitmap);
  if (!sized) ibv_command_buffer::optional(sizes);
  cmd.out(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, &u->dv.umem_id, sizeof u->dv.umem_id);
  if (int err = execute_ioctl(context, &cmd)) {
    ibv_dofork_range(in.addr, in.size);
    delete u;
    errno = err;
    return nullptr;
  }
  u->context = context;
  u->handle = cmd.handle(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE);
  u->addr = in.addr;
  u->size = in.size;
  return &u->dv;
}

// What travels between processes (export and import): handles of one kernel context, with what the importer cannot ask for.
struct ObjAttrs {
  std::uint32_t handle, type, object_id;
  std::uint64_t rx_icm_addr;  // of flow tables; not used here
  std::uint8_t log_obj_range;
};
struct UmemAttrs {
  std::uint32_t handle, umem_id;
};

}  // namespace

std::vector<std::uint8_t> current_caps(ibv_context* context, unsigned group) {
  std::uint8_t in[prm::query_hca_cap_in::kBytes] = {};
  std::vector<std::uint8_t> out(prm::query_hca_cap_out::kBytes);
  prm::set<prm::query_hca_cap_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_HCA_CAP));
  prm::set<prm::query_hca_cap_in::op_mod>(in, group << 1 | 1);
  if (mlx5dv_devx_general_cmd(context, in, sizeof in, out.data(), out.size())) out.assign(out.size(), 0);
  out.erase(out.begin(), out.begin() + prm::byte_of<prm::query_hca_cap_out::capability>);
  return out;
}

int command_error(int err, const void* out) {
  if (err != EREMOTEIO) return err;
  using S = prm::CmdStatus;
  switch (static_cast<S>(prm::get<prm::cmd_out::status>(out))) {
    case S::OK: return EIO;  // it failed all the same
    case S::RES_BUSY: return EBUSY;
    case S::LIM: return ENOMEM;
    case S::NO_RES: return EAGAIN;
    case S::INT_ERR:
    case S::BAD_SYS_STATE:
    case S::BAD_INP_LEN:
    case S::BAD_OUTP_LEN: return EIO;
    case S::BAD_OP:
    case S::BAD_PARAM:
    case S::BAD_RES:
    case S::BAD_RES_STATE:
    case S::IX:
    case S::BAD_QP_STATE:
    case S::BAD_PKT:
    case S::BAD_SIZE_OUTS_CQES: return EINVAL;
    default: return EIO;
  }
}

std::uint32_t devx_obj_attrs_size() {
  return sizeof(ObjAttrs);
}
std::uint32_t devx_umem_attrs_size() {
  return sizeof(UmemAttrs);
}

}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT int mlx5dv_devx_general_cmd(ibv_context* context, const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  if (!ours(context)) return EOPNOTSUPP;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
  cmd.in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, in, inlen);
  cmd.out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out, outlen);
  return execute_ioctl(context, &cmd);
}

UHCA_EXPORT int mlx5dv_devx_query_eqn(ibv_context* context, std::uint32_t vector, std::uint32_t* eqn) {
  if (!ours(context)) return EOPNOTSUPP;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN);
  cmd.in_u32(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector);
  cmd.out(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, eqn, sizeof *eqn);
  return execute_ioctl(context, &cmd);
}

UHCA_EXPORT mlx5dv_devx_obj* mlx5dv_devx_obj_create(ibv_context* context, const void* in, std::size_t inlen, void* out,
                                                    std::size_t outlen) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* o = make<mlx5dv_devx_obj>();
  if (!o) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE);
  cmd.out_obj(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
  cmd.in(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, in, inlen);
  cmd.out(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, out, outlen);
  if (int err = execute_ioctl(context, &cmd)) {
    delete o;
    errno = err;
    return nullptr;
  }
  o->context = context;
  o->handle = cmd.handle(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE);
  identify(*o, in, inlen, out, outlen);
  return o;
}

UHCA_EXPORT int mlx5dv_devx_obj_query(mlx5dv_devx_obj* o, const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  return query(o->context, o->handle, in, inlen, out, outlen);
}
UHCA_EXPORT int mlx5dv_devx_obj_modify(mlx5dv_devx_obj* o, const void* in, std::size_t inlen, void* out, std::size_t outlen) {
  return modify(o->context, o->handle, in, inlen, out, outlen);
}
UHCA_EXPORT int mlx5dv_devx_obj_destroy(mlx5dv_devx_obj* o) {
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY);
  cmd.in_obj(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, o->handle);
  if (int err = execute_ioctl(o->context, &cmd)) return err;
  delete o;
  return 0;
}

// The same commands about objects that verbs made.
#define UHCA_DEVX_ABOUT(kind, type, handle_of)                                                                             \
  UHCA_EXPORT int mlx5dv_devx_##kind##_query(type* o, const void* in, std::size_t inlen, void* out, std::size_t outlen) {  \
    return query(o->context, o->handle_of, in, inlen, out, outlen);                                                        \
  }                                                                                                                        \
  UHCA_EXPORT int mlx5dv_devx_##kind##_modify(type* o, const void* in, std::size_t inlen, void* out, std::size_t outlen) { \
    return modify(o->context, o->handle_of, in, inlen, out, outlen);                                                       \
  }
UHCA_DEVX_ABOUT(cq, ibv_cq, handle)
UHCA_DEVX_ABOUT(qp, ibv_qp, handle)
UHCA_DEVX_ABOUT(srq, ibv_srq, handle)
UHCA_DEVX_ABOUT(wq, ibv_wq, handle)
UHCA_DEVX_ABOUT(ind_tbl, ibv_rwq_ind_table, ind_tbl_handle)
#undef UHCA_DEVX_ABOUT

UHCA_EXPORT mlx5dv_devx_umem* mlx5dv_devx_umem_reg(ibv_context* context, void* addr, std::size_t size, std::uint32_t access) {
  mlx5dv_devx_umem_in in = {};
  in.addr = addr;
  in.size = size;
  in.access = access;
  in.pgsz_bitmap = ~(kPage - 1);
  return umem_reg(context, in, false);
}
UHCA_EXPORT mlx5dv_devx_umem* mlx5dv_devx_umem_reg_ex(ibv_context* context, mlx5dv_devx_umem_in* in) {
  return umem_reg(context, *in, true);
}
UHCA_EXPORT int mlx5dv_devx_umem_dereg(mlx5dv_devx_umem* dv) {
  auto* u = reinterpret_cast<DevxUmem*>(dv);
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG);
  cmd.in_obj(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, u->handle);
  if (int err = execute_ioctl(u->context, &cmd)) return err;
  if (u->addr) ibv_dofork_range(u->addr, u->size);
  delete u;
  return 0;
}

UHCA_EXPORT int mlx5dv_devx_obj_export(mlx5dv_devx_obj* o, void* data) {
  ObjAttrs a = {};
  a.handle = o->handle;
  a.type = o->type;
  a.object_id = o->object_id;
  a.log_obj_range = o->log_range;
  std::memcpy(data, &a, sizeof a);
  return 0;
}
UHCA_EXPORT mlx5dv_devx_obj* mlx5dv_devx_obj_import(ibv_context* context, const void* data) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* o = make<mlx5dv_devx_obj>();
  if (!o) return nullptr;
  ObjAttrs a;
  std::memcpy(&a, data, sizeof a);
  *o = {context, a.handle, a.type, a.object_id, a.log_obj_range};
  return o;
}
UHCA_EXPORT void mlx5dv_devx_obj_unimport(mlx5dv_devx_obj* o) {
  delete o;
}

UHCA_EXPORT int mlx5dv_devx_umem_export(mlx5dv_devx_umem* dv, void* data) {
  UmemAttrs a = {reinterpret_cast<DevxUmem*>(dv)->handle, dv->umem_id};
  std::memcpy(data, &a, sizeof a);
  return 0;
}
UHCA_EXPORT mlx5dv_devx_umem* mlx5dv_devx_umem_import(ibv_context* context, const void* data) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* u = make<DevxUmem>();
  if (!u) return nullptr;
  UmemAttrs a;
  std::memcpy(&a, data, sizeof a);
  u->context = context;
  u->handle = a.handle;
  u->dv.umem_id = a.umem_id;
  return &u->dv;
}
UHCA_EXPORT void mlx5dv_devx_umem_unimport(mlx5dv_devx_umem* dv) {
  delete reinterpret_cast<DevxUmem*>(dv);
}
