// SPDX-License-Identifier: MIT
#pragma once

#include "kernel/sys/lookup.h"

namespace uhca::sys {

// open(2) of a virtual file (w.ours()): a descriptor, or -1 with errno.
int virtual_open(const Where& w, int flags);

}  // namespace uhca::sys
