// SPDX-License-Identifier: MIT
#include "device/pci/service_thread.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"

namespace uhca::pci {
namespace {

constexpr Nanos kMillisecond = 1'000'000;
constexpr Nanos kAttendedTick = kMillisecond;
// Polls in a row that make a program count as attending: one poll or two between sleeps do not.
constexpr unsigned kPollsToAttend = 32;
// Doorbell watching: from a busy period down to an idle one.
constexpr Nanos kWatchBusy = 50'000;
constexpr Nanos kWatchIdle = 20 * kMillisecond;

}  // namespace

ServiceThread::ServiceThread(Engine& engine, wire::Port& port, IrqTable& irqs, IdleWatch& idle)
    : engine_(engine), port_(port), irqs_(irqs), idle_(idle) {}

ServiceThread::~ServiceThread() {
  if (started_.load()) {
    stop_.store(true);
    poke();
    pthread_join(thread_, nullptr);
  }
  fd::close(control_);
}

void ServiceThread::start() {
  std::lock_guard lock(mutex_);
  if (started_.load()) return;
  control_ = fd::adopt(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (control_ < 0) {
    log::error("service thread: eventfd: {}", strerrordesc_np(errno));
    return;
  }
  if (int err = start_thread(&ServiceThread::entry, this, &thread_)) {
    log::error("service thread: {}: programs that sleep will not be woken", strerrordesc_np(err));
    return;
  }
  port_.set_asleep(true);
  started_.store(true);
}

void* ServiceThread::entry(void* self) {
  pthread_setname_np(pthread_self(), "uhca");
  inside::Guard guard;
  static_cast<ServiceThread*>(self)->run();
  return nullptr;
}

void ServiceThread::attend(bool on) {
  attended_.store(on);
  idle_.attend(on);
  if (on && !attended_.load()) idle_.attend(false);  // somebody has gone to sleep in between
}

void ServiceThread::polled() {
  polls_.store(polls_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (__builtin_expect(attended_.load(std::memory_order_relaxed), 1)) return;
  unsigned row = empty_in_a_row_.load(std::memory_order_relaxed) + 1;
  empty_in_a_row_.store(row, std::memory_order_relaxed);
  if (row < kPollsToAttend || !started_.load(std::memory_order_relaxed)) return;
  if (engine_.armed_cqs() != 0) return;  // somebody will sleep for an event
  attend(true);
  port_.set_asleep(false);
  poke();  // once a burst: it must begin to watch the polls
}

void ServiceThread::unattend() {
  empty_in_a_row_.store(0, std::memory_order_relaxed);
  if (!attended_.load(std::memory_order_relaxed)) return;
  if (!attended_.exchange(false)) return;
  idle_.attend(false);
  port_.set_asleep(true);
  engine_.drive(true);  // what arrived before the flag was seen
  poke();
}

void ServiceThread::check_deadline() {
  if (attended_.load(std::memory_order_relaxed) || !started_.load(std::memory_order_relaxed)) return;
  const Nanos deadline = idle_.closed() ? engine_.next_deadline() : idle_.deadline();
  if (deadline < sleeping_until_.load(std::memory_order_relaxed)) poke();
}

void ServiceThread::poke() {
  if (control_ < 0) return;
  int saved = errno;
  std::uint64_t one = 1;
  syscall(SYS_write, control_, &one, sizeof one);
  errno = saved;
}

void ServiceThread::watch_uar(std::uint32_t uar_index, bool on) {
  std::lock_guard lock(mutex_);
  std::erase(watched_, uar_index);
  if (on) watched_.push_back(uar_index);
  watching_.store(!watched_.empty());
  if (on && started_.load()) poke();
}

Nanos ServiceThread::look_at_watched(Nanos now) {
  if (!watching_.load(std::memory_order_relaxed)) return kNever;
  if (now < next_watch_) return next_watch_;
  bool busy = false;
  {
    std::lock_guard lock(mutex_);
    for (std::uint32_t uar : watched_) engine_.look_at_uar(uar);
  }
  busy = engine_.drive(true);
  watch_period_ = busy || watch_period_ == 0 ? kWatchBusy : std::min(watch_period_ + watch_period_ / 8, kWatchIdle);
  next_watch_ = now + watch_period_;
  return next_watch_;
}

bool ServiceThread::work() {
  bool any = false;
  for (int i = 0; i < 64; ++i) {
    bool did = engine_.drive(true);
    irqs_.dispatch();
    any |= did;
    if (!did) break;
  }
  return any;
}

void ServiceThread::serve(int fd, Endpoint::IrqHandler handler, void* context) {
  std::lock_guard lock(serving_);
  served_fd_.store(fd);
  served_handler_ = handler;
  served_context_ = context;
  if (fd >= 0 && started_.load()) poke();
}

void ServiceThread::look_at_served() {
  std::lock_guard lock(serving_);
  if (served_fd_.load() >= 0) served_handler_(served_context_);
}

void ServiceThread::sleep_until(Nanos deadline, bool with_port) {
  pollfd fds[3] = {{control_, POLLIN, 0}, {with_port ? port_.wait_fd() : -1, POLLIN, 0}, {served_fd_.load(), POLLIN, 0}};
  timespec ts{};
  timespec* timeout = nullptr;
  if (deadline != kNever) {
    Nanos now = SystemClock::instance().now();
    Nanos left = deadline > now ? deadline - now : 0;
    ts.tv_sec = static_cast<time_t>(left / 1'000'000'000);
    ts.tv_nsec = static_cast<long>(left % 1'000'000'000);
    timeout = &ts;
  }
  syscall(SYS_ppoll, fds, 3, timeout, nullptr, 0);
  if (fds[0].revents & POLLIN) {
    std::uint64_t count;
    syscall(SYS_read, control_, &count, sizeof count);
  }
  if (fds[2].revents & POLLIN) look_at_served();
}

void ServiceThread::run() {
  const SystemClock& clock = SystemClock::instance();
  while (!stop_.load()) {
    if (attended_.load()) {
      unsigned before = polls_.load(std::memory_order_relaxed);
      sleep_until(clock.now() + kAttendedTick, false);
      Nanos housekeeping = port_.service(clock.now());
      static_cast<void>(housekeeping);
      look_at_watched(clock.now());
      irqs_.dispatch();
      const bool seen = idle_.take_seen();
      // Polls come, but so seldom that none has gone in: sockets, timers and cold peers wait for no more than a tick.
      if (seen && polls_.load(std::memory_order_relaxed) == before) {
        engine_.drive(true);
        irqs_.dispatch();
      }
      if (polls_.load(std::memory_order_relaxed) == before && !seen && attended_.load()) {
        attend(false);
        empty_in_a_row_.store(0);
        port_.set_asleep(true);
      }
      continue;
    }
    Nanos now = clock.now();
    Nanos deadline = port_.service(now);
    work();
    // A wake-up consumes the flag (the sender that woke us cleared it): set it again, then look once more for what arrived
    // before it was seen.
    if (!attended_.load()) port_.set_asleep(true);
    bool more = work();
    deadline = std::min(deadline, look_at_watched(now));
    irqs_.dispatch();
    sleeping_until_.store(kNever);  // whoever posts from here on pokes us
    deadline = std::min(deadline, engine_.next_deadline());
    sleeping_until_.store(deadline);
    if (more) deadline = 0;
    sleep_until(deadline, true);
    sleeping_until_.store(0);
  }
}

}  // namespace uhca::pci
