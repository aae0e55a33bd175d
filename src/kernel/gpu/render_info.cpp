// SPDX-License-Identifier: MIT
// What amdgpu says of the card. Linux: amdgpu_info_ioctl (amdgpu_kms.c).
#include <drm/amdgpu_drm.h>

#include <algorithm>

#include "base/log.h"
#include "kernel/gpu/card.h"
#include "kernel/gpu/render.h"

namespace uhca::kernel::gpu {
namespace {

drm_amdgpu_info_device device_info(Gpu&) {
  drm_amdgpu_info_device d{};
  d.device_id = kDeviceId;
  d.chip_rev = 1;
  d.external_rev = 0x3d;
  d.pci_rev = kRevision;
  d.family = AMDGPU_FAMILY_AI;
  d.num_shader_engines = 8;
  d.num_shader_arrays_per_engine = 1;
  d.gpu_counter_freq = 100'000;  // kHz
  d.max_engine_clock = kEngineClock * 1000;
  d.max_memory_clock = 1'600'000;
  d.cu_active_number = kComputeUnits;
  d.num_rb_pipes = 0;
  d.virtual_address_offset = 0x200000;
  d.virtual_address_max = std::uint64_t{1} << 47;
  d.virtual_address_alignment = 4096;
  d.pte_fragment_size = 1 << 21;
  d.gart_page_size = 4096;
  d.vram_type = AMDGPU_VRAM_TYPE_HBM;
  d.vram_bit_width = 4096;
  d.wave_front_size = 64;
  return d;
}

drm_amdgpu_memory_info memory_info(Gpu& gpu) {
  drm_amdgpu_memory_info m{};
  auto fill = [](drm_amdgpu_heap_info& h, std::uint64_t total, std::uint64_t free) {
    h.total_heap_size = h.usable_heap_size = total;
    h.heap_usage = total - free;
    h.max_allocation = total * 3 / 4;
  };
  fill(m.vram, gpu.vram().size(), gpu.vram().free_bytes(gpu.vram().size()));
  fill(m.cpu_accessible_vram, gpu.vram().visible(), gpu.vram().free_bytes(gpu.vram().visible()));
  fill(m.gtt, Gpu::kGttSize, Gpu::kGttSize - gpu.gtt_used());
  return m;
}

}  // namespace

Status amdgpu_info(Gpu& gpu, UserPtr arg) {
  drm_amdgpu_info in{};
  UHCA_CHECK(copy_from_user(&in, arg, sizeof in));
  auto answer = [&in](const auto& value) {
    return copy_to_user(in.return_pointer, &value, std::min<std::size_t>(in.return_size, sizeof value));
  };
  switch (in.query) {
    case AMDGPU_INFO_ACCEL_WORKING: return answer(std::uint32_t{1});
    case AMDGPU_INFO_DEV_INFO: return answer(device_info(gpu));
    case AMDGPU_INFO_MEMORY: return answer(memory_info(gpu));
    case AMDGPU_INFO_VRAM_GTT: {
      const auto m = memory_info(gpu);
      return answer(drm_amdgpu_info_vram_gtt{m.vram.total_heap_size, m.cpu_accessible_vram.total_heap_size, m.gtt.total_heap_size});
    }
    case AMDGPU_INFO_VRAM_USAGE: return answer(std::uint64_t{memory_info(gpu).vram.heap_usage});
    case AMDGPU_INFO_VIS_VRAM_USAGE: return answer(std::uint64_t{memory_info(gpu).cpu_accessible_vram.heap_usage});
    case AMDGPU_INFO_GTT_USAGE: return answer(std::uint64_t{memory_info(gpu).gtt.heap_usage});
    case AMDGPU_INFO_READ_MMR_REG: {
      // Its registers read as zero.
      if (in.read_mmr_reg.count > 128) return refuse(EINVAL, "amdgpu: {} registers at once", in.read_mmr_reg.count);
      return clear_user(in.return_pointer, std::min<std::size_t>(in.return_size, in.read_mmr_reg.count * 4));
    }
    case AMDGPU_INFO_HW_IP_COUNT: return answer(std::uint32_t{0});
    default: return refuse(EINVAL, "amdgpu: info query {:#x}", in.query);
  }
}

}  // namespace uhca::kernel::gpu
