// SPDX-License-Identifier: MIT
#include "kernel/sys/removal.h"

#include <pthread.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"
#include "kernel/cm/file.h"
#include "kernel/uverbs/file.h"

namespace uhca::sys {
namespace {

constexpr double kLongest = 1e9;

struct Removal {
  kernel::ib_device* device;
  timespec after;
};

void* wait_and_remove(void* arg) {
  pthread_setname_np(pthread_self(), "uhca-removal");
  auto* r = static_cast<Removal*>(arg);
  timespec left = r->after;
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
  inside::Guard guard;
  log::info("{}: removed (UHCA_REMOVE_AFTER)", r->device->name);
  // Clients of the device in the reverse order of their registration.
  kernel::cm::rdma_cm_remove_device();
  kernel::uverbs_disassociate(*r->device);
  delete r;
  return nullptr;
}

}  // namespace

void removal_schedule(kernel::ib_device& dev) {
  const char* text = std::getenv("UHCA_REMOVE_AFTER");
  if (!text) return;
  char* end;
  double seconds = std::strtod(text, &end);
  if (end == text || *end || !(seconds >= 0 && seconds <= kLongest)) {
    log::warn("UHCA_REMOVE_AFTER={}: not a number of seconds; the device stays", text);
    return;
  }
  double whole;
  double part = std::modf(seconds, &whole);
  auto* r = new Removal{&dev, {static_cast<time_t>(whole), static_cast<long>(part * 1e9)}};
  int err = start_thread(wait_and_remove, r);
  if (!err) return;
  log::error("no thread for UHCA_REMOVE_AFTER ({}): the device stays", err);
  delete r;
}

}  // namespace uhca::sys
