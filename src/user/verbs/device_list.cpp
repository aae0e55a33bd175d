// SPDX-License-Identifier: MIT
// The list of devices. Every ibv_get_device_list scans again; a device that is still there keeps its ibv_device.
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "user/verbs/internal.h"
#include "user/verbs/provider_list.h"

using namespace uhca::verbs;

namespace {

pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
constinit verbs_device* devices = nullptr;  // each holds one reference of the list
constinit bool initialised = false;
constinit bool allow_disassociate_destroy = false;

bool set(const char* variable) {
  const char* v = std::getenv(variable);
  return v && *v && std::strcmp(v, "0") != 0;
}

void check_memlock_limit() {
  rlimit limit;
  if (!geteuid() || !show_warnings() || getrlimit(RLIMIT_MEMLOCK, &limit)) return;
  if (limit.rlim_cur <= 32768)
    std::fprintf(stderr, "libibverbs: Warning: RLIMIT_MEMLOCK is %llu bytes.\n    This will severely limit memory registrations.\n",
                 static_cast<unsigned long long>(limit.rlim_cur));
}

void initialise() {
  if (initialised) return;
  initialised = true;
  init_log();
  if ((set("RDMAV_FORK_SAFE") || set("IBV_FORK_SAFE")) && ibv_fork_init())
    std::fprintf(stderr, "libibverbs: Warning: fork()-safety requested but init failed\n");
  allow_disassociate_destroy = set("RDMAV_ALLOW_DISASSOC_DESTROY") || set("MLX4_DEVICE_FATAL_CLEANUP");
  check_memlock_limit();
}

// 0 when the uverbs interface has a version that this library speaks. Devices found by netlink have had version 6 since there is netlink.
int check_abi_version(bool by_netlink) {
  char value[16];
  if (by_netlink) return 0;
  if (ibv_read_sysfs_file(ibv_get_sysfs_path(), "class/infiniband_verbs/abi_version", value, sizeof value) <= 0) return ENOSYS;
  const long abi = std::strtol(value, nullptr, 10);
  if (abi == kMaxUverbsAbi) return 0;
  if (show_warnings())
    std::fprintf(stderr, "libibverbs: Fatal: kernel ABI version %ld doesn't match library version %d.\n", abi, kMaxUverbsAbi);
  return ENOSYS;
}

bool same_device(const verbs_sysfs_dev* a, const verbs_sysfs_dev* b) {
  return std::strcmp(a->sysfs_name, b->sysfs_name) == 0 && a->ibdev_idx == b->ibdev_idx &&
         (a->ibdev_idx != -1 || a->sysfs_cdev == b->sysfs_cdev);
}

enum ibv_transport_type transport_of(enum ibv_node_type node) {
  switch (node) {
    case IBV_NODE_CA:
    case IBV_NODE_SWITCH:
    case IBV_NODE_ROUTER: return IBV_TRANSPORT_IB;
    case IBV_NODE_RNIC: return IBV_TRANSPORT_IWARP;
    case IBV_NODE_USNIC: return IBV_TRANSPORT_USNIC;
    case IBV_NODE_USNIC_UDP: return IBV_TRANSPORT_USNIC_UDP;
    case IBV_NODE_UNSPECIFIED: return IBV_TRANSPORT_UNSPECIFIED;
    default: return IBV_TRANSPORT_UNKNOWN;
  }
}

// Takes dev on success.
verbs_device* make_device(verbs_sysfs_dev* dev) {
  const uhca_provider* provider = find_provider(dev);
  if (!provider) return nullptr;
  verbs_device* vdev = provider->alloc_device(dev);
  if (!vdev) return nullptr;
  ibv_device* d = &vdev->device;
  vdev->provider = provider;
  vdev->refcount = 1;
  vdev->sysfs = dev;
  d->node_type = dev->node_type;
  d->transport_type = transport_of(dev->node_type);
  std::snprintf(d->dev_name, sizeof d->dev_name, "%s", dev->sysfs_name);
  std::snprintf(d->dev_path, sizeof d->dev_path, "%s/class/infiniband_verbs/%s", ibv_get_sysfs_path(), dev->sysfs_name);
  std::snprintf(d->name, sizeof d->name, "%s", dev->ibdev_name);
  std::snprintf(d->ibdev_path, sizeof d->ibdev_path, "%s", dev->ibdev_path);
  return vdev;
}

// Brings `devices` up to date. 0 or a positive errno.
int rescan() {
  verbs_sysfs_dev* found = nullptr;
  bool by_netlink = find_devices_netlink(&found) == 0;
  if (!by_netlink) {
    if (int e = find_devices_sysfs(&found)) return e;
  }
  if (found) {
    if (int e = check_abi_version(by_netlink)) {
      free_sysfs_devs(found);
      return e;
    }
  }
  verbs_device* old = devices;
  verbs_device** tail = &devices;
  devices = nullptr;
  for (verbs_sysfs_dev* next; found; found = next) {
    next = found->next;
    found->next = nullptr;
    verbs_device* vdev = nullptr;
    for (verbs_device** p = &old; *p; p = &(*p)->next) {
      if (!same_device((*p)->sysfs, found)) continue;
      vdev = *p;
      *p = vdev->next;
      std::free(found);
      break;
    }
    if (!vdev) {
      vdev = make_device(found);
      if (!vdev) {
        std::free(found);
        continue;
      }
    }
    vdev->next = nullptr;
    *tail = vdev;
    tail = &vdev->next;
  }
  for (verbs_device* next; old; old = next) {  // gone from the system
    next = old->next;
    device_put(&old->device);
  }
  return 0;
}

}  // namespace

namespace uhca::verbs {

void device_hold(ibv_device* device) {
  __atomic_fetch_add(&verbs_get_device(device)->refcount, 1, __ATOMIC_RELAXED);
}

void device_put(ibv_device* device) {
  verbs_device* vdev = verbs_get_device(device);
  if (__atomic_sub_fetch(&vdev->refcount, 1, __ATOMIC_ACQ_REL) != 0) return;
  std::free(vdev->sysfs);
  if (vdev->provider->uninit_device) vdev->provider->uninit_device(vdev);
}

}  // namespace uhca::verbs

UHCA_EXPORT bool verbs_allow_disassociate_destroy() {
  return allow_disassociate_destroy;
}

UHCA_EXPORT ibv_device** ibv_get_device_list(int* num_devices) {
  if (num_devices) *num_devices = 0;
  pthread_mutex_lock(&list_lock);
  initialise();
  ibv_device** list = nullptr;
  if (int e = rescan()) {
    errno = e;
  } else {
    int n = 0;
    for (verbs_device* d = devices; d; d = d->next) ++n;
    list = static_cast<ibv_device**>(std::calloc(static_cast<std::size_t>(n) + 1, sizeof *list));
    if (!list) {
      errno = ENOMEM;
    } else {
      n = 0;
      for (verbs_device* d = devices; d; d = d->next) {
        device_hold(&d->device);
        list[n++] = &d->device;
      }
      if (num_devices) *num_devices = n;
    }
  }
  pthread_mutex_unlock(&list_lock);
  return list;
}

UHCA_EXPORT void ibv_free_device_list(ibv_device** list) {
  for (ibv_device** p = list; *p; ++p) device_put(*p);
  std::free(list);
}

UHCA_EXPORT const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}

UHCA_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  verbs_sysfs_dev* dev = verbs_get_device(device)->sysfs;
  if (!dev) return 0;
  pthread_mutex_lock(&list_lock);
  if (!dev->have_node_guid) {
    char value[24];
    unsigned part[4];
    if (ibv_read_ibdev_sysfs_file(value, sizeof value, dev, "node_guid") > 0 &&
        std::sscanf(value, "%4x:%4x:%4x:%4x", &part[0], &part[1], &part[2], &part[3]) == 4) {
      dev->node_guid = std::uint64_t{part[0]} << 48 | std::uint64_t{part[1]} << 32 | std::uint64_t{part[2]} << 16 | part[3];
      dev->have_node_guid = true;
    }
  }
  const std::uint64_t guid = dev->have_node_guid ? dev->node_guid : 0;
  pthread_mutex_unlock(&list_lock);
  return __builtin_bswap64(guid);
}

UHCA_EXPORT int ibv_get_device_index(ibv_device* device) {
  const verbs_sysfs_dev* dev = verbs_get_device(device)->sysfs;
  return dev ? dev->ibdev_idx : -1;
}
