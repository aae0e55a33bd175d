// SPDX-License-Identifier: MIT
// A vfio-user client that sends whatever a test wants, well-formed or not, and a server with a device that only records.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/safecopy.h"
#include "device/pci/vfio_user_server.h"

namespace uhca::pci::vfio_user::test {

// A BAR of memory that knows what was written; offset 0x8000 makes it copy memory, 0x8008 raise a vector.
class RecordingEngine final : public Engine {
 public:
  struct Write {
    std::uint64_t offset, value;
    unsigned size;
    bool operator==(const Write&) const = default;
  };
  static constexpr std::size_t kBar = 1u << 20;
  static constexpr std::uint64_t kCopy = 0x8000, kRaise = 0x8008;

  explicit RecordingEngine(GuestBus& bus) : bus_(bus) {}
  std::size_t bar0_size() const override { return kBar; }
  std::uint64_t mmio_read(std::uint64_t offset, unsigned) override { return offset * 0x0101010101010101u; }
  void mmio_write(std::uint64_t offset, std::uint64_t value, unsigned size) override {
    std::lock_guard lock(mutex_);
    writes_.push_back({offset, value, size});
    // Reads 8 bytes of host memory at `value`, adds 1, writes them 8 bytes further.
    if (offset == kCopy) {
      std::uint64_t word = 0;
      copied_ = bus_.dma_read(&word, value, 8) && bus_.dma_write(value + 8, &++word, 8);
    }
    if (offset == kRaise) bus_.raise(static_cast<unsigned>(value));
  }
  void mmio_write_line(std::uint64_t offset, const std::array<std::uint64_t, 8>& words) override {
    std::lock_guard lock(mutex_);
    writes_.push_back({offset, words[0], 64});
  }
  void reset() override { ++resets; }
  void uar_store(std::uint64_t, std::uint64_t) override {}
  void look_at_send_queue(std::uint32_t) override {}
  void look_at_cq(std::uint32_t) override {}
  void look_at_uar(std::uint32_t) override {}
  bool drive(bool) override { return false; }
  Nanos next_deadline() override { return kNever; }
  unsigned armed_cqs() override { return 0; }

  std::vector<Write> take_writes() {
    std::lock_guard lock(mutex_);
    return std::move(writes_);
  }
  bool copied() {
    std::lock_guard lock(mutex_);
    return copied_;
  }
  std::atomic<int> resets{0};

 private:
  GuestBus& bus_;
  std::mutex mutex_;
  std::vector<Write> writes_;
  bool copied_ = false;
};

class NoPort final : public wire::Port {
 public:
  wire::Send send(wire::Frame) override { return wire::Send::kUnreachable; }
  unsigned poll(wire::FrameSink&, unsigned, bool) override { return 0; }
  Nanos service(Nanos) override {
    ++turns;
    return kNever;
  }
  std::atomic<unsigned> turns{0};  // of the server's loop
};

struct Rig {
  explicit Rig(Nanos patience = 0) : device({0x15b3, 0x101d}, bus, engine, patience) {
    safecopy::install_handler();
    path = "/tmp/uhca-vfio-user-test-" + std::to_string(getpid()) + ".sock";
    Status s = server.listen(path);
    EXPECT_TRUE(s.ok()) << strerror(s.code());
    stop = eventfd(0, EFD_CLOEXEC);
    thread = std::thread([this] { EXPECT_TRUE(server.run(stop).ok()); });
  }
  ~Rig() {
    std::uint64_t one = 1;
    EXPECT_EQ(write(stop, &one, sizeof one), 8);
    thread.join();
    close(stop);
  }
  GuestBus bus;
  RecordingEngine engine{bus};
  NoPort port;
  Device device;
  Server server{device, engine, port};
  std::string path;
  int stop = -1;
  std::thread thread;
};

class Client {
 public:
  explicit Client(const Rig& rig, bool negotiate = true, bool connected = true) {
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connected) dial(rig);
    if (negotiate) {
      EXPECT_EQ(version().error, 0u);
    }
  }
  ~Client() { close(fd); }
  void dial(const Rig& rig) {
    sockaddr_un sa{};
    sa.sun_family = AF_UNIX;
    std::strcpy(sa.sun_path, rig.path.c_str());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&sa), sizeof sa), 0) << strerror(errno);
  }

  struct Reply {
    bool closed = false;  // instead of a reply
    std::uint32_t error = 0;
    Header header{};
    std::vector<std::uint8_t> payload;
    template <class T>
    T as() const {
      T t{};
      EXPECT_GE(payload.size(), sizeof t);
      if (payload.size() >= sizeof t) std::memcpy(&t, payload.data(), sizeof t);
      return t;
    }
  };

  bool send_raw(const void* data, std::size_t n, const std::vector<int>& fds = {}) {
    iovec iov{const_cast<void*>(data), n};
    msghdr h{};
    h.msg_iov = &iov;
    h.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
    if (!fds.empty()) {
      h.msg_control = control;
      h.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
      cmsghdr* c = CMSG_FIRSTHDR(&h);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(c), fds.data(), sizeof(int) * fds.size());
    }
    return sendmsg(fd, &h, MSG_NOSIGNAL) == static_cast<ssize_t>(n);
  }

  std::vector<std::uint8_t> message(std::uint16_t command, const void* body, std::size_t n, std::uint32_t flags = 0) {
    Header h{++id, command, static_cast<std::uint32_t>(sizeof(Header) + n), flags, 0};
    std::vector<std::uint8_t> m(sizeof h + n);
    std::memcpy(m.data(), &h, sizeof h);
    if (n != 0) std::memcpy(m.data() + sizeof h, body, n);
    return m;
  }

  Reply receive() {
    Reply r;
    if (!read_all(&r.header, sizeof r.header)) {
      r.closed = true;
      return r;
    }
    r.payload.resize(r.header.size - sizeof r.header);
    r.closed = !read_all(r.payload.data(), r.payload.size());
    r.error = r.header.flags & kFlagError ? r.header.error : 0;
    return r;
  }

  Reply call_raw(std::uint16_t command, const void* body, std::size_t n, const std::vector<int>& fds = {}) {
    auto m = message(command, body, n);
    if (!send_raw(m.data(), m.size(), fds)) return {.closed = true};
    Reply r = receive();
    if (!r.closed) {
      EXPECT_EQ(r.header.id, id);
      EXPECT_EQ(r.header.command, command);
      EXPECT_EQ(r.header.flags & kTypeMask, kTypeReply);
    }
    return r;
  }
  template <class T>
  Reply call(Command command, const T& body, const std::vector<int>& fds = {}) {
    return call_raw(static_cast<std::uint16_t>(command), &body, sizeof body, fds);
  }
  Reply call(Command command) { return call_raw(static_cast<std::uint16_t>(command), nullptr, 0); }

  Reply version(std::uint16_t major = kMajor) {
    std::vector<std::uint8_t> b(sizeof(Version));
    Version v{major, kMinor};
    std::memcpy(b.data(), &v, sizeof v);
    const char caps[] = R"({"capabilities":{"max_msg_fds":8}})";
    b.insert(b.end(), caps, caps + sizeof caps);
    return call_raw(static_cast<std::uint16_t>(Command::kVersion), b.data(), b.size());
  }

  Reply write(std::uint32_t region, std::uint64_t offset, const void* data, std::uint32_t n) {
    std::vector<std::uint8_t> b(sizeof(RegionAccess) + n);
    RegionAccess a{offset, region, n};
    std::memcpy(b.data(), &a, sizeof a);
    std::memcpy(b.data() + sizeof a, data, n);
    return call_raw(static_cast<std::uint16_t>(Command::kRegionWrite), b.data(), b.size());
  }
  template <class T>
  Reply write(std::uint32_t region, std::uint64_t offset, T value) {
    return write(region, offset, &value, sizeof value);
  }
  template <class T>
  T read(std::uint32_t region, std::uint64_t offset) {
    Reply r = call(Command::kRegionRead, RegionAccess{offset, region, sizeof(T)});
    EXPECT_EQ(r.error, 0u);
    EXPECT_EQ(r.payload.size(), sizeof(RegionAccess) + sizeof(T));
    T v{};
    if (r.payload.size() == sizeof(RegionAccess) + sizeof(T)) std::memcpy(&v, r.payload.data() + sizeof(RegionAccess), sizeof v);
    return v;
  }

  int fd = -1;
  std::uint16_t id = 0;

 private:
  bool read_all(void* p, std::size_t n) {
    auto* c = static_cast<char*>(p);
    while (n > 0) {
      ssize_t got = recv(fd, c, n, 0);
      if (got <= 0) return false;
      c += got;
      n -= static_cast<std::size_t>(got);
    }
    return true;
  }
};

// Shared memory as a guest's RAM.
struct Memory {
  explicit Memory(std::size_t n) : size(n) {
    fd = memfd_create("guest", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(n)), 0);
    bytes = static_cast<std::uint8_t*>(mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  ~Memory() {
    munmap(bytes, size);
    close(fd);
  }
  int fd;
  std::size_t size;
  std::uint8_t* bytes;
};

}  // namespace uhca::pci::vfio_user::test
