// SPDX-License-Identifier: MIT
#include "device/pci/config_space.h"

#include <algorithm>
#include <cstring>

namespace uhca::pci {
namespace {

// Header.
constexpr std::uint64_t kVendor = 0x00, kDevice = 0x02, kCommand = 0x04, kStatus = 0x06, kClass = 0x08, kCacheLine = 0x0c, kBar0 = 0x10,
                        kSubVendor = 0x2c, kSubDevice = 0x2e, kCapabilities = 0x34, kInterruptLine = 0x3c;
constexpr std::uint16_t kCommandWritable = 0x0546;  // memory, bus master, parity, SERR#, INTx disable
constexpr std::uint16_t kStatusCapabilities = 1 << 4;
constexpr std::uint32_t kEthernetClass = 0x020000;
constexpr std::uint32_t kMemory64Prefetchable = 0xc;
// Capabilities, in the order of the list.
constexpr std::uint64_t kExpress = 0x60, kMsix = 0x9c, kPower = 0x40;
constexpr std::uint8_t kIdPower = 0x01, kIdExpress = 0x10, kIdMsix = 0x11;
constexpr std::uint64_t kDeviceControl = kExpress + 8;
constexpr std::uint16_t kInitiateFlr = 1 << 15;
constexpr std::uint16_t kMsixFunctionMask = 1 << 14, kMsixEnable = 1 << 15;

}  // namespace

ConfigSpace::ConfigSpace(const ConfigIdentity& identity) : identity_(identity) {
  build();
}

void ConfigSpace::put16(std::uint64_t at, std::uint16_t v) {
  std::memcpy(value_.data() + at, &v, sizeof v);
}
void ConfigSpace::put32(std::uint64_t at, std::uint32_t v) {
  std::memcpy(value_.data() + at, &v, sizeof v);
}
std::uint16_t ConfigSpace::get16(std::uint64_t at) const {
  std::uint16_t v;
  std::memcpy(&v, value_.data() + at, sizeof v);
  return v;
}
void ConfigSpace::writable32(std::uint64_t at, std::uint32_t mask) {
  std::memcpy(writable_.data() + at, &mask, sizeof mask);
}

void ConfigSpace::build() {
  value_ = {};
  writable_ = {};
  put16(kVendor, identity_.vendor_id);
  put16(kDevice, identity_.device_id);
  put16(kStatus, kStatusCapabilities);
  put32(kClass, kEthernetClass << 8);
  put32(kBar0, kMemory64Prefetchable);
  put16(kSubVendor, identity_.vendor_id);
  put16(kSubDevice, identity_.device_id);
  value_[kCapabilities] = kExpress;
  writable32(kCommand, kCommandWritable);
  writable32(kCacheLine, 0xff);
  writable32(kInterruptLine, 0xff);
  // A BAR keeps the address bits above its size: what a driver reads after writing ones tells it the size.
  std::uint64_t bar_mask = ~(identity_.bar0_size - 1);
  writable32(kBar0, static_cast<std::uint32_t>(bar_mask) & ~0xfu);
  writable32(kBar0 + 4, static_cast<std::uint32_t>(bar_mask >> 32));

  // PCI Express 2 endpoint: function level reset, 512 bytes of payload, extended tags; a 16 GT/s x16 link that is up.
  put16(kExpress, kIdExpress | kMsix << 8);
  put16(kExpress + 2, 0x0002);
  put32(kExpress + 4, 1u << 28 | 1u << 15 | 1u << 5 | 2);
  put16(kDeviceControl, 0x2810);         // relaxed ordering, no snoop, 512-byte reads
  writable32(kDeviceControl, 0x7fff);    // FLR reads as 0
  put32(kExpress + 12, 16u << 4 | 4);    // link capabilities: x16, 16 GT/s
  put16(kExpress + 0x12, 16u << 4 | 4);  // link status
  writable32(kExpress + 0x10, 0x0fc3);   // link control
  put32(kExpress + 0x24, 0x1f);          // completion timeout ranges and disable
  writable32(kExpress + 0x28, 0x041f);   // device control 2
  put32(kExpress + 0x2c, 0x1e);          // supported speeds, 2.5 to 16 GT/s
  put16(kExpress + 0x30, 4);             // link control 2: target 16 GT/s
  writable32(kExpress + 0x30, 0xffff);

  put16(kMsix, kIdMsix | kPower << 8);
  put16(kMsix + 2, static_cast<std::uint16_t>(identity_.vectors - 1));
  put32(kMsix + 4, identity_.msix_table);  // BAR 0 in the low bits
  put32(kMsix + 8, identity_.msix_pba);
  writable32(kMsix, std::uint32_t{kMsixEnable | kMsixFunctionMask} << 16);

  put16(kPower, kIdPower);
  put16(kPower + 2, 0x0003);  // version 1.2, D0 and D3hot only, no PME
  put16(kPower + 4, 1 << 3);  // no soft reset: the state survives D3hot
  writable32(kPower + 4, 0x0003);
}

void ConfigSpace::reset() {
  build();
}

void ConfigSpace::read(std::uint64_t offset, void* dst, std::size_t size) const {
  std::memcpy(dst, value_.data() + offset, size);
}

bool ConfigSpace::write(std::uint64_t offset, const void* src, std::size_t size) {
  const auto* in = static_cast<const std::uint8_t*>(src);
  for (std::size_t i = 0; i < size; ++i) {
    std::uint8_t mask = writable_[offset + i];
    value_[offset + i] = static_cast<std::uint8_t>((value_[offset + i] & ~mask) | (in[i] & mask));
  }
  std::uint64_t flr = kDeviceControl + 1;
  return offset <= flr && offset + size > flr && (in[flr - offset] & (kInitiateFlr >> 8));
}

bool ConfigSpace::msix_function_mask() const {
  return get16(kMsix + 2) & kMsixFunctionMask;
}

}  // namespace uhca::pci
