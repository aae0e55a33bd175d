// SPDX-License-Identifier: MIT
// The slot in the application's own process: the HCA runs on posting and polling threads, and on a service thread when the
// application sleeps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "device/pci/bus.h"
#include "device/pci/idle_watch.h"

namespace uhca::pci {

struct SlotConfig {
  std::string netdev;  // interface whose MAC, addresses and MTU the port takes; empty: chosen (see wire/net)
  // Between functions of one host and user, memory is accessed directly where that is possible (decision 5); off: frames only.
  bool direct_access = true;
  std::string impair;  // what the port does to the frames that it sends (wire/net/impair.h); not empty: frames only
  bool congestion_control = true;
};

class InprocEndpoint : public Endpoint {
 public:
  // The netdev that was chosen.
  virtual const std::string& netdev() const = 0;
  // This function's number on the host, >= 1: its QPNs are function_id << 12 and up.
  virtual std::uint32_t function_id() const = 0;

  // Hooks of the data path (decision 2). Callable from any thread and from signal handlers; a call from inside the engine
  // (a signal handler that interrupted it) is only recorded. At most 8 KiB of stack; errno is preserved.
  virtual void doorbell(std::uint64_t bar_offset, std::uint64_t value) = 0;  // value: host order of the 64-bit store
  virtual void look_at_send_queue(std::uint32_t qpn) = 0;
  virtual void look_at_cq(std::uint32_t cqn) = 0;
  virtual void polled_empty() = 0;  // a CQ was polled and found empty: run the receive side
  // Whoever sees there that nothing has come need not call polled_empty() but once in a while. Lives as long as the slot.
  virtual IdleWatch& idle_watch() = 0;
  virtual void going_to_sleep() = 0;  // the caller is about to block on an event descriptor

  // Programs that ring doorbells themselves: while on, the service thread watches this UAR page (decision 4).
  virtual void watch_uar(std::uint32_t uar_index, bool on) = 0;

  // Accesses of a program to pages of BAR 0 that are not memory, of 1, 2, 4 or 8 aligned bytes. Any thread, also from the handler of the
  // fault that they raised, but not from inside the engine.
  virtual std::uint64_t trapped_load(std::uint64_t offset, unsigned size) = 0;
  virtual void trapped_store(std::uint64_t offset, std::uint64_t value, unsigned size) = 0;

  // A descriptor of the host that the driver wants served: `handler` runs on the service thread, with no device lock held, whenever fd
  // is readable, and must read it empty. One descriptor a slot; -1: none (returns when the handler runs no more).
  virtual void serve(int fd, IrqHandler handler, void* context) = 0;

  // Copies 8 bytes of registers into the BAR's memory, where a program that has the page mapped reads them: memory cannot answer reads
  // itself. Any thread; always of the same page. False: no memory for the mapping.
  virtual bool publish(std::uint64_t bar_offset) = 0;

  // Faults on purpose, and what there is: see Engine (function.h).
  virtual Status plan_fault(const std::string& name, unsigned nth, const std::string& status) = 0;
  virtual std::size_t live_objects() = 0;

  // Starts the service thread if it does not run yet (when the first program opens the device).
  virtual void start_service() = 0;
};

// Plugs an HCA into a slot of this process. Defined by device/hca (so that device/pci knows no device). nullptr with errno
// set: EADDRNOTAVAIL no such netdev, EMFILE/ENFILE/ENOMEM as usual.
std::unique_ptr<InprocEndpoint> plug_in_hca(const SlotConfig& config);

}  // namespace uhca::pci
