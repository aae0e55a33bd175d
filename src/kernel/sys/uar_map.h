// SPDX-License-Identifier: MIT
// Where doorbell pages are mapped in this process: VA -> BAR offset. Lookups are lock-free (data path, signal handlers).
#pragma once

#include <cstddef>
#include <cstdint>

namespace uhca::sys {

struct CmdFile;

// After mmap gave `va` (page-aligned, `length` bytes) for the BAR range at `bar_offset`; uar_index as in MmapTarget.
void uar_map_add(std::uintptr_t va, std::size_t length, std::uint64_t bar_offset, std::uint32_t uar_index, CmdFile* file);
// [va, va+length) is unmapped or replaced.
void uar_map_remove(std::uintptr_t va, std::size_t length);
// The file is closed: its pages are no longer watched (they stay mapped, as the real ones would until munmap).
void uar_map_forget_file(CmdFile* file);
// Turns watching of all pages of `file` on or off (decision 4).
void uar_map_watch(CmdFile* file, bool on);
// Watches the page at this address again: someone other than the provider rings there.
void uar_map_watch_page(std::uintptr_t va, bool on);
// BAR offset of the register at `va`, or -1.
std::int64_t uar_map_find(std::uintptr_t va);
// In a forked child: doorbells of the parent must not be rung from here; the pages become private zeroes.
void uar_map_wipe();

}  // namespace uhca::sys
