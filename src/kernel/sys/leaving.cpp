// SPDX-License-Identifier: MIT
// A program that ends has nothing left in the port: a kernel and a NIC would go on without it.
#include "kernel/sys/instance.h"

namespace uhca::sys {
namespace {

__attribute__((destructor)) void leaves() {
  Instance* i = instance();
  if (i == nullptr || !own_process()) return;
  KernelEntry entry;
  i->device->going_to_sleep();
}

}  // namespace
}  // namespace uhca::sys
