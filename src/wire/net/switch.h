// SPDX-License-Identifier: MIT
// The host switch: frames between the functions (processes) of one host, through shared memory, without a server.
// docs/decisions/0001-host-switch-registry.md says why it is built this way.
//
// A function leases slot s by binding the abstract name "\0uhca/v1/fn/<s>" and owns QPNs s<<12 .. (s<<12)+4095 as long
// as it lives. Whoever has a frame for slot s connects to that name and passes one sealed memfd with a ring: a link. Links carry frames in
// one direction, from who connected to who bound the name: so the kernel vouches for the receiver, and no claim of a peer
// about its own slot has to be believed. The socket of a link stays open: its end of file is the peer's death, and a byte on it wakes the
// other side (receiver: frames came; sender: there is room again).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "wire/net/counters.h"
#include "wire/net/inspect.h"
#include "wire/net/peer.h"
#include "wire/net/port.h"
#include "wire/net/ring.h"

namespace uhca::wire {

inline constexpr unsigned kSlotShift = 12;  // QPN >> kSlotShift = slot
inline constexpr unsigned kSlots = 1 << 12;
// Slot 0 holds QP0 and QP1; slot 4095 the multicast QPN 0xffffff.
inline constexpr unsigned kLastSlot = kSlots - 2;

// What an epoll event points at.
struct Source {
  enum class Kind : std::uint8_t { kWake, kNetlink, kUdpSet, kUdpTx, kListener, kPending, kRx, kTx };
  Kind kind;
  int fd = -1;
};

class HostSwitch {
 public:
  struct Options {
    std::string prefix = "uhca/v1/fn/";  // of the abstract names
    unsigned last_slot = kLastSlot;      // lease 1 .. last_slot
    Showcase* showcase = nullptr;        // shown to the functions of the same user that send to us
    Inspector* inspector = nullptr;      // answers tools (inspect.h)
  };
  HostSwitch(const Options& options, int epoll_fd, UplinkCounters& counters);
  ~HostSwitch();
  HostSwitch(const HostSwitch&) = delete;
  HostSwitch& operator=(const HostSwitch&) = delete;

  // A further slot, or ENOSPC (all taken), or the errno of socket/bind/listen. Thread-safe against the engine's calls; one at a time.
  Result<unsigned> lease();
  bool owns(unsigned slot) const { return own_[slot / 64].load(std::memory_order_relaxed) >> (slot % 64) & 1; }

  // ---- the engine, one thread at a time
  Send send(unsigned slot, Frame frame);
  // Only to functions of our user, or of root: what they are not meant to see is nothing for others. Else kUnreachable.
  Send send_to_own(unsigned slot, Frame frame);
  // `all`: look at the rings that have been silent for long, too.
  unsigned poll(FrameSink& sink, unsigned budget, bool all);
  // As Port's.
  unsigned quiet_words(std::span<const std::uint32_t*> words) const;
  PeerFunction* peer(unsigned slot);
  // As Port's; the peer is what peer() has just returned.
  std::byte* begin_record(const PeerFunction& peer, std::size_t bytes);
  void commit_record(const PeerFunction& peer);

  // ---- the service side; the caller holds one lock over all of these
  void handle(Source* source, std::uint32_t events);
  void set_asleep(bool asleep);
  // Frees links that the engine has let go; takes up accepting again after descriptors had run out. Returns the next deadline.
  Nanos housekeeping(Nanos now);

  static constexpr std::size_t kMaxRxLinks = 2048;
  static constexpr std::size_t kMaxRxLinksPerForeignUser = 512;

 private:
  struct Link;
  Result<Link*> open_link(unsigned slot);
  Send send(unsigned slot, Frame frame, bool own_only);
  void close_corrupt(Link* link);
  void accept_all(int listener);
  bool greet(Link* link);  // false: refused, link is gone
  bool answer(Link* link, const void* message, std::size_t bytes);
  void show(Link* link);
  void look(Link* link, int memfd, unsigned number);
  bool take_messages(Link* link);  // false: end of file or error
  void destroy(Link* link);
  void unmap_ring(Link* link);
  void retire(Link* link);  // engine: to the graveyard
  void adopt_and_reap();
  void mark_dead(Link* link);

  Options options_;
  int epoll_;
  UplinkCounters& counters_;
  std::atomic<std::uint64_t> own_[kSlots / 64]{};

  // engine
  std::unique_ptr<Link*[]> tx_;
  std::vector<Link*> tx_list_;
  std::vector<Link*> rx_;
  std::size_t next_rx_ = 0;
  std::uint32_t polls_ = 0;
  std::unique_ptr<std::byte[]> private_copy_;

  // handed over without a lock
  std::atomic<Link*> incoming_{nullptr};
  std::atomic<Link*> graveyard_{nullptr};
  std::atomic<bool> any_dead_{false};

  // service side
  std::vector<Link*> accepted_;  // pending and receiving
  std::vector<std::unique_ptr<Source>> listeners_;
  std::atomic<bool> asleep_{false};
  bool accept_paused_ = false;
  std::vector<void*> spare_;  // addresses of rings that links no longer use
};

// The kernel's view for tools: slots that are bound on this host, from /proc/net/unix.
std::vector<unsigned> bound_slots(const std::string& prefix = HostSwitch::Options{}.prefix);

}  // namespace uhca::wire
