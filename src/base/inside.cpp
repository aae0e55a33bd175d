// SPDX-License-Identifier: MIT
#include "base/inside.h"

namespace uhca::inside {

constinit thread_local State state{0, 0};
constinit std::atomic<void (*)()> raise_deferred{nullptr};

}  // namespace uhca::inside
