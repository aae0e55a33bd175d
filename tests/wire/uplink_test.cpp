// SPDX-License-Identifier: MIT
// Functions of one host: loopback, host switch, wake-ups, deaths, hostile peers.
#include "wire/net/uplink.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "base/fd.h"
#include "wire/packets.h"

namespace uhca::wire::test {
namespace {

const Gid kHere = gid4(127, 0, 0, 1);

struct Collector final : FrameSink {
  std::vector<std::vector<std::byte>> frames;
  std::function<void(Frame)> then;
  void receive(Frame f) override {
    frames.emplace_back(f.begin(), f.end());
    if (then) then(f);
  }
};

// Names of one test do not meet those of another run.
Uplink::Options options(unsigned last_slot = 64) {
  static int n = 0;
  Uplink::Options o;
  o.udp = false;
  o.host_switch.prefix = "uhca-test/" + std::to_string(getpid()) + "/" + std::to_string(n++) + "/";
  o.host_switch.last_slot = last_slot;
  return o;
}

std::unique_ptr<Uplink> up(const Uplink::Options& o) {
  auto u = Uplink::create(*choose_netdev("lo"), o);
  EXPECT_TRUE(u.ok());
  return std::move(u).value();
}

std::vector<std::byte> frame_to(std::uint32_t qpn, std::uint32_t psn, std::size_t payload = 64) {
  return send_frame(kHere, kHere, qpn, psn, payload);
}

// Polls thoroughly until n frames came; the loop ends by what happens, not by time.
void poll_until(Uplink& u, Collector& c, std::size_t n) {
  while (c.frames.size() < n) {
    if (u.poll(c, 64, true) == 0) std::this_thread::yield();
  }
}

void serve_until(Uplink& u, const std::function<bool()>& done) {
  Collector c;
  while (!done()) {
    u.poll(c, 64, true);
    std::this_thread::yield();
  }
}

TEST(Uplink, LoopbackKeepsOrderAndBytes) {
  auto u = up(options());
  std::uint32_t qpn = u->lease_block();
  EXPECT_EQ(qpn, u->function_id() << 12);
  EXPECT_TRUE(u->owns_qpn(qpn + 4095));
  Collector c;
  for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(u->send(frame_to(qpn + i, i, i * 40)), Send::kSent);
  ASSERT_EQ(u->send(frame_to(1, 100)), Send::kSent);  // QP1
  poll_until(*u, c, 101);
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_EQ(c.frames[i], frame_to(qpn + i, i, i * 40));
  EXPECT_EQ(u->counters().tx_loopback.get(), 101u);
}

TEST(Uplink, SinkMaySendFromInside) {
  auto u = up(options());
  std::uint32_t qpn = u->lease_block();
  Collector c;
  c.then = [&](Frame f) {
    if (c.frames.size() < 5000) {
      EXPECT_EQ(u->send(f), Send::kSent);
    }
    EXPECT_EQ(u->poll(c, 1, true), 0u);  // not from inside
  };
  ASSERT_EQ(u->send(frame_to(qpn, 1, 4096)), Send::kSent);
  poll_until(*u, c, 5000);
}

TEST(Uplink, BackpressureOfLoopback) {
  auto u = up(options());
  auto f = frame_to(u->lease_block(), 1, 4096);
  unsigned sent = 0;
  while (u->send(f) == Send::kSent) ++sent;
  EXPECT_GT(sent, 200u);
  EXPECT_EQ(u->send(f), Send::kBusy);
  Collector c;
  EXPECT_EQ(u->poll(c, 3, false), 3u);
  EXPECT_EQ(u->send(f), Send::kSent);
  poll_until(*u, c, sent + 1);
}

TEST(Uplink, TwoFunctionsTalk) {
  auto o = options();
  auto a = up(o), b = up(o);
  EXPECT_NE(a->function_id(), b->function_id());
  std::uint32_t qa = a->lease_block(), qb = b->lease_block();
  Collector ca, cb;
  for (std::uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(a->send(frame_to(qb + 5, i, i)), Send::kSent);  // before b has accepted
    ASSERT_EQ(b->send(frame_to(qa + 6, i, i)), Send::kSent);
  }
  poll_until(*a, ca, 200);
  poll_until(*b, cb, 200);
  for (std::uint32_t i = 0; i < 200; ++i) {
    EXPECT_EQ(ca.frames[i], frame_to(qa + 6, i, i));
    EXPECT_EQ(cb.frames[i], frame_to(qb + 5, i, i));
  }
  EXPECT_EQ(a->counters().links_opened.get(), 1u);
  EXPECT_EQ(a->counters().links_accepted.get(), 1u);
  auto bound = bound_slots(o.host_switch.prefix);
  EXPECT_EQ(bound.size(), 2u);
}

TEST(Uplink, BackpressureOfTheRingAndRoomWakesTheSender) {
  auto o = options();
  auto a = up(o), b = up(o);
  std::uint32_t qb = b->lease_block();
  Collector cb;
  std::uint32_t sent = 0;
  while (a->send(frame_to(qb, sent, 3000)) == Send::kSent) ++sent;
  EXPECT_GT(sent, 300u);
  EXPECT_EQ(a->counters().tx_busy.get(), 1u);
  poll_until(*b, cb, sent);
  pollfd p{a->wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, -1), 1) << "room wakes who waits for it";
  a->service(0);
  EXPECT_EQ(poll(&p, 1, 0), 0) << "service() takes the wake-up";
  for (std::uint32_t i = 0; i < 3 * sent; ++i) {  // across the end of the ring
    while (a->send(frame_to(qb, sent + i, i % 4097)) != Send::kSent) b->poll(cb, 64, false);
  }
  poll_until(*b, cb, 4 * sent);
  for (std::uint32_t i = 0; i < 3 * sent; ++i) ASSERT_EQ(cb.frames[sent + i], frame_to(qb, sent + i, i % 4097));
}

TEST(Uplink, NobodyThere) {
  auto o = options();
  auto a = up(o);
  std::uint32_t other = (a->function_id() % 64 + 1) << 12;
  EXPECT_EQ(a->send(frame_to(other, 1)), Send::kUnreachable);
  EXPECT_EQ(a->send(send_frame(kHere, gid4(10, 255, 255, 254), other, 1, 8)), Send::kUnreachable);  // no UDP here
  std::vector<std::byte> junk(60);
  EXPECT_EQ(a->send(junk), Send::kUnreachable);
  EXPECT_EQ(a->send({}), Send::kUnreachable);
  EXPECT_EQ(a->counters().tx_malformed.get(), 2u);
}

// RoCE v1 stays on the host: in the process, over the switch; UDP cannot carry it.
TEST(Uplink, RoceV1Frames) {
  auto o = options();
  auto with_udp = o;
  with_udp.udp = true;
  auto a = up(with_udp), b = up(o);
  std::uint32_t qa = a->lease_block(), qb = b->lease_block();
  const Gid local = a->netdev().default_gid;
  EXPECT_EQ(local[0], 0xfe);
  auto to_self = send_frame(local, local, qa, 1, 40, false, true), to_b = send_frame(local, local, qb, 2, 40, false, true),
       mapped = send_frame(kHere, kHere, qb, 3, 40, false, true);
  ASSERT_EQ(a->send(to_self), Send::kSent);
  ASSERT_EQ(a->send(to_b), Send::kSent);
  ASSERT_EQ(a->send(mapped), Send::kSent);
  Collector ca, cb;
  poll_until(*a, ca, 1);
  poll_until(*b, cb, 2);
  EXPECT_EQ(ca.frames[0], to_self);
  EXPECT_EQ(cb.frames[0], to_b);
  EXPECT_EQ(cb.frames[1], mapped);
  EXPECT_EQ(a->send(send_frame(local, gid4(10, 255, 255, 254), qb, 1, 8, false, true)), Send::kUnreachable);
  EXPECT_EQ(a->counters().tx_unreachable.get(), 1u);
  EXPECT_EQ(a->counters().tx_udp.get(), 0u);
  EXPECT_EQ(a->counters().tx_malformed.get(), 0u);
  auto cut = to_self;
  cut.resize(60);
  EXPECT_EQ(a->send(cut), Send::kUnreachable);
  EXPECT_EQ(a->counters().tx_malformed.get(), 1u);
}

TEST(Uplink, LeasesRunOut) {
  auto o = options(3);
  auto a = up(o);
  EXPECT_NE(a->lease_block(), 0u);
  {
    auto b = up(o);
    EXPECT_NE(a->lease_block(), 0u);
    EXPECT_EQ(a->lease_block(), 0u);
    EXPECT_EQ(Uplink::create(*choose_netdev("lo"), o).code(), ENOSPC);
  }
  EXPECT_NE(a->lease_block(), 0u) << "what b held is free again";
}

TEST(Uplink, FreedSlotsAreFoundByNewOwners) {
  auto o = options(2);
  auto a = up(o);
  auto b = up(o);
  std::uint32_t qb = b->function_id() << 12;
  ASSERT_EQ(a->send(frame_to(qb, 1)), Send::kSent);
  b.reset();
  b = up(o);  // the only slot that is left
  ASSERT_EQ(b->function_id() << 12, qb);
  serve_until(*a, [&] { return a->counters().links_lost.get() == 1; });
  ASSERT_EQ(a->send(frame_to(qb, 2)), Send::kSent);
  Collector c;
  poll_until(*b, c, 1);
  EXPECT_EQ(c.frames[0], frame_to(qb, 2));
}

// A sleeper is woken for every burst; no wake-up is lost.
TEST(Uplink, SleepersAreWoken) {
  auto o = options();
  auto a = up(o), b = up(o);
  std::uint32_t qb = b->lease_block();
  constexpr std::uint32_t kFrames = 20000;
  std::thread sender([&] {
    Collector none;
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      while (a->send(frame_to(qb, i, 16)) != Send::kSent) a->poll(none, 16, false);
      if (i % 7 == 0) std::this_thread::yield();
    }
  });
  Collector c;
  unsigned slept = 0;
  while (c.frames.size() < kFrames) {
    if (b->poll(c, 64, false)) continue;
    b->set_asleep(true);
    if (b->poll(c, 64, true) == 0) {
      pollfd p{b->wait_fd(), POLLIN, 0};
      poll(&p, 1, -1);
      ++slept;
      b->service(0);
    }
    b->set_asleep(false);
  }
  sender.join();
  EXPECT_GT(slept, 0u);
  for (std::uint32_t i = 0; i < kFrames; ++i) ASSERT_EQ(c.frames[i], frame_to(qb, i, 16));
}

TEST(Uplink, OwnFramesWakeASleeper) {
  auto a = up(options());
  a->set_asleep(true);
  pollfd p{a->wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 0), 0);
  ASSERT_EQ(a->send(frame_to(a->lease_block(), 1)), Send::kSent);
  EXPECT_EQ(poll(&p, 1, 0), 1);
  a->service(0);
  EXPECT_EQ(poll(&p, 1, 0), 0);
}

// Runs `child` in another process, as `uid`; the test then does what it has to and reaps.
pid_t in_child(const std::function<int()>& child, uid_t uid = 0) {
  pid_t pid = fork();
  if (pid == 0) {
    fd::abandon_all();
    if (uid && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(99);
    _exit(child());
  }
  return pid;
}

int exit_code(pid_t pid) {
  int st = 0;
  waitpid(pid, &st, 0);
  return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

// Echoes `n` frames to the QP that their immediate successor block names: the peer's first block.
int echo(const Uplink::Options& o, unsigned peer_slot, unsigned n, int ready) {
  auto u = Uplink::create(*choose_netdev("lo"), o);
  if (!u.ok()) return 1;
  Uplink& b = **u;
  std::uint32_t qpn = b.lease_block();
  if (write(ready, &qpn, sizeof qpn) != sizeof qpn) return 2;
  unsigned done = 0;
  Collector c;
  c.then = [&](Frame f) {
    Packet p;
    if (parse(f, p) != ParseError::kNone) _exit(3);
    auto back = send_frame(kHere, kHere, peer_slot << 12, p.bth.psn, p.payload.size());
    while (b.send(back) == Send::kBusy) std::this_thread::yield();
    ++done;
  };
  while (done < n) b.poll(c, 64, true);
  // Stays until the other side has everything and closes the pipe.
  return 0;
}

void exchange_with(uid_t uid) {
  auto o = options();
  auto a = up(o);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  pid_t pid = in_child([&] { return echo(o, a->function_id(), 3000, pipe_fds[1]); }, uid);
  std::uint32_t qb = 0;
  ASSERT_EQ(read(pipe_fds[0], &qb, sizeof qb), static_cast<long>(sizeof qb));
  Collector c;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    while (a->send(frame_to(qb, i, i)) != Send::kSent) a->poll(c, 64, true);
  }
  poll_until(*a, c, 3000);
  EXPECT_EQ(exit_code(pid), 0);
  for (std::uint32_t i = 0; i < 3000; ++i) ASSERT_EQ(c.frames[i], frame_to(a->function_id() << 12, i, i));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST(Processes, Exchange) {
  exchange_with(0);
}

TEST(Processes, ExchangeAcrossUsers) {
  ASSERT_EQ(getuid(), 0u) << "this test changes its user: run it as root";
  exchange_with(65534);
}

// Killed in the middle of pushing, again and again: what arrives is whole and in order, and nothing is left behind.
TEST(Processes, SigkillOfASender) {
  auto o = options();
  auto a = up(o);
  std::uint32_t qa = a->lease_block();
  for (int round = 0; round < 20; ++round) {
    pid_t pid = in_child([&] {
      auto u = Uplink::create(*choose_netdev("lo"), o);
      if (!u.ok()) return 1;
      for (std::uint32_t i = 0;; ++i) {
        while ((*u)->send(frame_to(qa, i & 0xffffff, 1000)) != Send::kSent) std::this_thread::yield();
      }
    });
    Collector c;
    poll_until(*a, c, 100 + static_cast<std::size_t>(round) * 37);
    kill(pid, SIGKILL);
    EXPECT_EQ(exit_code(pid), 1000 + SIGKILL);
    while (a->counters().links_lost.get() < static_cast<std::uint64_t>(round) + 1) a->poll(c, 64, true);
    while (a->poll(c, 64, true)) {
    }
    for (std::uint32_t i = 0; i < c.frames.size(); ++i) ASSERT_EQ(c.frames[i], frame_to(qa, i, 1000));
  }
  EXPECT_EQ(a->counters().links_corrupt.get(), 0u);
  EXPECT_EQ(bound_slots(o.host_switch.prefix).size(), 1u);
}

TEST(Processes, SigkillOfAReceiver) {
  auto o = options();
  auto a = up(o);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  pid_t pid = in_child([&] { return echo(o, a->function_id(), ~0u, pipe_fds[1]); });
  std::uint32_t qb = 0;
  ASSERT_EQ(read(pipe_fds[0], &qb, sizeof qb), static_cast<long>(sizeof qb));
  Collector c;
  ASSERT_EQ(a->send(frame_to(qb, 1)), Send::kSent);
  poll_until(*a, c, 1);
  kill(pid, SIGKILL);
  EXPECT_EQ(exit_code(pid), 1000 + SIGKILL);
  pollfd p{a->wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, -1), 1);
  serve_until(*a, [&] { return a->counters().links_lost.get() == 2; });  // one link each way
  EXPECT_EQ(a->send(frame_to(qb, 2)), Send::kUnreachable);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

std::size_t open_fds() {
  std::size_t n = 0;
  for (int f = 0; f < 4096; ++f) n += fcntl(f, F_GETFD) >= 0;
  return n;
}

std::size_t maps() {
  std::size_t n = 0;
  std::FILE* f = std::fopen("/proc/self/maps", "re");
  char line[1024];
  while (std::fgets(line, sizeof line, f)) n += std::strstr(line, "uhca-link") != nullptr;
  std::fclose(f);
  return n;
}

TEST(Uplink, LinksLeaveNothingBehind) {
  auto o = options();
  auto a = up(o);
  std::size_t fds = open_fds();
  EXPECT_EQ(maps(), 0u);
  for (int i = 1; i <= 50; ++i) {
    auto b = up(o);
    Collector c;
    ASSERT_EQ(a->send(frame_to(b->function_id() << 12, 1)), Send::kSent);
    ASSERT_EQ(b->send(frame_to(a->function_id() << 12, 1)), Send::kSent);
    poll_until(*a, c, 1);
    EXPECT_EQ(maps(), 3u);  // a sees two rings; b has not accepted its own yet
    b.reset();
    serve_until(*a, [&] { return a->counters().links_lost.get() == static_cast<std::uint64_t>(2 * i); });
    serve_until(*a, [&] { return maps() == 0; });
  }
  EXPECT_EQ(open_fds(), fds);
}

// ---- hostile peers: raw sockets against a function

struct Attacker {
  int sock = -1, memfd = -1;
  std::byte* memory = nullptr;
  std::thread helper;  // acts on the ring later
  ~Attacker() {
    if (helper.joinable()) helper.join();
    if (memory) munmap(memory, kRingBytes);
    if (sock >= 0) close(sock);
    if (memfd >= 0) close(memfd);
  }
  bool dial(const Uplink::Options& o, unsigned slot) {
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::string name = o.host_switch.prefix + std::to_string(slot);
    name.copy(a.sun_path + 1, sizeof a.sun_path - 1);
    sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return connect(sock, reinterpret_cast<sockaddr*>(&a), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0;
  }
  void make_ring(std::size_t bytes = kRingBytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
    memfd = memfd_create("attack", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(memfd, static_cast<long>(bytes)), 0);
    if (bytes == kRingBytes) memory = static_cast<std::byte*>(mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memfd, 0));
    if (seals) {
      ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, seals), 0);
    }
  }
  void hello(std::vector<int> fds, std::uint32_t version = 2, std::size_t len = 16) {
    std::uint32_t h[4] = {0x61636875, version, kRingBytes, 0};  // "uhca"
    iovec iov{h, len};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    if (!fds.empty()) {
      m.msg_control = control;
      m.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* c = CMSG_FIRSTHDR(&m);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_GE(sendmsg(sock, &m, MSG_NOSIGNAL), 0);
  }
  RingHeader& header() { return *reinterpret_cast<RingHeader*>(memory); }
  void length_at(std::size_t at, std::uint32_t n) { std::memcpy(memory + kRingHeaderBytes + at, &n, 4); }
};

TEST(Hostile, BadHellosAreRefused) {
  auto o = options();
  auto a = up(o);
  std::size_t fds = open_fds();
  std::uint64_t refused = 0;
  auto expect_refused = [&](const char* what, auto&& attack) {
    SCOPED_TRACE(what);
    {
      Attacker x;
      ASSERT_TRUE(x.dial(o, a->function_id()));
      attack(x);
      ++refused;
      serve_until(*a, [&] { return a->counters().links_refused.get() == refused; });
      char byte;
      // The socket is closed: end of file, or reset where the hello was not read.
      EXPECT_LE(recv(x.sock, &byte, 1, 0), 0);
    }
    EXPECT_EQ(open_fds(), fds);
  };
  expect_refused("nothing, then gone", [](Attacker& x) { shutdown(x.sock, SHUT_RDWR); });
  expect_refused("no descriptor", [](Attacker& x) { x.hello({}); });
  expect_refused("version", [](Attacker& x) { x.make_ring(), x.hello({x.memfd}, 1); });
  expect_refused("length", [](Attacker& x) { x.make_ring(), x.hello({x.memfd}, 1, 12); });
  expect_refused("two descriptors", [](Attacker& x) { x.make_ring(), x.hello({x.memfd, x.memfd}); });
  expect_refused("eight descriptors", [](Attacker& x) { x.make_ring(), x.hello(std::vector<int>(8, x.memfd)); });
  expect_refused("no seals", [](Attacker& x) { x.make_ring(kRingBytes, 0), x.hello({x.memfd}); });
  expect_refused("may shrink", [](Attacker& x) { x.make_ring(kRingBytes, F_SEAL_GROW | F_SEAL_SEAL), x.hello({x.memfd}); });
  expect_refused("size", [](Attacker& x) { x.make_ring(4096), x.hello({x.memfd}); });
  expect_refused("no memfd", [](Attacker& x) { x.hello({x.sock}); });
  expect_refused("a file", [](Attacker& x) {
    x.memfd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    x.hello({x.memfd});
  });
  EXPECT_EQ(a->counters().links_accepted.get(), 0u);
}

// recvmsg says 0 for an empty message as for the end of file; a descriptor comes with it all the same.
TEST(Hostile, EmptyMessagesLeaveNoDescriptors) {
  auto o = options();
  auto a = up(o);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    Attacker x;
    ASSERT_TRUE(x.dial(o, a->function_id()));
    x.make_ring();
    std::size_t fds = open_fds();
    x.hello({x.memfd});
    serve_until(*a, [&] { return a->counters().links_accepted.get() == round; });
    x.hello({x.memfd}, 1, 0);
    serve_until(*a, [&] { return a->counters().links_lost.get() == round; });
    char byte;
    serve_until(*a, [&] { return recv(x.sock, &byte, 1, MSG_DONTWAIT) == 0; });
    ASSERT_EQ(open_fds(), fds);
  }
}

// Bytes of a sender that the receiver has not read yet.
int unread(const Attacker& x) {
  int n = -1;
  EXPECT_EQ(ioctl(x.sock, SIOCOUTQ, &n), 0);
  return n;
}

TEST(Hostile, WakeUpsOfOneLinkAreTakenInTurns) {
  auto o = options();
  auto a = up(o);
  Attacker x;
  ASSERT_TRUE(x.dial(o, a->function_id()));
  x.make_ring();
  x.hello({x.memfd});
  serve_until(*a, [&] { return a->counters().links_accepted.get() == 1; });
  for (int i = 0; i < 150; ++i) ASSERT_EQ(send(x.sock, "w", 1, MSG_DONTWAIT), 1);
  for (int turn = 0; turn < 2; ++turn) {
    a->service(0);
    EXPECT_GT(unread(x), 0) << turn;
  }
  a->service(0);
  EXPECT_EQ(unread(x), 0);
  EXPECT_EQ(a->counters().links_lost.get(), 0u);
}

TEST(Hostile, BrokenRingsCloseTheLink) {
  auto o = options();
  auto a = up(o);
  std::uint64_t corrupt = 0;
  auto expect_corrupt = [&](const char* what, auto&& attack) {
    SCOPED_TRACE(what);
    Attacker x;
    ASSERT_TRUE(x.dial(o, a->function_id()));
    x.make_ring();
    attack(x);
    x.hello({x.memfd});
    ++corrupt;
    serve_until(*a, [&] { return a->counters().links_corrupt.get() == corrupt; });
    char byte;
    serve_until(*a, [&] { return recv(x.sock, &byte, 1, MSG_DONTWAIT) == 0; });
  };
  expect_corrupt("longer than any frame", [](Attacker& x) { x.length_at(0, kMaxFrame + 1); });
  expect_corrupt("longer than the ring", [](Attacker& x) { x.length_at(0, 0x7fffffff); });
  expect_corrupt("skip at the start", [](Attacker& x) { x.length_at(0, kSkip); });
  expect_corrupt("a record for friends", [](Attacker& x) { x.length_at(0, kHostRecord | 64); });
  expect_corrupt("a record for friends, without bytes", [](Attacker& x) { x.length_at(0, kHostRecord); });
  expect_corrupt("a later one", [&](Attacker& x) {
    x.length_at(0, 50);
    x.length_at(64, 100000);
  });
  EXPECT_EQ(a->counters().links_accepted.get(), corrupt);
}

// Random writes all over the ring while the receiver reads: it stays alive, and honest peers are served.
TEST(Hostile, RandomRing) {
  auto o = options();
  auto a = up(o), honest = up(o);
  std::mt19937 g(1);
  Collector c;
  for (int i = 0; i < 300; ++i) {
    Attacker x;
    ASSERT_TRUE(x.dial(o, a->function_id()));
    x.make_ring();
    x.hello({x.memfd});
    for (int k = 0; k < 100; ++k) {
      x.length_at((g() % kRingDataBytes) & ~63u, g() % 3 ? g() % 5000 : static_cast<std::uint32_t>(g()));
      x.length_at(x.header().head.load() % kRingDataBytes, g() % 400);
      x.header().asleep = g() % 2;
      x.header().want_room = g() % 2;
      a->poll(c, 16, true);
    }
  }
  c.frames.clear();
  auto f = frame_to(a->function_id() << 12, 77);
  ASSERT_EQ(honest->send(f), Send::kSent);
  while (std::find(c.frames.begin(), c.frames.end(), f) == c.frames.end()) a->poll(c, 64, true);
}

struct RingMemory {
  std::vector<std::byte> bytes = std::vector<std::byte>(kRingBytes + 64);
  std::byte* base = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::uintptr_t>(bytes.data()), 64));
};

// What only a ring that has gone round shows: a skip to nothing, a skip to a skip, a record across the end.
TEST(Hostile, EndOfTheRing) {
  RingMemory memory;
  std::byte* base = memory.base;
  auto word = [&](std::size_t at) -> std::uint32_t& { return *reinterpret_cast<std::uint32_t*>(base + kRingHeaderBytes + at); };
  auto f = frame_to(1, 1, 4096);
  for (std::uint32_t bad : {kSkip, std::uint32_t{4000}}) {
    for (std::uint32_t at_start : {0u, kSkip, 5000u}) {
      std::fill(memory.bytes.begin(), memory.bytes.end(), std::byte{0});
      RingProducer p;
      RingConsumer c;
      p.attach(base);
      c.attach(base);
      std::size_t place = 0;
      bool wake;
      for (; place + 2 * record_bytes(f.size()) <= kRingDataBytes; place += record_bytes(f.size())) {
        ASSERT_EQ(p.push(f, &wake), RingProducer::Push::kDone);
        ASSERT_EQ(c.peek().bytes.size(), f.size());  // and keeps it: else the producer would start over before
      }
      ASSERT_EQ(p.push(f, &wake), RingProducer::Push::kDone);
      c.peek();
      place += record_bytes(f.size());
      ASSERT_LT(kRingDataBytes - place, record_bytes(4000));
      word(place) = bad;
      word(0) = at_start;
      EXPECT_TRUE(c.peek().bytes.empty());
      EXPECT_TRUE(c.corrupt());
    }
  }
}

// A consumer that keeps up is served from the first part of the ring, which stays in the caches.
TEST(Ring, StartsOverEarly) {
  RingMemory memory;
  std::byte* base = memory.base;
  RingProducer p;
  RingConsumer c;
  p.attach(base);
  c.attach(base);
  auto f = frame_to(1, 1, 1000);
  std::size_t furthest = 0;
  for (int i = 0; i < 5000; ++i) {
    bool wake;
    ASSERT_EQ(p.push(f, &wake), RingProducer::Push::kDone);
    auto r = c.peek();
    ASSERT_EQ(r.bytes.size(), f.size());
    furthest = std::max(furthest, static_cast<std::size_t>(r.bytes.data() - base));
    c.release();
  }
  EXPECT_LT(furthest, kRingHeaderBytes + 65536);
  EXPECT_FALSE(c.corrupt());
}

// What a poll would find can be seen without polling, and what is seen can be looked at even when its sender is gone.
TEST(Uplink, QuietWordsTellWhenToPoll) {
  auto o = options();
  auto a = up(o), b = up(o);
  Collector c;
  const std::uint32_t* words[8];
  auto something = [&] {
    unsigned n = a->quiet_words(words);
    if (n == Port::kMustPoll) return true;
    return std::any_of(words, words + n, [](const std::uint32_t* w) { return __atomic_load_n(w, __ATOMIC_RELAXED) != 0; });
  };
  a->poll(c, 64, true);
  EXPECT_FALSE(something());
  ASSERT_EQ(a->send(frame_to(a->function_id() << 12, 1)), Send::kSent);
  EXPECT_TRUE(something()) << "a frame to itself";
  poll_until(*a, c, 1);
  ASSERT_EQ(b->send(frame_to(a->function_id() << 12, 2)), Send::kSent);
  poll_until(*a, c, 2);
  while (a->poll(c, 64, true) != 0) {
  }
  EXPECT_FALSE(something());
  ASSERT_EQ(b->send(frame_to(a->function_id() << 12, 3)), Send::kSent);
  EXPECT_TRUE(something()) << "a frame from a peer";
  poll_until(*a, c, 3);
  a->poll(c, 64, true);
  const unsigned n = a->quiet_words(words);
  ASSERT_NE(n, Port::kMustPoll);
  b.reset();
  serve_until(*a, [&] { return a->counters().links_lost.get() == 1; });
  for (int i = 0; i < 3; ++i) a->poll(c, 64, true);  // the ring is taken away
  for (unsigned i = 0; i < n; ++i) EXPECT_EQ(*words[i], 0u);
  // And its addresses serve the next peer.
  auto d = up(o);
  ASSERT_EQ(d->send(frame_to(a->function_id() << 12, 4)), Send::kSent);
  poll_until(*a, c, 4);
}

// Nobody has the address that is all zero, whoever was asked for before.
TEST(Uplink, NoAddressIsNobodys) {
  auto o = options();
  auto a = up(o);
  const std::uint32_t qpn = a->function_id() << 12;
  EXPECT_EQ(a->send(send_frame(kHere, Gid{}, qpn, 1, 64)), Send::kUnreachable);
  EXPECT_EQ(a->send(frame_to(qpn, 2)), Send::kSent);
  EXPECT_EQ(a->send(send_frame(kHere, Gid{}, qpn, 3, 64)), Send::kUnreachable);
  EXPECT_EQ(a->peer(Gid{}, 0x7000), nullptr);
}

// More peers at a time than there are words: polls look for themselves.
TEST(Uplink, QuietWordsRunOut) {
  auto o = options();
  auto a = up(o), b = up(o), d = up(o);
  Collector c;
  ASSERT_EQ(b->send(frame_to(a->function_id() << 12, 1)), Send::kSent);
  ASSERT_EQ(d->send(frame_to(a->function_id() << 12, 2)), Send::kSent);
  poll_until(*a, c, 2);
  a->poll(c, 64, true);
  const std::uint32_t* words[3];
  EXPECT_EQ(a->quiet_words(std::span(words).first(2)), Port::kMustPoll);
  EXPECT_EQ(a->quiet_words(words), 3u);
}

// Records keep their order and their kind all around the ring, at every size.
TEST(Ring, RecordsOfEverySizeGoRound) {
  RingMemory memory;
  std::byte* base = memory.base;
  RingProducer p;
  RingConsumer c;
  p.attach(base);
  c.attach(base);
  std::mt19937 g(1);
  std::deque<std::pair<std::size_t, bool>> sent;
  std::uint8_t mark_in = 0, mark_out = 0;
  std::size_t got = 0;
  while (got < 20000) {
    for (unsigned n = g() % 600; n > 0; --n) {
      bool host = g() % 2 != 0;
      std::size_t size = 1 + g() % (host ? kMaxHostRecord : kMaxFrame);
      std::byte* at = nullptr;
      auto r = p.reserve(size, &at);
      if (r == RingProducer::Push::kFull) break;
      ASSERT_EQ(r, RingProducer::Push::kDone);
      if (g() % 8 == 0) continue;  // thought better of it
      at[0] = at[size - 1] = std::byte{++mark_in};
      EXPECT_FALSE(p.commit(host));
      sent.push_back({size, host});
    }
    for (unsigned n = g() % 600; n > 0 && c.pending(); --n, ++got) {
      auto [bytes, host] = c.peek();
      ASSERT_FALSE(sent.empty());
      ASSERT_EQ(bytes.size(), sent.front().first);
      ASSERT_EQ(host, sent.front().second);
      ++mark_out;
      ASSERT_EQ(bytes.front(), std::byte{mark_out});
      ASSERT_EQ(bytes.back(), std::byte{mark_out});
      sent.pop_front();
    }
    ASSERT_EQ(c.pending(), !sent.empty());
    c.release();
  }
}

// The receiver is the hostile one: its index is checked too.
TEST(Hostile, ReceiverThatLies) {
  RingMemory memory;
  std::byte* base = memory.base;
  RingProducer p;
  p.attach(base);
  auto f = frame_to(1, 1, 4096);
  bool wake;
  RingProducer::Push r;
  while ((r = p.push(f, &wake)) == RingProducer::Push::kDone) {
  }
  EXPECT_EQ(r, RingProducer::Push::kFull);
  p.header().head = kRingDataBytes * 2;
  EXPECT_EQ(p.push(f, &wake), RingProducer::Push::kCorrupt);
}

}  // namespace
}  // namespace uhca::wire::test
