// SPDX-License-Identifier: MIT
#include "base/thread.h"

#include <csignal>

namespace uhca {

int start_thread(void* (*entry)(void*), void* argument, pthread_t* thread) {
  sigset_t all, old;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, 256 * 1024);
  if (thread == nullptr) pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  pthread_t detached;
  int err = pthread_create(thread != nullptr ? thread : &detached, &attr, entry, argument);
  pthread_attr_destroy(&attr);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return err;
}

}  // namespace uhca
