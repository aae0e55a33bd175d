// SPDX-License-Identifier: MIT
// Memory of the kernel's own that is closed on purpose, so that DMA to a stale address faults: what such a fault means.
#pragma once

#include <cstddef>

namespace uhca::kernel::mm {

// `meaning`: a constant, which reasons of failed DMA quote.
void name_trap(const void* memory, std::size_t length, const char* meaning);
void forget_trap(const void* memory);
// nullptr: no trap lies there. Takes no lock.
const char* trap_at(const void* memory);

}  // namespace uhca::kernel::mm
