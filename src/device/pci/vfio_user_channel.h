// SPDX-License-Identifier: MIT
// Messages out of and into a stream socket. Never blocks: what the peer does not take is kept, and no further message is read until
// it is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/pci/vfio_user_message.h"

namespace uhca::pci::vfio_user {

// The descriptors of one message. What nobody takes is closed.
class Fds {
 public:
  Fds() = default;
  ~Fds() { clear(); }
  Fds(Fds&& o) noexcept : fds_(std::move(o.fds_)) { o.fds_.clear(); }
  Fds& operator=(Fds&& o) noexcept;
  void add(int fd) { fds_.push_back(fd); }
  std::size_t size() const { return fds_.size(); }
  // The caller owns it from now on.
  int take(std::size_t i);
  int peek(std::size_t i) const { return fds_[i]; }
  void clear();

 private:
  std::vector<int> fds_;
};

struct Message {
  Header header{};
  std::span<const std::uint8_t> payload;  // valid until the next call of the channel
  Fds fds;
};

class Channel {
 public:
  // Owns `fd`, a connected stream socket.
  explicit Channel(int fd);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return fd_; }

  // True: `m` is the next message. False: none is complete now. ECONNRESET: the peer is gone; EPROTO: what it sends is no message
  // (a length that cannot be, more descriptors than announced); the connection is of no use any more.
  Result<bool> next(Message& m);

  // A reply is written at once as far as the socket takes it. ECONNRESET: the peer is gone.
  Status send(const Header& header, std::span<const std::uint8_t> payload);
  // Writes what is left. The caller waits for the socket to become writable while blocked() and reads nothing.
  Status flush();
  bool blocked() const { return !out_.empty(); }

 private:
  Result<bool> fill();

  // Descriptors belong to the message that holds the last byte of the receive call that brought them: Linux ends a receive call
  // behind the bytes that descriptors were sent with (unix(7)).
  struct Arrived {
    std::uint64_t last_byte;  // stream position
    Fds fds;
  };

  int fd_;
  std::vector<std::uint8_t> in_;
  std::size_t begin_ = 0, end_ = 0;  // unread part of in_
  std::uint64_t position_ = 0;       // of in_[begin_] in the stream
  std::vector<Arrived> arrived_;
  std::vector<std::uint8_t> out_;
};

}  // namespace uhca::pci::vfio_user
