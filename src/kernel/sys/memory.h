// SPDX-License-Identifier: MIT
// Memory that the program takes away from under a registration. Linux: the MMU notifiers.
#pragma once

#include <cstddef>

#include "kernel/sys/io_map.h"

namespace uhca::sys {

// [va, va+n) is about to go; `how` ends the sentence "memory was ... while registered" (at most 31 characters). errno is preserved. What
// the program has mapped there of the device: to be kept until the pages are gone.
IoRanges memory_going(void* va, std::size_t n, const char* how);

// In the child after fork.
void shm_after_fork();

}  // namespace uhca::sys
