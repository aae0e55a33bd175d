// SPDX-License-Identifier: MIT
// What a program may do only with a capability. Linux: rdma_core.c (rdma_uattrs_has_raw_cap); the calling thread's credentials count, in
// the user namespace that owns the network namespace: who is root only in a user namespace of his own has no say in the host's.
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace uhca::kernel {

inline constexpr std::uint32_t IB_QP_SET_QKEY = 1u << 31;  // Q_Keys with this bit are privileged

// CAP_NET_RAW: raw packet QPs, chosen source QP numbers, privileged Q_Keys.
inline bool rdma_uattrs_has_raw_cap() {
  ::__user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  ::__user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  static_assert(CAP_NET_RAW < 32);
  if (syscall(SYS_capget, &header, data) != 0 || (data[0].effective >> CAP_NET_RAW & 1) == 0) return false;
  // The kernel names the owner only if it is the caller's user namespace, or below it.
  auto net = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC, 0));
  if (net < 0) return false;
  auto owner = static_cast<int>(syscall(SYS_ioctl, net, NS_GET_USERNS, 0));
  syscall(SYS_close, net);
  if (owner < 0) return false;
  syscall(SYS_close, owner);
  return true;
}

}  // namespace uhca::kernel
