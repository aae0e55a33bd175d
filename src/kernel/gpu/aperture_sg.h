// SPDX-License-Identifier: MIT
// Blocks of VRAM as an importer gets them: pages of the aperture. Linux: amdgpu_vram_mgr_alloc_sgt; NVIDIA: nv_dma_buf_map_pfns.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "kernel/gpu/gpu.h"

namespace uhca::kernel::gpu {

// What an attachment has open of the aperture. Closed when it goes.
struct ApertureSg final : mm::SgTable {
  explicit ApertureSg(Vram& v) : vram(v) {}
  ~ApertureSg() {
    for (auto& [offset, length] : open) vram.close_aperture(offset, length);
  }
  // [offset, +size) of the blocks. ENOMEM.
  static Result<std::unique_ptr<mm::SgTable>> make(Vram& vram, const Bo& bo, std::uint64_t offset, std::uint64_t size) {
    auto t = std::make_unique<ApertureSg>(vram);
    std::uint64_t at = 0;
    for (const Block& b : bo.blocks()) {
      const std::uint64_t from = std::max(at, offset), to = std::min(at + b.size, offset + size);
      if (from < to) {
        const std::uint64_t in_vram = b.offset + (from - at);
        std::byte* memory = UHCA_TRY(vram.open_aperture(in_vram, to - from));
        t->open.push_back({in_vram, to - from});
        t->entries.push_back({memory, to - from});
        if (trace::on())
          trace::Event("gpu", "aperture")
              .unum("bo", bo.number())
              .hex("vram", in_vram)
              .hex("bar", kApertureBase + in_vram)
              .unum("len", to - from);
      }
      at += b.size;
    }
    return std::unique_ptr<mm::SgTable>(std::move(t));
  }
  Vram& vram;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> open;
};

}  // namespace uhca::kernel::gpu
