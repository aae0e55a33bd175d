// SPDX-License-Identifier: MIT
// What a vfio-user client sees: a PCI device behind messages. One request in, one reply out; the socket and the event loop are
// elsewhere (vfio_user_channel.h, vfio_user_server.h). Real counterpart: the kernel's vfio-pci on top of the device's own PCI functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/pci/config_space.h"
#include "device/pci/function.h"
#include "device/pci/iommu_bus.h"
#include "device/pci/msix.h"
#include "device/pci/vfio_user_channel.h"
#include "device/pci/vfio_user_dma.h"
#include "device/pci/vfio_user_message.h"
#include "device/pci/write_combiner.h"

namespace uhca::pci::vfio_user {

// The bus that the device model is given: DMA through the client's maps, interrupts through its descriptors.
class GuestBus final : public IommuBus {
 public:
  GuestBus() { set_iommu(&dma); }
  void raise(unsigned vector) override { msix.raise(vector); }
  DmaTable dma;
  Msix msix;
};

struct DeviceIdentity {
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
};

// Where MSI-X lies in BAR 0: between the init segment's registers and the first UAR.
inline constexpr std::uint32_t kMsixTable = 0x2000, kMsixPba = 0x3000;

class Device {
 public:
  // Both must outlive it. `patience`: 64-byte copies to BAR 0 reach the engine whole (write_combiner.h); 0: store by store.
  Device(const DeviceIdentity& identity, GuestBus& bus, Engine& engine, Nanos patience = 0);

  // A reply to one request: an errno, or a payload.
  struct Reply {
    int error = 0;
    std::vector<std::uint8_t> payload;
  };
  // Handles one message. `reply` is to be sent unless the message forbids it. EPROTO: not to be talked to any further (a first message
  // that is no VERSION, a version that is not ours, a message that is no command); the reply, which says so, may still be sent.
  Status handle(Message& m, Reply& reply);

  // The client is gone: everything of its is dropped, and the device is as after power-on.
  void disconnect();
  // Signals interrupts that came up.
  void deliver_interrupts() { bus_.msix.deliver(); }
  // Stores that wait for others of their copy: by when to call give_up_waiting() (kNever: there are none).
  Nanos waits_until() const { return combiner_.deadline(); }
  void give_up_waiting(Nanos now) { combiner_.flush_late(now); }

 private:
  int version(Message& m, Reply& r);
  int dma_map(Message& m);
  int dma_unmap(Message& m, Reply& r);
  int get_info(Message& m, Reply& r);
  int get_region_info(Message& m, Reply& r);
  int get_irq_info(Message& m, Reply& r);
  int set_irqs(Message& m);
  int region_read(Message& m, Reply& r);
  int region_write(Message& m, Reply& r);
  int region_write_multi(Message& m, Reply& r);
  int check_access(std::uint32_t region, std::uint64_t offset, std::uint64_t count);
  void write(std::uint32_t region, std::uint64_t offset, std::span<const std::uint8_t> data);
  std::uint64_t bar_read(std::uint64_t offset, unsigned size);
  void bar_write(std::uint64_t offset, std::uint64_t value, unsigned size);
  void reset_function();

  GuestBus& bus_;
  Engine& engine_;
  ConfigSpace config_;
  const bool combine_writes_;
  WriteCombiner combiner_;
  bool negotiated_ = false;
};

}  // namespace uhca::pci::vfio_user
