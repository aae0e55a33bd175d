// SPDX-License-Identifier: MIT
// Opening, importing and closing contexts.
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

// Opens path when it is the character device cdev (0: any).
int open_checked(const char* path, dev_t cdev) {
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat st;
  if (fstat(fd, &st) || !S_ISCHR(st.st_mode) || (cdev != 0 && st.st_rdev != cdev)) {
    close(fd);
    errno = ENODEV;
    return -1;
  }
  return fd;
}

std::int64_t now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// udev may still be making the node: wait for /dev/char/M:m, at most five seconds.
int open_when_made(dev_t cdev) {
  char path[64];
  std::snprintf(path, sizeof path, "/dev/char/%u:%u", major(cdev), minor(cdev));
  int ifd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (ifd < 0) return -1;
  int fd = -1;
  if (inotify_add_watch(ifd, "/dev/char/", IN_CREATE) >= 0) {
    const std::int64_t deadline = now_ms() + 5000;
    while ((fd = open_checked(path, cdev)) < 0) {
      const std::int64_t left = deadline - now_ms();
      if (left <= 0) break;
      pollfd p{ifd, POLLIN, 0};
      if (poll(&p, 1, static_cast<int>(left)) < 0 && errno != EINTR) break;
      alignas(inotify_event) char events[1024];
      if (read(ifd, events, sizeof events) < 0 && errno != EAGAIN) break;
    }
  }
  int saved = errno;
  close(ifd);
  errno = saved;
  return fd;
}

int open_cdev(const verbs_sysfs_dev* dev) {
  char path[IBV_SYSFS_NAME_MAX + 32];
  std::snprintf(path, sizeof path, "/dev/infiniband/%s", dev->sysfs_name);
  int fd = open_checked(path, dev->sysfs_cdev);
  // Only a node that is not there yet, or an older one in its place, is worth waiting for.
  if (fd < 0 && dev->sysfs_cdev != 0 && (errno == ENOENT || errno == ENODEV)) return open_when_made(dev->sysfs_cdev);
  return fd;
}

}  // namespace

UHCA_EXPORT void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, std::size_t alloc_size, std::size_t context_offset,
                                                std::uint32_t driver_id) {
  auto* mem = static_cast<char*>(std::calloc(1, alloc_size));
  auto* priv = static_cast<verbs_ex_private*>(std::calloc(1, sizeof(verbs_ex_private)));
  if (!mem || !priv) {
    std::free(mem);
    std::free(priv);
    close(cmd_fd);
    return fail_null<void>(ENOMEM);
  }
  auto* vctx = reinterpret_cast<verbs_context_v65*>(mem + context_offset);
  ibv_context* context = &vctx->v.context;
  device_hold(device);
  context->device = device;
  context->cmd_fd = cmd_fd;
  context->async_fd = -1;
  pthread_mutex_init(&context->mutex, nullptr);
  context->abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);  // "extended": verbs_context lies in front
  vctx->v.sz = sizeof(verbs_context_v65);
  vctx->v.priv = priv;
  priv->driver_id = driver_id;
  verbs_set_ops(vctx, &unsupported_ops);
  priv->use_ioctl_write = has_ioctl_write(context);
  return mem;
}

UHCA_EXPORT void verbs_uninit_context(verbs_context_v65* vctx) {
  ibv_context* context = &vctx->v.context;
  if (context->cmd_fd != -1) close(context->cmd_fd);
  if (context->async_fd != -1) close(context->async_fd);
  std::free(vctx->v.priv);
  vctx->v.priv = nullptr;
  pthread_mutex_destroy(&context->mutex);
  device_put(context->device);
}

UHCA_EXPORT ibv_context* verbs_open_device(ibv_device* device, void* private_data) {
  verbs_device* vdev = verbs_get_device(device);
  int cmd_fd = open_cdev(vdev->sysfs);
  if (cmd_fd < 0) return nullptr;
  verbs_context_v65* vctx = vdev->provider->alloc_context(device, cmd_fd, private_data);
  if (!vctx) return nullptr;
  set_library_ops(vctx);
  ibv_context* context = &vctx->v.context;
  if (context->async_fd == -1) {  // the legacy GET_CONTEXT has brought one already
    if (int e = ibv_cmd_alloc_async_fd(context)) {
      ibv_close_device(context);
      errno = e;
      return nullptr;
    }
  }
  return context;
}

UHCA_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return verbs_open_device(device, nullptr);
}

UHCA_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  struct stat st;
  if (fstat(cmd_fd, &st) || !S_ISCHR(st.st_mode)) return fail_null<ibv_context>(EINVAL);
  ibv_device** list = ibv_get_device_list(nullptr);
  if (!list) return fail_null<ibv_context>(ENODEV);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (ibv_device** p = list; *p; ++p) {
    verbs_device* vdev = verbs_get_device(*p);
    if (vdev->sysfs->sysfs_cdev != st.st_rdev) continue;
    error = EOPNOTSUPP;
    if (!vdev->provider->import_context) break;
    // A number that has passed to another device in the meantime shows as EIO of QUERY_CONTEXT.
    verbs_context_v65* vctx = vdev->provider->import_context(*p, cmd_fd);
    error = errno;
    if (!vctx) break;
    set_library_ops(vctx);
    vctx->v.priv->imported = true;
    context = &vctx->v.context;
    error = ibv_cmd_alloc_async_fd(context);
    if (error) {
      ibv_close_device(context);
      context = nullptr;
    }
    break;
  }
  ibv_free_device_list(list);
  if (!context) errno = error;
  return context;
}

UHCA_EXPORT int ibv_close_device(ibv_context* context) {
  get_ops(context)->free_context(context);
  return 0;
}
