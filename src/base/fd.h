// SPDX-License-Identifier: MIT
// Internal descriptors: they live high in the table, and closefrom/close_range/dup2 of the program must not hit them
// (reference: "Internal fds live high in the table and survive closefrom and dup2").
#pragma once

#include <cstddef>

#include "base/result.h"

namespace uhca::fd {

// Takes ownership of `fd`, moves it to a number >= kFloor with O_CLOEXEC, registers it and returns the new number; -1 stays -1.
int adopt(int fd);
// Closes an adopted descriptor (raw system call) and unregisters it.
void close(int fd);
// A new memory file of `bytes` bytes, adopted, that nobody can resize or seal further, nor execute where the kernel offers that (6.3).
// `name` is for people (/proc/PID/maps). Errors: those of memfd_create(2), ftruncate(2) and fcntl(2).
Result<int> sealed_memfd(const char* name, std::size_t bytes);
// Whether `fd` is one of ours. Async-signal-safe, lock-free.
bool is_internal(int fd);
// The lowest internal descriptor >= fd, or -1: for close_range.
int next_internal(int fd);
// After fork in the child: closes all (the parent's keep living) and forgets them.
void abandon_all();

inline constexpr int kFloor = 600;  // raised towards RLIMIT_NOFILE's soft limit where that is lower

}  // namespace uhca::fd
