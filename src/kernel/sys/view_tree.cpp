// SPDX-License-Identifier: MIT
// What lies in the tree. Linux: drivers/infiniband/core/sysfs.c, drivers/infiniband/hw/mlx5/main.c (hca_type, hw_rev, board_id),
// drivers/pci/pci-sysfs.c.
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <cstring>

#include "kernel/cm/file.h"
#include "kernel/gpu/file.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/view.h"

namespace uhca::sys {
namespace {

using kernel::ib_device;
using kernel::ib_port_attr;

constexpr std::uint32_t kPort = 1;

Result<ib_port_attr> port_of(ib_device& dev) {
  ib_port_attr a;
  if (!dev.ops.query_port) return Errno{EOPNOTSUPP};
  UHCA_CHECK(dev.ops.query_port(dev, kPort, a));
  return a;
}

std::string guid(std::uint64_t g) {
  return fmt::format("{:04x}:{:04x}:{:04x}:{:04x}\n", g >> 48 & 0xffff, g >> 32 & 0xffff, g >> 16 & 0xffff, g & 0xffff);
}

Result<std::string> port_state(ib_device& dev, unsigned) {
  static constexpr const char* kNames[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  ib_port_attr a = UHCA_TRY(port_of(dev));
  return fmt::format("{}: {}\n", a.state, a.state < 6 ? kNames[a.state] : "UNKNOWN");
}

Result<std::string> port_phys_state(ib_device& dev, unsigned) {
  static constexpr const char* kNames[] = {"<unknown>",         "Sleep",   "Polling", "Disabled", "PortConfigurationTraining", "LinkUp",
                                           "LinkErrorRecovery", "Phy Test"};
  ib_port_attr a = UHCA_TRY(port_of(dev));
  return fmt::format("{}: {}\n", a.phys_state, a.phys_state < 8 ? kNames[a.phys_state] : "<unknown>");
}

// enum ib_port_speed and ib_port_width: the rate in units of 0.1 Gb/s of one lane, and its name.
Result<std::string> port_rate(ib_device& dev, unsigned) {
  ib_port_attr a = UHCA_TRY(port_of(dev));
  int lanes = a.active_width == 1    ? 1
              : a.active_width == 2  ? 4
              : a.active_width == 4  ? 8
              : a.active_width == 8  ? 12
              : a.active_width == 16 ? 2
                                     : 0;
  struct Speed {
    unsigned value, tenths;
    const char* name;
  };
  static constexpr Speed kSpeeds[] = {{1, 25, " SDR"},   {2, 50, " DDR"},   {4, 100, " QDR"},    {8, 100, " FDR10"}, {16, 140, " FDR"},
                                      {32, 250, " EDR"}, {64, 500, " HDR"}, {128, 1000, " NDR"}, {256, 2000, " XDR"}};
  Speed speed{0, 25, " SDR"};
  for (const Speed& s : kSpeeds)
    if (s.value == a.active_speed) speed = s;
  unsigned rate = speed.tenths * static_cast<unsigned>(lanes);
  return fmt::format("{}{} Gb/sec ({}X{})\n", rate / 10, rate % 10 ? ".5" : "", lanes, speed.name);
}

Result<std::string> port_lid(ib_device& dev, unsigned) {
  return fmt::format("0x{:x}\n", UHCA_TRY(port_of(dev)).lid);
}
Result<std::string> port_sm_lid(ib_device& dev, unsigned) {
  return fmt::format("0x{:x}\n", UHCA_TRY(port_of(dev)).sm_lid);
}
Result<std::string> port_sm_sl(ib_device& dev, unsigned) {
  return fmt::format("{}\n", UHCA_TRY(port_of(dev)).sm_sl);
}
Result<std::string> port_lmc(ib_device& dev, unsigned) {
  return fmt::format("{}\n", UHCA_TRY(port_of(dev)).lmc);
}
Result<std::string> port_cap_mask(ib_device& dev, unsigned) {
  return fmt::format("0x{:08x}\n", UHCA_TRY(port_of(dev)).port_cap_flags);
}

Result<std::string> gid_text(ib_device& dev, unsigned index) {
  auto attr = kernel::rdma_get_gid_attr(dev, kPort, static_cast<std::uint16_t>(index));
  kernel::ib_gid zero{};
  const auto& g = attr.valid ? attr.gid : zero;
  std::string s;
  for (unsigned i = 0; i < 16; i += 2) s += fmt::format("{:02x}{:02x}{}", g[i], g[i + 1], i < 14 ? ":" : "\n");
  return s;
}

// Reading the type or netdev of an empty slot gives EINVAL.
Result<std::string> gid_type(ib_device& dev, unsigned index) {
  auto attr = kernel::rdma_get_gid_attr(dev, kPort, static_cast<std::uint16_t>(index));
  if (!attr.valid) return Errno{EINVAL};
  return std::string(attr.roce_v2 ? "RoCE v2\n" : "IB/RoCE v1\n");
}

Result<std::string> gid_ndev(ib_device& dev, unsigned index) {
  auto attr = kernel::rdma_get_gid_attr(dev, kPort, static_cast<std::uint16_t>(index));
  if (!attr.valid) return Errno{EINVAL};
  return attr.netdev + "\n";
}

Result<std::string> pkey_text(ib_device& dev, unsigned index) {
  if (!dev.ops.query_pkey) return Errno{EOPNOTSUPP};
  return fmt::format("0x{:04x}\n", UHCA_TRY(dev.ops.query_pkey(dev, kPort, static_cast<std::uint16_t>(index))));
}

Result<std::string> node_desc(ib_device& dev, unsigned) {
  return dev.node_desc + "\n";
}

// The CPUs that are near the device: the netdev's own PCI device decides; without one, all that are online.
std::string read_real(const std::string& path) {
  long fd = raw::call(SYS_openat, AT_FDCWD, raw::arg(path.c_str()), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char buf[4096];
  long n = raw::call(SYS_read, fd, raw::arg(buf), sizeof buf);
  raw::close(static_cast<int>(fd));
  return n > 0 ? std::string(buf, static_cast<std::size_t>(n)) : std::string{};
}

std::string all_cpus_mask(const std::string& list) {
  // "0-3,8" -> "0000010f" in groups of 32 bits.
  std::vector<std::uint32_t> words(1);
  const char* p = list.c_str();
  while (*p >= '0' && *p <= '9') {
    char* end;
    unsigned long lo = std::strtoul(p, &end, 10), hi = lo;
    if (*end == '-') hi = std::strtoul(end + 1, &end, 10);
    for (unsigned long c = lo; c <= hi && c < 8192; ++c) {
      if (c / 32 >= words.size()) words.resize(c / 32 + 1);
      words[c / 32] |= 1u << (c % 32);
    }
    p = *end == ',' ? end + 1 : end;
  }
  std::string s;
  for (std::size_t i = words.size(); i-- > 0;) s += fmt::format("{:08x}{}", words[i], i ? "," : "\n");
  return s;
}

// Configuration space as the slot shows it: identity, class, BAR 0 (memory, 64 bit, prefetchable), PCIe capability.
std::string config_space(const ib_device& dev, std::uint64_t bar) {
  std::string c(256, '\0');
  auto put = [&](unsigned at, std::uint64_t v, unsigned n) {
    for (unsigned i = 0; i < n; ++i) c[at + i] = static_cast<char>(v >> 8 * i);
  };
  put(0x00, dev.pci_vendor, 2);
  put(0x02, dev.pci_device, 2);
  put(0x04, 0x0406, 2);  // memory space, bus master, INTx off
  put(0x06, 0x0010, 2);  // capability list
  put(0x08, dev.hw_rev & 0xff, 1);
  put(0x09, 0x020000, 3);
  put(0x0c, 0x10, 1);  // cache line size in dwords
  put(0x10, bar | 0xc, 8);
  put(0x2c, dev.pci_vendor, 2);
  put(0x2e, 0x0016, 2);
  put(0x34, 0x60, 1);
  put(0x60, 0x10, 1);  // PCI Express capability, endpoint, version 2
  put(0x62, 0x0002, 2);
  put(0x6c, 0x3 | 16 << 4, 4);  // link capabilities: 8 GT/s, x16
  put(0x72, 0x3 | 16 << 4, 2);  // link status
  return c;
}

void pci_directory(View& v, const std::string& pci) {
  ib_device& dev = v.device();
  constexpr std::uint64_t kBar = 0xf0000000, kBarSize = 0x2000000;
  std::string net_device = "/sys/class/net/" + dev.netdev + "/device/";
  v.file(pci + "/vendor", fmt::format("0x{:04x}\n", dev.pci_vendor));
  v.file(pci + "/device", fmt::format("0x{:04x}\n", dev.pci_device));
  v.file(pci + "/subsystem_vendor", fmt::format("0x{:04x}\n", dev.pci_vendor));
  v.file(pci + "/subsystem_device", "0x0016\n");
  v.file(pci + "/revision", fmt::format("0x{:02x}\n", dev.hw_rev & 0xff));
  v.file(pci + "/class", "0x020000\n");
  v.file(pci + "/enable", "1\n", 0644);
  std::string numa = read_real(net_device + "numa_node");
  std::string cpulist = read_real(net_device + "local_cpulist");
  if (cpulist.empty()) cpulist = read_real("/sys/devices/system/cpu/online");
  std::string cpus = read_real(net_device + "local_cpus");
  v.file(pci + "/numa_node", numa.empty() ? "-1\n" : numa, 0644);
  v.file(pci + "/local_cpulist", cpulist);
  v.file(pci + "/local_cpus", cpus.empty() ? all_cpus_mask(cpulist) : cpus);
  v.file(pci + "/modalias",
         fmt::format("pci:v{:08X}d{:08X}sv{:08X}sd{:08X}bc02sc00i00\n", dev.pci_vendor, dev.pci_device, dev.pci_vendor, 0x16));
  std::string resource = fmt::format("0x{:016x} 0x{:016x} 0x{:016x}\n", kBar, kBar + kBarSize - 1, 0x14220c);
  for (int i = 0; i < 12; ++i) resource += fmt::format("0x{:016x} 0x{:016x} 0x{:016x}\n", 0, 0, 0);
  v.file(pci + "/resource", resource);
  v.file(pci + "/irq", "0\n");
  v.file(pci + "/config", config_space(dev, kBar), 0644);
  for (const char* which : {"current", "max"}) {
    v.file(fmt::format("{}/{}_link_speed", pci, which), "8.0 GT/s PCIe\n");
    v.file(fmt::format("{}/{}_link_width", pci, which), "16\n");
  }
  v.file(pci + "/uevent",
         fmt::format("DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID={:04X}:{:04X}\nPCI_SUBSYS_ID={:04X}:0016\nPCI_SLOT_NAME={}\n",
                     dev.pci_vendor, dev.pci_device, dev.pci_vendor, dev.pci_address));
  v.link(pci + "/subsystem", "../../../bus/pci");
  v.link(pci + "/driver", "../../../bus/pci/drivers/mlx5_core");
  // The name lies there as for an adapter of its own; it leads to the real interface.
  v.link(pci + "/net/" + dev.netdev, "/sys/class/net/" + dev.netdev);
  v.link("/sys/bus/pci/devices/" + dev.pci_address, "../../../devices/" + std::string(kHostPci) + "/" + dev.pci_address);
}

Result<std::string> hw_counter(ib_device& dev, unsigned index) {
  return fmt::format("{}\n", UHCA_TRY(dev.ops.read_hw_counter(dev, index)));
}

void counters(View& v, const std::string& port) {
  // Counters that the port keeps appear here; a reader of one that it does not keep finds no file, as with other drivers.
  v.dir(port + "/counters");
  v.dir(port + "/hw_counters");
  const char* const* names = v.device().ops.hw_counter_names;
  for (unsigned i = 0; names != nullptr && names[i] != nullptr; ++i) v.file(port + "/hw_counters/" + names[i], hw_counter, i);
  // Linux reads the hardware at most once in so many milliseconds; here each reader sees what is so now.
  if (names != nullptr) v.file(port + "/hw_counters/lifespan", "0\n");
}

// Linux: ucma.c (a misc device with the attribute abi_version).
void rdma_cm(View& v) {
  std::string dir = "/sys/devices/virtual/misc/rdma_cm";
  std::string devno = kRdmaCmDevno;
  v.file(dir + "/abi_version", fmt::format("{}\n", kernel::cm::kRdmaCmAbiVersion));
  v.file(dir + "/dev", devno + "\n");
  v.file(dir + "/uevent", fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/rdma_cm\nDEVMODE=0666\n", kMiscMajor, kRdmaCmMinor), 0644);
  v.link(dir + "/subsystem", "../../../../class/misc");
  v.link("/sys/class/misc/rdma_cm", "../../devices/virtual/misc/rdma_cm");
  v.link("/sys/dev/char/" + devno, "../../devices/virtual/misc/rdma_cm");
  v.character("/dev/infiniband/rdma_cm", makedev(kMiscMajor, kRdmaCmMinor), 0666);
}

// The card, in the next slot; its own driver says what lies in sysfs.
void gpu(View& v) {
  const uhca::gpu::Config* c = kernel::gpu::configured();
  if (c == nullptr) return;
  for (const kernel::gpu::SysfsEntry& e : kernel::gpu::sysfs_entries(kGpuPciAddress, std::string(kPciRoot) + "/" + kGpuPciAddress)) {
    if (e.link)
      v.link(e.path, e.text);
    else
      v.file(e.path, e.text);
  }
  v.link("/sys/bus/pci/devices/" + std::string(kGpuPciAddress), "../../../devices/" + std::string(kHostPci) + "/" + kGpuPciAddress);
  if (c->kind == uhca::gpu::Kind::kNvidia) {
    v.character("/dev/uhca_gpu0", makedev(kernel::gpu::kNvidiaMajor, 0), 0666);
    return;
  }
  v.character("/dev/kfd", makedev(kernel::gpu::kKfdMajor, 0), 0666);
  v.character("/dev/dri/renderD128", makedev(kernel::gpu::kDrmMajor, kernel::gpu::kRenderMinor), 0666);
}

void ib_directory(View& v, const std::string& ib) {
  ib_device& dev = v.device();
  v.file(ib + "/node_type", "1: CA\n");
  v.file(ib + "/node_guid", guid(dev.node_guid));
  v.file(ib + "/sys_image_guid", guid(dev.sys_image_guid));
  v.file(ib + "/node_desc", node_desc, 0, 0644);
  v.file(ib + "/fw_ver", dev.fw_ver + "\n");
  v.file(ib + "/hca_type", dev.hca_type + "\n");
  v.file(ib + "/hw_rev", fmt::format("{:x}\n", dev.hw_rev));
  v.file(ib + "/board_id", dev.board_id + "\n");
  v.file(ib + "/uevent", fmt::format("NAME={}\n", dev.name), 0644);
  v.link(ib + "/device", "../../../" + dev.pci_address);
  v.link(ib + "/subsystem", "../../../../../class/infiniband");
  std::string port = ib + "/ports/1";
  v.file(port + "/state", port_state);
  v.file(port + "/phys_state", port_phys_state);
  v.file(port + "/rate", port_rate);
  v.file(port + "/lid", port_lid);
  v.file(port + "/sm_lid", port_sm_lid);
  v.file(port + "/sm_sl", port_sm_sl);
  v.file(port + "/lid_mask_count", port_lmc);
  v.file(port + "/cap_mask", port_cap_mask);
  v.file(port + "/link_layer", "Ethernet\n");
  ib_port_attr a;
  if (auto r = port_of(dev)) a = *r;
  for (unsigned i = 0; i < (a.gid_tbl_len ? a.gid_tbl_len : kernel::kGidTableLen) && i < 1024; ++i) {
    v.file(fmt::format("{}/gids/{}", port, i), gid_text, i);
    v.file(fmt::format("{}/gid_attrs/types/{}", port, i), gid_type, i);
    v.file(fmt::format("{}/gid_attrs/ndevs/{}", port, i), gid_ndev, i);
  }
  for (unsigned i = 0; i < a.pkey_tbl_len && i < 1024; ++i) v.file(fmt::format("{}/pkeys/{}", port, i), pkey_text, i);
  counters(v, port);
}

}  // namespace

void build_tree(View& v) {
  ib_device& dev = v.device();
  std::string pci = std::string(kPciRoot) + "/" + dev.pci_address;
  std::string verbs = fmt::format("uverbs{}", dev.uverbs_minor);
  std::string devno = fmt::format("{}:{}", kVerbsMajor, kVerbsMinorBase + static_cast<unsigned>(dev.uverbs_minor));
  pci_directory(v, pci);
  ib_directory(v, pci + "/infiniband/" + dev.name);

  std::string uv = pci + "/infiniband_verbs/" + verbs;
  v.file(uv + "/ibdev", dev.name + "\n");
  v.file(uv + "/dev", devno + "\n");
  v.file(uv + "/abi_version", fmt::format("{}\n", dev.ops.uverbs_abi_ver));
  v.file(uv + "/uevent",
         fmt::format("MAJOR={}\nMINOR={}\nDEVNAME=infiniband/{}\n", kVerbsMajor, kVerbsMinorBase + static_cast<unsigned>(dev.uverbs_minor),
                     verbs),
         0644);
  v.link(uv + "/device", "../../../" + dev.pci_address);
  v.link(uv + "/subsystem", "../../../../../class/infiniband_verbs");

  std::string up = "../../devices/" + std::string(kHostPci) + "/" + dev.pci_address;
  v.link("/sys/class/infiniband/" + dev.name, up + "/infiniband/" + dev.name);
  v.link("/sys/class/infiniband_verbs/" + verbs, up + "/infiniband_verbs/" + verbs);
  v.file("/sys/class/infiniband_verbs/abi_version", "6\n");
  v.link("/sys/dev/char/" + devno, up + "/infiniband_verbs/" + verbs);
  rdma_cm(v);
  gpu(v);
  v.character("/dev/infiniband/" + verbs, makedev(kVerbsMajor, kVerbsMinorBase + static_cast<unsigned>(dev.uverbs_minor)), 0666);
}

}  // namespace uhca::sys
