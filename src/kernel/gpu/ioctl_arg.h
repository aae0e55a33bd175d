// SPDX-License-Identifier: MIT
// The argument of an ioctl: copied in as long as the program says it is, zero beyond, and copied back. Linux: drm_ioctl, kfd_ioctl.
#pragma once

#include <linux/ioctl.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::gpu {

// handler(args): Status. EFAULT; else what it says. What it has written goes back if the request has an answer, and so it does when it
// fails.
template <class T, class Handler>
Result<int> with_arg(unsigned long request, UserPtr user, Handler handler) {
  T args{};
  const std::size_t n = std::min<std::size_t>(_IOC_SIZE(request), sizeof args);
  UHCA_CHECK(copy_from_user(&args, user, n));
  const Status s = handler(args);
  if (_IOC_DIR(request) & _IOC_READ) {
    const Status back = copy_to_user(user, &args, n);
    if (s.ok() && !back.ok()) return back.error();
  }
  UHCA_CHECK(s);
  return 0;
}

}  // namespace uhca::kernel::gpu
