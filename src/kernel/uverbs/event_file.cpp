// SPDX-License-Identifier: MIT
#include "kernel/uverbs/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/ib_user_verbs.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fd.h"
#include "base/inside.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "kernel/uverbs/file.h"
#include "kernel/uverbs/std_types.h"

namespace uhca::kernel {
namespace {

constexpr std::size_t kSigsetBytes = 8;  // the kernel's sigset_t

struct ErrnoKeeper {
  int saved = errno;
  ~ErrnoKeeper() { errno = saved; }
};

// All live event files by inode, and the thread that refills full pipes.
struct Files {
  std::mutex lock;
  std::vector<std::weak_ptr<EventFile>> all;
  std::vector<std::weak_ptr<EventFile>> waiting;  // have a backlog
  int wake = -1;
  pid_t thread_pid = 0;
};
Files& files() {
  static Files& f = *new Files;
  return f;
}

std::uint64_t inode_of(int fd) {
  struct stat st;
  if (syscall(SYS_fstat, fd, &st) != 0 || !S_ISFIFO(st.st_mode)) return 0;
  return st.st_ino;
}

void* refill_thread(void*) {
  Files& f = files();
  std::vector<std::shared_ptr<EventFile>> mine;
  std::vector<pollfd> polls;
  for (;;) {
    polls.assign(1, pollfd{f.wake, POLLIN, 0});
    for (auto& m : mine) polls.push_back({m->write_fd(), POLLOUT, 0});
    syscall(SYS_poll, polls.data(), polls.size(), -1);
    if (polls[0].revents) {
      std::uint64_t n;
      [[maybe_unused]] long r = syscall(SYS_read, f.wake, &n, sizeof n);
      std::lock_guard g(f.lock);
      for (auto& w : f.waiting) {
        auto p = w.lock();
        if (p && std::find(mine.begin(), mine.end(), p) == mine.end()) mine.push_back(std::move(p));
      }
      f.waiting.clear();
    }
    inside::Guard guard;
    mine.erase(std::remove_if(mine.begin(), mine.end(), [](auto& m) { return !m->refill(); }), mine.end());
  }
  return nullptr;
}

void want_refill(std::weak_ptr<EventFile> file) {
  Files& f = files();
  std::lock_guard g(f.lock);
  f.waiting.push_back(std::move(file));
  pid_t me = static_cast<pid_t>(syscall(SYS_getpid));
  if (f.thread_pid != me) {
    f.wake = fd::adopt(static_cast<int>(syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK)));
    if (int err = f.wake < 0 ? EMFILE : start_thread(refill_thread, nullptr)) {
      log::error("event file: no thread to refill a full channel ({}); its events wait for the next event", err);
      return;
    }
    f.thread_pid = me;
  }
  std::uint64_t one = 1;
  [[maybe_unused]] long r = syscall(SYS_write, f.wake, &one, sizeof one);
}

}  // namespace

Result<std::shared_ptr<EventFile>> EventFile::create(Kind kind, int* read_fd) {
  return create_pipe(kind, O_DIRECT, read_fd);
}

Result<std::shared_ptr<EventFile>> EventFile::create_messages(int short_read, int* read_fd) {
  auto f = UHCA_TRY(create_pipe(Kind::kMessages, 0, read_fd));
  f->short_read_ = short_read;
  return f;
}

Result<std::shared_ptr<EventFile>> EventFile::create_pipe(Kind kind, int extra_flags, int* read_fd) {
  int p[2];
  if (syscall(SYS_pipe2, p, extra_flags | O_CLOEXEC) != 0) return refuse(errno, "event file: no pipe");
  std::uint64_t ino = inode_of(p[0]);
  int w = fd::adopt(p[1]);
  syscall(SYS_fcntl, w, F_SETFL, O_WRONLY | extra_flags | O_NONBLOCK);
  std::shared_ptr<EventFile> f(new EventFile(kind, w, ino));
  Files& reg = files();
  std::lock_guard g(reg.lock);
  reg.all.erase(std::remove_if(reg.all.begin(), reg.all.end(), [](auto& x) { return x.expired(); }), reg.all.end());
  reg.all.push_back(f);
  *read_fd = p[0];
  return f;
}

EventFile::~EventFile() {
  fd::close(wfd_);
}

std::shared_ptr<EventFile> EventFile::of_fd(int fd) {
  inside::Guard guard;  // a signal handler that reads or polls must not come back here with the lock held
  std::uint64_t ino = inode_of(fd);
  if (!ino) return nullptr;
  Files& reg = files();
  std::lock_guard g(reg.lock);
  for (auto& w : reg.all)
    if (auto f = w.lock(); f && f->inode_ == ino) return f;
  return nullptr;
}

int EventFile::write_one(const Event& e) {
  ::ib_uverbs_async_event_desc d{};
  d.element = e.element;
  d.event_type = e.type;
  int r = write_pipe(&d, event_size());
  if (r == 1) ring_[ring_head_++ % kRing] = e.src;
  return r;
}

int EventFile::write_pipe(const void* bytes, std::size_t count) {
  ErrnoKeeper keep;
  // A closed read end raises SIGPIPE in this thread, which may be the program's: hold it back and take it away.
  std::uint64_t pipe_bit = std::uint64_t{1} << (SIGPIPE - 1), old = 0, pending = 0;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &pipe_bit, &old, kSigsetBytes);
  syscall(SYS_rt_sigpending, &pending, kSigsetBytes);
  long n = syscall(SYS_write, wfd_.load(), bytes, count);
  int err = n < 0 ? errno : 0;
  if (err == EPIPE && !(pending & pipe_bit)) {
    timespec zero{};
    syscall(SYS_rt_sigtimedwait, &pipe_bit, nullptr, &zero, kSigsetBytes);
  }
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, nullptr, kSigsetBytes);
  if (err == EAGAIN) return 0;
  return n < 0 ? -1 : 1;
}

void EventFile::post(EventSource* src, std::uint64_t element, std::uint32_t event_type) {
  inside::Guard guard;  // a signal handler that posts must not come back here with the lock held
  bool full = false;
  {
    std::lock_guard g(lock_);
    if (closed_) return;
    Event e{src, element, event_type};
    int r = backlog_.empty() ? write_one(e) : 0;
    if (r < 0) return;
    if (src) ++src->posted;
    if (r == 0) {
      full = backlog_.empty();
      backlog_.push_back(e);
    }
  }
  if (trace::on())
    trace::Event("wake", kind_ == Kind::kCompletion ? "comp_channel" : "async_file").hex("element", element).unum("event_type", event_type);
  if (full) {
    Files& reg = files();
    std::weak_ptr<EventFile> self;
    {
      std::lock_guard g(reg.lock);
      for (auto& w : reg.all)
        if (auto f = w.lock(); f.get() == this) self = w;
    }
    want_refill(std::move(self));
  }
}

void EventFile::move_backlog() {
  while (!backlog_.empty()) {
    int r = write_one(backlog_.front());
    if (r == 0) return;
    if (r < 0) {
      backlog_.clear();
      return;
    }
    backlog_.pop_front();
  }
}

bool EventFile::refill() {
  std::lock_guard g(lock_);
  if (closed_) return false;
  move_backlog();
  return !backlog_.empty();
}

unsigned EventFile::drain(Event (&out)[kRing]) {
  ErrnoKeeper keep;
  char path[40];
  *fmt::format_to_n(path, sizeof path - 1, "/proc/self/fd/{}", wfd_.load()).out = 0;
  long r = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (r < 0) {
    log::error("event file: {} cannot be reopened; unread events count as read", path);
    return 0;
  }
  unsigned n = 0;
  ::ib_uverbs_async_event_desc d{};
  while (n < kRing) {
    if (syscall(SYS_read, r, &d, event_size()) <= 0) break;
    out[n].element = d.element;
    out[n].type = kind_ == Kind::kAsync ? d.event_type : 0;
    ++n;
  }
  syscall(SYS_close, r);
  // The newest n of those written are the ones that were still there.
  for (unsigned i = 0; i < n; ++i) out[i].src = ring_[(ring_head_ - n + i) % kRing];
  ring_head_ -= n;
  return n;
}

std::uint32_t EventFile::remove(EventSource* src) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  std::uint32_t unread = 0;
  for (auto it = backlog_.begin(); it != backlog_.end();) {
    if (it->src == src) {
      it = backlog_.erase(it);
      ++unread;
    } else {
      ++it;
    }
  }
  if (!closed_ && src->posted > unread) {
    Event old[kRing];
    unsigned n = drain(old);
    for (unsigned i = 0; i < n; ++i) {
      if (old[i].src == src) {
        ++unread;
      } else {
        write_one(old[i]);
      }
    }
    move_backlog();
  }
  for (EventSource*& s : ring_)
    if (s == src) s = nullptr;
  std::uint32_t reported = src->posted - unread;
  src->posted = 0;
  return reported;
}

void EventFile::close() {
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (closed_) return;
  closed_ = true;
  backlog_.clear();
  if (kind_ == Kind::kMessages) {
    // The bytes in the pipe may stay: their readers find no message.
    messages_.clear();
    unread_ = 0;
  } else {
    Event unread[kRing];
    drain(unread);
  }
  fd::close(wfd_);
  wfd_ = -1;
}

void EventFile::post(std::vector<std::byte> message, std::shared_ptr<std::atomic<bool>> until_read) {
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (closed_) return;
  const char token = 0;
  int r = write_pipe(&token, 1);
  if (r < 0) return;
  if (r == 0) {
    log::warn("event file: {} unread messages, one is dropped", messages_.size());
    overflow_ = true;
    if (until_read) until_read->store(false);  // this one will not be read: the next may come
    return;
  }
  unread_ += message.size() - std::min(message.size(), kMessageHead);
  messages_.push_back({std::move(message), std::move(until_read)});
}

std::size_t EventFile::unread_bytes() {
  inside::Guard guard;
  std::lock_guard g(lock_);
  return unread_;
}

Status EventFile::front_check(std::size_t n) {
  if (closed_) return refuse(EIO, "read from a message file whose device file is closed");
  if (overflow_) {
    overflow_ = false;
    return refuse(EOVERFLOW, "read: a message was dropped");
  }
  if (!messages_.empty() && messages_.front().bytes.size() > n)
    return refuse(short_read_, "read of {} bytes: the next message has {}", n, messages_.front().bytes.size());
  return success();
}

Result<std::size_t> EventFile::read_message(int fd, UserPtr buf, std::size_t n) {
  {
    inside::Guard guard;
    std::lock_guard g(lock_);
    UHCA_CHECK(front_check(n));
  }
  char token;
  long got = syscall(SYS_read, fd, &token, 1);
  if (got < 0) return Errno{errno};
  inside::Guard guard;
  std::lock_guard g(lock_);
  if (got == 0) return refuse(EIO, "read from a message file whose device file is closed");
  if (Status s = front_check(n); !s) {  // it came while this thread waited; it stays for the next read
    if (!closed_) write_pipe(&token, 1);
    return s.error();
  }
  if (messages_.empty()) return refuse(EIO, "read from a message file whose device file is closed");
  Message m = std::move(messages_.front());
  messages_.pop_front();
  unread_ -= m.bytes.size() - std::min(m.bytes.size(), kMessageHead);
  if (m.until_read) m.until_read->store(false);
  UHCA_CHECK(copy_to_user(buf, m.bytes.data(), m.bytes.size()));
  return m.bytes.size();
}

bool EventFile::reader_gone() const {
  ErrnoKeeper keep;
  pollfd p{wfd_.load(), 0, 0};
  return p.fd >= 0 && syscall(SYS_poll, &p, 1, 0) == 1 && (p.revents & POLLERR);
}

bool EventFile::closed() {
  inside::Guard guard;
  std::lock_guard g(lock_);
  return closed_;
}

bool uverbs_is_event_fd(int fd) {
  return EventFile::of_fd(fd) != nullptr;
}

void uverbs_forget_after_fork() {
  new (&files()) Files;
  forget_file_domains();
  forget_open_files();
}

bool uverbs_is_message_fd(int fd) {
  auto f = EventFile::of_fd(fd);
  return f && f->kind() == EventFile::Kind::kMessages;
}

Result<std::size_t> uverbs_message_read(int fd, UserPtr buf, std::size_t count) {
  auto f = EventFile::of_fd(fd);
  if (!f || f->kind() != EventFile::Kind::kMessages) return Errno{EBADF};
  return f->read_message(fd, buf, count);
}

Status uverbs_event_read_check(int fd, std::size_t count) {
  auto f = EventFile::of_fd(fd);
  if (!f) return Errno{EBADF};
  if (f->closed()) return refuse(EIO, "read from an event file whose device file is closed");
  if (count < f->event_size()) return refuse(EINVAL, "read of {} bytes from an event file: an event has {}", count, f->event_size());
  return success();
}

}  // namespace uhca::kernel
