// SPDX-License-Identifier: MIT
// Contexts of a libibverbs in this process (see contexts.cpp).
#pragma once

namespace uhca::sys {

// A uverbs call may have made or destroyed objects: remembered hardware numbers are looked up again.
void contexts_handles_changed();

}  // namespace uhca::sys
