// SPDX-License-Identifier: MIT
// The slot of one process: BAR, interrupts, DMA and the service thread around a device model. device/hca derives from it only to
// say what is plugged in (plug.cpp).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "device/pci/function.h"
#include "device/pci/inproc.h"
#include "device/pci/iommu_bus.h"
#include "device/pci/irq.h"
#include "device/pci/service_thread.h"
#include "device/pci/shared_area.h"
#include "wire/net/inspect.h"

namespace uhca::pci {

// The bus that the device is given; it must exist before the device does.
class InprocBus final : public IommuBus {
 public:
  ~InprocBus() override;
  // Makes the BAR's memory, `bar_bytes`, before the slot does, and maps a part of it for the device. nullptr: no memory (errno).
  std::uint8_t* map_bar(std::size_t bar_bytes, std::uint64_t offset, std::size_t bytes);
  void raise(unsigned vector) override { irqs.raise(vector); }
  void attach(Iommu* iommu) {
    if (iommu && area) iommu->share(area.get());
    set_iommu(iommu);
  }
  std::unique_ptr<SharedArea> area;  // nullptr: no other function gets at our memory
  std::unique_ptr<wire::Showcase> showcase;
  std::unique_ptr<wire::Inspector> inspector;
  IrqTable irqs;
  int bar_fd = -1;

 private:
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
};

struct SlotIdentity {
  std::string netdev;
  std::uint32_t function_id = 0;
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  unsigned num_vectors = 0;
};

class InprocSlot final : public InprocEndpoint {
 public:
  // Takes the whole device: bus, port and engine live as long as the slot. `bar_fd` < 0 and errno when the BAR's memory
  // cannot be had: check valid().
  InprocSlot(SlotIdentity identity, std::unique_ptr<InprocBus> bus, std::unique_ptr<wire::Port> port, std::unique_ptr<Engine> engine);
  ~InprocSlot() override;
  bool valid() const { return bar_fd_ >= 0; }

  std::uint16_t vendor_id() const override { return identity_.vendor_id; }
  std::uint16_t device_id() const override { return identity_.device_id; }
  std::uint32_t read32(std::uint64_t offset) override;
  void write32(std::uint64_t offset, std::uint32_t value) override;
  void write64(std::uint64_t offset, std::uint64_t value) override;
  std::uint64_t trapped_load(std::uint64_t offset, unsigned size) override;
  void trapped_store(std::uint64_t offset, std::uint64_t value, unsigned size) override;
  int bar_fd() const override { return bar_fd_; }
  unsigned num_vectors() const override { return identity_.num_vectors; }
  void request_irq(unsigned vector, IrqHandler handler, void* context) override { bus_->irqs.request(vector, handler, context); }
  void free_irq(unsigned vector) override { bus_->irqs.free(vector); }
  void attach_iommu(Iommu* iommu) override { bus_->attach(iommu); }
  void reset() override;

  const std::string& netdev() const override { return identity_.netdev; }
  std::uint32_t function_id() const override { return identity_.function_id; }
  void doorbell(std::uint64_t bar_offset, std::uint64_t value) override;
  void look_at_send_queue(std::uint32_t qpn) override;
  void look_at_cq(std::uint32_t cqn) override;
  void polled_empty() override;
  Status plan_fault(const std::string& name, unsigned nth, const std::string& status) override {
    return engine_->plan_fault(name, nth, status);
  }
  std::size_t live_objects() override { return engine_->live_objects(); }
  IdleWatch& idle_watch() override { return idle_; }
  void going_to_sleep() override;
  void watch_uar(std::uint32_t uar_index, bool on) override { service_->watch_uar(uar_index, on); }
  void serve(int fd, IrqHandler handler, void* context) override { service_->serve(fd, handler, context); }
  void start_service() override { service_->start(); }
  bool publish(std::uint64_t bar_offset) override;

 private:
  // A hook interrupted the engine on this very thread: leave word for whoever is in it.
  bool reentered();
  void after_work();
  void drive_after_post();

  SlotIdentity identity_;
  IdleWatch idle_;
  std::unique_ptr<InprocBus> bus_;
  std::unique_ptr<wire::Port> port_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<ServiceThread> service_;
  int bar_fd_ = -1;
  std::atomic<std::uint8_t*> published_{nullptr};  // a page of the BAR, mapped when first asked for
  std::atomic<bool> missed_{false};                // a re-entrant hook left work behind
};

}  // namespace uhca::pci
