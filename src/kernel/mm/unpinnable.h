// SPDX-License-Identifier: MIT
// Mappings of the program that have no pages behind them, such as a GPU's memory. Linux: VM_PFNMAP, which pin_user_pages refuses.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uhca::kernel::mm {

// Set by whoever makes such mappings: whether one lies in [va, va + length). nullptr: there are none.
inline constinit std::atomic<bool (*)(std::uintptr_t va, std::size_t length)> unpinnable{nullptr};

}  // namespace uhca::kernel::mm
