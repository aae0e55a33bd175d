// SPDX-License-Identifier: MIT
#include "base/clock.h"

#include <ctime>

namespace uhca {

Nanos SystemClock::now() const {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return static_cast<Nanos>(ts.tv_sec) * 1'000'000'000 + static_cast<Nanos>(ts.tv_nsec);
}

SystemClock& SystemClock::instance() {
  // Leaked on purpose: the library is still called while a program's static objects are destroyed.
  static SystemClock* clock = new SystemClock;
  return *clock;
}

}  // namespace uhca
