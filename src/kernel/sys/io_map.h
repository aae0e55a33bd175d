// SPDX-License-Identifier: MIT
// What programs have mapped of the device beside doorbells: memory that lives as long as its mapping, and pages that are no memory, where
// each access faults and is performed by the device. Linux: struct rdma_user_mmap_entry; KVM's emulation of accesses to a device.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace uhca::sys {

struct IoRange {
  std::uintptr_t begin, end;  // whole pages
  std::uint64_t bar_offset;   // what `begin` shows of BAR 0
  bool trapped;
  std::shared_ptr<void> hold;
};
// Ranges that are in no map any more. What they hold goes with them: it may issue commands.
class IoRanges {
 public:
  IoRanges() = default;
  IoRanges(IoRanges&&) = default;
  IoRanges& operator=(IoRanges&&) = default;
  ~IoRanges();
  std::vector<IoRange> all;
};

// [va, va + length), whole pages, shows BAR 0 from `bar_offset` on. `hold` is dropped when the last page of it goes.
void io_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, bool trapped, std::shared_ptr<void> hold);
// What the map has there is taken out of it, to be dropped when the pages are gone, or put back.
IoRanges io_map_take(std::uintptr_t va, std::size_t length);
// What was taken from [from, ...) lies in [to, to + length) now; what no longer fits is dropped.
void io_map_put(IoRanges ranges, std::uintptr_t from, std::uintptr_t to, std::size_t length);
bool io_map_touches(std::uintptr_t va, std::size_t length);
// A program's instruction faulted: true: it was an access to trapped pages, has been performed, and the context stands behind it. Only
// plain moves of 1, 2, 4 or 8 bytes between a register, or a constant, and memory are understood.
bool io_map_fault(const siginfo_t& info, void* ucontext);
// In a forked child: the mappings are gone.
void io_map_forget_after_fork();

}  // namespace uhca::sys
