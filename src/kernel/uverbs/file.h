// SPDX-License-Identifier: MIT
// The open uverbs file as kernel/sys (the system-call surface) sees it. Linux: drivers/infiniband/core/uverbs_main.c.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {

// One open of /dev/infiniband/uverbsN. Thread-safe. Shared with event files, which outlive the descriptor.
class VerbsFile {
 public:
  virtual ~VerbsFile() = default;

  // RDMA_VERBS_IOCTL. The value that ioctl returns: 0, or the error.
  virtual Status ioctl(unsigned long cmd, UserPtr arg) = 0;
  // The legacy write ABI; the number of bytes consumed.
  virtual Result<std::size_t> write(UserPtr buf, std::size_t count) = 0;
  // prot/flags as for mmap(2); offset in bytes. What to map in its place.
  virtual Result<MmapTarget> mmap(std::size_t length, int prot, int flags, std::uint64_t offset) = 0;
  // The program closed its last descriptor of this open: destroys all objects in the kernel's order (cleanup).
  virtual void release() = 0;

  virtual ib_device& device() = 0;
  // Hardware number behind a uobject handle, for hooks: 0 when there is no such object.
  virtual std::uint32_t cqn_of_handle(std::uint32_t handle) = 0;
  virtual std::uint32_t qpn_of_handle(std::uint32_t handle) = 0;
};

// ENXIO: no such device; EIO: disassociated.
Result<std::shared_ptr<VerbsFile>> uverbs_open(int minor);

// The device goes away under its files, as when its driver is unbound: every object is destroyed, async files get DEVICE_FATAL as their
// last event, completion channels end (EIO), and ioctl, write, mmap and opens are refused with EIO. What programs mapped stays mapped.
// Linux: ib_uverbs_free_hw_resources.
void uverbs_disassociate(ib_device& dev);

// True if `fd` is the read end of one of our event files (completion channel or async file): kernel/sys treats a blocking
// call on it as a hint that the caller is about to sleep.
bool uverbs_is_event_fd(int fd);

// What read(fd, buf, count) on an event file must answer instead of reading the pipe: EIO after close (where the pipe says end of
// file), EINVAL when count is less than one event (where the pipe would cut it). Ok: read the pipe. EBADF: not an event file.
Status uverbs_event_read_check(int fd, std::size_t count);

// Files of messages (DEVX): the pipe says only that there is one, and read(2) must be answered by this. May block; EAGAIN, EINTR, EIO,
// EOVERFLOW, EFAULT, and what the file answers to a read that is too short.
bool uverbs_is_message_fd(int fd);
Result<std::size_t> uverbs_message_read(int fd, UserPtr buf, std::size_t count);

// In a forked child: the event files and the XRC domains of files are the parent's. Nothing of them is touched, and no lock is held.
void uverbs_forget_after_fork();

}  // namespace uhca::kernel
