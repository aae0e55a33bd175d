// SPDX-License-Identifier: MIT
// Boundary P: what a PCI device and its driver see of each other. Nothing else crosses it.
//
//   driver (kernel/mlx5_core)  --- Endpoint: BAR accesses, vectors, IOMMU --->  device (device/hca)
//   device                     --- Bus: DMA, MSI-X ------------------------->  driver's memory and handlers
//
// The device model implements Function and is handed a Bus; it never learns which home it lives in: the application's process
// (inproc.h), a QEMU guest behind vfio-user, or a unit test whose Bus checks every access.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uhca::pci {

// A bus address as the driver hands it to the device: an IOVA of the software IOMMU, or a guest-physical address.
using DmaAddr = std::uint64_t;

// Memory behind a bus address as the process that owns it knows it, for accesses from other functions of the host (shared_area.h).
struct HostRange {
  std::uint64_t address = 0;  // virtual address in the owner
  std::uint32_t range = 0;    // the IOMMU's range, and the state word that it has while the mapping lives
  std::uint64_t state = 0;
  const std::atomic<std::uint64_t>* word = nullptr;  // where the state stands, in this process; outlives the mapping

  bool live() const { return word != nullptr && word->load(std::memory_order_acquire) == state; }
};

enum class DmaDir : std::uint8_t { kToDevice, kFromDevice };

class SharedArea;

// What the device asks of the bus. Thread-safe. No call here ever calls back into the device or the driver.
class Bus {
 public:
  virtual ~Bus() = default;

  // Copies between device and host memory; false when any byte is not mapped for that direction (nothing is known about
  // how much was moved then). Never faults, whatever the address.
  virtual bool dma_read(void* dst, DmaAddr src, std::size_t len) = 0;
  virtual bool dma_write(DmaAddr dst, const void* src, std::size_t len) = 0;

  // Single-copy atomic accesses of an aligned word in host byte order, for doorbell records and CQE/EQE ownership:
  // load has acquire, store has release semantics.
  virtual bool dma_load32(DmaAddr src, std::uint32_t* value) = 0;
  virtual bool dma_store32(DmaAddr dst, std::uint32_t value) = 0;
  // Writes `len` bytes (at most 64, not crossing a page) so that the last byte becomes visible last, with release semantics.
  virtual bool dma_write_last_byte_last(DmaAddr dst, const void* src, std::size_t len) = 0;
  // 64-bit compare-and-swap / fetch-and-add on an aligned big-endian or little-endian word are done by the device on top of
  // this: replaces *expected by what was found. False: not mapped.
  virtual bool dma_cas64(DmaAddr addr, std::uint64_t* expected, std::uint64_t desired) = 0;

  // Where [addr, addr + len) lies, if it is one range that is mapped for `dir`. False also where memory has no owner with an address space
  // (a guest). What it says may be used like a translation: inside of the RCU read section of the caller.
  virtual bool resolve(DmaAddr addr, std::size_t len, DmaDir dir, HostRange* out) {
    static_cast<void>(addr), static_cast<void>(len), static_cast<void>(dir), static_cast<void>(out);
    return false;
  }

  // Why the last failed access of this thread failed, for the reason in log and trace ("unmapped", "munmap()ed while
  // registered", ...). Static storage.
  virtual const char* last_fault() const = 0;

  // Asserts an MSI-X vector: records it and returns. Delivered after the device has dropped its locks (decision 3).
  virtual void raise(unsigned vector) = 0;
};

// What a device model implements: configuration and BAR 0. Offsets in bytes; sizes 1, 2, 4 or 8. Values are in the byte
// order of the bus (little-endian numbers); a big-endian register reads as the byte-swapped number, as on real hardware.
class Function {
 public:
  virtual ~Function() = default;
  virtual std::size_t bar0_size() const = 0;
  virtual std::uint64_t mmio_read(std::uint64_t offset, unsigned size) = 0;
  virtual void mmio_write(std::uint64_t offset, std::uint64_t value, unsigned size) = 0;
  // 64 bytes in one write, at a multiple of 64: what a processor's write-combining buffer sends. Words in ascending order.
  virtual void mmio_write_line(std::uint64_t offset, const std::array<std::uint64_t, 8>& words) {
    for (unsigned i = 0; i < 8; ++i) mmio_write(offset + i * 8, words[i], 8);
  }
  // Function level reset: all objects gone, all numbers free, init segment as after power-on.
  virtual void reset() = 0;
};

// The IOMMU that the driver's side programs and the bus consults (decision 1). Implemented by kernel/mm.
class Iommu {
 public:
  virtual ~Iommu() = default;
  // Host address of [addr, addr + len') where len' = *contiguous <= len is how far the translation reaches. nullptr when
  // the first byte is not mapped for `dir`; then *why (if not null) is the reason, in static storage. Wait-free. What it
  // returns may be used until the end of the RCU read section (base/rcu.h) in which the caller asked.
  virtual void* translate(DmaAddr addr, std::size_t len, DmaDir dir, std::size_t* contiguous, const char** why) = 0;
  virtual bool resolve(DmaAddr addr, std::size_t len, DmaDir dir, HostRange* out) {
    static_cast<void>(addr), static_cast<void>(len), static_cast<void>(dir), static_cast<void>(out);
    return false;
  }
  // The device needs memory there that translate() did not have: it may come when it is asked for (PCIe: page requests). True: try again;
  // false: it will not come. May take a while, and must not be called in an RCU read section.
  virtual bool page_request(DmaAddr addr, DmaDir dir) {
    static_cast<void>(addr), static_cast<void>(dir);
    return false;
  }
  // What it means that an access to memory which translate() gave has faulted; nullptr: nothing more is known. Takes no lock.
  virtual const char* vanished(const void* memory) {
    static_cast<void>(memory);
    return nullptr;
  }
  // From now on publishes the states of its ranges there, and waits for accessors where it waits for DMA. Not owned.
  virtual void share(SharedArea* area) { static_cast<void>(area); }
};

// What a driver sees of the device in its slot.
class Endpoint {
 public:
  using IrqHandler = void (*)(void* context);

  virtual ~Endpoint() = default;

  virtual std::uint16_t vendor_id() const = 0;
  virtual std::uint16_t device_id() const = 0;

  virtual std::uint32_t read32(std::uint64_t offset) = 0;  // BAR 0, byte order of the bus
  virtual void write32(std::uint64_t offset, std::uint32_t value) = 0;
  virtual void write64(std::uint64_t offset, std::uint64_t value) = 0;

  // BAR 0 pages that a program may map: a descriptor that can be mmapped (MAP_SHARED) at file offset = BAR offset, valid for
  // the pages that the device says are such: UARs, its own memory. The caller does not own it.
  virtual int bar_fd() const = 0;

  virtual unsigned num_vectors() const = 0;
  // Handlers run on whatever thread drove the device (after its locks were dropped) or on the service thread; one vector is
  // never handled by two threads at once. They may take only locks that are never held across a device access.
  virtual void request_irq(unsigned vector, IrqHandler handler, void* context) = 0;
  // Returns when no handler of this vector runs any more.
  virtual void free_irq(unsigned vector) = 0;

  // All DMA goes through this IOMMU from now on; nullptr: every DMA faults. Not owned.
  virtual void attach_iommu(Iommu* iommu) = 0;

  virtual void reset() = 0;
};

}  // namespace uhca::pci
