// SPDX-License-Identifier: MIT
// Finding and loading the provider, and deciding whether it serves a device.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <initializer_list>

#include "user/verbs/internal.h"
#include "user/verbs/provider_list.h"

namespace uhca::verbs {
namespace {

constinit const uhca_provider* loaded = nullptr;
char load_error[512];
pthread_once_t load_once = PTHREAD_ONCE_INIT;

void* open_beside_us(const char* soname) {
  Dl_info self;
  if (!dladdr(reinterpret_cast<void*>(&find_provider), &self) || !self.dli_fname) return nullptr;
  const char* slash = std::strrchr(self.dli_fname, '/');
  if (!slash) return nullptr;
  char path[4096];
  int n = std::snprintf(path, sizeof path, "%.*s/%s", static_cast<int>(slash - self.dli_fname), self.dli_fname, soname);
  if (n < 0 || static_cast<std::size_t>(n) >= sizeof path) return nullptr;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void load() {
  constexpr const char* kSoname = "libmlx5.so.1";
  void* handle = open_beside_us(kSoname);
  if (!handle) handle = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    std::snprintf(load_error, sizeof load_error, "%s", why ? why : kSoname);
    return;
  }
  auto* symbol = static_cast<const uhca_provider* const*>(dlsym(handle, "uhca_provider"));
  if (!symbol || !*symbol) {
    // rdma-core's own libmlx5 has another private interface.
    std::snprintf(load_error, sizeof load_error, "%s is not a provider of this library", kSoname);
  } else if ((*symbol)->struct_size != sizeof(uhca_provider)) {
    std::snprintf(load_error, sizeof load_error, "%s was built against another provider interface", kSoname);
  } else {
    loaded = *symbol;
    return;  // stays loaded for the life of the process
  }
  dlclose(handle);
}

const verbs_match_ent* match(const uhca_provider* provider, verbs_sysfs_dev* dev) {
  if (dev->driver_id != VERBS_DRIVER_ID_UNKNOWN) {
    for (const verbs_match_ent* e = provider->match_table; e->kind != VERBS_MATCH_SENTINEL; ++e)
      if (e->kind == VERBS_MATCH_DRIVER_ID && e->driver_id == dev->driver_id) return e;
  }
  if (ibv_read_ibdev_sysfs_file(dev->modalias, sizeof dev->modalias, dev, "device/modalias") <= 0) dev->modalias[0] = '\0';
  unsigned vendor, device;
  if (std::sscanf(dev->modalias, "pci:v%8Xd%8Xsv", &vendor, &device) != 2) return nullptr;
  for (const verbs_match_ent* e = provider->match_table; e->kind != VERBS_MATCH_SENTINEL; ++e)
    if (e->kind == VERBS_MATCH_PCI && e->vendor == vendor && e->device == device) return e;
  return nullptr;
}

// RDMAV_DRIVERS / IBV_DRIVERS: extra driver names, separated by colons or semicolons. Ours is the only provider that can be loaded; another
// name is reported, because the program that set it expects that driver.
void check_driver_environment() {
  for (const char* variable : {"RDMAV_DRIVERS", "IBV_DRIVERS"}) {
    const char* list = std::getenv(variable);
    if (!list || getuid() != geteuid()) continue;
    for (const char* p = list; *p;) {
      const std::size_t n = std::strcspn(p, ":;");
      // A name, or a path whose last part names the driver.
      const char* base = p;
      for (std::size_t i = 0; i < n; ++i)
        if (p[i] == '/') base = p + i + 1;
      const std::size_t len = static_cast<std::size_t>(p + n - base);
      if (len && !(len >= 4 && std::strncmp(base, "mlx5", 4) == 0) && !(len >= 7 && std::strncmp(base, "libmlx5", 7) == 0) &&
          show_warnings())
        std::fprintf(stderr, "libibverbs: Warning: couldn't load driver '%.*s': only mlx5 has a provider here\n", static_cast<int>(n), p);
      p += n + (p[n] ? 1 : 0);
    }
  }
}

}  // namespace

const uhca_provider* find_provider(verbs_sysfs_dev* dev) {
  pthread_once(&load_once, [] {
    check_driver_environment();
    load();
  });
  if (!loaded) {
    if (show_warnings())
      std::fprintf(stderr, "libibverbs: Warning: no userspace device-specific driver found for %s: %s\n", dev->ibdev_name, load_error);
    return nullptr;
  }
  dev->match = match(loaded, dev);
  if (!dev->match) {
    if (show_warnings()) std::fprintf(stderr, "libibverbs: Warning: no userspace device-specific driver found for %s\n", dev->ibdev_name);
    return nullptr;
  }
  if (dev->abi_ver < loaded->match_min_abi_version || dev->abi_ver > loaded->match_max_abi_version) {
    if (show_warnings())
      std::fprintf(stderr, "libibverbs: Warning: Driver %s does not support the kernel ABI of %u (supports %u to %u) for device %s\n",
                   loaded->name, dev->abi_ver, loaded->match_min_abi_version, loaded->match_max_abi_version, dev->ibdev_path);
    return nullptr;
  }
  return loaded;
}

}  // namespace uhca::verbs
