// SPDX-License-Identifier: MIT
// What lets a poll of an empty CQ come back without the engine's lock: the few words of memory that change when something arrives. The
// engine names them whenever it has found nothing to do; polling threads look at them, and go into the engine when one is set, and now and
// then anyway (sockets, timers).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace uhca::pci {

class IdleWatch {
 public:
  static constexpr unsigned kWords = 6;

  // ---- polling threads
  // True: this poll need not go in.
  bool poll_may_rest() {
    if (!attended_.load(std::memory_order_relaxed)) return false;
    if (!seen_.load(std::memory_order_relaxed)) seen_.store(true, std::memory_order_relaxed);
    return !eager_.load(std::memory_order_relaxed) && nothing_came();
  }

  // ---- any thread
  // True: nothing has come, and nothing else waits for the engine.
  bool nothing_came() const {
    const unsigned n = count_.load(std::memory_order_relaxed);
    if (n > kWords) return false;
    for (unsigned i = 0; i < n; ++i)
      if (__atomic_load_n(words_[i].load(std::memory_order_relaxed), __ATOMIC_RELAXED) != 0) return false;
    return true;
  }

  // ---- the engine, one thread at a time. A poller may see old and new words mixed: it goes in once too often, or one poll late.
  // The words must stay readable as long as the watch is used. `deadline`: as Engine::next_deadline().
  void publish(std::span<const std::uint32_t* const> words, Nanos deadline) {
    set_deadline(deadline);
    for (std::size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
    count_.store(static_cast<unsigned>(words.size()), std::memory_order_relaxed);
  }
  // Every poll goes in, though nothing need have come: frames come by socket just now, or wait to be sent.
  void set_eager(bool on) {
    if (eager_.load(std::memory_order_relaxed) != on) eager_.store(on, std::memory_order_relaxed);
  }
  // Every poll must go in, and so must whoever has posted.
  void close() { count_.store(kClosed, std::memory_order_relaxed); }
  bool closed() const { return count_.load(std::memory_order_relaxed) > kWords; }
  void set_deadline(Nanos deadline) { deadline_.store(deadline, std::memory_order_relaxed); }
  Nanos deadline() const { return deadline_.load(std::memory_order_relaxed); }

  // ---- the home
  // Only while threads poll again and again is there anybody who looks.
  void attend(bool on) { attended_.store(on, std::memory_order_relaxed); }
  bool attended() const { return attended_.load(std::memory_order_relaxed); }
  // Whether anybody has polled since the last call.
  bool take_seen() { return seen_.load(std::memory_order_relaxed) && seen_.exchange(false, std::memory_order_relaxed); }

 private:
  static constexpr unsigned kClosed = ~0u;

  std::atomic<bool> attended_{false}, eager_{false};
  std::atomic<unsigned> count_{kClosed};
  std::atomic<const std::uint32_t*> words_[kWords]{};
  std::atomic<Nanos> deadline_{0};
  std::atomic<bool> seen_{false};
};

}  // namespace uhca::pci
