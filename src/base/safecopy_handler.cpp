// SPDX-License-Identifier: MIT
#include <ucontext.h>

#include <csignal>

#include "base/safecopy.h"

namespace uhca::safecopy {
namespace {

void on_fault(int sig, siginfo_t* info, void* context) {
  auto* uc = static_cast<ucontext_t*>(context);
  if (info->si_code > 0) {
    if (auto to = fixup(static_cast<std::uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]))) {
      uc->uc_mcontext.gregs[REG_RIP] = static_cast<greg_t>(to);
      return;
    }
  }
  signal(sig, SIG_DFL);  // the instruction faults again
  if (info->si_code <= 0) raise(sig);
}

}  // namespace

void install_handler() {
  struct sigaction a {};
  a.sa_sigaction = on_fault;
  a.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &a, nullptr);
  sigaction(SIGBUS, &a, nullptr);
  set_handler_ready(true);
}

}  // namespace uhca::safecopy
