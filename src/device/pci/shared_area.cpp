// SPDX-License-Identifier: MIT
#include "device/pci/shared_area.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

namespace uhca::pci {
namespace {

constexpr unsigned kSpins = 2000;  // an access is usually over within microseconds
constexpr Nanos kComplainAfter = 1'000'000'000;

// Whether the process is gone with all its threads: until then one of them may be inside of a copy.
bool is_gone(pid_t pid) {
  int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd p{fd, POLLIN, 0};
  timespec none{};
  bool gone = syscall(SYS_ppoll, &p, 1, &none, nullptr, 0) == 1;
  syscall(SYS_close, fd);
  return gone;
}

}  // namespace

std::unique_ptr<SharedArea> SharedArea::create() {
  auto memfd = fd::sealed_memfd("uhca-function", bytes());
  if (!memfd.ok()) {
    errno = memfd.code();
    return nullptr;
  }
  std::unique_ptr<SharedArea> a(new SharedArea);
  a->fd_ = *memfd;
  void* p = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, *memfd, 0);
  if (p == MAP_FAILED) return nullptr;
  a->base_ = p;
  madvise(p, bytes(), MADV_DONTFORK);
  auto* h = static_cast<Header*>(p);
  if (syscall(SYS_getrandom, h->nonce, sizeof h->nonce, 0) != sizeof h->nonce) return nullptr;
  h->self = reinterpret_cast<std::uintptr_t>(h);
  return a;
}

SharedArea::~SharedArea() {
  if (base_ != nullptr) munmap(base_, bytes());
  fd::close(fd_);
}

unsigned SharedArea::take_hold(pid_t pid) {
  for (unsigned i = 0; i < kHolds; ++i) {
    Hold& h = hold_of(base_, i);
    pid_t nobody = 0;
    if (!h.pid.compare_exchange_strong(nobody, pid)) continue;
    unsigned used = used_.load();
    while (used <= i && !used_.compare_exchange_weak(used, i + 1)) {
    }
    return i;
  }
  return kHolds;
}

void SharedArea::release_hold(unsigned index) {
  Hold& h = hold_of(base_, index);
  h.seq.store(0);
  h.pid.store(0);
}

void SharedArea::wait_for_accessors() {
  // Against the accessor's "seq odd; fence; look": one of the two sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  unsigned n = used_.load(std::memory_order_acquire);
  for (unsigned i = 0; i < n; ++i) {
    Hold& h = hold_of(base_, i);
    const std::uint32_t seen = h.seq.load(std::memory_order_acquire);
    if ((seen & 1) == 0) continue;
    Nanos since = 0;
    bool told = false;
    for (unsigned spins = 0; h.seq.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpins) continue;
      pid_t pid = h.pid.load();
      if (pid == 0 || is_gone(pid)) break;
      Nanos now = SystemClock::instance().now();
      if (since == 0) since = now;
      if (!told && now - since > kComplainAfter) {
        told = true;
        log::warn("waiting for process {}, which is in the middle of an access to memory of this process (is it stopped?)", pid);
      }
      timespec pause{0, told ? 1'000'000 : 20'000};
      syscall(SYS_nanosleep, &pause, nullptr);
    }
  }
}

bool SharedArea::reachable(const void* mapped, pid_t pid) {
  const auto* h = static_cast<const Header*>(mapped);
  Header theirs{};
  iovec local{&theirs, sizeof theirs};
  iovec remote{reinterpret_cast<void*>(h->self), sizeof theirs};
  return syscall(SYS_process_vm_readv, pid, &local, 1, &remote, 1, 0) == static_cast<long>(sizeof theirs) &&
         std::memcmp(&theirs, h, sizeof theirs) == 0;
}

}  // namespace uhca::pci
