// SPDX-License-Identifier: MIT
#include "kernel/sys/contexts.h"
namespace uhca::sys {
void contexts_handles_changed() {}
}  // namespace uhca::sys
