// SPDX-License-Identifier: MIT
// Device discovery through sysfs, for kernels without NETLINK_RDMA, and the parts that both ways share.
#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_netlink.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "user/verbs/internal.h"

namespace uhca::verbs {
namespace {

bool copy_name(char* out, std::size_t size, const char* name) {
  const std::size_t n = std::strlen(name);
  if (n >= size) return false;
  std::memcpy(out, name, n + 1);
  return true;
}

// The files of one uverbsN directory.
bool read_uverbs_files(int fd, const char* name, verbs_sysfs_dev* dev) {
  char value[32];
  unsigned maj, min;
  if (!copy_name(dev->sysfs_name, sizeof dev->sysfs_name, name)) return false;
  if (read_sysfs_file_at(fd, "dev", value, sizeof value) < 0 || std::sscanf(value, "%u:%u", &maj, &min) != 2) return false;
  dev->sysfs_cdev = makedev(maj, min);
  if (read_sysfs_file_at(fd, "abi_version", value, sizeof value) > 0)
    dev->abi_ver = static_cast<std::uint32_t>(std::strtoul(value, nullptr, 10));
  return true;
}

verbs_sysfs_dev* read_device(int class_fd, const char* uverbs) {
  auto* dev = static_cast<verbs_sysfs_dev*>(std::calloc(1, sizeof(verbs_sysfs_dev)));
  if (!dev) return nullptr;
  dev->ibdev_idx = -1;
  dev->driver_id = VERBS_DRIVER_ID_UNKNOWN;
  char value[32];
  int fd = openat(class_fd, uverbs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && read_sysfs_file_at(fd, "ibdev", dev->ibdev_name, sizeof dev->ibdev_name) > 0;
  if (ok) {
    int n = std::snprintf(dev->ibdev_path, sizeof dev->ibdev_path, "%s/class/infiniband/%s", ibv_get_sysfs_path(), dev->ibdev_name);
    ok = n > 0 && static_cast<std::size_t>(n) < sizeof dev->ibdev_path && read_uverbs_files(fd, uverbs, dev) && cdev_exists(dev);
  }
  if (ok)
    dev->node_type = ibv_read_ibdev_sysfs_file(value, sizeof value, dev, "node_type") > 0
                         ? decode_node_type(static_cast<unsigned>(std::strtoul(value, nullptr, 10)))
                         : IBV_NODE_UNKNOWN;
  if (fd >= 0) close(fd);
  if (ok) return dev;
  std::free(dev);
  return nullptr;
}

}  // namespace

bool read_uverbs_dir(int dirfd, const char* path, verbs_sysfs_dev* dev) {
  int fd = dirfd < 0 ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = fd < 0 ? nullptr : fdopendir(fd);
  if (!dir) {
    if (fd >= 0) close(fd);
    return false;
  }
  bool ok = false;
  while (dirent* e = readdir(dir)) {
    if (e->d_name[0] == '.') continue;
    int sub = openat(::dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ok = sub >= 0 && read_uverbs_files(sub, e->d_name, dev);
    if (sub >= 0) close(sub);
    break;
  }
  closedir(dir);
  return ok;
}

int find_devices_sysfs(verbs_sysfs_dev** list) {
  *list = nullptr;
  char path[IBV_SYSFS_PATH_MAX + 32];
  std::snprintf(path, sizeof path, "%s/class/infiniband_verbs", ibv_get_sysfs_path());
  DIR* dir = opendir(path);
  if (!dir) return ENOSYS;
  while (dirent* e = readdir(dir)) {
    if (e->d_name[0] == '.') continue;
    if (verbs_sysfs_dev* dev = read_device(::dirfd(dir), e->d_name)) {
      dev->next = *list;
      *list = dev;
    }
  }
  closedir(dir);
  return 0;
}

bool cdev_exists(const verbs_sysfs_dev* dev) {
  char path[IBV_SYSFS_NAME_MAX + 32];
  struct stat st;
  std::snprintf(path, sizeof path, "/dev/infiniband/%s", dev->sysfs_name);
  return stat(path, &st) == 0;
}

enum ibv_node_type decode_node_type(unsigned kernel_type) {
  switch (kernel_type) {
    case RDMA_NODE_IB_CA: return IBV_NODE_CA;
    case RDMA_NODE_IB_SWITCH: return IBV_NODE_SWITCH;
    case RDMA_NODE_IB_ROUTER: return IBV_NODE_ROUTER;
    case RDMA_NODE_RNIC: return IBV_NODE_RNIC;
    case RDMA_NODE_USNIC: return IBV_NODE_USNIC;
    case RDMA_NODE_USNIC_UDP: return IBV_NODE_USNIC_UDP;
    case RDMA_NODE_UNSPECIFIED: return IBV_NODE_UNSPECIFIED;
    default: return IBV_NODE_UNKNOWN;
  }
}

void free_sysfs_devs(verbs_sysfs_dev* list) {
  while (list) {
    verbs_sysfs_dev* next = list->next;
    std::free(list);
    list = next;
  }
}

}  // namespace uhca::verbs
