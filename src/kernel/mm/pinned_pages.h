// SPDX-License-Identifier: MIT
// Registered memory that is brought in, stays, and counts (`uhca run --pin`): what a kernel does with every page that it pins. Without
// that mode pages come when they are used, as memory of a process does. Linux: core/umem.c, mm->pinned_vm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace uhca::kernel::mm {

// Of this process, as its pages are. Thread-safe.
class PinnedPages {
 public:
  static void enable(bool on);
  static bool enabled();
  // Whole pages, which the caller knows to be there. Each call counts all of its pages against RLIMIT_MEMLOCK, unless the process has
  // CAP_IPC_LOCK: ENOMEM.
  static Status take(std::uint64_t begin, std::uint64_t end, std::string_view who);
  // Pages that nobody else has taken may leave memory again.
  static void release(std::uint64_t begin, std::uint64_t end);
  static std::uint64_t counted();  // pages
  static void forget_after_fork();
};

}  // namespace uhca::kernel::mm
