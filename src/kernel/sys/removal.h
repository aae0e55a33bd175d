// SPDX-License-Identifier: MIT
// The operator takes the device away: `uhca run --remove-after SECONDS`.
#pragma once

#include "kernel/core/ib_verbs.h"

namespace uhca::sys {

// Starts the wait that UHCA_REMOVE_AFTER asks for, if it does: that many seconds from now the device is gone for its open uverbs files
// and for those to come.
void removal_schedule(kernel::ib_device& dev);

}  // namespace uhca::sys
