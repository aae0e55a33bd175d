// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/types.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kTimestampMask = 0x7fff'ffff'ffff'ffff;
// The pages are good for much longer; a program that asks how often they are renewed hears this, ns.
constexpr std::uint64_t kOverflowPeriod = 1'000'000'000;

// Another open of the same file, which no mapping can make writable.
Result<int> read_only(int fd) {
  char path[40];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/self/fd/{}", fd).out = 0;
  long r = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (r < 0) return refuse(errno, "clock pages: {} cannot be opened again", path);
  return fd::adopt(static_cast<int>(r));
}

std::uint64_t wall_clock() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

ClockPages::~ClockPages() {
  if (info_ != nullptr) syscall(SYS_munmap, info_, kPage);
  if (info_fd_ >= 0) fd::close(info_fd_);
  if (timer_fd_ >= 0) fd::close(timer_fd_);
}

Status ClockPages::start() {
  long made = syscall(SYS_memfd_create, "uhca-clock", MFD_CLOEXEC);
  if (made < 0) return refuse(errno, "clock pages: no memory");
  int fd = static_cast<int>(made);
  Status s;
  long p = -1;
  if (syscall(SYS_ftruncate, fd, kPage) != 0 || (p = syscall(SYS_mmap, nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L)) == -1) {
    s = refuse(errno, "clock pages: no memory");
  } else {
    info_ = reinterpret_cast<::mlx5_ib_clock_info*>(p);
    // The timer counts nanoseconds: nothing to scale, and no product that could overflow.
    info_->mult = 1;
    info_->shift = 0;
    info_->mask = kTimestampMask;
    info_->overflow_period = kOverflowPeriod;
    auto again = read_only(fd);
    if (again.ok()) {
      info_fd_ = *again;
    } else {
      s = again.error();
    }
  }
  syscall(SYS_close, fd);
  UHCA_CHECK(s);
  timer_fd_ = UHCA_TRY(read_only(slot_.bar_fd()));
  refresh();
  return success();
}

std::uint64_t ClockPages::read_timer() {
  auto reg = [this](std::uint64_t at) { return std::uint64_t{byteswap(slot_.read32(kTimerPage + kTimerOffset + at))}; };
  std::uint64_t high, low;
  do {  // the lower half may go round in between
    high = reg(0);
    low = reg(4);
  } while (reg(0) != high);
  return high << 32 | low;
}

void ClockPages::refresh() {
  if (info_ == nullptr) return;
  inside::Guard guard;
  int saved = errno;
  slot_.publish(kTimerPage + kTimerOffset);
  std::lock_guard g(lock_);
  std::uint32_t sign = info_->sign;
  __atomic_store_n(&info_->sign, sign | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_RELAXED);
  std::atomic_thread_fence(std::memory_order_release);
  info_->cycles = read_timer();
  info_->nsec = wall_clock();
  __atomic_store_n(&info_->sign, sign + 2 * MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_RELEASE);
  errno = saved;
}

}  // namespace uhca::kernel::mlx5
