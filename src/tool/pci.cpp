// SPDX-License-Identifier: MIT
// The HCA as a PCI device of a virtual machine.
#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "device/pci/vfio_user.h"
#include "tool/commands.h"

namespace uhca::tool {
namespace {

// A child that prints the events which this process writes into a pipe; it ends with the pipe. 0: no child (a message was printed).
pid_t start_printer(const PciOptions& options) {
  std::FILE* out = stderr;
  if (!options.output.empty() && !(out = std::fopen(options.output.c_str(), "we"))) {
    std::fprintf(stderr, "uhca: %s: %s\n", options.output.c_str(), std::strerror(errno));
    return 0;
  }
  int p[2];
  if (pipe2(p, O_CLOEXEC) != 0) {
    std::perror("uhca: pipe");
    return 0;
  }
  fcntl(p[0], F_SETPIPE_SZ, 1 << 20);
  pid_t child = fork();
  if (child < 0) {
    std::perror("uhca: fork");
    return 0;
  }
  if (child == 0) {
    close(p[1]);
    print_trace(p[0], options.format, out);
    std::fclose(out);
    std::_Exit(0);
  }
  close(p[0]);
  if (out != stderr) std::fclose(out);
  trace::set_fd(p[1]);
  return child;
}

}  // namespace

int pci(const PciOptions& options) {
  // The printer outlives the signals too: it prints what the server does when it ends.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  int stop = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (stop < 0) {
    std::perror("uhca: signalfd");
    return 1;
  }
  pid_t printer = 0;
  if (options.trace && (printer = start_printer(options)) == 0) return 1;

  int status = 1;
  auto served = pci::serve_hca({.socket = options.socket, .netdev = options.netdev, .write_combining = options.write_combining});
  if (!served.ok()) {
    std::fprintf(stderr, "uhca: %s: %s\n", options.socket.c_str(), std::strerror(served.code()));
  } else {
    std::fprintf(stderr, "uhca: listening at %s, %s\n", options.socket.c_str(), (*served)->description().c_str());
    Status s = (*served)->run(stop);
    if (s.ok()) status = 0;
    if (!s.ok()) std::fprintf(stderr, "uhca: %s\n", std::strerror(s.code()));
    served->reset();
  }
  if (printer != 0) {
    close(trace::fd());
    trace::set_fd(-1);
    waitpid(printer, nullptr, 0);
  }
  return status;
}

}  // namespace uhca::tool
