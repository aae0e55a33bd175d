// SPDX-License-Identifier: MIT
#include "kernel/sys/instance.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "base/far_fence.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/rcu.h"
#include "base/safecopy.h"
#include "base/trace.h"
#include "device/pci/inproc.h"
#include "kernel/cm/file.h"
#include "kernel/mlx5_ib/mlx5_ib.h"
#include "kernel/mm/dma_buf.h"
#include "kernel/mm/pinned_pages.h"
#include "kernel/sys/cmdfile.h"
#include "kernel/sys/cwd.h"
#include "kernel/sys/gpu_file.h"
#include "kernel/sys/io_map.h"
#include "kernel/sys/memory.h"
#include "kernel/sys/netlink.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/removal.h"
#include "kernel/sys/signals.h"
#include "kernel/sys/uar_map.h"

namespace uhca::sys {
namespace detail {
constinit std::atomic<Instance*> current{nullptr};
}
namespace {

constinit std::mutex build_lock;
constinit std::atomic<int> owner_pid{0};
constinit std::atomic<bool> fork_handler{false};

thread_local bool faults_unblocked __attribute__((tls_model("initial-exec"))) = false;

// The trace descriptor moves to where closefrom does not reach it and stays open over exec; the environment follows.
void place_trace_fd() {
  int given = trace::fd();
  if (given < 0) return;
  int copy = fd::adopt(static_cast<int>(syscall(SYS_fcntl, given, F_DUPFD_CLOEXEC, 3)));
  if (copy < 0) return;
  syscall(SYS_fcntl, copy, F_SETFD, 0);
  trace::set_fd(copy);
  char text[16];
  std::snprintf(text, sizeof text, "%d", copy);
  setenv("UHCA_TRACE_FD", text, 1);
}

// In the child: the parent's instance is the parent's. Nothing of it is destroyed (its threads and locks do not exist here), its
// descriptors are closed, and whatever the program still holds of it is marked.
void child_after_fork() {
  int saved = errno;
  new (&build_lock) std::mutex;
  rcu::after_fork();
  far_fence::after_fork();
  shm_after_fork();
  io_map_forget_after_fork();
  owner_pid.store(raw::getpid());
  bool had = detail::current.exchange(nullptr) != nullptr;
  int trace_copy = trace::fd() >= 0 ? static_cast<int>(syscall(SYS_fcntl, trace::fd(), F_DUPFD_CLOEXEC, 3)) : -1;
  if (had) {
    uar_map_wipe();
    cmdfiles_inherited();
    kernel::ib_forget_devices_after_fork();
    kernel::uverbs_forget_after_fork();
    kernel::cm::rdma_cm_forget_after_fork();
    gpu_files_inherited();
    kernel::mm::dma_buf_forget_after_fork();
    kernel::mm::PinnedPages::forget_after_fork();
  }
  netlink_after_fork();
  fd::abandon_all();
  if (trace_copy >= 0) {
    trace::set_fd(trace_copy);
    place_trace_fd();
    syscall(SYS_close, trace_copy);
  }
  cwd_after_fork();
  errno = saved;
}

// What `uhca run --fault` asks for: counted from here on, when the driver has what it needs itself.
void plan_faults(pci::InprocEndpoint& slot) {
  const char* text = std::getenv("UHCA_FAULT");
  if (text == nullptr) return;
  auto rules = fault::parse(text);
  if (!rules) return log::error("UHCA_FAULT={}: not understood; nothing will fail", text);
  for (const fault::Rule& r : *rules) {
    if (r.point != fault::Point::kCommand) {
      fault::arm(r.point, r.nth, r.err);
    } else if (!slot.plan_fault(r.command, r.nth, r.status).ok()) {
      log::error("UHCA_FAULT: no command {} or no status {}", r.command, r.status);
    }
  }
}

Instance* build() {
  inside::Guard guard;
  pci::SlotConfig config;
  if (const char* dev = std::getenv("UHCA_NETDEV")) config.netdev = dev;
  if (const char* path = std::getenv("UHCA_PATH")) {
    config.direct_access = std::strcmp(path, "framed") != 0;
    if (config.direct_access && std::strcmp(path, "fast") != 0) log::warn("UHCA_PATH={}: not 'framed' or 'fast'; taken as 'fast'", path);
  }
  if (const char* rules = std::getenv("UHCA_IMPAIR")) config.impair = rules;
  if (const char* cc = std::getenv("UHCA_CONGESTION")) config.congestion_control = std::strcmp(cc, "off") != 0;
  if (const char* pin = std::getenv("UHCA_PIN")) kernel::mm::PinnedPages::enable(std::strcmp(pin, "1") == 0);
  signals_activate();
  safecopy::set_handler_ready(true);
  auto slot = pci::plug_in_hca(config);
  if (!slot) {
    log::error("no HCA: {}{}{}", config.netdev.empty() ? "no usable netdev" : "netdev ", config.netdev,
               errno ? std::string(": ") + strerrorname_np(errno) : "");
    return nullptr;
  }
  auto probed = kernel::mlx5_ib_probe(*slot);
  if (!probed) {
    log::error("mlx5: probe failed: {}", strerrorname_np(probed.code()));
    return nullptr;
  }
  kernel::ib_device* dev = *probed;
  if (Status s = kernel::cm::rdma_cm_add_device(*dev); !s) log::error("{}: no connection management ({})", dev->name, s.code());
  removal_schedule(*dev);
  plan_faults(*slot);
  pci::IdleWatch* idle = &slot->idle_watch();
  (void)slot.release();  // lives as long as the process
  return new Instance{dev, new View(*dev), idle};
}

__attribute__((constructor)) void resolve_next();

}  // namespace
}  // namespace uhca::sys

extern "C" {
extern const uhca::sys::NextEntry __start_uhca_next[] __attribute__((visibility("hidden")));
extern const uhca::sys::NextEntry __stop_uhca_next[] __attribute__((visibility("hidden")));
}

namespace uhca::sys {
namespace {

// Not an effect that a program could see: it makes the pass-through path async-signal-safe. Tracing starts here, while the
// descriptor that the environment names still is what it was.
void resolve_next() {
  for (const NextEntry* e = __start_uhca_next; e != __stop_uhca_next; ++e) {
    if (!e->fn->load()) e->fn->store(dlsym(RTLD_NEXT, e->name));
  }
  gpu_look_at_environment();
  if (std::getenv("UHCA_TRACE_FD") || std::getenv("UHCA_PCAP")) {
    inside::Guard guard;
    trace::init_from_environment();
    place_trace_fd();
  }
}

}  // namespace

bool own_process() {
  int owner = owner_pid.load(std::memory_order_relaxed);
  return owner == 0 || owner == raw::getpid();
}

Instance* hint() {
  if (Instance* i = instance()) return own_process() ? i : nullptr;
  if (inside::active() || !own_process()) return nullptr;
  int saved = errno;
  Instance* made;
  {
    KernelEntry entry;
    std::lock_guard lock(build_lock);
    made = instance();
    if (!made) {
      owner_pid.store(raw::getpid());
      if (!fork_handler.exchange(true)) pthread_atfork(nullptr, nullptr, child_after_fork);
      made = build();
      detail::current.store(made, std::memory_order_release);
    }
  }
  errno = saved;
  return made;
}

void unblock_faults() {
  if (__builtin_expect(faults_unblocked, 1)) return;
  std::uint64_t set = std::uint64_t{1} << (SIGSEGV - 1) | std::uint64_t{1} << (SIGBUS - 1);
  raw::call(SYS_rt_sigprocmask, SIG_UNBLOCK, raw::arg(&set), 0, sizeof set);
  faults_unblocked = true;
}

KernelEntry::KernelEntry() : errno_(errno) {
  unblock_faults();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
}

KernelEntry::~KernelEntry() {
  int ignored;
  pthread_setcancelstate(cancel_, &ignored);
  errno = errno_;
}

}  // namespace uhca::sys
