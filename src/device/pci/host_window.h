// SPDX-License-Identifier: MIT
// Memory of the driver's side that the device reaches again and again (queue buffers, doorbell records, what keys name): where it lies in
// this address space, asked for once. Real counterpart: an entry of the device's address translation cache (PCIe ATS), which the IOMMU
// invalidates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/pci/bus.h"

namespace uhca::pci {

class HostWindow {
 public:
  // Closed where the memory is no single range, or lies in no address space of ours (a guest's): then the bus has to be asked each time.
  void open(Bus& bus, DmaAddr addr, std::size_t len) {
    writable_ = bus.resolve(addr, len, DmaDir::kFromDevice, &range_);
    if (!writable_ && !bus.resolve(addr, len, DmaDir::kToDevice, &range_)) range_ = {};
  }
  void close() { range_ = {}; }

  // Where byte `off` lies; nullptr: ask the bus, which also knows why. Inside of an RCU read section (base/rcu.h), for as long as it lasts;
  // accesses may fault (base/safecopy.h).
  std::byte* at(std::uint64_t off) const { return range_.live() ? reinterpret_cast<std::byte*>(range_.address) + off : nullptr; }
  std::byte* writable_at(std::uint64_t off) const { return writable_ ? at(off) : nullptr; }
  // What the range must still be, for others.
  const HostRange& range() const { return range_; }

 private:
  HostRange range_;
  bool writable_ = false;
};

}  // namespace uhca::pci
