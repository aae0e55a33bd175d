// SPDX-License-Identifier: MIT
// What a device model implements to be driven: how its home gives it the processor.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "device/pci/bus.h"
#include "device/pci/idle_watch.h"

namespace uhca::pci {

// A Function whose engine runs on whoever has time (decision 2). All calls are thread-safe; none calls back into a driver.
class Engine : public Function {
 public:
  // A doorbell store into the UAR range that the home saw (offset in BAR 0, value in host byte order as loaded from the
  // register). The value is a hint: the doorbell records in memory are the truth (decision 4).
  virtual void uar_store(std::uint64_t offset, std::uint64_t value) = 0;

  // "The doorbell record of this queue may have moved": the same, when the number is known and the value is not.
  virtual void look_at_send_queue(std::uint32_t qpn) = 0;
  virtual void look_at_cq(std::uint32_t cqn) = 0;
  // Looks at every send queue and CQ whose doorbells go to this UAR page.
  virtual void look_at_uar(std::uint32_t uar_index) = 0;

  // Runs the engine: sends what is pending, takes received frames, serves due timers. `thorough`: look at everything
  // (sockets too); otherwise amortise. Returns true when it did something.
  virtual bool drive(bool thorough) = 0;

  // From now on each drive() says there how to see that something has come since. An engine that cannot leaves the watch closed.
  virtual void set_idle_watch(IdleWatch* watch) { static_cast<void>(watch); }

  // When drive() must be called again at the latest, by the engine's clock; kNever when only input can make work.
  virtual Nanos next_deadline() = 0;

  // "The nth command from now on of this name (empty: any) fails with this status" (empty: an internal error). EINVAL: no such name or
  // status; EOPNOTSUPP: an engine without commands.
  virtual Status plan_fault(const std::string& name, unsigned nth, const std::string& status) {
    static_cast<void>(name), static_cast<void>(nth), static_cast<void>(status);
    return Errno{EOPNOTSUPP};
  }
  // Objects of all kinds that the device keeps for its driver.
  virtual std::size_t live_objects() { return 0; }

  // Number of CQs that are armed (a completion event will be wanted): the home then wakes its service thread for input.
  virtual unsigned armed_cqs() = 0;
};

}  // namespace uhca::pci
