// SPDX-License-Identifier: MIT
#include "device/pci/vfio_user_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace uhca::pci::vfio_user {

Fds& Fds::operator=(Fds&& o) noexcept {
  if (this != &o) {
    clear();
    fds_.swap(o.fds_);
  }
  return *this;
}

int Fds::take(std::size_t i) {
  return i < fds_.size() ? std::exchange(fds_[i], -1) : -1;
}

void Fds::clear() {
  for (int fd : fds_)
    if (fd >= 0) close(fd);
  fds_.clear();
}

Channel::Channel(int fd) : fd_(fd), in_(kMaxMessage) {}

Channel::~Channel() {
  close(fd_);
}

Result<bool> Channel::fill() {
  if (begin_ > 0) {
    std::memmove(in_.data(), in_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  iovec iov{in_.data() + end_, in_.size() - end_};
  msghdr h{};
  h.msg_iov = &iov;
  h.msg_iovlen = 1;
  h.msg_control = control;
  h.msg_controllen = sizeof control;
  ssize_t n;
  do n = recvmsg(fd_, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    return Errno{ECONNRESET};
  }
  Fds fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&h); c != nullptr; c = CMSG_NXTHDR(&h, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.add(fd);
    }
  }
  if (n == 0) return Errno{ECONNRESET};
  if (h.msg_flags & MSG_CTRUNC) return refuse(EPROTO, "vfio-user: more than {} descriptors with one message", kMaxFds);
  end_ += static_cast<std::size_t>(n);
  if (fds.size() > 0) arrived_.push_back({position_ + end_ - 1, std::move(fds)});
  return true;
}

Result<bool> Channel::next(Message& m) {
  for (;;) {
    if (blocked()) return false;
    std::size_t have = end_ - begin_;
    if (have >= sizeof(Header)) {
      std::memcpy(&m.header, in_.data() + begin_, sizeof(Header));
      std::size_t size = m.header.size;
      if (size < sizeof(Header) || size > kMaxMessage) return refuse(EPROTO, "vfio-user: a message of {} bytes", size);
      if (have >= size) {
        m.payload = {in_.data() + begin_ + sizeof(Header), size - sizeof(Header)};
        m.fds.clear();
        begin_ += size;
        position_ += size;
        while (!arrived_.empty() && arrived_.front().last_byte < position_) {
          m.fds = std::move(arrived_.front().fds);
          arrived_.erase(arrived_.begin());
        }
        return true;
      }
    }
    Result<bool> more = fill();
    if (!more.ok()) return more.error();
    if (!*more) return false;
  }
}

Status Channel::flush() {
  std::size_t done = 0;
  while (done < out_.size()) {
    ssize_t n = ::send(fd_, out_.data() + done, out_.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) return Errno{ECONNRESET};
    done += static_cast<std::size_t>(n);
  }
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(done));
  return success();
}

Status Channel::send(const Header& header, std::span<const std::uint8_t> payload) {
  const auto* h = reinterpret_cast<const std::uint8_t*>(&header);
  out_.insert(out_.end(), h, h + sizeof header);
  out_.insert(out_.end(), payload.begin(), payload.end());
  return flush();
}

}  // namespace uhca::pci::vfio_user
