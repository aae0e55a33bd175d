// SPDX-License-Identifier: MIT
// A whole HCA behind a vfio-user socket, for `uhca pci`.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"

namespace uhca::pci {

struct ServeConfig {
  std::string socket;  // path of the unix socket
  std::string netdev;  // interface to whose wire the port is connected; empty: the host switch, as another function of the adapter
  bool write_combining = false;  // offer BlueFlame, and put together again what a trap takes apart (write_combiner.h)
};

class ServedHca {
 public:
  virtual ~ServedHca() = default;
  // Serves one client after another until `stop_fd` becomes readable.
  virtual Status run(int stop_fd) = 0;
  // What the port is, for people.
  virtual std::string description() const = 0;
};

// The socket listens when this returns. Defined by device/hca (so that device/pci knows no device). EADDRINUSE: somebody listens there;
// EADDRNOTAVAIL: no such netdev; EPERM: the netdev needs more rights; else as plug_in_hca.
Result<std::unique_ptr<ServedHca>> serve_hca(const ServeConfig& config);

}  // namespace uhca::pci
