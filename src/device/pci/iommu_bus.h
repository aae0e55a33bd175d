// SPDX-License-Identifier: MIT
// DMA of a device, of a process's or of a virtual machine's: every access goes through the IOMMU that its driver or client programs, and
// every copy survives memory that vanishes (DESIGN, decisions 1 and 7). An access is an RCU read section: after a translation has been
// taken back, rcu::synchronize() returns when no access uses it any more.
#pragma once

#include <atomic>

#include "device/pci/bus.h"

namespace uhca::pci {

class IommuBus : public Bus {
 public:
  bool dma_read(void* dst, DmaAddr src, std::size_t len) final;
  bool dma_write(DmaAddr dst, const void* src, std::size_t len) final;
  bool dma_load32(DmaAddr src, std::uint32_t* value) final;
  bool dma_store32(DmaAddr dst, std::uint32_t value) final;
  bool dma_write_last_byte_last(DmaAddr dst, const void* src, std::size_t len) final;
  bool dma_cas64(DmaAddr addr, std::uint64_t* expected, std::uint64_t desired) final;
  bool resolve(DmaAddr addr, std::size_t len, DmaDir dir, HostRange* out) final;
  const char* last_fault() const final;

 protected:
  void set_iommu(Iommu* iommu) { iommu_.store(iommu, std::memory_order_release); }

 private:
  void* translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous);
  const char* vanished(const void* memory) const;
  // access() until it succeeds, or until what it lacks will not come. It says at which address it failed, and whether for want of a
  // translation.
  template <class Access>
  bool with_pages(DmaDir dir, Access access);

  std::atomic<Iommu*> iommu_{nullptr};
};

}  // namespace uhca::pci
