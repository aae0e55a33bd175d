// SPDX-License-Identifier: MIT
// Boundary W: a port carries whole Ethernet frames (destination MAC first, no FCS), in both directions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "wire/net/peer.h"

namespace uhca::wire {

using Frame = std::span<const std::byte>;

// Largest frame: Ethernet 14 (+4 VLAN) + IPv6 40 + UDP 8 + BTH and extensions + 4096 payload + pad + ICRC, rounded up.
inline constexpr std::size_t kMaxFrame = 4352;

class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // The frame is valid during the call only. The sink may send on the port from inside the call.
  virtual void receive(Frame frame) = 0;
  // The same for a frame whose ICRC the port has computed, and found right.
  virtual void receive_checked(Frame frame) { receive(frame); }
  // What a function of this host and user has put together with Port::begin_record(). It may change while it is looked at: whoever wrote it
  // runs on. Ports without such peers never call this.
  virtual void receive_record(std::span<const std::byte> record) { static_cast<void>(record); }
};

enum class Send : std::uint8_t {
  kSent,
  kBusy,         // no room now: try again after the next poll (nothing was taken)
  kUnreachable,  // dropped: no route, no such function on this host, ... (the wire would have lost it)
};

// One network port. send/poll are called with the engine's lock held by one thread at a time; service() and the wait
// descriptor belong to the service thread, which calls without that lock.
class Port {
 public:
  virtual ~Port() = default;

  virtual Send send(Frame frame) = 0;

  // Frames may wait in the port for those that follow them, to leave together: this ends their waiting.
  virtual void flush() {}

  // Hands at most `budget` received frames to the sink and returns how many. Cheap when nothing arrived: no system call on
  // every call (sockets are looked at every N calls, or when `thorough`).
  virtual unsigned poll(FrameSink& sink, unsigned budget, bool thorough) = 0;

  // How to see without poll() whether something has come: fills `words` with the addresses of words that are zero until then, and returns
  // how many; kMustPoll: there is no other way now. They stay readable as long as the port lives. What comes by socket is not seen.
  static constexpr unsigned kMustPoll = ~0u;
  virtual unsigned quiet_words(std::span<const std::uint32_t*> words) {
    static_cast<void>(words);
    return kMustPoll;
  }

  // What comes by socket comes just now: a poll is worth its system call.
  virtual bool wants_polls() const { return false; }

  // Frames have been taken from a socket, and the budget of the last poll did not reach as far: nothing else shows them.
  virtual bool holds_frames() const { return false; }

  // The function of this host that has this QPN, when it has shown its area to us; valid until the next send or poll. nullptr: another
  // host, our own, another user's, or not known yet (frames towards it make it known).
  virtual PeerFunction* peer(const std::array<std::uint8_t, 16>& dgid, std::uint32_t dest_qp) {
    static_cast<void>(dgid);
    static_cast<void>(dest_qp);
    return nullptr;
  }

  // Something else than a frame for a peer, in order with the frames to it: where `bytes` (at most kMaxHostRecord, ring.h) of it are to be
  // written, or nullptr: no room now, as kBusy. commit_record() sends what the last begin_record() returned; not calling it sends nothing.
  virtual std::byte* begin_record(PeerFunction& peer, std::size_t bytes) {
    static_cast<void>(peer), static_cast<void>(bytes);
    return nullptr;
  }
  virtual void commit_record(PeerFunction& peer) { static_cast<void>(peer); }

  // A frame of an Ethernet queue: its MAC addresses alone say where it goes. (send() may look at what is inside.)
  virtual Send send_ethernet(Frame frame) { return send(frame); }
  // From now on (no longer) the function has a use for frames that are not RoCE's. A port that gets them anyway need not know.
  virtual void want_ethernet(bool wanted) { static_cast<void>(wanted); }

  // Frames to this multicast group are wanted (no longer wanted). Where a port gets them anyway, that is nothing to it.
  virtual void want_group(const std::array<std::uint8_t, 16>& gid, bool wanted) {
    static_cast<void>(gid);
    static_cast<void>(wanted);
  }

  // A descriptor (epoll) that becomes readable when service() or poll(thorough) has something to do; -1 for ports that need none.
  virtual int wait_fd() const { return -1; }

  // asleep = true: from now on whoever sends to this port must make wait_fd() readable (nobody polls). The caller polls once
  // more after setting it, then sleeps. asleep = false: nobody needs to be woken.
  virtual void set_asleep(bool asleep) { static_cast<void>(asleep); }

  // Housekeeping of the service thread: accept peers, drop dead ones, retry binding. Returns when it wants to be called
  // again at the latest (kNever: only when wait_fd() is readable).
  virtual Nanos service(Nanos now) {
    static_cast<void>(now);
    return kNever;
  }
};

}  // namespace uhca::wire
