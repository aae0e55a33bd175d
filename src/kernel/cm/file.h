// SPDX-License-Identifier: MIT
// The open /dev/infiniband/rdma_cm as kernel/sys (the system-call surface) sees it. Linux: drivers/infiniband/core/ucma.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel::cm {

// One open of the file. Thread-safe. The program holds the read end of a pipe that is readable while events wait, so poll, epoll, dup and
// O_NONBLOCK are native; what it writes comes here, since the kernel refuses a write to that end.
class CmFile {
 public:
  virtual ~CmFile() = default;
  // One command. The number of bytes consumed. GET_EVENT never blocks here: EAGAIN when no event waits.
  virtual Result<std::size_t> write(UserPtr buf, std::size_t count) = 0;
  // For a blocking GET_EVENT: sleeps until an event waits. A raw futex, so that signals restart it as they would a write. EINTR.
  virtual Status wait_event() = 0;
};

struct OpenedCmFile {
  std::shared_ptr<CmFile> file;
  int fd = -1;  // the program's
};
// EMFILE, ENFILE, ...; ENODEV: the service does not run.
Result<OpenedCmFile> rdma_cm_open(bool cloexec, bool nonblock);

// The open file behind a descriptor of this process, or nullptr. Two system calls at most; none while no file is open.
std::shared_ptr<CmFile> rdma_cm_file_of(int fd);
// Whether any file is open: one load.
bool rdma_cm_any_open();
// After any descriptor went away: destroys the ids of files whose last descriptor is gone.
void rdma_cm_reap();
// The process exits: its ids are destroyed, as the kernel does when it closes a process's files.
void rdma_cm_exit();
// By inode, lock-free: an open file of this process; one that the parent of this process had open when it forked.
bool rdma_cm_is_channel(std::uint64_t inode);
bool rdma_cm_inherited(std::uint64_t inode);

// Starts connection management on a device: its GSI QP and the host's names. The device lives as long as the process.
// EOPNOTSUPP: the driver has no kernel QPs.
Status rdma_cm_add_device(ib_device& dev);
// Its ids hear of it (DEVICE_REMOVAL), and no more can be bound.
void rdma_cm_remove_device();
// In a forked child: everything is the parent's and nothing of it is touched.
void rdma_cm_forget_after_fork();

// The name of a command, for traces.
const char* rdma_cm_command_name(std::uint32_t cmd);

inline constexpr unsigned kRdmaCmAbiVersion = 4;

}  // namespace uhca::kernel::cm
