// SPDX-License-Identifier: MIT
#include "base/clock.h"

#include <ctime>

namespace uhca {

Nanos SystemClock::now() const {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<Nanos>(ts.tv_sec) * 1'000'000'000 + static_cast<Nanos>(ts.tv_nsec);
}

// Asking the processor's own counter whether time has passed costs a third of asking what time it is.
Nanos SystemClock::recent() const {
#if defined(__x86_64__)
  struct Last {
    std::uint64_t ticks;
    Nanos at;
    std::uint64_t rate;  // nanoseconds of 2^32 ticks; 0: not known yet
  };
  constexpr std::uint64_t kSoon = 1 << 14, kSteady = 1 << 24, kTogether = 512;  // ticks
  static constinit thread_local Last last __attribute__((tls_model("initial-exec"))) = {0, 0, 0};
  const std::uint64_t ticks = __builtin_ia32_rdtsc();
  if (ticks - last.ticks <= kSoon && last.rate != 0) return last.at + ((ticks - last.ticks) * last.rate >> 32);
  const Nanos at = now();
  const std::uint64_t after = __builtin_ia32_rdtsc();
  const std::uint64_t passed = after - last.ticks;
  if (after - ticks > kTogether) {  // the thread was interrupted between the two clocks
    last.rate = 0;
    last.ticks = 0;
    return at;
  }
  // From readings that lie neither so near that their own duration counts, nor so far that the product overflows.
  if (last.ticks != 0 && passed > kSoon) last.rate = passed < kSteady ? ((at - last.at) << 32) / passed : 0;
  if (last.ticks == 0 || passed > kSoon) {
    last.ticks = after;
    last.at = at;
  }
  return at;
#else
  return now();
#endif
}

SystemClock& SystemClock::instance() {
  // Leaked on purpose: the library is still called while a program's static objects are destroyed.
  static SystemClock* clock = new SystemClock;
  return *clock;
}

}  // namespace uhca
