// SPDX-License-Identifier: MIT
// What the port takes from its netdev at the moment.
#pragma once

#include <string>

#include "base/result.h"

namespace uhca::kernel::mlx5 {

struct NetdevState {
  unsigned mtu = 0;      // bytes of the Ethernet payload
  bool running = false;  // up, and with a carrier
};

// The errno of the ioctl: ENODEV when the netdev is gone.
Result<NetdevState> netdev_state(const std::string& name);

}  // namespace uhca::kernel::mlx5
