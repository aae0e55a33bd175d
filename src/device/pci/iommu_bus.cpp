// SPDX-License-Identifier: MIT
#include "device/pci/iommu_bus.h"

#include "base/rcu.h"
#include "base/safecopy.h"

namespace uhca::pci {
namespace {

constinit thread_local const char* fault __attribute__((tls_model("initial-exec"))) = "none";
constexpr const char* kVanished = "the memory behind the mapping is not accessible any more";

}  // namespace

const char* IommuBus::last_fault() const {
  return fault;
}

void* IommuBus::translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous) {
  Iommu* iommu = iommu_.load(std::memory_order_acquire);
  if (!iommu) {
    fault = "no IOMMU domain attached";
    return nullptr;
  }
  const char* why = "bus address not mapped";
  void* p = iommu->translate(addr, len, dir, contiguous, &why);
  if (!p) fault = why;
  return p;
}

bool IommuBus::resolve(DmaAddr addr, std::size_t len, DmaDir dir, HostRange* out) {
  Iommu* iommu = iommu_.load(std::memory_order_acquire);
  return iommu && iommu->resolve(addr, len, dir, out);
}

bool IommuBus::dma_read(void* dst, DmaAddr src, std::size_t len) {
  rcu::ReadSection section;
  auto* out = static_cast<char*>(dst);
  while (len > 0) {
    std::size_t n = 0;
    void* p = translate(src, len, DmaDir::kToDevice, &n);
    if (!p) return false;
    if (safecopy::copy(out, p, n) != 0) {
      fault = kVanished;
      return false;
    }
    out += n;
    src += n;
    len -= n;
  }
  return true;
}

bool IommuBus::dma_write(DmaAddr dst, const void* src, std::size_t len) {
  rcu::ReadSection section;
  const auto* in = static_cast<const char*>(src);
  while (len > 0) {
    std::size_t n = 0;
    void* p = translate(dst, len, DmaDir::kFromDevice, &n);
    if (!p) return false;
    if (safecopy::copy(p, in, n) != 0) {
      fault = kVanished;
      return false;
    }
    in += n;
    dst += n;
    len -= n;
  }
  return true;
}

bool IommuBus::dma_load32(DmaAddr src, std::uint32_t* value) {
  rcu::ReadSection section;
  std::size_t n = 0;
  void* p = translate(src, 4, DmaDir::kToDevice, &n);
  if (!p) return false;
  if (n < 4 || !safecopy::load32(p, value)) {
    fault = kVanished;
    return false;
  }
  return true;
}

bool IommuBus::dma_store32(DmaAddr dst, std::uint32_t value) {
  rcu::ReadSection section;
  std::size_t n = 0;
  void* p = translate(dst, 4, DmaDir::kFromDevice, &n);
  if (!p) return false;
  if (n < 4 || !safecopy::store32(p, value)) {
    fault = kVanished;
    return false;
  }
  return true;
}

bool IommuBus::dma_write_last_byte_last(DmaAddr dst, const void* src, std::size_t len) {
  rcu::ReadSection section;
  std::size_t n = 0;
  void* p = translate(dst, len, DmaDir::kFromDevice, &n);
  if (!p) return false;
  if (n < len || !safecopy::copy_last_byte_last(p, src, len)) {
    fault = kVanished;
    return false;
  }
  return true;
}

bool IommuBus::dma_cas64(DmaAddr addr, std::uint64_t* expected, std::uint64_t desired) {
  rcu::ReadSection section;
  std::size_t n = 0;
  void* p = translate(addr, 8, DmaDir::kFromDevice, &n);
  if (!p) return false;
  if (n < 8 || !safecopy::cas64(p, expected, desired)) {
    fault = kVanished;
    return false;
  }
  return true;
}

}  // namespace uhca::pci
