// SPDX-License-Identifier: MIT
// Pinned and DMA-mapped user memory. Linux: struct ib_umem (drivers/infiniband/core/umem.c).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/pci/bus.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/odp_pages.h"
#include "kernel/mm/trap_names.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::mm {

class IommuDomain;

// One VA-contiguous range, mapped at one contiguous IOVA range that is congruent to the VA modulo 2 GiB, so that any page size
// up to that works in MTTs and PAS lists.
class Umem {
 public:
  ~Umem();  // unmaps, and waits for accesses that are under way; the caller has destroyed the MKey first
  Umem(const Umem&) = delete;
  Umem& operator=(const Umem&) = delete;

  UserPtr va() const { return va_; }
  std::size_t length() const { return length_; }
  // Bus address of va().
  pci::DmaAddr dma() const { return dma_; }
  bool writable() const { return writable_; }

 private:
  friend class IommuDomain;
  Umem() = default;
  IommuDomain* domain_ = nullptr;
  UserPtr va_ = 0;
  std::size_t length_ = 0;
  pci::DmaAddr dma_ = 0;
  bool writable_ = false;
  bool counted_ = false;  // PinnedPages
};

// Memory of the program that is not pinned: the device reaches whatever is mapped at these addresses when it comes, and what is not there
// is brought in (OdpPages). Mapped at IOVAs as a Umem is; the whole address space in windows of 2 TiB. Linux: struct ib_umem_odp.
class UmemOdp {
 public:
  ~UmemOdp();  // as Umem's
  UmemOdp(const UmemOdp&) = delete;
  UmemOdp& operator=(const UmemOdp&) = delete;

  static constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 47;  // bytes that a program may have mapped
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 41;

  UserPtr va() const { return va_; }
  std::uint64_t length() const { return length_; }
  bool writable() const { return writable_; }
  // Bus address of va(), as far as one window goes.
  pci::DmaAddr dma() const { return windows_.front(); }
  // Of the whole address space: bus addresses of the multiples of kWindow.
  const std::vector<pci::DmaAddr>& windows() const { return windows_; }
  OdpPages& pages() { return *pages_; }

 private:
  friend class IommuDomain;
  UmemOdp() = default;
  IommuDomain* domain_ = nullptr;
  UserPtr va_ = 0;
  std::uint64_t length_ = 0;
  bool writable_ = false;
  std::unique_ptr<OdpPages> pages_;
  std::vector<pci::DmaAddr> windows_;
};

// Bus addresses whose memory changes: pieces of this process's that are put there, and taken away while the addresses stay. For buffers
// that their owner moves (dma-bufs).
class IovaWindow {
 public:
  ~IovaWindow();  // as Umem's
  IovaWindow(const IovaWindow&) = delete;
  IovaWindow& operator=(const IovaWindow&) = delete;

  pci::DmaAddr dma() const { return dma_; }
  std::size_t length() const { return length_; }
  // The memory from dma() on, whole pages, at most length() of them in all. Replaces what was there.
  void load(const std::vector<SgEntry>& pieces);
  // Nothing is there any more, and no access that began before touches what was.
  void zap();
  struct Stats {
    std::uint64_t faults = 0, invalidations = 0;
  };
  Stats stats() const { return {faults_.load(std::memory_order_relaxed), invalidations_.load(std::memory_order_relaxed)}; }

 private:
  friend class IommuDomain;
  struct Pieces {
    std::vector<std::uint64_t> ends;
    std::vector<std::byte*> memory;
  };
  IovaWindow() = default;
  void replace(Pieces* fresh);

  IommuDomain* domain_ = nullptr;
  pci::DmaAddr dma_ = 0;
  std::size_t length_ = 0;
  std::uint64_t first_ = 0;  // offset of dma_ in the domain's range
  std::atomic<Pieces*> pieces_{nullptr};
  bool (*fault_)(void*) = nullptr;
  void* context_ = nullptr;
  std::atomic<std::uint64_t> faults_{0}, invalidations_{0};
};

// Device-visible memory of the driver itself (command queue, EQ buffers, firmware pages). Linux: dma_alloc_coherent.
class DmaBuffer {
 public:
  ~DmaBuffer();
  DmaBuffer(const DmaBuffer&) = delete;
  DmaBuffer& operator=(const DmaBuffer&) = delete;
  void* cpu() const { return cpu_; }
  pci::DmaAddr dma() const { return dma_; }
  std::size_t size() const { return size_; }

 private:
  friend class IommuDomain;
  DmaBuffer() = default;
  IommuDomain* domain_ = nullptr;
  void* cpu_ = nullptr;
  pci::DmaAddr dma_ = 0;
  std::size_t size_ = 0;
};

// The software IOMMU of one device (decision 1): IOVA ranges with a state; translation is wait-free.
class IommuDomain final : public pci::Iommu {
 public:
  IommuDomain();
  ~IommuDomain() override;

  // Pins and maps [va, va+length). EFAULT: a hole, or not writable although `writable`; EINVAL: length 0 or the range wraps;
  // ENOMEM: IOVA space exhausted. `who` ("MR", "CQ buffer", ...) appears in reasons together with the range. Touches no page.
  Result<std::unique_ptr<Umem>> pin(UserPtr va, std::size_t length, bool writable, std::string_view who) {
    return pin_like(va, length, writable, who, va);
  }
  // The same, but the bus address is congruent modulo 2 GiB to `like` (which agrees with va modulo 4 KiB, else EINVAL) instead of
  // to the VA: an MR whose iova differs from its VA then still gets by with 2 GiB pages.
  Result<std::unique_ptr<Umem>> pin_like(UserPtr va, std::size_t length, bool writable, std::string_view who, std::uint64_t like);
  // The same without pinning, and without a look at what is mapped there now. EINVAL: as above; ENOMEM.
  Result<std::unique_ptr<UmemOdp>> on_demand(UserPtr va, std::size_t length, bool writable, std::string_view who, std::uint64_t like);
  // ... the whole address space.
  Result<std::unique_ptr<UmemOdp>> on_demand_everything(bool writable, std::string_view who);
  // `length` bytes of addresses, congruent to `like` (a page) modulo 2 GiB, without memory. An access that finds none calls fault(context),
  // on its own thread: true: load() has been called, try again. EINVAL, ENOMEM.
  Result<std::unique_ptr<IovaWindow>> window(std::size_t length, bool writable, std::string_view who, std::uint64_t like,
                                             bool (*fault)(void*), void* context);
  // The name by which reasons call the range at `addr` later ("MR lkey 0x1234"); at most 47 characters are kept.
  void rename(pci::DmaAddr addr, std::string_view who);
  // Ranges that are mapped now, of either kind.
  std::size_t live_ranges() const;
  // Zeroed, page-aligned.
  Result<std::unique_ptr<DmaBuffer>> alloc_coherent(std::size_t size);

  void* translate(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, std::size_t* contiguous, const char** why) override;

  bool resolve(pci::DmaAddr addr, std::size_t len, pci::DmaDir dir, pci::HostRange* out) override;
  bool page_request(pci::DmaAddr addr, pci::DmaDir dir) override;
  const char* vanished(const void* memory) override { return trap_at(memory); }
  void share(pci::SharedArea* area) override;

  // The program is about to unmap, replace or discard [va, va+length): every pinned range that overlaps is poisoned, from now
  // on DMA to it fails and the reason names the owner. What is on demand is brought in again when it is needed next. Returns when no access
  // that began before touches the memory any more. Cheap when nothing is pinned there.
  void invalidate(UserPtr va, std::size_t length, std::string_view how);

 private:
  static void* in_window(IovaWindow& w, std::uint64_t off, std::size_t len, std::size_t* contiguous, const char** why);
  friend class Umem;
  friend class UmemOdp;
  friend class IovaWindow;
  friend class DmaBuffer;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace uhca::kernel::mm
