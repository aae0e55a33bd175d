// SPDX-License-Identifier: MIT
// What sysfs tells of the card: its slot on the bus, and KFD's topology. Linux: drivers/pci/pci-sysfs.c,
// drivers/gpu/drm/amd/amdkfd/kfd_topology.c, kfd_crat.c.
#include <fmt/format.h>
#include <unistd.h>

#include "kernel/gpu/card.h"
#include "kernel/gpu/file.h"
#include "kernel/gpu/vram.h"

namespace uhca::kernel::gpu {
namespace {

constexpr char kTopology[] = "/sys/devices/virtual/kfd/kfd/topology/";
constexpr unsigned kHeapSystem = 0, kHeapPublic = 1, kHeapPrivate = 2;  // HSA_MEM_HEAP_TYPE_*
constexpr unsigned kPciExpress = 2;                                     // CRAT_IOLINK_TYPE_PCIEXPRESS

std::string cpu_node(bool link) {
  return fmt::format(
      "cpu_cores_count {}\nsimd_count 0\nmem_banks_count 1\ncaches_count 0\nio_links_count {}\np2p_links_count 0\ncpu_core_id_base 0\n"
      "simd_id_base 0\nmax_waves_per_simd 0\nlds_size_in_kb 0\ngds_size_in_kb 0\nnum_gws 0\nwave_front_size 0\narray_count 0\n"
      "simd_arrays_per_engine 0\ncu_per_simd_array 0\nsimd_per_cu 0\nmax_slots_scratch_cu 0\ngfx_target_version 0\nvendor_id 0\n"
      "device_id 0\nlocation_id 0\ndomain 0\ndrm_render_minor 0\nhive_id 0\nnum_sdma_engines 0\nnum_sdma_xgmi_engines 0\n"
      "num_sdma_queues_per_engine 0\nnum_cp_queues 0\nmax_engine_clk_ccompute 2000\n",
      sysconf(_SC_NPROCESSORS_CONF), link ? 1 : 0);
}

std::string gpu_node() {
  constexpr unsigned kDoorbells64 = 2 << 12;  // HSA_CAP_DOORBELL_TYPE_2_0
  return fmt::format(
      "cpu_cores_count 0\nsimd_count {}\nmem_banks_count 1\ncaches_count 0\nio_links_count 1\np2p_links_count 0\ncpu_core_id_base 0\n"
      "simd_id_base 2147487744\nmax_waves_per_simd 8\nlds_size_in_kb 64\ngds_size_in_kb 0\nnum_gws 64\nwave_front_size 64\narray_count 8\n"
      "simd_arrays_per_engine 1\ncu_per_simd_array 14\nsimd_per_cu 4\nmax_slots_scratch_cu 32\ngfx_target_version {}\nvendor_id {}\n"
      "device_id {}\nlocation_id 1024\ndomain 0\ndrm_render_minor {}\nhive_id 0\nnum_sdma_engines 2\nnum_sdma_xgmi_engines 0\n"
      "num_sdma_queues_per_engine 8\nnum_cp_queues 24\nmax_engine_clk_fcompute {}\nlocal_mem_size 0\nfw_version 78\ncapability {}\n"
      "debug_prop 0\nsdma_fw_version 8\nunique_id 1\nnum_xcc 1\nmax_engine_clk_ccompute 2000\n",
      kComputeUnits * 4, kGfxTarget, kVendorId, kDeviceId, kRenderMinor, kEngineClock, kDoorbells64);
}

std::string mem_bank(unsigned heap, std::uint64_t size) {
  return fmt::format("heap_type {}\nsize_in_bytes {}\nflags 0\nwidth {}\nmem_clk_max {}\n", heap, size, heap == kHeapSystem ? 64 : 4096,
                     1600);
}

std::string io_link(unsigned from, unsigned to) {
  return fmt::format(
      "type {}\nversion_major 0\nversion_minor 0\nnode_from {}\nnode_to {}\nweight 20\nmin_latency 0\nmax_latency 0\nmin_bandwidth 312\n"
      "max_bandwidth 31250\nrecommended_transfer_size 0\nflags 1\n",
      kPciExpress, from, to);
}

void kfd(std::vector<SysfsEntry>& out, const uhca::gpu::Config& c) {
  auto file = [&out](const std::string& path, std::string text) { out.push_back({kTopology + path, std::move(text)}); };
  file("generation_id", "2\n");
  file("system_properties", "platform_oem 0\nplatform_id 0\nplatform_rev 0\n");
  // A link from the CPU to the card says that all of its memory can be reached: ROCr takes that for the large BAR (kfd_crat.c).
  const bool all_visible = !c.small_bar;
  file("nodes/0/gpu_id", "0\n");
  file("nodes/0/name", "\n");
  file("nodes/0/properties", cpu_node(all_visible));
  file("nodes/0/mem_banks/0/properties",
       mem_bank(kHeapSystem, static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))));
  if (all_visible) file("nodes/0/io_links/0/properties", io_link(0, 1));
  file("nodes/1/gpu_id", fmt::format("{}\n", kGpuId));
  file("nodes/1/name", "aldebaran\n");
  file("nodes/1/properties", gpu_node());
  file("nodes/1/mem_banks/0/properties", mem_bank(all_visible ? kHeapPublic : kHeapPrivate, c.vram));
  file("nodes/1/io_links/0/properties", io_link(1, 0));
  out.push_back({"/sys/class/kfd/kfd", "../../devices/virtual/kfd/kfd", true});
  out.push_back({"/sys/devices/virtual/kfd/kfd/dev", fmt::format("{}:0\n", kKfdMajor)});
  out.push_back({"/sys/devices/virtual/kfd/kfd/uevent", fmt::format("MAJOR={}\nMINOR=0\nDEVNAME=kfd\n", kKfdMajor)});
}

}  // namespace

std::vector<SysfsEntry> sysfs_entries(const std::string& address, const std::string& folder) {
  const uhca::gpu::Config* c = configured();
  if (c == nullptr) return {};
  const bool amd = c->kind == uhca::gpu::Kind::kAmd;
  const unsigned vendor = amd ? kVendorId : kNvVendorId, device = amd ? kDeviceId : kNvDeviceId;
  std::vector<SysfsEntry> out;
  auto file = [&](const std::string& name, std::string text) { out.push_back({folder + "/" + name, std::move(text)}); };
  file("vendor", fmt::format("0x{:04x}\n", vendor));
  file("device", fmt::format("0x{:04x}\n", device));
  file("subsystem_vendor", fmt::format("0x{:04x}\n", vendor));
  file("subsystem_device", "0x0c34\n");
  file("revision", fmt::format("0x{:02x}\n", amd ? kRevision : 0xa1));
  file("class", amd ? "0x038000\n" : "0x030200\n");
  file("enable", "1\n");
  file("numa_node", "-1\n");
  file("resource", fmt::format("0x{:016x} 0x{:016x} 0x{:016x}\n", kApertureBase, kApertureBase + c->visible() - 1, 0x14220c));
  file("uevent", fmt::format("DRIVER={}\nPCI_CLASS={}\nPCI_ID={:04X}:{:04X}\nPCI_SUBSYS_ID={:04X}:0C34\nPCI_SLOT_NAME={}\n",
                             amd ? "amdgpu" : "nvidia", amd ? "38000" : "30200", vendor, device, vendor, address));
  out.push_back({folder + "/subsystem", "../../../bus/pci", true});
  if (!amd) return out;
  const std::string node = fmt::format("renderD{}", kRenderMinor), devno = fmt::format("{}:{}", kDrmMajor, kRenderMinor);
  file("drm/" + node + "/dev", devno + "\n");
  file("drm/" + node + "/uevent", fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=dri/{}\nDEVTYPE=drm_minor\n", kDrmMajor, kRenderMinor, node));
  out.push_back({folder + "/drm/" + node + "/device", "../../../" + address, true});
  file("mem_info_vram_total", fmt::format("{}\n", c->vram));
  file("mem_info_vis_vram_total", fmt::format("{}\n", c->visible()));
  const std::string up = "../../" + folder.substr(std::string("/sys/").size()) + "/drm/" + node;
  out.push_back({"/sys/class/drm/" + node, up, true});
  out.push_back({"/sys/dev/char/" + devno, up, true});
  kfd(out, *c);
  return out;
}

}  // namespace uhca::kernel::gpu
