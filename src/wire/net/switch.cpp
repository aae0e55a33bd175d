// SPDX-License-Identifier: MIT
#include "wire/net/switch.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/far_fence.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/no_cancel.h"
#include "base/trace.h"
#include "wire/net/link_socket.h"
#include "wire/net/question.h"

namespace uhca::wire {
namespace {

struct Hello {
  char magic[4] = {'u', 'h', 'c', 'a'};
  std::uint32_t version = 2;
  std::uint32_t ring_bytes = kRingBytes;
  std::uint32_t zero = 0;
};

// From the receiver of a link to its sender of the same user, with the memfd that it shows.
struct Shown {
  char magic[4] = {'s', 'h', 'o', 'w'};
  std::uint32_t version = 1;
  std::uint64_t bytes = 0;
  std::uint32_t number = 0;
  std::uint32_t zero = 0;
};

constexpr unsigned kMessagesPerTurn = 64;  // of one link: who sends and sends does not hold up the others
constexpr Nanos kAcceptPause = 100'000'000;
constexpr std::uint32_t kColdAfter = 1024;  // polls without a frame until a ring is looked at every 16th poll only

}  // namespace

struct HostSwitch::Link : Source {
  void* memory = nullptr;
  unsigned slot = 0;  // tx: the receiver's
  ucred peer{};       // of the other end
  std::uint32_t last_active = 0;
  std::atomic<bool> dead{false};
  unsigned number = Showcase::kNone;             // rx: of the sender, as an accessor of our area
  std::atomic<PeerFunction*> function{nullptr};  // tx: what the receiver has shown
  std::size_t area_bytes = 0;
  RingProducer tx;
  RingConsumer rx;
  Link* next = nullptr;
};

namespace {
template <class L>
void push_list(std::atomic<L*>& head, L* link) {
  link->next = head.load(std::memory_order_relaxed);
  while (!head.compare_exchange_weak(link->next, link, std::memory_order_release, std::memory_order_relaxed)) {
  }
}
}  // namespace

HostSwitch::HostSwitch(const Options& options, int epoll_fd, UplinkCounters& counters)
    : options_(options),
      epoll_(epoll_fd),
      counters_(counters),
      tx_(std::make_unique<Link*[]>(kSlots)),
      private_copy_(std::make_unique<std::byte[]>(kMaxFrame)) {}

HostSwitch::~HostSwitch() {
  for (auto& l : listeners_) fd::close(l->fd);
  adopt_and_reap();
  for (Link* l : tx_list_) destroy(l);
  for (Link* l = graveyard_.exchange(nullptr); l;) {
    Link* next = l->next;
    std::erase(accepted_, l);
    destroy(l);
    l = next;
  }
  for (Link* l : accepted_) destroy(l);
  for (void* p : spare_) munmap(p, kRingBytes);
}

// A thread that polls may still look at the ring of a link that is gone (quiet_words()): its addresses stay readable, without memory behind
// them, and are used again.
void HostSwitch::unmap_ring(Link* link) {
  void* p = mmap(link->memory, kRingBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (p != MAP_FAILED) spare_.push_back(p);
}

void HostSwitch::destroy(Link* link) {
  fd::close(link->fd);
  if (link->memory && link->kind == Source::Kind::kTx) munmap(link->memory, kRingBytes);
  if (link->memory && link->kind != Source::Kind::kTx) unmap_ring(link);
  if (link->number != Showcase::kNone) options_.showcase->dismiss(link->number);
  if (PeerFunction* f = link->function.load()) {
    munmap(f->area, link->area_bytes);
    delete f;
  }
  delete link;
}

Result<unsigned> HostSwitch::lease() {
  // Freed slots are reused last with high probability: every search starts somewhere else.
  std::uint32_t start = 0;
  if (getrandom(&start, sizeof start, GRND_NONBLOCK) != sizeof start)
    start = static_cast<std::uint32_t>(SystemClock::instance().now() >> 10);
  int s = seqpacket();
  if (s < 0) return refuse(errno, "no socket for a QPN block");
  for (unsigned i = 0; i < options_.last_slot; ++i) {
    unsigned slot = (start + i) % options_.last_slot + 1;
    SlotName name(options_.prefix, slot);
    if (bind(s, name.get(), name.length) == 0) {
      auto source = std::make_unique<Source>(Source{Source::Kind::kListener, s});
      epoll_event e{EPOLLIN, {.ptr = source.get()}};
      if (listen(s, 4095) != 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, s, &e) != 0) {
        Errno err{errno};
        fd::close(s);
        return refuse(err.value, "cannot listen on slot {}", slot);
      }
      listeners_.push_back(std::move(source));
      own_[slot / 64].fetch_or(std::uint64_t{1} << (slot % 64));
      if (trace::on()) trace::Event("state", "slot_leased").unum("slot", slot).hex("first_qpn", slot << kSlotShift);
      return slot;
    }
    if (errno != EADDRINUSE) {
      Errno err{errno};
      fd::close(s);
      return refuse(err.value, "cannot bind slot {}", slot);
    }
  }
  fd::close(s);
  return refuse(ENOSPC, "all {} QPN blocks of this host are taken", options_.last_slot);
}

Result<HostSwitch::Link*> HostSwitch::open_link(unsigned slot) {
  int s = seqpacket();
  if (s < 0) return Errno{errno};
  SlotName name(options_.prefix, slot);
  if (syscall(SYS_connect, s, name.get(), name.length) != 0) {
    Errno e{errno};
    fd::close(s);
    return e;
  }
  ucred owner{};
  socklen_t owner_size = sizeof owner;
  if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &owner, &owner_size) != 0) owner.uid = ~0u;  // nobody's: it gets what is for everybody
  auto memfd = fd::sealed_memfd("uhca-link", kRingBytes);
  if (!memfd.ok()) {
    fd::close(s);
    return memfd.error();
  }
  void* memory = map_ring(*memfd);
  Errno e{memory ? ENOTCONN : ENOMEM};
  if (memory) {
    Hello hello;
    if (send_with_fd(s, &hello, sizeof hello, *memfd)) {
      fd::close(*memfd);
      auto* link = new Link;
      link->kind = Source::Kind::kTx;
      link->fd = s;
      link->memory = memory;
      link->slot = slot;
      link->peer = owner;
      link->tx.attach(memory);
      link->tx.header().asleep.store(1);  // until the receiver has accepted
      epoll_event ev{EPOLLIN | EPOLLRDHUP, {.ptr = static_cast<Source*>(link)}};
      epoll_ctl(epoll_, EPOLL_CTL_ADD, s, &ev);
      counters_.links_opened.add();
      if (trace::on()) trace::Event("state", "link_opened").unum("slot", slot);
      return link;
    }
    e = Errno{errno};
    munmap(memory, kRingBytes);
  }
  fd::close(*memfd);
  fd::close(s);
  return e;
}

void HostSwitch::retire(Link* link) {
  push_list(graveyard_, link);
}

Send HostSwitch::send(unsigned slot, Frame frame) {
  return send(slot, frame, false);
}

Send HostSwitch::send_to_own(unsigned slot, Frame frame) {
  return send(slot, frame, true);
}

Send HostSwitch::send(unsigned slot, Frame frame, bool own_only) {
  // Twice: the function behind a dead link may be gone, or its slot may have a new owner.
  for (int attempt = 0; attempt < 2; ++attempt) {
    Link* link = tx_[slot];
    if (link && link->dead.load(std::memory_order_acquire)) {
      tx_[slot] = nullptr;
      std::erase(tx_list_, link);
      retire(link);
      link = nullptr;
    }
    if (!link) {
      auto opened = open_link(slot);
      if (!opened.ok()) {
        if (opened.code() != ECONNREFUSED) log::warn("no link to slot {}: {}", slot, strerrordesc_np(opened.code()));
        return Send::kUnreachable;
      }
      link = tx_[slot] = *opened;
      tx_list_.push_back(link);
    }
    if (own_only && link->peer.uid != geteuid() && link->peer.uid != 0) return Send::kUnreachable;
    bool wake_peer;
    switch (link->tx.push(frame, &wake_peer)) {
      case RingProducer::Push::kDone:
        if (wake_peer) send_wake(link->fd);
        return Send::kSent;
      case RingProducer::Push::kFull: return Send::kBusy;
      case RingProducer::Push::kCorrupt: close_corrupt(link); break;
    }
  }
  return Send::kUnreachable;
}

// Towards a receiver that broke the rules; the engine takes the link away at its next send.
void HostSwitch::close_corrupt(Link* link) {
  counters_.links_corrupt.add();
  log::warn("slot {} broke the rules of the ring towards it: link closed", link->slot);
  link->dead.store(true, std::memory_order_release);
}

std::byte* HostSwitch::begin_record(const PeerFunction& peer, std::size_t bytes) {
  Link* link = tx_[peer.slot];
  std::byte* at = nullptr;
  if (link->tx.reserve(bytes, &at) == RingProducer::Push::kCorrupt) close_corrupt(link);
  return at;
}

void HostSwitch::commit_record(const PeerFunction& peer) {
  Link* link = tx_[peer.slot];
  if (link->tx.commit(true)) send_wake(link->fd);
}

PeerFunction* HostSwitch::peer(unsigned slot) {
  Link* link = tx_[slot];
  return link && !link->dead.load(std::memory_order_acquire) ? link->function.load(std::memory_order_acquire) : nullptr;
}

void HostSwitch::adopt_and_reap() {
  for (Link* l = incoming_.exchange(nullptr, std::memory_order_acquire); l; l = l->next) {
    l->last_active = polls_;
    rx_.push_back(l);
  }
  if (!any_dead_.exchange(false, std::memory_order_acq_rel)) return;
  bool left = false;
  auto gone = [&](Link* l) {
    if (!l->dead.load(std::memory_order_acquire)) return false;
    // What a peer sent before it died still arrives.
    if (l->kind == Source::Kind::kRx && !l->rx.corrupt() && l->rx.pending()) {
      left = true;
      return false;
    }
    if (l->kind == Source::Kind::kTx) tx_[l->slot] = nullptr;
    retire(l);
    return true;
  };
  std::erase_if(tx_list_, gone);
  std::erase_if(rx_, gone);
  if (left) any_dead_.store(true, std::memory_order_release);
}

unsigned HostSwitch::poll(FrameSink& sink, unsigned budget, bool all) {
  ++polls_;
  if (incoming_.load(std::memory_order_relaxed) || any_dead_.load(std::memory_order_relaxed)) adopt_and_reap();
  if (rx_.empty()) return 0;
  all = all || polls_ % 16 == 0 || asleep_.load(std::memory_order_relaxed);

  unsigned done = 0;
  const std::size_t n = rx_.size();
  if (next_rx_ >= n) next_rx_ = 0;
  // Round robin from where the budget ran out, so that no peer starves the others. The sink sends, but never changes rx_.
  for (std::size_t i = 0; i < n && done < budget; ++i) {
    std::size_t at = next_rx_ + i < n ? next_rx_ + i : next_rx_ + i - n;
    Link* l = rx_[at];
    if (!all && polls_ - l->last_active > kColdAfter) continue;
    unsigned before = done;
    while (done < budget) {
      auto [shared, host_record] = l->rx.peek();
      if (shared.empty()) break;
      ++done;
      counters_.rx_switch.add();
      if (host_record) {
        // Only those who have seen our area may speak that way: processes of our user.
        if (l->number == Showcase::kNone) {
          l->rx.forbid();
          break;
        }
        sink.receive_record(shared);
        continue;
      }
      std::memcpy(private_copy_.get(), shared.data(), shared.size());
      sink.receive({private_copy_.get(), shared.size()});
    }
    if (done != before) {
      l->last_active = polls_;
      if (l->rx.release()) send_wake(l->fd);
    }
    if (l->rx.corrupt() && !l->dead.load(std::memory_order_relaxed)) {
      counters_.links_corrupt.add();
      log::warn("pid {} uid {} broke the rules of its ring: link closed", l->peer.pid, l->peer.uid);
      l->dead.store(true, std::memory_order_release);
      any_dead_.store(true, std::memory_order_release);
    }
    if (done >= budget) next_rx_ = at + 1;
  }
  return done;
}

unsigned HostSwitch::quiet_words(std::span<const std::uint32_t*> words) const {
  if (incoming_.load(std::memory_order_relaxed) || any_dead_.load(std::memory_order_relaxed)) return Port::kMustPoll;
  unsigned n = 0;
  for (const Link* l : rx_) {
    if (polls_ - l->last_active > kColdAfter) continue;
    if (n == words.size()) return Port::kMustPoll;
    words[n++] = l->rx.place();
  }
  return n;
}

void HostSwitch::mark_dead(Link* link) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, link->fd, nullptr);
  if (!link->dead.exchange(true, std::memory_order_acq_rel)) counters_.links_lost.add();
  any_dead_.store(true, std::memory_order_release);
  if (trace::on())
    trace::Event("state", "link_lost").flag("tx", link->kind == Source::Kind::kTx).unum("slot", link->slot).num("pid", link->peer.pid);
}

void HostSwitch::handle(Source* source, std::uint32_t events) {
  switch (source->kind) {
    case Source::Kind::kListener: accept_all(source->fd); return;
    case Source::Kind::kPending: greet(static_cast<Link*>(source)); return;
    case Source::Kind::kRx:
    case Source::Kind::kTx:
      if (!take_messages(static_cast<Link*>(source)) || (events & (EPOLLHUP | EPOLLRDHUP | EPOLLERR)))
        mark_dead(static_cast<Link*>(source));
      return;
    default: return;
  }
}

void HostSwitch::accept_all(int listener) {
  for (;;) {
    int s = static_cast<int>(syscall(SYS_accept4, listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (s < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && !accept_paused_) {
        log::warn("cannot accept links: {}; trying again later", strerrordesc_np(errno));
        accept_paused_ = true;
        for (auto& l : listeners_) {
          epoll_event e{0, {.ptr = l.get()}};
          epoll_ctl(epoll_, EPOLL_CTL_MOD, l->fd, &e);
        }
      }
      return;
    }
    ucred peer{};
    socklen_t n = sizeof peer;
    bool known = getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0;
    auto of_peer =
        static_cast<std::size_t>(std::count_if(accepted_.begin(), accepted_.end(), [&](Link* l) { return l->peer.uid == peer.uid; }));
    bool foreign = peer.uid != geteuid();
    if (!known || accepted_.size() >= kMaxRxLinks || (foreign && of_peer >= kMaxRxLinksPerForeignUser)) {
      ::close(s);
      counters_.links_refused.add();
      log::warn("link of pid {} uid {} refused: {} links, {} of that user", peer.pid, peer.uid, accepted_.size(), of_peer);
      continue;
    }
    auto* link = new Link;
    link->kind = Source::Kind::kPending;
    link->fd = fd::adopt(s);
    link->peer = peer;
    epoll_event e{EPOLLIN | EPOLLRDHUP, {.ptr = static_cast<Source*>(link)}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, link->fd, &e);
    accepted_.push_back(link);
    greet(link);
  }
}

bool HostSwitch::greet(Link* link) {
  Hello hello, expected;
  int memfd;
  unsigned fds;
  long n = receive_with_fd(link->fd, &hello, sizeof hello, &memfd, &fds);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;

  if (n > 0 && answer(link, &hello, static_cast<std::size_t>(n))) {
    if (memfd >= 0) ::close(memfd);
    std::erase(accepted_, link);
    destroy(link);
    return false;
  }
  const char* reason = nullptr;
  if (n <= 0) {
    reason = "closed before its hello";
  } else if (n != sizeof hello || std::memcmp(&hello, &expected, sizeof hello) != 0) {
    reason = "not a hello of this version";
  } else if (fds != 1) {
    reason = "a hello carries exactly one descriptor";
  } else if ((reason = unfit(memfd, kRingBytes)) == nullptr) {
    link->memory = map_ring(memfd, spare_.empty() ? nullptr : spare_.back());
    if (!link->memory)
      reason = "the ring cannot be mapped";
    else if (!spare_.empty())
      spare_.pop_back();
  }
  if (memfd >= 0) ::close(memfd);
  if (reason) {
    counters_.links_refused.add();
    log::warn("link of pid {} uid {} refused: {}", link->peer.pid, link->peer.uid, reason);
    std::erase(accepted_, link);
    destroy(link);
    return false;
  }
  link->rx.attach(link->memory);
  link->rx.header().far_fence.store(far_fence::joined() ? 1 : 0, std::memory_order_relaxed);
  link->rx.header().asleep.store(asleep_.load() ? 1 : 0, std::memory_order_seq_cst);
  link->kind = Source::Kind::kRx;
  counters_.links_accepted.add();
  show(link);
  if (trace::on()) trace::Event("state", "link_accepted").num("pid", link->peer.pid).unum("uid", link->peer.uid);
  push_list(incoming_, link);
  return true;
}

// A tool's question instead of a hello: true when it was one.
bool HostSwitch::answer(Link* link, const void* message, std::size_t bytes) {
  const Question question;
  if (bytes != sizeof question || std::memcmp(message, &question, sizeof question) != 0) return false;
  if (link->peer.uid != geteuid() && link->peer.uid != 0) {
    static_cast<void>(refuse(EACCES, "question of pid {}: uid {} is not ours", link->peer.pid, link->peer.uid));
  } else if (options_.inspector == nullptr) {
    static_cast<void>(refuse(EOPNOTSUPP, "question of pid {}: nobody answers here", link->peer.pid));
  } else {
    answer_question(link->fd, options_.inspector->report());
  }
  return true;
}

// Shows our area to the sender of this link.
void HostSwitch::show(Link* link) {
  Showcase* mine = options_.showcase;
  if (mine == nullptr || link->peer.uid != geteuid() || link->peer.pid <= 0) return;
  link->number = mine->admit(link->peer.pid);
  if (link->number == Showcase::kNone) return;
  Shown message;
  message.bytes = mine->bytes();
  message.number = link->number;
  if (!send_with_fd(link->fd, &message, sizeof message, mine->fd()))
    log::info("area not shown to pid {}: {}", link->peer.pid, strerrordesc_np(errno));
}

// The receiver of this link has shown us its area.
void HostSwitch::look(Link* link, int memfd, unsigned number) {
  ucred owner{};
  socklen_t n = sizeof owner;
  if (options_.showcase == nullptr || link->function.load() != nullptr) return;
  if (getsockopt(link->fd, SOL_SOCKET, SO_PEERCRED, &owner, &n) != 0 || owner.uid != geteuid() || owner.pid <= 0) return;
  std::size_t bytes = options_.showcase->bytes();
  if (const char* why = unfit(memfd, bytes)) {
    log::warn("area of pid {} not taken: {}", owner.pid, why);
    return;
  }
  void* area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd, 0);
  if (area == MAP_FAILED) return;
  madvise(area, bytes, MADV_DONTFORK);
  link->area_bytes = bytes;
  link->function.store(new PeerFunction{owner.pid, area, number, link->slot}, std::memory_order_release);
  if (trace::on()) trace::Event("state", "area_shown").num("pid", owner.pid).unum("slot", link->slot);
}

// Wake-up bytes and, at a sender, the area of the receiver.
bool HostSwitch::take_messages(Link* link) {
  for (unsigned i = 0; i < kMessagesPerTurn; ++i) {
    Shown message, expected;
    int memfd;
    unsigned fds;
    long n = receive_with_fd(link->fd, &message, sizeof message, &memfd, &fds);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    bool shown = link->kind == Source::Kind::kTx && n == static_cast<long>(sizeof message) && fds == 1 &&
                 std::memcmp(&message, &expected, offsetof(Shown, bytes)) == 0;
    if (shown) look(link, memfd, message.number);
    if (memfd >= 0) ::close(memfd);
    // End of file, or an empty message: nobody of us sends one, but it may carry a descriptor.
    if (n == 0) return false;
  }
  return true;
}

void HostSwitch::set_asleep(bool asleep) {
  asleep_.store(asleep);
  for (Link* l : accepted_) {
    if (l->kind == Source::Kind::kRx) l->rx.header().asleep.store(asleep ? 1 : 0, std::memory_order_relaxed);
  }
  if (!asleep) return;
  // Against the producer's "publish; fence; look at asleep".
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!far_fence::joined() || far_fence::heavy()) return;
  log::warn("membarrier is not permitted any more");
  for (Link* l : accepted_)
    if (l->kind == Source::Kind::kRx) l->rx.header().far_fence.store(0, std::memory_order_seq_cst);
}

Nanos HostSwitch::housekeeping(Nanos now) {
  for (Link* l = graveyard_.exchange(nullptr, std::memory_order_acquire); l;) {
    Link* next = l->next;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, l->fd, nullptr);
    std::erase(accepted_, l);
    destroy(l);
    l = next;
  }
  if (!accept_paused_) return kNever;
  accept_paused_ = false;
  for (auto& l : listeners_) {
    epoll_event e{EPOLLIN, {.ptr = l.get()}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, l->fd, &e);
    accept_all(l->fd);
    if (accept_paused_) return now + kAcceptPause;
  }
  return kNever;
}

std::vector<unsigned> bound_slots(const std::string& prefix) {
  NoCancel alive;
  std::vector<unsigned> slots;
  std::FILE* f = std::fopen("/proc/net/unix", "re");
  if (!f) return slots;
  char line[512];
  while (std::fgets(line, sizeof line, f)) {
    const char* at = std::strchr(line, '@');
    if (!at || std::strncmp(at + 1, prefix.c_str(), prefix.size()) != 0) continue;
    unsigned slot = 0;
    // Accepted sockets show the listener's name as well: once each.
    if (std::sscanf(at + 1 + prefix.size(), "%u", &slot) == 1 && std::find(slots.begin(), slots.end(), slot) == slots.end())
      slots.push_back(slot);
  }
  std::fclose(f);
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace uhca::wire
