// SPDX-License-Identifier: MIT
// Reads of fields that are undefined, by the debug registers: a breakpoint on data makes the kernel send SIGTRAP behind the instruction.
// Where perf_event_open is not permitted, the fields are only poisoned, and that is told.
#include <fmt/format.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "check/state.h"

#ifndef TRAP_PERF
#define TRAP_PERF 6  // Linux uapi asm-generic/siginfo.h
#endif

namespace uhca::check {
namespace {

struct Watched {
  int fd = -1, before_fd = -1;              // the field, the defined one in front of it
  std::uint64_t hits = 0, before_hits = 0;  // when we last looked
  const volatile std::uint32_t *at = nullptr, *before = nullptr;
  std::uint32_t was = 0;
  const char* name = nullptr;
};
constexpr int kFields = 2;  // there are four debug registers
thread_local Watched watched[kFields] __attribute__((tls_model("initial-exec")));
thread_local int status __attribute__((tls_model("initial-exec"))) = 0;
thread_local Site polled __attribute__((tls_model("initial-exec")));
struct sigaction before;

void forget(Watched& w) {
  if (w.fd >= 0) close(w.fd);
  if (w.before_fd >= 0) close(w.before_fd);
  w.fd = w.before_fd = -1;
}

int breakpoint(const void* at) {
  perf_event_attr a;
  std::memset(&a, 0, sizeof a);
  a.type = PERF_TYPE_BREAKPOINT;
  a.size = sizeof a;
  a.bp_type = HW_BREAKPOINT_RW;  // there is none for reads alone
  a.bp_addr = reinterpret_cast<std::uintptr_t>(at);
  a.bp_len = HW_BREAKPOINT_LEN_4;
  a.sample_period = 1;
  a.exclude_kernel = 1;
  a.exclude_hv = 1;
  a.sigtrap = 1;
  a.remove_on_exec = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

// False and errno: it is not permitted.
bool arm(Watched& w) {
  w.hits = w.before_hits = 0;
  w.fd = breakpoint(const_cast<const std::uint32_t*>(w.at));
  if (w.fd >= 0) w.before_fd = breakpoint(const_cast<const std::uint32_t*>(w.before));
  if (w.before_fd >= 0) return true;
  const int refused = errno;
  forget(w);
  errno = refused;
  return false;
}

// Whether it was hit since we last looked.
bool moved(int fd, std::uint64_t* hits) {
  std::uint64_t now = *hits;
  if (read(fd, &now, sizeof now) != sizeof now || now == *hits) return false;
  *hits = now;
  return true;
}

void trapped(int number, siginfo_t* info, void* context) {
  if (info->si_code != TRAP_PERF) {
    if (before.sa_flags & SA_SIGINFO)
      before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL)
      signal(SIGTRAP, SIG_DFL), raise(SIGTRAP);
    else if (before.sa_handler != SIG_IGN)
      before.sa_handler(number);
    return;
  }
  if (Inside::active()) return;
  Inside inside;
  for (Watched& w : watched) {
    if (w.fd < 0) continue;
    const bool field = moved(w.fd, &w.hits), in_front = moved(w.before_fd, &w.before_hits);
    if (!field) continue;
    forget(w);                     // before we look ourselves
    if (*w.at != w.was) continue;  // written: the program has put the memory to another use
    if (in_front) {
      arm(w);  // that was a copy
      continue;
    }
    Site site = here();
    // Without the frames of the signal's delivery.
    void* const at = reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    if (auto* first = std::find(site.frames, site.frames + site.depth, at); first != site.frames + site.depth) {
      std::copy(first, site.frames + site.depth, site.frames);
      site.depth -= static_cast<int>(first - site.frames);
    }
    found("error-field",
          fmt::format("{} of a completion with status {} is read (here it is poisoned): defined are wr_id, status, qp_num and vendor_err",
                      w.name, status),
          {{"read at", &site}, {"polled at", &polled}});
  }
}

void install() {
  struct sigaction a {};
  a.sa_sigaction = trapped;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigaction(SIGTRAP, &a, &before);
}

}  // namespace

void unwatch() {
  for (Watched& w : watched) forget(w);
}

void watch_fields(ibv_wc* wc, const Site& site) {
  static std::once_flag once;
  std::call_once(once, install);
  unwatch();
  status = wc->status;
  polled = site;
  const struct {
    const void *at, *before;
    const char* name;
  } fields[kFields] = {{&wc->opcode, &wc->status, "opcode"}, {&wc->byte_len, &wc->vendor_err, "byte_len"}};
  int refused = 0;
  for (int i = 0; i < kFields; ++i) {
    Watched& w = watched[i];
    w.at = static_cast<const std::uint32_t*>(fields[i].at);
    w.before = static_cast<const std::uint32_t*>(fields[i].before);
    w.was = *w.at;
    w.name = fields[i].name;
    if (!arm(w) && !refused) refused = errno;
  }
  if (watched[0].fd < 0)
    found("note",
          fmt::format("reads of undefined fields of failed completions are not seen here, only poisoned (perf_event_open: {})",
                      strerrordesc_np(refused)),
          {{"polled at", &site}});
}

}  // namespace uhca::check
