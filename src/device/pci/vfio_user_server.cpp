// SPDX-License-Identifier: MIT
#include "device/pci/vfio_user_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/inside.h"
#include "base/log.h"
#include "base/trace.h"

namespace uhca::pci::vfio_user {
namespace {

// A client that rings and rings must not keep frames and timers waiting.
constexpr unsigned kMessagesPerTurn = 64;
constexpr unsigned kDrivesPerTurn = 64;
constexpr Nanos kAcceptPause = 100'000'000;

}  // namespace

Server::~Server() {
  if (client_ != nullptr) drop_client();
  if (listen_ >= 0) {
    close(listen_);
    unlink(path_.c_str());
  }
  if (epoll_ >= 0) close(epoll_);
}

Status Server::watch(int fd, std::uint32_t events) {
  epoll_event e{};
  e.events = events;
  e.data.fd = fd;
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e) == 0 ? success() : Status(Errno{errno});
}

Status Server::listen(const std::string& path) {
  sockaddr_un sa{};
  sa.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof sa.sun_path)
    return refuse(ENAMETOOLONG, "socket '{}': at most {} bytes", path, sizeof sa.sun_path - 1);
  std::memcpy(sa.sun_path, path.data(), path.size());
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (epoll_ < 0 || fd < 0) return Errno{errno};
  auto* addr = reinterpret_cast<sockaddr*>(&sa);
  int err = bind(fd, addr, sizeof sa) == 0 ? 0 : errno;
  if (err == EADDRINUSE) {
    struct stat st;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool stale = lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode) && connect(probe, addr, sizeof sa) != 0 && errno == ECONNREFUSED;
    close(probe);
    if (stale && unlink(path.c_str()) == 0) err = bind(fd, addr, sizeof sa) == 0 ? 0 : errno;
  }
  if (err == 0 && ::listen(fd, 16) != 0) err = errno;
  if (err != 0) {
    close(fd);
    return Errno{err};
  }
  path_ = path;
  listen_ = fd;
  UHCA_CHECK(watch(listen_, EPOLLIN));
  if (port_.wait_fd() >= 0) UHCA_CHECK(watch(port_.wait_fd(), EPOLLIN));
  return success();
}

// Looks at the socket from now on.
void Server::resume_accepting() {
  accept_again_ = kNever;
  if (Status s = watch(listen_, EPOLLIN); !s.ok()) accept_later(s.code());
}

// The socket stays readable while a client waits: it is left alone until whatever ran out may be there again.
void Server::accept_later(int error) {
  log::warn("cannot accept vfio-user clients: {}; trying again later", strerrordesc_np(error));
  epoll_ctl(epoll_, EPOLL_CTL_DEL, listen_, nullptr);
  accept_again_ = SystemClock::instance().now() + kAcceptPause;
}

void Server::accept_client() {
  int fd = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) accept_later(errno);
    return;
  }
  client_ = std::make_unique<Channel>(fd);
  client_wants_out_ = false;
  if (Status s = watch(fd, EPOLLIN); !s.ok()) {
    log::error("vfio-user client: {}", strerrordesc_np(s.code()));
    client_.reset();
    return;
  }
  epoll_ctl(epoll_, EPOLL_CTL_DEL, listen_, nullptr);  // one at a time
  if (trace::on()) trace::Event("pci", "CONNECT");
}

void Server::drop_client() {
  if (trace::on()) trace::Event("pci", "DISCONNECT");
  client_.reset();  // closing takes it out of the epoll set
  backlog_ = false;
  device_.disconnect();
  resume_accepting();
}

void Server::update_client_interest() {
  bool out = client_->blocked();
  if (out == client_wants_out_) return;
  client_wants_out_ = out;
  epoll_event e{};
  e.events = out ? EPOLLOUT : EPOLLIN;
  e.data.fd = client_->fd();
  epoll_ctl(epoll_, EPOLL_CTL_MOD, client_->fd(), &e);
}

void Server::serve_client() {
  if (client_->blocked() && !client_->flush().ok()) {
    drop_client();
    return;
  }
  backlog_ = false;
  for (unsigned i = 0;; ++i) {
    if (i == kMessagesPerTurn) {
      backlog_ = true;
      break;
    }
    Message m;
    Result<bool> got = client_->next(m);
    if (!got.ok()) {
      drop_client();
      return;
    }
    if (!*got) break;
    Device::Reply reply;
    Status s = device_.handle(m, reply);
    Status sent = success();
    bool command = (m.header.flags & kTypeMask) == kTypeCommand;
    if (command && !(m.header.flags & kFlagNoReply)) {
      Header h{m.header.id, m.header.command, static_cast<std::uint32_t>(sizeof(Header) + reply.payload.size()),
               kTypeReply | (reply.error != 0 ? kFlagError : 0), static_cast<std::uint32_t>(reply.error)};
      sent = client_->send(h, reply.payload);
    }
    // Doorbells: what they started goes on its way before the next message is looked at.
    engine_.drive(false);
    device_.deliver_interrupts();
    if (!s.ok() || !sent.ok()) {
      drop_client();
      return;
    }
  }
  update_client_interest();
}

bool Server::work() {
  bool did = false;
  for (unsigned i = 0; i < kDrivesPerTurn; ++i) {
    did = engine_.drive(true);
    device_.deliver_interrupts();
    if (!did) break;
  }
  return did;
}

Status Server::run(int stop_fd) {
  inside::Guard guard;
  const SystemClock& clock = SystemClock::instance();
  UHCA_CHECK(watch(stop_fd, EPOLLIN));
  for (;;) {
    if (backlog_) serve_client();
    if (accept_again_ <= clock.now()) resume_accepting();
    Nanos deadline = std::min(port_.service(clock.now()), accept_again_);
    device_.give_up_waiting(clock.now());
    work();
    // Whoever sends from now on wakes us; what came before it could know is looked at here.
    port_.set_asleep(true);
    bool more = work() || backlog_;
    deadline = std::min({deadline, engine_.next_deadline(), device_.waits_until()});
    Nanos now = clock.now();
    Nanos left = more || deadline <= now ? 0 : deadline - now;
    timespec ts{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    epoll_event events[4];
    int n = epoll_pwait2(epoll_, events, 4, !more && deadline == kNever ? nullptr : &ts, nullptr);
    if (n < 0 && errno != EINTR) return Errno{errno};
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == stop_fd) return success();
      if (events[i].data.fd == listen_ && client_ == nullptr) {
        accept_client();
      } else if (client_ != nullptr && events[i].data.fd == client_->fd()) {
        serve_client();
      }
    }
  }
  return success();
}

}  // namespace uhca::pci::vfio_user
