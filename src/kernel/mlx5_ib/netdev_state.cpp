// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/netdev_state.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/log.h"

namespace uhca::kernel::mlx5 {

Result<NetdevState> netdev_state(const std::string& name) {
  int fd = static_cast<int>(syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return refuse(errno, "no socket to ask about netdev {}", name);
  ifreq req{};
  std::strncpy(req.ifr_name, name.c_str(), IFNAMSIZ - 1);
  NetdevState state;
  int err = 0;
  if (syscall(SYS_ioctl, fd, SIOCGIFMTU, &req) == 0) {
    state.mtu = static_cast<unsigned>(req.ifr_mtu);
  } else {
    err = errno;
  }
  if (err == 0 && syscall(SYS_ioctl, fd, SIOCGIFFLAGS, &req) == 0) {
    state.running = (req.ifr_flags & IFF_UP) && (req.ifr_flags & IFF_RUNNING);
  } else if (err == 0) {
    err = errno;
  }
  syscall(SYS_close, fd);
  if (err != 0) return refuse(err, "netdev {} cannot be asked for its MTU and state", name);
  return state;
}

}  // namespace uhca::kernel::mlx5
