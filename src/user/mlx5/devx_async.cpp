// SPDX-License-Identifier: MIT
// mlx5dv_devx_*: answers and events that come later, through a descriptor.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <unistd.h>

#include "base/log.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {
namespace {

struct EventChannel {
  mlx5dv_devx_event_channel dv{};
  ibv_context* context = nullptr;
};
ibv_context* context_of(mlx5dv_devx_event_channel* dv) {
  return reinterpret_cast<EventChannel*>(dv)->context;
}

ibv_command_buffer subscription(const mlx5dv_devx_event_channel* channel, const mlx5dv_devx_obj* obj, const std::uint16_t* events,
                                std::size_t bytes) {
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT);
  cmd.in_fd(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE, channel->fd);
  if (obj) cmd.in_obj(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE, obj->handle);
  cmd.in(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST, events, bytes);
  return cmd;
}

}  // namespace
}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT mlx5dv_devx_cmd_comp* mlx5dv_devx_create_cmd_comp(ibv_context* context) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* c = make<mlx5dv_devx_cmd_comp>();
  if (!c) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC);
  cmd.out_fd(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE);
  if (int err = execute_ioctl(context, &cmd)) {
    delete c;
    errno = err;
    return nullptr;
  }
  c->fd = static_cast<int>(cmd.handle(MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE));
  return c;
}
UHCA_EXPORT void mlx5dv_devx_destroy_cmd_comp(mlx5dv_devx_cmd_comp* c) {
  close(c->fd);
  delete c;
}

UHCA_EXPORT int mlx5dv_devx_obj_query_async(mlx5dv_devx_obj* obj, const void* in, std::size_t inlen, std::size_t outlen,
                                            std::uint64_t wr_id, mlx5dv_devx_cmd_comp* comp) {
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY);
  cmd.in_obj(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE, obj->handle);
  cmd.in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN, in, inlen);
  cmd.const_in(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN, outlen);
  cmd.in_u64(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID, wr_id);
  cmd.in_fd(MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD, comp->fd);
  return execute_ioctl(obj->context, &cmd);
}

UHCA_EXPORT int mlx5dv_devx_get_async_cmd_comp(mlx5dv_devx_cmd_comp* comp, mlx5dv_devx_async_cmd_hdr* answer, std::size_t len) {
  ssize_t n = read(comp->fd, answer, len);
  if (n < 0) return errno;
  return static_cast<std::size_t>(n) < sizeof *answer ? EINVAL : 0;
}

UHCA_EXPORT mlx5dv_devx_event_channel* mlx5dv_devx_create_event_channel(ibv_context* context,
                                                                        mlx5dv_devx_create_event_channel_flags flags) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  auto* c = make<EventChannel>();
  if (!c) return nullptr;
  ibv_command_buffer cmd(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC);
  cmd.out_fd(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE);
  cmd.in_u32(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS, flags);
  if (int err = execute_ioctl(context, &cmd)) {
    delete c;
    errno = err;
    return nullptr;
  }
  c->dv.fd = static_cast<int>(cmd.handle(MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE));
  c->context = context;
  return &c->dv;
}
UHCA_EXPORT void mlx5dv_devx_destroy_event_channel(mlx5dv_devx_event_channel* dv) {
  close(dv->fd);
  delete reinterpret_cast<EventChannel*>(dv);
}

// `bytes`: the size of the list.
UHCA_EXPORT int mlx5dv_devx_subscribe_devx_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_obj* obj, std::uint16_t bytes,
                                                 std::uint16_t events[], std::uint64_t cookie) {
  ibv_command_buffer cmd = subscription(channel, obj, events, bytes);
  cmd.in_u64(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE, cookie);
  return execute_ioctl(context_of(channel), &cmd);
}
UHCA_EXPORT int mlx5dv_devx_subscribe_devx_event_fd(mlx5dv_devx_event_channel* channel, int fd, mlx5dv_devx_obj* obj, std::uint16_t event) {
  ibv_command_buffer cmd = subscription(channel, obj, &event, sizeof event);
  cmd.in_u32(MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM, static_cast<std::uint32_t>(fd));
  return execute_ioctl(context_of(channel), &cmd);
}

UHCA_EXPORT ssize_t mlx5dv_devx_get_event(mlx5dv_devx_event_channel* channel, mlx5dv_devx_async_event_hdr* event, std::size_t len) {
  ssize_t n = read(channel->fd, event, len);
  if (n < 0) return -1;
  if (static_cast<std::size_t>(n) < sizeof *event) {
    errno = EINVAL;
    return -1;
  }
  return n;
}
