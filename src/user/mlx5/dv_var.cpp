// SPDX-License-Identifier: MIT
// mlx5dv: VARs, the pages where emulated virtio devices are rung; and the sizes of what may be exported to other processes.
#include <rdma/mlx5_user_ioctl_cmds.h>

#include "base/log.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {
namespace {

struct VarObject {
  mlx5dv_var dv{};
  ibv_context* context = nullptr;
  std::uint32_t handle = 0;
};

struct VarAttrs {
  std::uint32_t handle, page_id, length;
  off_t mmap_off;
};

// mlx5dv_export_sizes of v65.
struct ExportSizes {
  std::uint32_t var, umem, obj;
};

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_var* mlx5dv_alloc_var(ibv_context* context, std::uint32_t flags) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  if (flags) return mlx5::fail(refuse(EOPNOTSUPP, "mlx5dv_alloc_var: flags {:#x}", flags));
  auto* v = make<VarObject>();
  if (!v) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_ALLOC);
  cmd.out_obj(MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE);
  cmd.out(MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_OFFSET, &v->dv.mmap_off, sizeof v->dv.mmap_off);
  cmd.out(MLX5_IB_ATTR_VAR_OBJ_ALLOC_MMAP_LENGTH, &v->dv.length, sizeof v->dv.length);
  cmd.out(MLX5_IB_ATTR_VAR_OBJ_ALLOC_PAGE_ID, &v->dv.page_id, sizeof v->dv.page_id);
  if (int err = execute_ioctl(context, &cmd)) {
    delete v;
    errno = err;
    return nullptr;
  }
  v->context = context;
  v->handle = cmd.handle(MLX5_IB_ATTR_VAR_OBJ_ALLOC_HANDLE);
  return &v->dv;
}
UHCA_EXPORT void mlx5dv_free_var(mlx5dv_var* dv) {
  auto* v = reinterpret_cast<VarObject*>(dv);
  ibv_command_buffer cmd(MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_DESTROY);
  cmd.in_obj(MLX5_IB_ATTR_VAR_OBJ_DESTROY_HANDLE, v->handle);
  if (int err = execute_ioctl(v->context, &cmd)) log::warn("VAR {:#x} could not be freed, errno {}", dv->page_id, err);
  delete v;
}

UHCA_EXPORT int mlx5dv_var_export(mlx5dv_var* dv, void* data) {
  VarAttrs a = {reinterpret_cast<VarObject*>(dv)->handle, dv->page_id, dv->length, dv->mmap_off};
  std::memcpy(data, &a, sizeof a);
  return 0;
}
UHCA_EXPORT mlx5dv_var* mlx5dv_var_import(ibv_context* context, const void* data) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* v = make<VarObject>();
  if (!v) return nullptr;
  VarAttrs a;
  std::memcpy(&a, data, sizeof a);
  v->context = context;
  v->handle = a.handle;
  v->dv.page_id = a.page_id;
  v->dv.length = a.length;
  v->dv.mmap_off = a.mmap_off;
  return &v->dv;
}
UHCA_EXPORT void mlx5dv_var_unimport(mlx5dv_var* dv) {
  delete reinterpret_cast<VarObject*>(dv);
}

// Programs of later versions know more kinds than this library; those have no size.
UHCA_EXPORT void _mlx5dv_get_export_sizes(void* sizes, std::size_t len) {
  const ExportSizes s = {sizeof(VarAttrs), devx_umem_attrs_size(), devx_obj_attrs_size()};
  std::memset(sizes, 0, len);
  std::memcpy(sizes, &s, len < sizeof s ? len : sizeof s);
}
