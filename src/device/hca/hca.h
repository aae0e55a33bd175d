// SPDX-License-Identifier: MIT
// The HCA: BAR registers, command interface, objects, data path. Sees DMA, MMIO, interrupts, time and frames, and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/lane_lock.h"
#include "device/hca/objects.h"
#include "device/pci/function.h"
#include "prm/opcode.h"
#include "wire/net/port.h"

namespace uhca::hca {

class CommandInterface;  // cmd_if.h: command queue, dispatch to the commands
class DataPath;          // data_path.h: doorbells, WQEs, transport, completions
class Memic;             // memic.h: memory of the device itself

// Blocks of 4096 QPNs are leased from the host (DESIGN, "How it runs").
class QpnLease {
 public:
  virtual ~QpnLease() = default;
  // First QPN of a further block that nobody else on this host uses; 0: none left.
  virtual std::uint32_t lease_block() = 0;
};
inline constexpr std::uint32_t kQpnBlock = 4096;

// "Fail the nth command (1 = the next one) with this opcode with this status": it is not executed (decision 12).
struct CommandFault {
  prm::Opcode opcode{};  // 0: any
  unsigned nth = 1;
  prm::CmdStatus status = prm::CmdStatus::INT_ERR;
};

// lkey that QPs with qpc.rlky may use for any bus address (QUERY_SPECIAL_CONTEXTS.resd_lkey).
inline constexpr std::uint32_t kReservedLkey = 0x700;

struct HcaConfig {
  std::uint16_t vendor_id = 0x15b3;
  std::uint16_t device_id = 0x101d;  // ConnectX-6 Dx
  wire::Mac mac{};
  unsigned netdev_mtu = 1500;  // bytes of the Ethernet payload
  unsigned num_vectors = 16;
  std::uint64_t node_guid = 0;  // host order
  bool byte_exact_time = false;
  bool offer_dc = true;            // DC initiators and targets
  bool offer_memic = true;         // device memory (memic.h)
  std::uint8_t* memic = nullptr;   // zeroed memory for it, Hca::kMemicBytes, that the home lets programs map; nullptr: the device's own
  bool on_demand = false;          // the bus brings pages in when an access needs them (PCIe: page requests): keys need not be pinned
  bool congestion_control = true;  // answer ECN marks, slow down when told so (congestion.h)
  std::vector<CommandFault> command_faults;
  unsigned drives_per_clock = 1;  // how many calls of drive(false) with nothing to do share one reading of the clock
  void* published = nullptr;      // zeroed memory that other functions of the host see (published.h); nullptr: none
  bool shares_mac = false;        // other functions of the port have the same address
  bool blue_flame = false;        // WQEs may come with their doorbells: the home delivers 64 bytes in one write
  bool one_sided = true;          // execute WRITE and READ on what they publish (fast_path.h)
};

class Hca final : public pci::Engine {
 public:
  // References must outlive the HCA. Thread-safe.
  Hca(const HcaConfig& config, pci::Bus& bus, wire::Port& port, const Clock& clock, QpnLease& lease);
  ~Hca() override;

  static constexpr std::size_t kBar0Size = 32u << 20;
  static constexpr std::uint32_t kFirstUar = 0x10;  // lower indexes overlap the init segment
  // The last pages of the BAR are doorbells of emulated virtio devices (VARs). There are none of these: stores go nowhere.
  static constexpr unsigned kLogVars = 8;
  static constexpr std::uint32_t kFirstVar = kBar0Size / 4096 - (1u << kLogVars);
  // Before them the device's own memory, and one window of the same size for each operation on it (prm/memic.h).
  static constexpr std::size_t kMemicBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMemicWindows = 3;
  static constexpr std::uint64_t kMemicStart = std::uint64_t{kFirstVar} * 4096 - kMemicWindows * kMemicBytes;

  // pci::Function
  std::size_t bar0_size() const override { return kBar0Size; }
  std::uint64_t mmio_read(std::uint64_t offset, unsigned size) override;
  void mmio_write(std::uint64_t offset, std::uint64_t value, unsigned size) override;
  void mmio_write_line(std::uint64_t offset, const std::array<std::uint64_t, 8>& words) override;
  void reset() override;

  // pci::Engine
  void uar_store(std::uint64_t offset, std::uint64_t value) override;
  void look_at_send_queue(std::uint32_t qpn) override;
  void look_at_cq(std::uint32_t cqn) override;
  void look_at_uar(std::uint32_t uar_index) override;
  bool drive(bool thorough) override;
  void set_idle_watch(pci::IdleWatch* watch) override;
  Nanos next_deadline() override;
  unsigned armed_cqs() override;

  // Thread-safe. One more rule; each fires once.
  void fail_command(const CommandFault& fault);
  // Numbers that are in use, objects of every kind together (pages not counted): 0 after a clean tear-down. Thread-safe.
  std::size_t live_objects() override;
  // Pages of host memory that the firmware holds. Thread-safe.
  std::size_t held_pages();
  // What tools are told (report.cpp): JSON. Empty: the lane is busy. Thread-safe; never waits for the lane.
  std::string report();

  // For commands and data path (both run with the lane's lock held).
  const HcaConfig& config() const { return config_; }
  pci::Bus& bus() { return bus_; }
  wire::Port& port() { return port_; }
  const Clock& clock() const { return clock_; }
  QpnLease& lease() { return lease_; }
  Objects& objects() { return objects_; }
  DataPath& data_path() { return *data_path_; }
  // 8-byte atomics answer in host order (atomic_caps.atomic_req_8B_endianness_mode); else big-endian.
  bool atomics_in_host_order() const;
  // Erases every object that the engine knows, after it has forgotten them (DataPath::reset).
  void clear_objects();

 private:
  class Entry;
  static bool is_access(std::uint64_t offset, unsigned size);
  static bool is_uar(std::uint64_t offset);  // doorbells
  std::uint32_t read_register(std::uint64_t offset);
  void write_register(std::uint64_t offset, std::uint32_t value);
  void reset_locked();

  HcaConfig config_;
  pci::Bus& bus_;
  wire::Port& port_;
  const Clock& clock_;
  QpnLease& lease_;
  LaneLock lane_;  // one lane for now; work is split by QPN later
  Objects objects_;
  std::unique_ptr<Memic> memic_;
  std::unique_ptr<DataPath> data_path_;
  std::unique_ptr<CommandInterface> commands_;
};

}  // namespace uhca::hca
