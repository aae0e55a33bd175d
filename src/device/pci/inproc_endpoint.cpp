// SPDX-License-Identifier: MIT
#include "device/pci/inproc_endpoint.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/inside.h"
#include "base/trace.h"

namespace uhca::pci {
namespace {

// Hooks leave the program's errno alone.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

// Offset of the CQ arm register inside a UAR page (prm/wqe.h: kUarCqDoorbell); the slot needs it only as a hint that the caller
// will sleep soon.
constexpr std::uint64_t kArmRegister = 0x20;
constexpr std::uint64_t kPageMask = 4095;

}  // namespace

InprocBus::~InprocBus() {
  if (mapped_ != nullptr) syscall(SYS_munmap, mapped_, mapped_bytes_);
  fd::close(bar_fd);
}

std::uint8_t* InprocBus::map_bar(std::size_t bar_bytes, std::uint64_t offset, std::size_t bytes) {
  auto memory = fd::sealed_memfd("uhca-bar0", bar_bytes);
  if (!memory.ok()) {
    errno = memory.code();
    return nullptr;
  }
  bar_fd = *memory;
  long r = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bar_fd, offset);
  if (r < 0 && r >= -4095) return nullptr;
  mapped_ = reinterpret_cast<void*>(r);
  mapped_bytes_ = bytes;
  syscall(SYS_madvise, mapped_, mapped_bytes_, MADV_DONTFORK);  // a child has no device
  return static_cast<std::uint8_t*>(mapped_);
}

InprocSlot::InprocSlot(SlotIdentity identity, std::unique_ptr<InprocBus> bus, std::unique_ptr<wire::Port> port,
                       std::unique_ptr<Engine> engine)
    : identity_(std::move(identity)), bus_(std::move(bus)), port_(std::move(port)), engine_(std::move(engine)) {
  service_ = std::make_unique<ServiceThread>(*engine_, *port_, bus_->irqs, idle_);
  engine_->set_idle_watch(&idle_);
  bar_fd_ = std::exchange(bus_->bar_fd, -1);
}

InprocSlot::~InprocSlot() {
  service_.reset();
  engine_.reset();
  if (std::uint8_t* p = published_.load()) syscall(SYS_munmap, p, kPageMask + 1);
  fd::close(bar_fd_);
}

std::uint32_t InprocSlot::read32(std::uint64_t offset) {
  inside::EngineGuard guard;
  return static_cast<std::uint32_t>(engine_->mmio_read(offset, 4));
}

void InprocSlot::write32(std::uint64_t offset, std::uint32_t value) {
  inside::EngineGuard guard;
  engine_->mmio_write(offset, value, 4);
  after_work();
}

void InprocSlot::write64(std::uint64_t offset, std::uint64_t value) {
  inside::EngineGuard guard;
  engine_->mmio_write(offset, value, 8);
  after_work();
}

std::uint64_t InprocSlot::trapped_load(std::uint64_t offset, unsigned size) {
  inside::EngineGuard guard;
  return engine_->mmio_read(offset, size);
}

void InprocSlot::trapped_store(std::uint64_t offset, std::uint64_t value, unsigned size) {
  // Operations on device memory: nothing else comes of them. They run in a signal handler, on whatever stack the program has for it.
  inside::EngineGuard guard;
  engine_->mmio_write(offset, value, size);
}

void InprocSlot::reset() {
  inside::EngineGuard guard;
  engine_->reset();
}

bool InprocSlot::reentered() {
  if (!inside::in_engine()) return false;
  missed_.store(true, std::memory_order_release);
  service_->poke();
  return true;
}

void InprocSlot::after_work() {
  if (__builtin_expect(missed_.load(std::memory_order_relaxed), 0) && missed_.exchange(false)) {
    // Which queue it was is not known: the doorbell records of all of them are.
    engine_->look_at_uar(~0u);
    engine_->drive(true);
  }
  if (bus_->irqs.any_pending()) bus_->irqs.dispatch();
  service_->check_deadline();
}

void InprocSlot::doorbell(std::uint64_t bar_offset, std::uint64_t value) {
  if (reentered()) return;
  KeepErrno keep;
  inside::EngineGuard guard;
  engine_->uar_store(bar_offset, value);
  if ((bar_offset & kPageMask) == kArmRegister) {
    service_->unattend();
  } else {
    drive_after_post();
  }
  after_work();
}

// Frames to our own QPs, answers that are already there. A thread that polls comes again by itself.
void InprocSlot::drive_after_post() {
  if (!idle_.nothing_came()) engine_->drive(false);
}

void InprocSlot::look_at_send_queue(std::uint32_t qpn) {
  if (reentered()) return;
  KeepErrno keep;
  inside::EngineGuard guard;
  engine_->look_at_send_queue(qpn);
  drive_after_post();
  after_work();
}

void InprocSlot::look_at_cq(std::uint32_t cqn) {
  if (reentered()) return;
  KeepErrno keep;
  inside::EngineGuard guard;
  engine_->look_at_cq(cqn);
  service_->unattend();
  after_work();
}

void InprocSlot::polled_empty() {
  if (reentered()) return;
  KeepErrno keep;
  inside::EngineGuard guard;
  engine_->drive(false);
  service_->polled();
  after_work();
}

bool InprocSlot::publish(std::uint64_t bar_offset) {
  KeepErrno keep;
  inside::Guard guard;
  std::uint64_t page = bar_offset & ~kPageMask;
  std::uint8_t* p = published_.load(std::memory_order_acquire);
  if (p == nullptr) {
    long r = syscall(SYS_mmap, nullptr, kPageMask + 1, PROT_READ | PROT_WRITE, MAP_SHARED, bar_fd_, page);
    if (r < 0 && r >= -4095) return false;
    auto* fresh = reinterpret_cast<std::uint8_t*>(r);
    if (published_.compare_exchange_strong(p, fresh, std::memory_order_acq_rel))
      p = fresh;
    else
      syscall(SYS_munmap, fresh, kPageMask + 1);
  }
  // Two registers of a counter: the first half may carry over while the second is read.
  std::uint64_t high, low;
  do {
    high = engine_->mmio_read(bar_offset, 4);
    low = engine_->mmio_read(bar_offset + 4, 4);
  } while (engine_->mmio_read(bar_offset, 4) != high);
  // mmio_read gives the bytes as they lie in the BAR.
  __atomic_store_n(reinterpret_cast<std::uint64_t*>(p + (bar_offset & kPageMask)), low << 32 | high, __ATOMIC_RELEASE);
  return true;
}

void InprocSlot::going_to_sleep() {
  if (reentered()) return;
  KeepErrno keep;
  inside::EngineGuard guard;
  service_->unattend();
  engine_->drive(true);
  after_work();
}

}  // namespace uhca::pci
