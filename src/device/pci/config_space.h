// SPDX-License-Identifier: MIT
// The function's PCI configuration space: 4096 bytes, type 0 header, capabilities PCI Express, MSI-X and PM where a
// ConnectX has them. The vendor-specific capability is absent: there is no configuration space of firmware behind it. Source: PCI
// Express Base 6.0, chapter 7; linux/pci_regs.h for the layout.
#pragma once

#include <array>
#include <cstdint>

namespace uhca::pci {

struct ConfigIdentity {
  std::uint16_t vendor_id = 0;
  std::uint16_t device_id = 0;
  std::uint64_t bar0_size = 0;  // bytes, a power of two
  unsigned vectors = 0;
  std::uint32_t msix_table = 0, msix_pba = 0;  // offsets in BAR 0
};

class ConfigSpace {
 public:
  static constexpr std::uint64_t kBytes = 4096;

  explicit ConfigSpace(const ConfigIdentity& identity);

  // Reads `size` bytes at `offset` (offset + size <= kBytes).
  void read(std::uint64_t offset, void* dst, std::size_t size) const;
  // Writes what is writable. Returns true when the write asks for a function level reset; the caller resets the function, this space
  // included.
  bool write(std::uint64_t offset, const void* src, std::size_t size);
  void reset();

  bool msix_function_mask() const;

 private:
  void put16(std::uint64_t at, std::uint16_t v);
  void put32(std::uint64_t at, std::uint32_t v);
  std::uint16_t get16(std::uint64_t at) const;
  void writable32(std::uint64_t at, std::uint32_t mask);
  void build();

  ConfigIdentity identity_;
  std::array<std::uint8_t, kBytes> value_{};
  std::array<std::uint8_t, kBytes> writable_{};  // bits that a write changes
};

}  // namespace uhca::pci
