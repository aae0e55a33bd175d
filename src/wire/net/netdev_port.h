// SPDX-License-Identifier: MIT
// A port on the wire of a network interface: whole Ethernet frames through a tap device, or through a packet socket on any other
// interface. Source: Linux Documentation/networking/tuntap, packet(7).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "wire/net/netdev.h"
#include "wire/net/port.h"

namespace uhca::wire {

// Frames to the port's own MAC come back to it, as an adapter's embedded switch sends them; so do RoCE frames to groups. A packet socket
// sees frames that the host's own receive offload has merged: they are longer than a port's frame and dropped (`ethtool -K IF gro off`).
class NetdevPort final : public Port {
 public:
  // EBUSY: the tap device is in use; EPERM: tap and packet sockets need CAP_NET_ADMIN or CAP_NET_RAW.
  static Result<std::unique_ptr<NetdevPort>> create(const NetdevInfo& netdev, const Mac& own);
  ~NetdevPort() override;
  NetdevPort(const NetdevPort&) = delete;
  NetdevPort& operator=(const NetdevPort&) = delete;

  bool is_tap() const { return tap_; }

  Send send(Frame frame) override;
  unsigned poll(FrameSink& sink, unsigned budget, bool thorough) override;
  int wait_fd() const override { return epoll_; }

 private:
  NetdevPort() = default;
  Status open_tap(const NetdevInfo& netdev);
  Status open_packet_socket(const NetdevInfo& netdev);
  Send loop_back(Frame frame);

  static constexpr std::size_t kLoopbackFrames = 1024;

  Mac own_{};
  bool tap_ = false;
  int fd_ = -1;
  int epoll_ = -1;
  int wake_ = -1;  // eventfd: the loopback queue has frames
  bool polling_ = false;
  std::uint32_t polls_ = 0;
  std::vector<std::vector<std::byte>> loopback_;  // a ring
  std::size_t loop_head_ = 0, loop_count_ = 0;
  std::array<std::byte, kMaxFrame + 1> buffer_;
};

}  // namespace uhca::wire
