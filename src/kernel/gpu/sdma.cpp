// SPDX-License-Identifier: MIT
#include "kernel/gpu/sdma.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "base/clock.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"

namespace uhca::kernel::gpu {
namespace {

enum Op : std::uint8_t { kNop = 0, kCopy = 1, kFence = 5, kTrap = 6, kPoll = 8, kAtomic = 10, kFill = 11, kTimestamp = 13 };
constexpr unsigned kLongest = 8;  // dwords
constexpr std::uint32_t kAtomicAdd64 = 47;
constexpr std::uint32_t kPollMemory = 1u << 31;  // else a register, as in a flush of the host data path: nothing to wait for

std::uint64_t wide(const std::uint32_t* p) {
  return p[0] | std::uint64_t{p[1]} << 32;
}

// The comparisons of POLL_REGMEM.
bool holds(unsigned function, std::uint32_t value, std::uint32_t reference) {
  switch (function) {
    case 1: return value < reference;
    case 2: return value <= reference;
    case 3: return value == reference;
    case 4: return value != reference;
    case 5: return value >= reference;
    case 6: return value > reference;
    default: return true;
  }
}

}  // namespace

Sdma::~Sdma() {
  {
    inside::Guard guard;
    std::lock_guard g(lock_);
    stop_ = true;
    changed_.notify_all();
  }
  if (running_) pthread_join(thread_, nullptr);
}

Result<std::uint32_t> Sdma::create(std::shared_ptr<Vm> vm, const Ring& ring) {
  if (!std::has_single_bit(ring.size) || ring.size < 256 || ring.base % 256 != 0 || ring.read_ptr % 4 != 0 || ring.write_ptr % 4 != 0)
    return refuse(EINVAL, "sdma: a ring of {:#x} bytes at {:#x}", ring.size, ring.base);
  inside::Guard guard;
  Queue q{std::move(vm), ring, 0, false};
  UHCA_CHECK(q.vm->read(ring.read_ptr, &q.at, sizeof q.at));
  std::lock_guard g(lock_);
  if (!running_) {
    if (int e = start_thread(entry, this, &thread_)) return refuse(e, "sdma: no thread for the engine");
    running_ = true;
  }
  queues_.emplace(next_, std::move(q));
  changed_.notify_all();
  return next_++;
}

Status Sdma::destroy(std::uint32_t id) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (queues_.erase(id) == 0) return refuse(EINVAL, "sdma: no queue {}", id);
  return success();
}

void* Sdma::entry(void* self) {
  inside::Guard guard;
  static_cast<Sdma*>(self)->loop();
  return nullptr;
}

// Doorbells are plain memory: the engine looks at the write indices, ever more rarely while nothing comes.
void Sdma::loop() {
  std::chrono::microseconds pause{20};
  std::unique_lock g(lock_);
  while (!stop_) {
    if (queues_.empty()) {
      changed_.wait(g);
      continue;
    }
    // Some packets of each queue in turn, and then the lock for those who wait for it: a ring that is always full keeps nobody out.
    constexpr unsigned kTurn = 16;
    bool worked = false;
    for (auto& [id, q] : queues_) {
      for (unsigned n = 0; n < kTurn && !q.stopped; ++n) {
        const Step s = step(q);
        if (s == Step::kIdle || s == Step::kBlocked) break;
        worked = true;
      }
    }
    pause = worked ? std::chrono::microseconds{1} : std::min(pause * 2, std::chrono::microseconds{2000});
    changed_.wait_for(g, pause);
  }
}

Sdma::Step Sdma::step(Queue& q) {
  std::uint64_t end = 0;
  std::uint32_t packet[kLongest] = {};
  if (!q.vm->read(q.ring.write_ptr, &end, sizeof end).ok()) {
    q.stopped = true;
    return Step::kIdle;
  }
  if (end == q.at) return Step::kIdle;
  const std::uint64_t given = end - q.at;
  if (given > q.ring.size || end % 4 != 0) {
    log::warn("sdma: the queue at {:#x} stops: its write index {:#x} lies {} bytes behind {:#x}, in a ring of {}", q.ring.base, end, given,
              q.at, q.ring.size);
    q.stopped = true;
    return Step::kIdle;
  }
  // Packets do not wrap around the end of the ring.
  const std::uint64_t in_ring = q.at & (q.ring.size - 1);
  const std::uint64_t left = std::min({given, q.ring.size - in_ring, std::uint64_t{sizeof packet}});
  Status read = q.vm->read(q.ring.base + in_ring, packet, left);
  Result<unsigned> n = read.ok() ? execute(q, packet, static_cast<unsigned>(left / 4)) : Result<unsigned>(read.error());
  if (n.ok() && std::uint64_t{*n} * 4 > given) n = refuse(EINVAL, "sdma: a packet of {} dwords where {} bytes are left", *n, given);
  if (!n.ok()) {
    log::warn("sdma: the queue at {:#x} stops at packet {:#x} (header {:#x})", q.ring.base, q.at, packet[0]);
    q.stopped = true;
    return Step::kIdle;
  }
  if (trace::on()) trace::Event("gpu", "sdma").hex("at", q.at).hex("header", packet[0]).unum("dwords", *n);
  if (*n == 0) return Step::kBlocked;
  q.at += std::uint64_t{*n} * 4;
  if (!q.vm->write(q.ring.read_ptr, &q.at, sizeof q.at).ok()) q.stopped = true;
  return Step::kDone;
}

Result<unsigned> Sdma::execute(Queue& q, const std::uint32_t* p, unsigned left) {
  const auto op = static_cast<Op>(p[0] & 0xff);
  const unsigned sub = p[0] >> 8 & 0xff;
  auto complete = [&](unsigned dwords) { return dwords <= left; };
  switch (op) {
    case kNop: return 1 + (p[0] >> 16 & 0x3fff);
    case kCopy:
      if (sub != 0 || !complete(7)) return refuse(EINVAL, "sdma: copy of kind {}", sub);
      if (trace::on())
        trace::Event("gpu", "sdma_copy").hex("dst", wide(p + 5)).hex("src", wide(p + 3)).unum("len", std::uint64_t{p[1] & 0x3fffffff} + 1);
      UHCA_CHECK(q.vm->copy(wide(p + 5), wide(p + 3), std::uint64_t{p[1] & 0x3fffffff} + 1));
      return 7u;
    case kFence:
      if (!complete(4)) break;
      UHCA_CHECK(q.vm->write(wide(p + 1), p + 3, 4));
      return 4u;
    case kTrap:
      if (!complete(2)) break;
      (void)events_.set(p[1] & 0x0fffffff);  // an event that is gone interrupts nobody
      return 2u;
    case kPoll: {
      if (!complete(6)) break;
      if (!(p[0] & kPollMemory)) return 6u;
      std::uint32_t value = 0;
      UHCA_CHECK(q.vm->read(wide(p + 1), &value, 4));
      return holds(p[0] >> 28 & 7, value & p[4], p[3]) ? 6u : 0u;
    }
    case kAtomic:
      if (!complete(8)) break;
      if ((p[0] >> 25) != kAtomicAdd64) return refuse(EINVAL, "sdma: atomic operation {}", p[0] >> 25);
      UHCA_CHECK(q.vm->atomic_add64(wide(p + 1), wide(p + 3)));
      return 8u;
    case kFill: {
      if (!complete(5)) break;
      const unsigned size = p[0] >> 30;
      if (size > 2) return refuse(EINVAL, "sdma: fill with values of 2^{} bytes", size);
      UHCA_CHECK(q.vm->fill(wide(p + 1), p[3], 1u << size, std::uint64_t{p[4] & 0x3fffffff} + 1));
      return 5u;
    }
    case kTimestamp: {
      if (!complete(3)) break;
      const std::uint64_t now = SystemClock::instance().now() / 10;  // 100 MHz, as KFD's clock counters
      UHCA_CHECK(q.vm->write(wide(p + 1), &now, sizeof now));
      return 3u;
    }
  }
  return refuse(EINVAL, "sdma: packet {} of {} dwords", static_cast<unsigned>(op), left);
}

}  // namespace uhca::kernel::gpu
