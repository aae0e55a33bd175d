// SPDX-License-Identifier: MIT
// Buffers of the GPU as dma-bufs, by the rules of the two drivers.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernel/gpu/bo.h"
#include "kernel/mm/dma_buf.h"

namespace uhca::kernel::gpu {

// amdgpu (amdgpu_dma_buf.c): all of the buffer; one dma-buf for each, however often it is exported. It moves, and tells importers that
// follow; importers that pin are served from VRAM as long as all of them reach it. EPERM: user memory, or a buffer that is always valid in
// its VM.
Result<std::shared_ptr<mm::DmaBuf>> amdgpu_export(const std::shared_ptr<Bo>& bo);

// The buffer behind a dma-buf that amdgpu_export made; nullptr: somebody else's.
std::shared_ptr<Bo> amdgpu_own(mm::DmaBuf& buf);

// NVIDIA (nv-dmabuf.c): whole pages of a buffer in VRAM; a dma-buf of its own each time. It never moves. Importers that follow moves must
// come by way of the bus: else attaching gives ENOTSUPP (524, an errno that Linux keeps to itself but lets out here), as it does where the
// bus does not route. A full BAR 1 shows when it is mapped: ENOMEM. EINVAL: the range. EOPNOTSUPP: `pcie`, which only GPUs with a coherent
// link to the CPU can tell from the default. Such a descriptor cannot be mapped: 524 too.
Result<std::shared_ptr<mm::DmaBuf>> nv_export(const std::shared_ptr<Bo>& bo, std::uint64_t offset, std::uint64_t size, bool pcie);

inline constexpr int kEnotsupp = 524;

// In a forked child: whoever was exporting is not here.
void exports_forget_after_fork();

}  // namespace uhca::kernel::gpu
