// SPDX-License-Identifier: MIT
// Internal descriptors: they live high in the table, and closefrom/close_range/dup2 of the program must not hit them
// (reference: "Internal fds live high in the table and survive closefrom and dup2").
#pragma once

namespace uhca::fd {

// Takes ownership of `fd`, moves it to a number >= kFloor with O_CLOEXEC, registers it and returns the new number; -1 stays -1.
int adopt(int fd);
// Closes an adopted descriptor (raw system call) and unregisters it.
void close(int fd);
// Whether `fd` is one of ours. Async-signal-safe, lock-free.
bool is_internal(int fd);
// The lowest internal descriptor >= fd, or -1: for close_range.
int next_internal(int fd);
// After fork in the child: closes all (the parent's keep living) and forgets them.
void abandon_all();

inline constexpr int kFloor = 600;  // raised towards RLIMIT_NOFILE's soft limit where that is lower

}  // namespace uhca::fd
