// SPDX-License-Identifier: MIT
// UAR pages: where doorbells are rung. One belongs to the context; programs allocate more with mlx5dv_devx_alloc_uar.
#include <sys/mman.h>

#include "base/log.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {

int alloc_uar(Context* ctx, std::uint32_t type, Uar* u) {
  ibv_command_buffer cmd(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
  cmd.out_obj(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  cmd.const_in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type);
  cmd.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &u->mmap_offset, sizeof u->mmap_offset);
  cmd.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &u->length, sizeof u->length);
  cmd.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &u->page_id, sizeof u->page_id);
  if (int err = execute_ioctl(to_ibv(ctx), &cmd)) return refuse(err, "no UAR of type {}", type).value;
  u->handle = cmd.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  void* p = mmap(nullptr, u->length, PROT_WRITE, MAP_SHARED, to_ibv(ctx)->cmd_fd, static_cast<off_t>(u->mmap_offset));
  if (p == MAP_FAILED) {
    int err = refuse(errno, "the UAR page {:#x} cannot be mapped", u->page_id).value;
    free_uar(ctx, u);
    return err;
  }
  u->page = static_cast<std::uint8_t*>(p);
  u->reg = u->page + prm::kUarBlueFlame;
  // Only stores of 8 bytes go to a page that is not write-combining, and they need no second place to alternate with.
  u->buf_size = 0;
  return 0;
}

int free_uar(Context* ctx, Uar* u) {
  if (u->page) munmap(u->page, u->length);
  u->page = nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY);
  cmd.in_obj(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, u->handle);
  return execute_ioctl(to_ibv(ctx), &cmd);
}

namespace {

// What the program holds, and what it stands for. The context's own page may be handed out any number of times.
struct DevxUar {
  mlx5dv_devx_uar dv;
  ibv_context* context;
  Uar own;
  bool shared;
};

constexpr std::uint32_t kDedicatedNc = 1u << 31;  // _MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_devx_uar* mlx5dv_devx_alloc_uar(ibv_context* context, std::uint32_t flags) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  if (flags != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && flags != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC && flags != kDedicatedNc)
    return mlx5::fail(refuse(EOPNOTSUPP, "devx_alloc_uar: type {:#x}", flags));
  Context* ctx = to_ctx(context);
  auto* u = make<DevxUar>();
  if (!u) return nullptr;
  u->context = context;
  u->shared = flags == MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
  if (!u->shared) {
    std::uint32_t type = flags == kDedicatedNc ? std::uint32_t{MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC} : flags;
    if (int err = alloc_uar(ctx, type, &u->own)) {
      delete u;
      errno = err;
      return nullptr;
    }
  }
  const Uar& page = u->shared ? ctx->nc_uar : u->own;
  u->dv.reg_addr = page.reg;
  u->dv.base_addr = page.page;
  u->dv.page_id = page.page_id;
  u->dv.mmap_off = static_cast<off_t>(page.mmap_offset);
  u->dv.comp_mask = 0;
  return &u->dv;
}

UHCA_EXPORT void mlx5dv_devx_free_uar(mlx5dv_devx_uar* dv) {
  auto* u = reinterpret_cast<DevxUar*>(dv);
  if (!u->shared) {
    if (int err = free_uar(to_ctx(u->context), &u->own)) log::warn("UAR {:#x} could not be freed, errno {}", u->own.page_id, err);
  }
  delete u;
}

UHCA_EXPORT int mlx5dv_devx_uar_export_dmabuf_fd(mlx5dv_devx_uar* dv) {
  return ibv_cmd_export_dmabuf_fd(reinterpret_cast<DevxUar*>(dv)->context, static_cast<std::uint64_t>(dv->mmap_off));
}
