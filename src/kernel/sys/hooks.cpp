// SPDX-License-Identifier: MIT
// The hooks of uapi/hooks.h. The slot has its own Guard.
#include "uapi/hooks.h"

#include <cerrno>

#include "kernel/sys/cmdfile.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/next.h"
#include "kernel/sys/uar_map.h"

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT void uhca_hook_doorbell(volatile void* reg, uint64_t value) {
  Instance* i = instance();
  if (!i) return;
  int saved = errno;
  unblock_faults();
  std::int64_t offset = uar_map_find(reinterpret_cast<std::uintptr_t>(reg));
  if (offset >= 0) i->device->doorbell(static_cast<std::uint64_t>(offset), value);
  errno = saved;
}

UHCA_EXPORT int uhca_hook_polled_empty(uint32_t) {
  Instance* i = instance();
  if (!i || device_is_idle(*i)) return 0;
  int saved = errno;
  unblock_faults();
  i->device->polled_empty();
  errno = saved;
  return 1;
}

UHCA_EXPORT void uhca_hook_attach(int cmd_fd) {
  int saved = errno;
  if (auto f = cmdfile_of(cmd_fd)) {
    f->attached.store(true);
    f->provider.store(true);
    uhca::inside::Guard guard;
    uar_map_watch(f.get(), false);
  }
  errno = saved;
}
