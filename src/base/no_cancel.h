// SPDX-License-Identifier: MIT
// Around calls of the C library that are cancellation points (files, sockets) where a thread of the program may be inside with locks held.
// The data path has none; rare look-ups that run on it have (getifaddrs, /proc).
#pragma once

#include <pthread.h>

namespace uhca {

class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() {
    int ignored;
    pthread_setcancelstate(before_, &ignored);
  }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_ = 0;
};

}  // namespace uhca
