// SPDX-License-Identifier: MIT
#include "wire/net/inspect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "wire/net/link_socket.h"
#include "wire/net/question.h"

namespace uhca::wire {
namespace {

Result<std::string> read_report(int memfd) {
  // Memory: another file could keep the reader waiting.
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Errno{EPROTO};
  struct stat st {};
  if (fstat(memfd, &st) != 0 || st.st_size <= 0 || st.st_size > kLongestReport) return Errno{EPROTO};
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  return pread(memfd, text.data(), text.size(), 0) == st.st_size ? Result<std::string>(std::move(text)) : Errno{EPROTO};
}

Result<std::string> ask(int s, unsigned slot, int milliseconds, pid_t* pid, const std::string& prefix) {
  SlotName name(prefix, slot);
  if (connect(s, name.get(), name.length) != 0) return Errno{errno};
  ucred owner{};
  socklen_t size = sizeof owner;
  if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &owner, &size) == 0) *pid = owner.pid;
  const Question question;
  if (syscall(SYS_sendto, s, &question, sizeof question, MSG_NOSIGNAL, nullptr, 0) != sizeof question) return Errno{errno};
  pollfd p{s, POLLIN, 0};
  if (poll(&p, 1, milliseconds) != 1) return Errno{ETIMEDOUT};
  Answer answer;
  int memfd = -1;
  unsigned fds = 0;
  long n = receive_with_fd(s, &answer, sizeof answer, &memfd, &fds);
  Result<std::string> text = Errno{EAGAIN};
  if (n != sizeof answer)
    text = Errno{n == 0 ? EACCES : EPROTO};  // 0: it hung up
  else if (fds == 1)
    text = read_report(memfd);
  if (memfd >= 0) ::close(memfd);
  return text;
}

}  // namespace

Result<std::string> ask_function(unsigned slot, int milliseconds, pid_t* pid, const std::string& prefix) {
  *pid = 0;
  int s = seqpacket();
  if (s < 0) return Errno{errno};
  auto text = ask(s, slot, milliseconds, pid, prefix);
  fd::close(s);
  return text;
}

void answer_question(int socket, const std::string& report) {
  const Answer answer;
  if (!report.empty() && report.size() <= kLongestReport) {
    auto memfd = fd::sealed_memfd("uhca-report", report.size());
    if (memfd.ok() && pwrite(*memfd, report.data(), report.size(), 0) == static_cast<ssize_t>(report.size())) {
      send_with_fd(socket, &answer, sizeof answer, *memfd);
      fd::close(*memfd);
      return;
    }
    if (memfd.ok()) fd::close(*memfd);
  }
  syscall(SYS_sendto, socket, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL, nullptr, 0);
}

}  // namespace uhca::wire
