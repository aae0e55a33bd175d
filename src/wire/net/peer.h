// SPDX-License-Identifier: MIT
// What two functions of one host tell each other beside frames: an area of memory, opaque to the switch, that one function shows to the
// others (device/pci/shared_area.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace uhca::wire {

// What this function shows. The owner outlives the port. Calls come from the service side, one at a time.
class Showcase {
 public:
  virtual ~Showcase() = default;
  virtual int fd() const = 0;  // a sealed memfd; not given away
  virtual std::size_t bytes() const = 0;
  // Somebody is going to be shown the area / is dead or gone. The number tells accessors apart.
  static constexpr unsigned kNone = ~0u;
  virtual unsigned admit(pid_t pid) = 0;  // kNone: not this one
  virtual void dismiss(unsigned number) = 0;
};

// Another function of this host and user that has shown its area to us.
struct PeerFunction {
  pid_t pid = 0;
  void* area = nullptr;                                                                // mapped writable
  unsigned number = 0;                                                                 // ours, as that function calls us
  unsigned slot = 0;                                                                   // its QPNs >> kSlotShift (switch.h)
  enum class Access : std::uint8_t { kUntried, kYes, kNo } access = Access::kUntried;  // for the engine: can its memory be reached?
};

}  // namespace uhca::wire
