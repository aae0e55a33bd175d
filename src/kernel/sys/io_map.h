// SPDX-License-Identifier: MIT
// What programs have mapped of the device beside doorbells: memory that lives as long as its mapping, and pages that are no memory, where
// each access faults and is performed by the device. Linux: struct rdma_user_mmap_entry; KVM's emulation of accesses to a device.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace uhca::sys {

// [va, va + length), whole pages, shows BAR 0 from `bar_offset` on. `hold` is dropped when the last page of it goes.
void io_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, bool trapped, std::shared_ptr<void> hold);
void io_map_remove(std::uintptr_t va, std::size_t length);
// A program's instruction faulted: true: it was an access to trapped pages, has been performed, and the context stands behind it. Only
// plain moves of 1, 2, 4 or 8 bytes between a register, or a constant, and memory are understood.
bool io_map_fault(const siginfo_t& info, void* ucontext);
// In a forked child: the mappings are gone.
void io_map_forget_after_fork();

}  // namespace uhca::sys
