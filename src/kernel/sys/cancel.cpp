// SPDX-License-Identifier: MIT
// Asynchronous cancellation must not end a thread inside our floors, nor inside a provider's data path, where locks are held. Deferred
// cancellation does no harm there: neither has a cancellation point (base/no_cancel.h where it would).
#include <pthread.h>

#include "base/inside.h"
#include "kernel/sys/next.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(pthread_setcanceltype, int(int, int*));

// By the type and not by the state: the C library then gives a thread that dies at the end of the Guard the right result, and leaves the
// program's own changes of the state alone.
void hold(bool on) {
  int ignored;
  next_pthread_setcanceltype(on ? PTHREAD_CANCEL_DEFERRED : PTHREAD_CANCEL_ASYNCHRONOUS, &ignored);
}

}  // namespace
}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int pthread_setcanceltype(int type, int* old) {
  if (type == PTHREAD_CANCEL_ASYNCHRONOUS && !inside::active()) {
    inside::hold_cancellation.store(hold, std::memory_order_release);
    inside::state.cancelable = 1;
  }
  int r = next_pthread_setcanceltype(type, old);
  if (r == 0 && type == PTHREAD_CANCEL_DEFERRED && !inside::active()) inside::state.cancelable = 0;
  return r;
}
