// SPDX-License-Identifier: MIT
// The port spaces of rdma_cm (RDMA_PS_TCP, UDP, IB, IPOIB). They are the host's: a port that one function has bound is taken for the
// others. Linux: cma_get_port and its helpers in drivers/infiniband/core/cma.c; errnos as there.
//
// A bound port holds the name "uhca/v1/cm/port/<ps>/<port>/<key>", and listens on it while its id does: that is where a REQ for the
// service id is handed on (exchange.h). Ephemeral ports come from blocks of 64 that a function leases by one name each and
// get a name of their own only when they listen.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernel/cm/addr.h"
#include "kernel/cm/host_names.h"

namespace uhca::kernel::cm {

inline constexpr std::uint16_t kPsIpoib = 0x0002, kPsTcp = 0x0106, kPsUdp = 0x0111, kPsIb = 0x013f;

// What one id has in a port space. Owned by the id.
struct PortBinding {
  std::uint16_t ps = 0, port = 0;
  const Sockaddr* src = nullptr;  // of the id
  const Sockaddr* dst = nullptr;
  bool reuseaddr = false, afonly = false, listening = false;
  bool ephemeral = false;
  HostName* name = nullptr;  // shared by the bindings of the same key
  std::string key;
};

class PortSpace {
 public:
  // `watch`: called with a descriptor that is to be polled for callers (on = true), and before it goes away (on = false).
  using Watch = void (*)(void* context, int fd, bool on);
  PortSpace(std::string prefix, Watch watch, void* context) : prefix_(std::move(prefix)), watch_(watch), context_(context) {}
  ~PortSpace();

  // Binds `src`, whose port 0 means any. The chosen port is written into src. EACCES, EADDRINUSE, EADDRNOTAVAIL.
  Status bind(PortBinding& b, std::uint16_t ps, Sockaddr& src, const Sockaddr& dst);
  // A listening port has to be unique. EADDRINUSE, EADDRNOTAVAIL.
  Status listen(PortBinding& b);
  void unbind(PortBinding& b);

  // The names under which a request for (ps, port) that arrived at address `at` may find its listener, best first.
  std::vector<std::string> names_for(std::uint16_t ps, std::uint16_t port, const ib_gid& at) const;
  // Whether such a name is ours and listens.
  bool listens(const std::string& name) const;

  std::size_t bindings() const { return bindings_.size(); }

  static constexpr unsigned kBlock = 64;

 private:
  struct Block {
    HostName name;
    std::uint64_t used = 0;
  };
  std::string port_prefix(std::uint16_t ps, std::uint16_t port) const;
  static std::string key_of(const Sockaddr& src, bool afonly);
  Status check_own(const PortBinding& b, std::uint16_t port, bool reuseaddr) const;
  Status hold_name(PortBinding& b);
  Status bind_any(PortBinding& b, Sockaddr& src);

  const std::string prefix_;
  const Watch watch_;
  void* const context_;
  std::list<PortBinding*> bindings_;
  std::map<std::string, std::pair<HostName, unsigned>> names_;       // by full name; uses
  std::map<std::pair<std::uint16_t, std::uint16_t>, Block> blocks_;  // ps, first port
  std::uint16_t last_port_ = 0;
};

}  // namespace uhca::kernel::cm
