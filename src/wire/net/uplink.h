// SPDX-License-Identifier: MIT
// The port of a function: sends each frame to where its destination lives, and receives from all of them.
//   destination MAC of a function (function_mac.h)                   -> that function: a queue in this process, or the host switch
//   a group's or an unknown MAC, from such a function                -> all of them (groups and RoCE: this process too)
//   a frame of an Ethernet queue (send_ethernet), any other MAC       -> the functions that take part in Ethernet
//   destination IP of this host, QPN in a block of ours (or QP0/QP1) -> a queue in this process
//   destination IP of this host, another block                       -> host switch (switch.h)
//   anything else                                                     -> UDP 4791 (udp.h); RoCE v1 frames end here
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/net/counters.h"
#include "wire/net/netdev.h"
#include "wire/net/port.h"
#include "wire/net/switch.h"
#include "wire/net/udp.h"

namespace uhca::wire {

class Uplink final : public Port {
 public:
  struct Options {
    HostSwitch::Options host_switch;
    bool udp = true;
    // The function has a MAC of its own (function_mac.h) and takes part in plain Ethernet: frames to a group go to all such functions
    // of the host.
    bool ethernet = false;
    std::string ethernet_prefix = "uhca/v1/eth/";  // of the abstract names of those that take part: these, and others while they want to
  };
  // Leases a first block of QPNs. ENOSPC: none free on this host. A busy UDP port is no error: see service().
  static Result<std::unique_ptr<Uplink>> create(NetdevInfo netdev, const Options& options);
  static Result<std::unique_ptr<Uplink>> create(NetdevInfo netdev) { return create(std::move(netdev), Options{}); }
  ~Uplink() override;
  Uplink(const Uplink&) = delete;
  Uplink& operator=(const Uplink&) = delete;

  // The slot of the first block: a number that no other live function of this host has (1..4094).
  std::uint32_t function_id() const { return function_id_; }
  // The first call gives the function's first block, later ones lease more. First QPN; 0: none left. Thread-safe.
  std::uint32_t lease_block();
  bool owns_qpn(std::uint32_t qpn) const { return switch_->owns(qpn >> kSlotShift); }

  const NetdevInfo& netdev() const { return netdev_; }
  const UplinkCounters& counters() const { return counters_; }
  bool udp_bound(bool ipv6) const { return udp_ && udp_->bound(ipv6); }

  Send send(Frame frame) override;
  void flush() override;
  unsigned poll(FrameSink& sink, unsigned budget, bool thorough) override;
  unsigned quiet_words(std::span<const std::uint32_t*> words) override;
  bool wants_polls() const override;
  bool holds_frames() const override { return udp_ && udp_->holds_frames(); }
  PeerFunction* peer(const Gid& dgid, std::uint32_t dest_qp) override;
  std::byte* begin_record(PeerFunction& peer, std::size_t bytes) override;
  void commit_record(PeerFunction& peer) override;
  // The MAC of a function without one of its own is the netdev's, as is that of all its neighbours: each of these gets such a frame, and
  // its flow rules decide. kBusy: there is one only, and it has no room.
  Send send_ethernet(Frame frame) override;
  void want_ethernet(bool wanted) override;
  void want_group(const Gid& gid, bool wanted) override;
  int wait_fd() const override { return epoll_; }
  void set_asleep(bool asleep) override;
  Nanos service(Nanos now) override;

 private:
  Uplink() = default;
  bool is_local(const Gid& gid);
  Send dispatch(Frame frame);
  Send loop_back(Frame frame);
  Send to_slot(unsigned slot, Frame frame);
  // To the other functions that take part in Ethernet.
  Send to_ethernet(Frame frame);
  Send flood(Frame frame);
  Status join_ethernet();
  unsigned poll_loopback(FrameSink& sink, unsigned budget);
  Nanos service_locked(Nanos now);
  // For another function of this host, when it came over UDP.
  class HandOn;

  NetdevInfo netdev_;
  UplinkCounters counters_;
  int epoll_ = -1;
  int ethernet_name_ = -1;  // bound as long as the function lives
  Source wake_{Source::Kind::kWake, -1};
  Source netlink_{Source::Kind::kNetlink, -1};
  std::uint32_t function_id_ = 0;
  bool first_block_given_ = false;
  std::unique_ptr<HostSwitch> switch_;
  std::unique_ptr<UdpPort> udp_;

  // engine
  std::vector<Gid> local_;
  Gid found_local_{};  // what is_local() said yes to last, if it did
  bool found_any_ = false;
  Gid foreign_{};  // what it said no to last, if it did
  bool found_foreign_ = false;
  std::atomic<bool> addresses_stale_{true};
  std::uint32_t polls_ = 0;
  std::uint32_t udp_silence_ = 1 << 20;  // looks since the last frame
  Nanos udp_looked_at_ = 0, serviced_at_ = 0;
  bool polling_ = false;
  std::string ethernet_prefix_;
  bool own_mac_ = false;
  std::vector<unsigned> ethernet_;  // slots of the others
  Nanos ethernet_known_until_ = 0;
  Nanos ethernet_busy_since_ = 0;  // 0: there is room
  void* loop_memory_ = nullptr;
  RingProducer loop_tx_;
  RingConsumer loop_rx_;

  // service side
  std::mutex service_;
  Nanos bind_again_ = 0;
  std::atomic<bool> asleep_{false};
};

}  // namespace uhca::wire
