// SPDX-License-Identifier: MIT
// Where programs have mapped buffers of the GPU. A mapping follows its buffer: it is closed while the buffer moves, and whoever touches it
// then waits, as in a page fault. Linux: drivers/gpu/drm/ttm/ttm_bo_vm.c (ttm_bo_unmap_virtual, ttm_bo_vm_fault).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernel/mm/dma_buf.h"

namespace uhca::kernel::gpu {

class Bo;

// A run of a buffer's bytes as a descriptor holds it.
struct FilePiece {
  int fd;
  std::uint64_t offset, length;  // bytes
};

// Maps `m` of the buffer, which lies in `pieces` (all of it) and does not move meanwhile: the address.
Result<std::uintptr_t> view_map(const std::shared_ptr<Bo>& bo, const mm::UserMapping& m, const std::vector<FilePiece>& pieces);
// The buffer begins to move; the calls nest.
void views_close(const Bo& bo);
// ... has moved and lies in `pieces` now.
void views_open(const Bo& bo, const std::vector<FilePiece>& pieces);
// The program unmaps, or replaces, [va, va + length).
void views_unmapped(std::uintptr_t va, std::size_t length);
// Whether a program maps a buffer anywhere in [va, va + length): no memory that can be pinned (VM_PFNMAP).
bool views_overlap(std::uintptr_t va, std::size_t length);
// From the handler of SIGSEGV: true: the buffer was moving, has arrived, and the access is to be tried again.
bool views_fault(std::uintptr_t at);
void views_forget_after_fork();

}  // namespace uhca::kernel::gpu
