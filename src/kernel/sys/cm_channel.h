// SPDX-License-Identifier: MIT
// Open /dev/infiniband/rdma_cm files: event channels. The program's descriptor is the read end of a pipe (kernel/cm/file.h), so poll, dup
// and O_NONBLOCK are native; a write to it fails with EBADF and comes here.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>

#include "kernel/cm/file.h"

namespace uhca::sys {

// The descriptor, or a negative errno.
int cm_channel_open(int flags);

// Asked when a write failed with EBADF. False: not a channel, nothing changed; else *result and errno are set.
bool cm_channel_write(int fd, const void* buf, std::size_t count, ssize_t* result);

// Whether fstat's answer can be a channel: no system call.
inline bool cm_channel_plausible(const struct stat& st) {
  return S_ISFIFO(st.st_mode) && kernel::cm::rdma_cm_any_open();
}
bool cm_channel_is(const struct stat& st);

// After a descriptor that may have been one went away.
void cm_channel_reap();

}  // namespace uhca::sys
