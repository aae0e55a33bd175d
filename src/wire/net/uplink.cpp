// SPDX-License-Identifier: MIT
#include "wire/net/uplink.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/far_fence.h"
#include "base/fd.h"
#include "base/log.h"
#include "wire/net/function_mac.h"
#include "wire/net/link_socket.h"
#include "wire/net/peek.h"

namespace uhca::wire {
namespace {

// In polls. A program that polls again and again comes here with every 32nd poll only, unless something has come (pci/idle_watch.h).
constexpr std::uint32_t kUdpEvery = 4;
constexpr std::uint32_t kServiceEvery = 64;  // for programs whose service thread gets no CPU
constexpr std::uint32_t kUdpBusyFor = 64;    // looks without a frame: until then every poll looks
constexpr std::uint32_t kUdpQuietAfter = 1024;
// Looking costs a system call: not sooner after the last time.
constexpr Nanos kUdpRest = 1'000, kUdpQuietRest = 10'000, kServiceRest = 50'000;
constexpr Nanos kAddressRefresh = 1'000'000'000;
constexpr Nanos kPause = 20'000'000;  // for the one receiver of Ethernet frames whose ring is full

// As two words: comparing arrays of bytes is a call.
bool same_gid(const Gid& a, const Gid& b) {
  std::uint64_t x[2], y[2];
  static_assert(sizeof x == sizeof a);
  std::memcpy(x, a.data(), sizeof x);
  std::memcpy(y, b.data(), sizeof y);
  return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}

// Whether `rest` has passed since *last; then it begins again.
bool due(Nanos* last, Nanos rest) {
  Nanos now = SystemClock::instance().recent();
  if (now < *last + rest && now >= *last) return false;
  *last = now;
  return true;
}

// The data path leaves errno as it found it.
struct KeepErrno {
  int saved = errno;
  ~KeepErrno() { errno = saved; }
};

}  // namespace

Result<std::unique_ptr<Uplink>> Uplink::create(NetdevInfo netdev, const Options& options) {
  std::unique_ptr<Uplink> u(new Uplink);
  u->netdev_ = std::move(netdev);
  u->epoll_ = fd::adopt(epoll_create1(EPOLL_CLOEXEC));
  u->wake_.fd = fd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (u->epoll_ < 0 || u->wake_.fd < 0) return refuse(errno, "no descriptors for the port");
  epoll_event e{EPOLLIN, {.ptr = &u->wake_}};
  if (epoll_ctl(u->epoll_, EPOLL_CTL_ADD, u->wake_.fd, &e) != 0) return refuse(errno, "epoll refuses an eventfd");

  u->loop_memory_ = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (u->loop_memory_ == MAP_FAILED) {
    u->loop_memory_ = nullptr;
    return refuse(ENOMEM, "no memory for the loopback queue");
  }
  madvise(u->loop_memory_, kRingBytes, MADV_DONTFORK);
  const bool joined = far_fence::join();
  u->loop_tx_.attach(u->loop_memory_);
  u->loop_rx_.attach(u->loop_memory_);
  u->loop_rx_.header().far_fence.store(joined ? 1 : 0);

  u->switch_ = std::make_unique<HostSwitch>(options.host_switch, u->epoll_, u->counters_);
  u->function_id_ = UHCA_TRY(u->switch_->lease());
  u->ethernet_prefix_ = options.ethernet_prefix;
  u->own_mac_ = options.ethernet;
  if (options.ethernet) UHCA_CHECK(u->join_ethernet());

  // Address changes. Without this socket the list is read again every second.
  int n = fd::adopt(static_cast<int>(syscall(SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE)));
  sockaddr_nl a{};
  a.nl_family = AF_NETLINK;
  a.nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  epoll_event ne{EPOLLIN, {.ptr = &u->netlink_}};
  if (n >= 0 && bind(n, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0 && epoll_ctl(u->epoll_, EPOLL_CTL_ADD, n, &ne) == 0) {
    u->netlink_.fd = n;
  } else {
    log::info("no news of address changes: {}", strerrordesc_np(errno));
    fd::close(n);
  }

  if (options.udp) {
    u->udp_ = std::make_unique<UdpPort>(u->netdev_, u->epoll_, u->counters_);
    u->bind_again_ = u->udp_->bind_sockets(SystemClock::instance().now());
  }
  return u;
}

Uplink::~Uplink() {
  udp_.reset();
  switch_.reset();
  if (loop_memory_) munmap(loop_memory_, kRingBytes);
  fd::close(ethernet_name_);
  fd::close(netlink_.fd);
  fd::close(wake_.fd);
  fd::close(epoll_);
}

std::uint32_t Uplink::lease_block() {
  std::lock_guard lock(service_);
  if (!first_block_given_) {
    first_block_given_ = true;
    return function_id_ << kSlotShift;
  }
  auto slot = switch_->lease();
  return slot.ok() ? *slot << kSlotShift : 0;
}

bool Uplink::is_local(const Gid& gid) {
  // Most ask for the same one again and again.
  if (found_any_ && same_gid(gid, found_local_) && !addresses_stale_.load(std::memory_order_relaxed)) return true;
  if (is_mapped(gid) && gid[12] == 127) return true;  // all of 127/8
  if (addresses_stale_.load(std::memory_order_relaxed) && addresses_stale_.exchange(false, std::memory_order_acquire)) {
    found_any_ = found_foreign_ = false;
    auto list = local_addresses();
    if (list.ok()) {
      local_ = std::move(*list);
    } else {
      addresses_stale_.store(true);
    }
  }
  // The default GID is there whether the interface has that address or not.
  if (found_foreign_ && same_gid(gid, foreign_)) return false;
  const bool yes = gid == netdev_.default_gid || std::find(local_.begin(), local_.end(), gid) != local_.end();
  if (yes) {
    found_local_ = gid;
    found_any_ = true;
  } else {
    foreign_ = gid;
    found_foreign_ = true;
  }
  return yes;
}

Send Uplink::loop_back(Frame frame) {
  bool wake;
  switch (loop_tx_.push(frame, &wake)) {
    case RingProducer::Push::kDone: break;
    case RingProducer::Push::kFull: return Send::kBusy;
    case RingProducer::Push::kCorrupt: return Send::kUnreachable;
  }
  if (wake) {
    std::uint64_t one = 1;
    syscall(SYS_write, wake_.fd, &one, sizeof one);
  }
  counters_.tx_loopback.add();
  return Send::kSent;
}

Send Uplink::to_slot(unsigned slot, Frame frame) {
  if (switch_->owns(slot)) return loop_back(frame);
  Send s = switch_->send(slot, frame);
  if (s == Send::kSent) counters_.tx_switch.add();
  return s;
}

Status Uplink::join_ethernet() {
  SlotName name(ethernet_prefix_, function_id_);
  int s = fd::adopt(static_cast<int>(syscall(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)));
  if (s < 0 || bind(s, name.get(), name.length) != 0) {
    Errno e{errno};
    fd::close(s);
    return refuse(e.value, "the name of slot {} in Ethernet cannot be bound", function_id_);
  }
  ethernet_name_ = s;
  return success();
}

Send Uplink::to_ethernet(Frame frame) {
  if (Nanos now = SystemClock::instance().now(); now >= ethernet_known_until_) {
    ethernet_ = bound_slots(ethernet_prefix_);
    std::erase_if(ethernet_, [this](unsigned slot) { return slot > kLastSlot || switch_->owns(slot); });
    ethernet_known_until_ = now + kAddressRefresh;
  }
  bool busy = false;
  std::erase_if(ethernet_, [&](unsigned slot) {
    Send s = switch_->send_to_own(slot, frame);
    if (s == Send::kSent) counters_.tx_switch.add();
    busy = busy || s == Send::kBusy;
    return s == Send::kUnreachable;  // until the list is read again
  });
  // What one of several receivers has no room for is lost to it alone, as on a wire. A single one is waited for, as a switch's pause frames
  // do, but not for ever.
  if (ethernet_.size() != 1 || !busy) {
    ethernet_busy_since_ = 0;
    return Send::kSent;
  }
  const Nanos now = SystemClock::instance().recent();
  if (ethernet_busy_since_ == 0) ethernet_busy_since_ = now;
  return now > ethernet_busy_since_ + kPause ? Send::kSent : Send::kBusy;
}

Send Uplink::flood(Frame frame) {
  static_cast<void>(to_ethernet(frame));
  Route r;
  bool group = (std::to_integer<unsigned>(frame[0]) & 1) != 0;
  if (group && peek_route(frame, r)) static_cast<void>(loop_back(frame));
  return Send::kSent;
}

Send Uplink::dispatch(Frame frame) {
  if (frame.size() >= kEthernetHeader && frame.size() <= kMaxFrame) {
    const auto* mac = reinterpret_cast<const std::uint8_t*>(frame.data());
    if (unsigned slot = slot_of(netdev_.mac, mac)) return to_slot(slot, frame);
    if (own_mac_) {
      // An interface may have been given another address than its function's: then only its sender says that it is its own.
      if (std::memcmp(mac, mac + sizeof(Mac), sizeof(Mac)) == 0) return loop_back(frame);
      if (std::memcmp(mac, netdev_.mac.data(), sizeof(Mac)) != 0) return flood(frame);
    }
  }
  Route r;
  if (frame.size() > kMaxFrame || !peek_route(frame, r)) {
    // For the netdev's address, which the programs of this host share.
    if (own_mac_ && frame.size() >= kEthernetHeader && frame.size() <= kMaxFrame) return to_ethernet(frame);
    counters_.tx_malformed.add();
    return Send::kUnreachable;
  }
  if (is_local(r.dgid)) {
    unsigned slot = r.dest_qp >> kSlotShift;
    return slot == 0 ? loop_back(frame) : to_slot(slot, frame);
  }
  if (r.roce_v1) {
    static_cast<void>(
        refuse(EPROTONOSUPPORT,
               "RoCE v1 frame of {} bytes to QPN {:#x} dropped: its destination is on another host, and the way there is UDP, "
               "which carries RoCE v2 only",
               frame.size(), r.dest_qp));
    return Send::kUnreachable;
  }
  if (!udp_) return Send::kUnreachable;
  Send s = udp_->send(frame, r);
  if (s == Send::kSent) counters_.tx_udp.add();
  return s;
}

PeerFunction* Uplink::peer(const Gid& dgid, std::uint32_t dest_qp) {
  unsigned slot = dest_qp >> kSlotShift;
  if (slot == 0 || slot > kLastSlot || switch_->owns(slot) || !is_local(dgid)) return nullptr;
  return switch_->peer(slot);
}

std::byte* Uplink::begin_record(PeerFunction& peer, std::size_t bytes) {
  KeepErrno keep;  // a ring that is found broken is logged
  std::byte* at = switch_->begin_record(peer, bytes);
  if (at == nullptr) counters_.tx_busy.add();
  return at;
}

void Uplink::commit_record(PeerFunction& peer) {
  KeepErrno keep;
  switch_->commit_record(peer);
  counters_.tx_switch.add();
}

void Uplink::want_group(const Gid& gid, bool wanted) {
  KeepErrno keep;
  if (udp_) udp_->want_group(gid, wanted);
}

Send Uplink::send(Frame frame) {
  KeepErrno keep;
  Send s = dispatch(frame);
  if (s == Send::kBusy) counters_.tx_busy.add();
  if (s == Send::kUnreachable) counters_.tx_unreachable.add();
  return s;
}

void Uplink::flush() {
  KeepErrno keep;
  if (udp_) udp_->flush();
}

Send Uplink::send_ethernet(Frame frame) {
  if (own_mac_) return send(frame);
  KeepErrno keep;
  if (frame.size() < kEthernetHeader || frame.size() > kMaxFrame) {
    counters_.tx_malformed.add();
    return Send::kUnreachable;
  }
  unsigned slot = slot_of(netdev_.mac, reinterpret_cast<const std::uint8_t*>(frame.data()));
  Send s = slot != 0 ? to_slot(slot, frame) : to_ethernet(frame);
  if (s == Send::kBusy) counters_.tx_busy.add();
  if (s == Send::kUnreachable) counters_.tx_unreachable.add();
  return s;
}

void Uplink::want_ethernet(bool wanted) {
  if (own_mac_) return;
  KeepErrno keep;
  fd::close(ethernet_name_);
  ethernet_name_ = -1;
  if (!wanted) return;
  if (Status s = join_ethernet(); !s.ok()) log::error("no Ethernet frames of other functions will arrive ({})", s.code());
}

bool Uplink::wants_polls() const {
  return udp_silence_ < kUdpBusyFor || holds_frames();
}

class Uplink::HandOn final : public FrameSink {
 public:
  HandOn(Uplink& u, FrameSink& sink) : u_(u), sink_(sink) {}
  void receive(Frame frame) override {
    if (!handed_on(frame)) sink_.receive(frame);
  }
  void receive_checked(Frame frame) override {
    if (!handed_on(frame)) sink_.receive_checked(frame);
  }

 private:
  // Or dropped.
  bool handed_on(Frame frame) {
    Route r;
    if (peek_route(frame, r)) {
      // The kernel gives a datagram to a group to the members on its sender's host as well. We have looped back our own already.
      if (u_.switch_->owns(group_source(frame, r) >> kSlotShift) && u_.is_local(r.sgid)) return true;
      unsigned slot = r.dest_qp >> kSlotShift;
      if (slot != 0 && slot <= kLastSlot && !u_.switch_->owns(slot)) {
        switch (u_.switch_->send(slot, frame)) {
          case Send::kSent: u_.counters_.udp_handed_on.add(); return true;
          case Send::kBusy: u_.counters_.udp_dropped.add(); return true;
          case Send::kUnreachable: break;  // nobody has this QP: our HCA counts it and says so
        }
      }
    }
    return false;
  }

  Uplink& u_;
  FrameSink& sink_;
};

unsigned Uplink::poll_loopback(FrameSink& sink, unsigned budget) {
  unsigned done = 0;
  while (done < budget) {
    Frame f = loop_rx_.peek().bytes;
    if (f.empty()) break;
    ++done;
    counters_.rx_loopback.add();
    sink.receive(f);
  }
  loop_rx_.release();  // whoever waits for room is this very thread
  return done;
}

unsigned Uplink::poll(FrameSink& sink, unsigned budget, bool thorough) {
  if (polling_) return 0;  // from inside the sink
  polling_ = true;
  KeepErrno keep;
  ++polls_;
  if (thorough || (polls_ % kServiceEvery == 0 && due(&serviced_at_, kServiceRest))) {
    if (service_.try_lock()) {
      service_locked(SystemClock::instance().now());
      service_.unlock();
    }
  }
  unsigned done = poll_loopback(sink, budget);
  if (done < budget) done += switch_->poll(sink, budget - done, thorough);
  const Nanos rest = udp_silence_ < kUdpQuietAfter ? kUdpRest : kUdpQuietRest;
  if (udp_ && done < budget && (thorough || wants_polls() || (polls_ % kUdpEvery == 0 && due(&udp_looked_at_, rest)))) {
    HandOn hand_on(*this, sink);
    unsigned n = udp_->poll(hand_on, budget - done, thorough);
    udp_silence_ = n > 0 ? 0 : std::min(udp_silence_ + 1, kUdpQuietAfter);
    done += n;
  }
  polling_ = false;
  return done;
}

unsigned Uplink::quiet_words(std::span<const std::uint32_t*> words) {
  words[0] = loop_rx_.place();
  unsigned n = switch_->quiet_words(words.subspan(1));
  return n == kMustPoll ? n : n + 1;
}

void Uplink::set_asleep(bool asleep) {
  KeepErrno keep;
  std::lock_guard lock(service_);
  asleep_.store(asleep);
  loop_tx_.header().asleep.store(asleep ? 1 : 0, std::memory_order_relaxed);
  switch_->set_asleep(asleep);  // fences
  if (udp_) udp_->arm(asleep);
}

Nanos Uplink::service(Nanos now) {
  KeepErrno keep;
  std::lock_guard lock(service_);
  return service_locked(now);
}

Nanos Uplink::service_locked(Nanos now) {
  constexpr int kEvents = 32;
  epoll_event events[kEvents];
  bool woken = false;
  for (int round = 0; round < 8; ++round) {
    int n = static_cast<int>(syscall(SYS_epoll_pwait, epoll_, events, kEvents, 0, nullptr, 0));
    bool more = n == kEvents;
    woken |= n > 0;
    for (int i = 0; i < n; ++i) {
      auto* source = static_cast<Source*>(events[i].data.ptr);
      switch (source->kind) {
        case Source::Kind::kWake: {
          std::uint64_t count;
          syscall(SYS_read, wake_.fd, &count, sizeof count);
          break;
        }
        case Source::Kind::kNetlink: {
          char buf[4096];
          long got;
          while ((got = syscall(SYS_recvfrom, netlink_.fd, buf, sizeof buf, MSG_DONTWAIT, nullptr, nullptr)) > 0 ||
                 (got < 0 && errno == ENOBUFS)) {
          }
          addresses_stale_.store(true, std::memory_order_release);
          break;
        }
        case Source::Kind::kUdpSet:
        case Source::Kind::kUdpTx: break;  // for poll() and send()
        default: switch_->handle(source, events[i].events);
      }
    }
    if (!more) break;
  }
  // A wake-up that was taken here may have been meant for another thread, which sleeps on: the flags that its senders took back are
  // set again. The caller looks at the rings next.
  if (woken && asleep_.load()) {
    loop_tx_.header().asleep.store(1, std::memory_order_relaxed);
    switch_->set_asleep(true);  // fences
  }
  Nanos next = switch_->housekeeping(now);
  if (udp_ && bind_again_ != kNever) {
    if (now >= bind_again_) bind_again_ = udp_->bind_sockets(now);
    next = std::min(next, bind_again_);
  }
  if (netlink_.fd < 0) {
    addresses_stale_.store(true, std::memory_order_release);
    next = std::min(next, now + kAddressRefresh);
  }
  return next;
}

}  // namespace uhca::wire
