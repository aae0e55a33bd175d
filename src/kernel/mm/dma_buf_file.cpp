// SPDX-License-Identifier: MIT
// Descriptors of dma-bufs: memfds known by their inode, whose death InodeWatch tells, as for the files of devices; and dma-bufs of the
// host's own kernel.
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/memfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/inode_watch.h"
#include "base/inside.h"
#include "base/log.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/uaccess.h"

namespace uhca::kernel::mm {
namespace {

constexpr char kName[] = "uhca:dmabuf";

struct Open {
  std::uint64_t dev, ino;
  int watch;  // -1: inotify is exhausted: the buffer stays
  std::shared_ptr<DmaBuf> buf;
};
constinit std::mutex lock;
constinit std::vector<Open>* open_files = nullptr;
constinit std::atomic<unsigned> count{0};
constinit InodeWatch inodes;

struct KeepErrno {
  int saved = errno;
  ~KeepErrno() { errno = saved; }
};

std::string_view link_of(int fd, char* buf, std::size_t n) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  long r = syscall(SYS_readlinkat, AT_FDCWD, path, buf, n);
  return r < 0 ? std::string_view{} : std::string_view(buf, static_cast<std::size_t>(r));
}

// A dma-buf of the host's kernel. It does not move while it is mapped; each time of use is bracketed as that kernel wants it.
class HostDmaBuf final : public DmaBufExporter {
 public:
  HostDmaBuf(int fd, std::byte* memory, std::size_t size) : fd_(fd), memory_(memory), size_(size) {}
  ~HostDmaBuf() override {
    syscall(SYS_munmap, memory_, size_);
    fd::close(fd_);
  }
  Result<std::unique_ptr<SgTable>> map(DmaBufAttachment&) override {
    UHCA_CHECK(sync(DMA_BUF_SYNC_START));
    auto t = std::make_unique<SgTable>();
    t->entries.push_back({memory_, size_});
    return t;
  }
  void unmap(DmaBufAttachment&, std::unique_ptr<SgTable>) override {
    if (Status s = sync(DMA_BUF_SYNC_END); !s.ok()) log::warn("dma-buf of the host: no end of its use ({})", s.code());
  }

 private:
  Status sync(std::uint64_t when) {
    ::dma_buf_sync arg{DMA_BUF_SYNC_RW | when};
    while (syscall(SYS_ioctl, fd_, DMA_BUF_IOCTL_SYNC, &arg) != 0)
      if (errno != EINTR && errno != EAGAIN) return refuse(errno, "dma-buf of the host: DMA_BUF_IOCTL_SYNC");
    return success();
  }
  int fd_;
  std::byte* memory_;
  std::size_t size_;
};

bool is_host_dma_buf(std::string_view link) {
  return link.starts_with("/dmabuf:") || link == "anon_inode:dmabuf";
}

Result<std::shared_ptr<DmaBuf>> map_host_dma_buf(int fd) {
  const long size = syscall(SYS_lseek, fd, 0L, SEEK_END);
  syscall(SYS_lseek, fd, 0L, SEEK_SET);
  if (size <= 0) return refuse(EINVAL, "dma-buf of the host: no size");
  int own = fd::adopt(static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3)));
  if (own < 0) return refuse(errno, "dma-buf of the host: no descriptor for it");
  long at = syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0L);
  if (at == -1) {
    Errno e = refuse(errno, "dma-buf of the host: {} bytes cannot be mapped", size);
    fd::close(own);
    return e;
  }
  syscall(SYS_madvise, at, size, MADV_DONTFORK);
  auto exporter = std::make_unique<HostDmaBuf>(own, reinterpret_cast<std::byte*>(at), static_cast<std::size_t>(size));
  return DmaBuf::make(std::move(exporter), static_cast<std::size_t>(size), "host");
}

}  // namespace

Result<DmaBufFile> DmaBufFile::reserve() {
  dma_buf_reap();
  DmaBufFile f;
  f.fd_ = static_cast<int>(syscall(SYS_memfd_create, kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (f.fd_ < 0) return refuse(errno, "dma-buf: no descriptor");
  struct stat st;
  if (syscall(SYS_fstat, f.fd_, &st) != 0) {
    Errno e{errno};
    syscall(SYS_close, f.fd_);
    return e;
  }
  f.dev_ = st.st_dev;
  f.ino_ = st.st_ino;
  return f;
}

Status DmaBufFile::bind(std::shared_ptr<DmaBuf> buf) {
  // Its size is what lseek(fd, 0, SEEK_END) tells programs; nothing is ever read or written there.
  if (syscall(SYS_ftruncate, fd_, buf->size()) != 0) return refuse(errno, "dma-buf: {} bytes", buf->size());
  syscall(SYS_fcntl, fd_, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  inside::Guard guard;
  std::lock_guard g(lock);
  if (open_files == nullptr) open_files = new std::vector<Open>;
  open_files->push_back({dev_, ino_, inodes.watch(fd_), std::move(buf)});
  if (open_files->back().watch < 0) log::warn("inotify is exhausted for this user: a dma-buf stays until the process ends");
  count.store(static_cast<unsigned>(open_files->size()), std::memory_order_release);
  return success();
}

Result<int> dma_buf_fd(std::shared_ptr<DmaBuf> buf) {
  DmaBufFile f = UHCA_TRY(DmaBufFile::reserve());
  if (Status s = f.bind(std::move(buf)); !s.ok()) {
    syscall(SYS_close, f.fd());
    return s.error();
  }
  return f.fd();
}

bool dma_buf_any_files() {
  return count.load(std::memory_order_acquire) != 0;
}

bool dma_buf_plausible(const struct stat& st) {
  return S_ISREG(st.st_mode) && st.st_nlink == 0;
}

std::shared_ptr<DmaBuf> dma_buf_of_fd(int fd) {
  struct stat st;
  if (!dma_buf_any_files() || fd < 0 || syscall(SYS_fstat, fd, &st) != 0 || !dma_buf_plausible(st)) return nullptr;
  inside::Guard guard;
  std::lock_guard g(lock);
  for (const Open& o : *open_files)
    if (o.dev == st.st_dev && o.ino == st.st_ino) return o.buf;
  return nullptr;
}

Result<std::shared_ptr<DmaBuf>> dma_buf_get(int fd) {
  struct stat st;
  if (fd < 0 || syscall(SYS_fstat, fd, &st) != 0 || fd::is_internal(fd)) return refuse(EBADF, "dma-buf: descriptor {} is not open", fd);
  if (auto b = dma_buf_of_fd(fd)) return b;
  char buf[256];
  const std::string_view link = link_of(fd, buf, sizeof buf);
  if (is_host_dma_buf(link)) return map_host_dma_buf(fd);
  if (link.find(kName) != std::string_view::npos) return refuse(EINVAL, "dma-buf: descriptor {} is of a buffer of another process", fd);
  return refuse(EINVAL, "dma-buf: descriptor {} ({}) is of no dma-buf", fd, link);
}

Status dma_buf_ioctl(DmaBuf& buf, unsigned long request, std::uint64_t arg) {
  if (request != DMA_BUF_IOCTL_SYNC) return refuse(ENOTTY, "dma-buf: ioctl {:#x}", request);
  ::dma_buf_sync sync{};
  UHCA_CHECK(copy_from_user(&sync, arg, sizeof sync));
  if (sync.flags & ~static_cast<std::uint64_t>(DMA_BUF_SYNC_VALID_FLAGS_MASK))
    return refuse(EINVAL, "dma-buf: sync flags {:#x}", sync.flags);
  const bool read = sync.flags & DMA_BUF_SYNC_READ, write = sync.flags & DMA_BUF_SYNC_WRITE;
  if (!read && !write) return refuse(EINVAL, "dma-buf: a sync of neither reads nor writes");
  if (sync.flags & DMA_BUF_SYNC_END) return buf.exporter().end_cpu_access(read, write);
  UHCA_CHECK(buf.exporter().begin_cpu_access(read, write));
  // Linux: __dma_buf_begin_cpu_access waits for what the others do, without being in their way.
  std::vector<std::shared_ptr<DmaFence>> fences;
  {
    std::lock_guard g(buf.resv());
    fences = buf.resv().get_fences(write ? DmaResvUsage::kRead : DmaResvUsage::kWrite);
  }
  for (auto& fence : fences) fence->wait();
  return success();
}

void dma_buf_reap() {
  if (!dma_buf_any_files()) return;
  inside::Guard guard;
  KeepErrno keep;
  std::vector<Open> gone;  // let go without the lock: an exporter may do anything
  std::lock_guard g(lock);
  inodes.drain([&](int watch) {
    auto dead = std::find_if(open_files->begin(), open_files->end(), [watch](const Open& o) { return o.watch == watch; });
    if (dead == open_files->end()) return;
    gone.push_back(std::move(*dead));
    open_files->erase(dead);
  });
  count.store(static_cast<unsigned>(open_files->size()), std::memory_order_release);
}

void dma_buf_forget_after_fork() {
  new (&lock) std::mutex;
  open_files = nullptr;  // leaked: the buffers are the parent's
  inodes.forget();
  count.store(0);
}

}  // namespace uhca::kernel::mm
