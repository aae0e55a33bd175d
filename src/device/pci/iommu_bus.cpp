// SPDX-License-Identifier: MIT
#include "device/pci/iommu_bus.h"

#include "base/rcu.h"
#include "base/safecopy.h"

namespace uhca::pci {
namespace {

constinit thread_local const char* fault __attribute__((tls_model("initial-exec"))) = "none";
constexpr unsigned kMostRequests = 100;
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

const char* IommuBus::vanished(const void* memory) const {
  Iommu* iommu = iommu_.load(std::memory_order_acquire);
  const char* why = iommu ? iommu->vanished(memory) : nullptr;
  return why ? why : kVanished;
}

bool IommuBus::resolve(DmaAddr addr, std::size_t len, DmaDir dir, HostRange* out) {
  Iommu* iommu = iommu_.load(std::memory_order_acquire);
  return iommu && iommu->resolve(addr, len, dir, out);
}

// Translation and access are one RCU read section; a request for a page comes between two of them.
template <class Access>
bool IommuBus::with_pages(DmaDir dir, Access access) {
  // A page that came may be gone again before it is used; not always.
  for (unsigned left = kMostRequests;; --left) {
    DmaAddr at = 0;
    bool missing = false;
    {
      rcu::ReadSection section;
      if (__builtin_expect(access(&at, &missing), 1)) return true;
    }
    Iommu* iommu = iommu_.load(std::memory_order_acquire);
    if (!missing || iommu == nullptr || rcu::in_section() || left == 0 || !iommu->page_request(at, dir)) return false;
  }
}

bool IommuBus::dma_read(void* dst, DmaAddr src, std::size_t len) {
  auto* out = static_cast<char*>(dst);
  return with_pages(DmaDir::kToDevice, [&](DmaAddr* at, bool* missing) {
    while (len > 0) {
      std::size_t n = 0;
      void* p = translate(*at = src, len, DmaDir::kToDevice, &n);
      if (!p) return !(*missing = true);
      if (safecopy::copy(out, p, n) != 0) {
        fault = vanished(p);
        return false;
      }
      out += n;
      src += n;
      len -= n;
    }
    return true;
  });
}

bool IommuBus::dma_write(DmaAddr dst, const void* src, std::size_t len) {
  const auto* in = static_cast<const char*>(src);
  return with_pages(DmaDir::kFromDevice, [&](DmaAddr* at, bool* missing) {
    while (len > 0) {
      std::size_t n = 0;
      void* p = translate(*at = dst, len, DmaDir::kFromDevice, &n);
      if (!p) return !(*missing = true);
      if (safecopy::copy(p, in, n) != 0) {
        fault = vanished(p);
        return false;
      }
      in += n;
      dst += n;
      len -= n;
    }
    return true;
  });
}

bool IommuBus::dma_load32(DmaAddr src, std::uint32_t* value) {
  return with_pages(DmaDir::kToDevice, [&](DmaAddr* at, bool* missing) {
    std::size_t n = 0;
    void* p = translate(*at = src, 4, DmaDir::kToDevice, &n);
    if (!p) return !(*missing = true);
    if (n >= 4 && safecopy::load32(p, value)) return true;
    fault = vanished(p);
    return false;
  });
}

bool IommuBus::dma_store32(DmaAddr dst, std::uint32_t value) {
  return with_pages(DmaDir::kFromDevice, [&](DmaAddr* at, bool* missing) {
    std::size_t n = 0;
    void* p = translate(*at = dst, 4, DmaDir::kFromDevice, &n);
    if (!p) return !(*missing = true);
    if (n >= 4 && safecopy::store32(p, value)) return true;
    fault = vanished(p);
    return false;
  });
}

bool IommuBus::dma_write_last_byte_last(DmaAddr dst, const void* src, std::size_t len) {
  return with_pages(DmaDir::kFromDevice, [&](DmaAddr* at, bool* missing) {
    std::size_t n = 0;
    void* p = translate(*at = dst, len, DmaDir::kFromDevice, &n);
    if (!p) return !(*missing = true);
    if (n >= len && safecopy::copy_last_byte_last(p, src, len)) return true;
    fault = vanished(p);
    return false;
  });
}

bool IommuBus::dma_cas64(DmaAddr addr, std::uint64_t* expected, std::uint64_t desired) {
  return with_pages(DmaDir::kFromDevice, [&](DmaAddr* at, bool* missing) {
    std::size_t n = 0;
    void* p = translate(*at = addr, 8, DmaDir::kFromDevice, &n);
    if (!p) return !(*missing = true);
    if (n >= 8 && safecopy::cas64(p, expected, desired)) return true;
    fault = vanished(p);
    return false;
  });
}

}  // namespace uhca::pci
