// SPDX-License-Identifier: MIT
#include "kernel/sys/removal.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/inside.h"
#include "base/log.h"
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
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);  // it drives the engine: the copy fix-up works on this thread too
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t t;
  int err = pthread_create(&t, &attr, wait_and_remove, r);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (!err) return;
  log::error("no thread for UHCA_REMOVE_AFTER ({}): the device stays", err);
  delete r;
}

}  // namespace uhca::sys
