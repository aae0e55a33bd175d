// SPDX-License-Identifier: MIT
// Once active, the kernel holds a trampoline wherever the program has a handler, and the fault handler for SIGSEGV and SIGBUS; what
// the program asked for is in a table, from which sigaction answers.
//
// A signal that arrives inside our floors is kept: all signals of the thread are blocked (in the interrupted context's mask), and
// when the outermost Guard ends it is queued to the thread again and the mask restored. One slot a thread is enough, since
// nothing further arrives meanwhile; the order of delivery is the kernel's.
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "base/inside.h"
#include "base/safecopy.h"
#include "kernel/gpu/cpu_views.h"
#include "kernel/sys/instance.h"
#include "kernel/sys/io_map.h"
#include "kernel/sys/next.h"
#include "kernel/sys/raw.h"
#include "kernel/sys/signals.h"

namespace uhca::sys {
namespace {

UHCA_NEXT(sigaction, int(int, const struct sigaction*, struct sigaction*));
UHCA_NEXT(signal, sighandler_t(int, sighandler_t));
UHCA_NEXT(sysv_signal, sighandler_t(int, sighandler_t));
UHCA_NEXT(sigset, sighandler_t(int, sighandler_t));
UHCA_NEXT(sigignore, int(int));
UHCA_NEXT(sigprocmask, int(int, const sigset_t*, sigset_t*));
UHCA_NEXT(pthread_sigmask, int(int, const sigset_t*, sigset_t*));

constexpr int kSignals = 65;
constexpr std::uint64_t bit(int sig) {
  return std::uint64_t{1} << (sig - 1);
}
constexpr std::uint64_t kFaults = bit(SIGSEGV) | bit(SIGBUS);
// The C library's own (cancellation, setuid of all threads): never held back.
constexpr std::uint64_t kLibc = bit(32) | bit(33);

// A slot is read by handlers at any moment: a sequence count tells a torn read. Writers block signals and hold the lock.
struct Slot {
  std::atomic<unsigned> version{0};
  std::atomic<void*> handler{nullptr};  // SIG_DFL
  std::atomic<int> flags{0};
  std::atomic<std::uint64_t> mask{0};
};
constinit Slot table[kSignals]{};
constinit std::atomic<bool> active{false};
constinit std::atomic_flag lock = ATOMIC_FLAG_INIT;

struct Deferred {
  int sig;
  siginfo_t info;
  std::uint64_t mask;  // of the interrupted context
};
thread_local Deferred deferred __attribute__((tls_model("initial-exec")));

std::uint64_t bits_of(const sigset_t& s) {
  std::uint64_t v;
  std::memcpy(&v, &s, sizeof v);
  return v;
}
void set_bits(sigset_t* s, std::uint64_t v) {
  std::memcpy(s, &v, sizeof v);
}

class Locked {
 public:
  Locked() {
    std::uint64_t all = ~std::uint64_t{0};
    raw::call(SYS_rt_sigprocmask, SIG_SETMASK, raw::arg(&all), raw::arg(&old_), sizeof all);
    while (lock.test_and_set(std::memory_order_acquire)) raw::call(SYS_sched_yield);
  }
  ~Locked() {
    lock.clear(std::memory_order_release);
    raw::call(SYS_rt_sigprocmask, SIG_SETMASK, raw::arg(&old_), 0, sizeof old_);
  }

 private:
  std::uint64_t old_ = 0;
};

struct Action {
  void* handler;
  int flags;
  std::uint64_t mask;
};

Action load(int sig) {
  const Slot& s = table[sig];
  while (true) {
    unsigned v = s.version.load(std::memory_order_acquire);
    Action a{s.handler.load(std::memory_order_relaxed), s.flags.load(std::memory_order_relaxed), s.mask.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (!(v & 1) && s.version.load(std::memory_order_relaxed) == v) return a;
  }
}

void store(int sig, const Action& a) {
  Slot& s = table[sig];
  s.version.fetch_add(1, std::memory_order_acq_rel);
  s.handler.store(a.handler, std::memory_order_relaxed);
  s.flags.store(a.flags, std::memory_order_relaxed);
  s.mask.store(a.mask, std::memory_order_relaxed);
  s.version.fetch_add(1, std::memory_order_release);
}

void* const kDefault = reinterpret_cast<void*>(SIG_DFL);
void* const kIgnore = reinterpret_cast<void*>(SIG_IGN);

bool is_fault_signal(int sig) {
  return sig == SIGSEGV || sig == SIGBUS;
}
// Raised by the instruction that was interrupted; holding it back would only raise it again.
bool synchronous(int sig, const siginfo_t* info) {
  return info->si_code > 0 && (is_fault_signal(sig) || sig == SIGILL || sig == SIGFPE || sig == SIGTRAP || sig == SIGSYS);
}

void queue_to_self(int sig, siginfo_t* info) {
  long pid = raw::call(SYS_getpid), tid = raw::call(SYS_gettid);
  if (raw::call(SYS_rt_tgsigqueueinfo, pid, tid, sig, raw::arg(info)) < 0) raw::call(SYS_tgkill, pid, tid, sig);
}

void defer(int sig, const siginfo_t* info, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  deferred.sig = sig;
  deferred.info = *info;
  deferred.mask = bits_of(uc->uc_sigmask);
  set_bits(&uc->uc_sigmask, ~(kFaults | kLibc | bit(SIGILL) | bit(SIGFPE) | bit(SIGTRAP)));
  inside::state.deferred = 1;
}

// With depth 0, on the thread that deferred.
void raise_deferred() {
  int saved = errno;
  Deferred d = deferred;
  inside::state.deferred = 0;
  queue_to_self(d.sig, &d.info);
  raw::call(SYS_rt_sigprocmask, SIG_SETMASK, raw::arg(&d.mask), 0, sizeof d.mask);
  errno = saved;
}

void to_default(int sig) {
  struct sigaction dfl {};
  next_sigaction(sig, &dfl, nullptr);
}

void run(int sig, siginfo_t* info, void* context) {
  Action a = load(sig);
  if (a.handler == kIgnore) return;
  if (a.handler == kDefault) {
    // Changed while the signal was under way.
    to_default(sig);
    queue_to_self(sig, info);
    return;
  }
  if (a.flags & SA_RESETHAND) {
    store(sig, {kDefault, 0, 0});
    if (!is_fault_signal(sig)) to_default(sig);
  }
  if (a.flags & SA_SIGINFO)
    reinterpret_cast<void (*)(int, siginfo_t*, void*)>(a.handler)(sig, info, context);
  else
    reinterpret_cast<void (*)(int)>(a.handler)(sig);
}

void trampoline(int sig, siginfo_t* info, void* context) {
  if (inside::active() && !synchronous(sig, info)) return defer(sig, info, context);
  run(sig, info, context);
}

void fault(int sig, siginfo_t* info, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  if (info->si_code > 0) {
    if (auto to = safecopy::fixup(static_cast<std::uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]))) {
      uc->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(to);
      return;
    }
    if (io_map_fault(*info, context)) return;
    if (kernel::gpu::views_fault(reinterpret_cast<std::uintptr_t>(info->si_addr))) return;
  } else if (inside::active()) {
    return defer(sig, info, context);
  }
  Action a = load(sig);
  if (a.handler == kDefault || (a.handler == kIgnore && info->si_code > 0)) {
    // As without us: the instruction faults again, or the signal that someone sent is delivered again, and ends the process.
    to_default(sig);
    if (info->si_code <= 0) queue_to_self(sig, info);
    return;
  }
  run(sig, info, context);
}

// What the kernel gets for what the program asked.
struct sigaction kernel_action(int sig, const Action& a) {
  struct sigaction k {};
  set_bits(&k.sa_mask, a.mask & ~kFaults);
  if (is_fault_signal(sig)) {
    k.sa_sigaction = fault;
    // Never blocked, not even while it runs: the program's handler may leave by longjmp.
    k.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | (a.flags & SA_RESTART);
  } else if (a.handler == kDefault || a.handler == kIgnore) {
    k.sa_handler = reinterpret_cast<sighandler_t>(a.handler);
    k.sa_flags = a.flags;
  } else {
    k.sa_sigaction = trampoline;
    k.sa_flags = (a.flags | SA_SIGINFO) & ~SA_RESETHAND;
  }
  return k;
}

bool ours(const struct sigaction& k) {
  return (k.sa_flags & SA_SIGINFO) && (k.sa_sigaction == trampoline || k.sa_sigaction == fault);
}

void give(const Action& a, struct sigaction* out) {
  *out = {};
  out->sa_handler = reinterpret_cast<sighandler_t>(a.handler);
  out->sa_flags = a.flags;
  set_bits(&out->sa_mask, a.mask);
}

int set_action(int sig, const struct sigaction* act, struct sigaction* old) {
  if (!active.load(std::memory_order_acquire) || sig <= 0 || sig >= kSignals || sig == SIGKILL || sig == SIGSTOP)
    return next_sigaction(sig, act, old);
  if (!own_process()) {
    // A vfork child: its dispositions are its own, the table is its parent's.
    int r = next_sigaction(sig, act, old);
    if (r == 0 && old && ours(*old)) give(load(sig), old);
    return r;
  }
  Action before = load(sig);
  if (act) {
    Action a{reinterpret_cast<void*>(act->sa_handler), act->sa_flags, bits_of(act->sa_mask)};
    struct sigaction k = kernel_action(sig, a);
    Locked locked;
    before = load(sig);
    store(sig, a);
    if (int r = next_sigaction(sig, &k, nullptr); r != 0) {
      store(sig, before);
      return r;
    }
  } else {
    // Also asks the C library whether it lets this number through.
    struct sigaction now {};
    if (int r = next_sigaction(sig, nullptr, old ? &now : nullptr); r != 0) return r;
  }
  if (old) give(before, old);
  return 0;
}

sighandler_t set_handler(int sig, sighandler_t handler, int flags, bool mask_itself) {
  struct sigaction act {
  }, old{};
  act.sa_handler = handler;
  act.sa_flags = flags;
  if (mask_itself && sig > 0 && sig < kSignals) set_bits(&act.sa_mask, bit(sig));
  if (set_action(sig, &act, &old) != 0) return SIG_ERR;
  return old.sa_handler;
}

template <class N>
int mask(const N& next, int how, const sigset_t* set, sigset_t* old) {
  if (!active.load(std::memory_order_relaxed) || !set || how == SIG_UNBLOCK) return next(how, set, old);
  sigset_t without = *set;
  set_bits(&without, bits_of(without) & ~kFaults);
  return next(how, &without, old);
}

}  // namespace

void signals_activate() {
  if (active.load()) return;
  inside::raise_deferred.store(raise_deferred);
  Locked locked;
  for (int sig = 1; sig < kSignals; ++sig) {
    struct sigaction now {};
    if (sig == SIGKILL || sig == SIGSTOP || next_sigaction(sig, nullptr, &now) != 0) continue;
    Action a{reinterpret_cast<void*>(now.sa_handler), now.sa_flags, bits_of(now.sa_mask)};
    store(sig, a);
    if (!is_fault_signal(sig) && (a.handler == kDefault || a.handler == kIgnore)) continue;
    struct sigaction k = kernel_action(sig, a);
    next_sigaction(sig, &k, nullptr);
  }
  active.store(true, std::memory_order_release);
}

}  // namespace uhca::sys

using namespace uhca;
using namespace uhca::sys;

UHCA_EXPORT int sigaction(int sig, const struct sigaction* act, struct sigaction* old) noexcept {
  return set_action(sig, act, old);
}
UHCA_EXPORT sighandler_t signal(int sig, sighandler_t handler) noexcept {
  if (!active.load()) return next_signal(sig, handler);
  return set_handler(sig, handler, SA_RESTART, true);
}
UHCA_EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler) noexcept {
  if (!active.load()) return next_signal(sig, handler);
  return set_handler(sig, handler, SA_RESTART, true);
}
UHCA_EXPORT sighandler_t ssignal(int sig, sighandler_t handler) noexcept {
  if (!active.load()) return next_signal(sig, handler);
  return set_handler(sig, handler, SA_RESTART, true);
}
UHCA_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler) noexcept {
  if (!active.load()) return next_sysv_signal(sig, handler);
  return set_handler(sig, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER), false);
}
UHCA_EXPORT sighandler_t __sysv_signal(int sig, sighandler_t handler) noexcept {
  if (!active.load()) return next_sysv_signal(sig, handler);
  return set_handler(sig, handler, static_cast<int>(SA_RESETHAND | SA_NODEFER), false);
}
UHCA_EXPORT sighandler_t sigset(int sig, sighandler_t handler) noexcept {
  // SIG_HOLD changes the mask only; for the rest libc would set the disposition behind our back.
  if (!active.load() || handler == reinterpret_cast<sighandler_t>(2)) return next_sigset(sig, handler);
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, sig);
  sighandler_t old = set_handler(sig, handler, 0, false);
  if (old == SIG_ERR) return old;
  next_sigprocmask(SIG_UNBLOCK, &one, &before);
  return sigismember(&before, sig) == 1 ? reinterpret_cast<sighandler_t>(2) : old;
}
UHCA_EXPORT int sigignore(int sig) noexcept {
  if (!active.load()) return next_sigignore(sig);
  return set_handler(sig, SIG_IGN, 0, false) == SIG_ERR ? -1 : 0;
}
UHCA_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return mask(next_sigprocmask, how, set, old);
}
UHCA_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return mask(next_pthread_sigmask, how, set, old);
}
