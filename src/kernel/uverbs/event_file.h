// SPDX-License-Identifier: MIT
// Event files: completion channels and async files, with a real pipe behind. Linux: ib_uverbs_event_queue in uverbs_main.c.
//
// The program holds the read end, we the write end. Packet mode (O_DIRECT) gives one event per read(); poll, epoll, dup and
// O_NONBLOCK are the kernel's own. Files of messages (DEVX) have a byte in the pipe for each, and the message waits here: read() comes
// through uverbs_message_read. A pipe takes 16 events; what does not fit waits in a backlog that a helper thread refills from.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/result.h"
#include "kernel/uverbs/attr_bundle.h"

namespace uhca::kernel {

// Counts the events of one object in one file. Protected by the file's lock.
struct EventSource {
  std::uint32_t posted = 0;
};

class EventFile final : public MessageSink {
 public:
  enum class Kind : std::uint8_t { kCompletion = 8, kAsync = 16, kMessages = 1 };  // value: bytes per event in the pipe

  // *read_fd: the program's end, close-on-exec, blocking. EMFILE, ENFILE.
  static Result<std::shared_ptr<EventFile>> create(Kind kind, int* read_fd);
  // kMessages; `short_read`: the errno of a read without room for the next message.
  static Result<std::shared_ptr<EventFile>> create_messages(int short_read, int* read_fd);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // Adds an event; dropped after close() and when the program has closed its end. Any thread; raw system calls; errno preserved.
  void post(EventSource* src, std::uint64_t element, std::uint32_t event_type);
  // Removes what the program has not read yet of src. The number of events that it has read (events_reported).
  std::uint32_t remove(EventSource* src);
  // Drops all events; readers see the end of the file (kernel/sys makes EIO of it).
  void close() override;

  // kMessages (see MessageSink). EOVERFLOW once for the next reader when one had to be dropped.
  void post(std::vector<std::byte> message, std::shared_ptr<std::atomic<bool>> until_read) override;
  std::size_t unread_bytes() override;
  // read(2): blocks as the descriptor says. EAGAIN, EINTR, EIO closed, EOVERFLOW, EFAULT, and short_read.
  Result<std::size_t> read_message(int fd, UserPtr buf, std::size_t n);

  Kind kind() const { return kind_; }
  std::size_t event_size() const { return static_cast<std::size_t>(kind_); }
  std::uint64_t inode() const { return inode_; }
  bool closed();
  // The program has closed the read end, everywhere: nobody can read this file any more.
  bool reader_gone() const;
  // Moves backlog into the pipe; true when some is left.
  bool refill();
  int write_fd() const { return wfd_; }

  // The open event file behind a descriptor of this process, or nullptr.
  static std::shared_ptr<EventFile> of_fd(int fd);

 private:
  struct Event {
    EventSource* src = nullptr;
    std::uint64_t element = 0;
    std::uint32_t type = 0;
  };
  static constexpr unsigned kRing = 16;

  EventFile(Kind kind, int wfd, std::uint64_t inode) : kind_(kind), wfd_(wfd), inode_(inode) {}
  // With the lock held. 1 written, 0 full, -1 the reader is gone.
  int write_one(const Event& e);
  int write_pipe(const void* bytes, std::size_t n);
  static Result<std::shared_ptr<EventFile>> create_pipe(Kind kind, int extra_flags, int* read_fd);
  // Ok, or what a read of n bytes answers; with the lock held.
  Status front_check(std::size_t n);
  void move_backlog();
  // Takes everything out of the pipe; the number of events.
  unsigned drain(Event (&out)[kRing]);

  const Kind kind_;
  std::atomic<int> wfd_;
  const std::uint64_t inode_;
  std::mutex lock_;  // short: never held across a driver call
  bool closed_ = false;
  // The last events written, so that those still in the pipe are known: the pipe never holds more than kRing.
  EventSource* ring_[kRing] = {};
  unsigned ring_head_ = 0;
  std::deque<Event> backlog_;
  struct Message {
    std::vector<std::byte> bytes;
    std::shared_ptr<std::atomic<bool>> until_read;
  };
  std::deque<Message> messages_;
  std::size_t unread_ = 0;  // bytes of messages_ without their heads
  bool overflow_ = false;
  int short_read_ = 0;
};

// A uobject of an FD type.
struct FdUobject : ib_uobject {
  std::shared_ptr<EventFile> file;
  // Async files: receives the device's port events.
  ib_event_handler handler;
  bool handler_registered = false;
};

}  // namespace uhca::kernel
