// SPDX-License-Identifier: MIT
// What a program may do only with a capability. Linux: rdma_core.c (rdma_uattrs_has_raw_cap); the calling thread's credentials count.
#pragma once

#include <linux/capability.h>
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
  return syscall(SYS_capget, &header, data) == 0 && (data[0].effective >> CAP_NET_RAW & 1) != 0;
}

}  // namespace uhca::kernel
