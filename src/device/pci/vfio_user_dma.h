// SPDX-License-Identifier: MIT
// The guest's memory as the client maps it: a table of ranges sorted by bus address. Real counterpart: the IOMMU domain of a VFIO
// container.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/pci/bus.h"

namespace uhca::pci::vfio_user {

// Not thread-safe: changes and translations come from the server's thread.
class DmaTable final : public Iommu {
 public:
  DmaTable() = default;
  ~DmaTable() override { clear(); }
  DmaTable(const DmaTable&) = delete;
  DmaTable& operator=(const DmaTable&) = delete;

  // Maps [addr, addr + size) to the file `fd` from `offset` on (the descriptor stays the caller's). `fd` < 0: the range exists but
  // its memory cannot be reached (a ROM, the BAR of another device): accesses fail. Bytes; multiples of 4096.
  // EINVAL: not a range; EEXIST: overlaps another; ENOSPC: too many; else what mmap says.
  Status map(DmaAddr addr, std::uint64_t size, bool readable, bool writable, int fd, std::uint64_t offset);
  // Exactly as mapped. ENOENT: no such range.
  Status unmap(DmaAddr addr, std::uint64_t size);
  void clear();
  std::size_t size() const { return ranges_.size(); }

  void* translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous, const char** why) override;

 private:
  struct Range {
    DmaAddr addr;
    std::uint64_t size;
    std::uint8_t* memory;  // nullptr: out of reach
    bool readable, writable;
  };
  std::vector<Range>::iterator first_behind(DmaAddr addr);

  std::vector<Range> ranges_;
  std::size_t last_ = 0;  // most accesses hit the range of the one before
};

}  // namespace uhca::pci::vfio_user
