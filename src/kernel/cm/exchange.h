// SPDX-License-Identifier: MIT
// MADs that arrive at one function and belong to another. The port of a host, and with it QP1, is one; its functions are processes.
// As the driver of an SR-IOV adapter's physical function does, whoever receives a MAD finds its owner (REQ and SIDR_REQ by service id,
// the rest by communication id, whose upper bits are the function's number) and hands it on. docs/decisions/0002.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernel/cm/cm_msgs.h"
#include "kernel/cm/host_names.h"
#include "kernel/cm/port_space.h"

namespace uhca::kernel::cm {

// The message between functions: what of MadInfo travels, then the MAD.
struct HandedMad {
  static constexpr std::uint32_t kMagic = 0x7568'636d;
  std::uint32_t magic = kMagic;
  std::uint8_t roce_v2 = 0, traffic_class = 0, hop_limit = 0, sl = 0;
  std::uint32_t flow_label = 0, src_qp = 0;
  ib_gid sgid{}, dgid{};
  std::array<std::uint8_t, kMadSize> mad{};
};

class Exchange {
 public:
  Exchange(std::string prefix, std::uint32_t function, const PortSpace& ports)
      : prefix_(std::move(prefix)), function_(function), ports_(ports) {}

  // Takes the function's own name, on which others call. EADDRINUSE, ...
  Status start();
  int fd() const { return own_.fd(); }

  enum class Owner : std::uint8_t {
    kOther,   // handed to it, or dropped because it cannot be reached now: the sender repeats what it gets no answer to
    kSelf,    // or somebody who does not exist, which the caller's ib_cm then says to the sender
    kNobody,  // a request for a service on which nobody listens
  };
  Owner hand_on(const Mad& mad, const MadInfo& info);

  // What a caller (host_names.h) hands to us.
  enum class Took : std::uint8_t { kMad, kWatcher, kNothing, kNotYet };  // kWatcher: peer_watch.h
  static Took take(int caller_fd, Mad* mad, MadInfo* info);

 private:
  std::string name_of(std::uint32_t function) const;
  // Whether somebody has that name.
  bool give(const std::string& name, const HandedMad& m);
  Owner by_service_id(std::uint64_t service_id, const HandedMad& m, const MadInfo& info);
  Owner by_function(std::uint32_t function, const HandedMad& m);

  const std::string prefix_;
  const std::uint32_t function_;
  const PortSpace& ports_;
  HostName own_;
};

}  // namespace uhca::kernel::cm
