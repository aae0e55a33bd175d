// SPDX-License-Identifier: MIT
// Memory that the program takes away from under a registration. Linux: the MMU notifiers.
#pragma once

#include <cstddef>

namespace uhca::sys {

// [va, va+n) is about to go; `how` ends the sentence "memory was ... while registered" (at most 31 characters). errno is preserved.
void memory_going(void* va, std::size_t n, const char* how);

// In the child after fork.
void shm_after_fork();

}  // namespace uhca::sys
