// SPDX-License-Identifier: MIT
// RoCEv2 over UDP between two hosts (network namespaces) that a veth joins. Needs root; without it the tests fail.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "wire/net/uplink.h"
#include "wire/packets.h"
#include "wire/two_hosts.h"

namespace uhca::wire::test {
namespace {

class Udp : public ::testing::Test, protected TwoHosts {
 protected:
  void SetUp() override { begin(); }
  void TearDown() override { end(); }
};

Packet packet(bool v6, std::uint32_t qpn, std::uint32_t psn, std::span<const std::byte> payload) {
  Packet p;
  p.net.ipv6 = v6;
  p.net.sgid = v6 ? kA6 : kA4;
  p.net.dgid = v6 ? kB6 : kB4;
  p.net.traffic_class = static_cast<std::uint8_t>(psn * 4 | 2);
  p.net.hop_limit = static_cast<std::uint8_t>(1 + psn % 200);
  p.net.udp_sport = static_cast<std::uint16_t>(0xc000 | psn * 977);
  p.bth.opcode = make_opcode(Service::kRC, Op::kSendOnly);
  p.bth.dest_qp = qpn;
  p.bth.psn = psn;
  p.payload = payload;
  return p;
}

TEST_F(Udp, ChoosesTheVeth) {
  enter(a_ns_);
  auto n = choose_netdev("");
  ASSERT_TRUE(n.ok());
  EXPECT_EQ(n->name, "ua");
  EXPECT_EQ(n->mtu, 9000u);
  ASSERT_GE(n->addresses.size(), 2u);
  EXPECT_EQ(n->addresses[0], kA4);
  EXPECT_NE(std::find(n->addresses.begin(), n->addresses.end(), kA6), n->addresses.end());
}

TEST_F(Udp, FramesArriveWholeInBothFamilies) {
  auto a = in_a(), b = in_b();
  ASSERT_TRUE(b->udp_bound(false) && b->udp_bound(true));
  std::uint32_t qb = b->lease_block();
  Collector c;
  auto bytes = counting(4096);
  std::size_t sent = 0;
  for (bool v6 : {false, true}) {
    for (std::uint32_t i = 0; i < 200; ++i) {
      auto payload = std::span(bytes).first(i < 20 ? i : (i * 41) % 4097);
      Packet p = packet(v6, qb + i, i, payload), q;
      ASSERT_EQ(send_from_a(*a, frame_of(p)), Send::kSent);
      poll_b_until(*b, c, ++sent);
      ASSERT_EQ(parse(c.frames.back(), q), ParseError::kNone);
      EXPECT_EQ(q.net.dmac, b->netdev().mac);
      EXPECT_EQ(q.net.sgid, p.net.sgid);
      EXPECT_EQ(q.net.dgid, p.net.dgid);
      EXPECT_EQ(q.net.traffic_class, p.net.traffic_class);
      EXPECT_EQ(q.net.hop_limit, p.net.hop_limit);
      EXPECT_EQ(q.net.identification, 0);
      EXPECT_GE(q.net.udp_sport, 0xc000);
      EXPECT_EQ(q.bth.dest_qp, p.bth.dest_qp);
      EXPECT_EQ(q.bth.psn, i);
      ASSERT_TRUE(std::equal(q.payload.begin(), q.payload.end(), payload.begin(), payload.end()));
    }
  }
  EXPECT_EQ(a->counters().tx_udp.get(), sent);
  EXPECT_EQ(b->counters().rx_udp.get(), sent);
  EXPECT_EQ(b->counters().ident_solved.get() + b->counters().ident_unsolved.get(), 0u);
}

// What is really on the wire, seen by a packet socket at the other end: whole frames with a right ICRC.
TEST_F(Udp, TheWireCarriesTheRightIcrc) {
  auto a = in_a();
  enter(b_ns_);
  int tap = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  ASSERT_GE(tap, 0);
  sockaddr_ll on{};
  on.sll_family = AF_PACKET;
  on.sll_protocol = htons(ETH_P_ALL);
  on.sll_ifindex = static_cast<int>(if_nametoindex("ub"));
  ASSERT_EQ(bind(tap, reinterpret_cast<sockaddr*>(&on), sizeof on), 0);
  auto bytes = counting(1000);
  for (bool v6 : {false, true}) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      Packet p = packet(v6, 0x7000, i, std::span(bytes).first(i * 31)), q;
      p.net.identification = static_cast<std::uint16_t>(i * 321);  // leaves as 0: the ICRC must follow
      ASSERT_EQ(send_from_a(*a, frame_of(p)), Send::kSent);
      std::byte buf[9100];
      for (;;) {  // past ARP and neighbour discovery
        long n = recv(tap, buf, sizeof buf, 0);
        ASSERT_GT(n, 0);
        ParseError e = parse({buf, static_cast<std::size_t>(n)}, q);
        if (e == ParseError::kNotRoce) continue;
        ASSERT_EQ(e, ParseError::kNone) << parse_error_name(e) << " ipv6 " << v6 << " " << i;
        break;
      }
      EXPECT_EQ(q.bth.psn, i);
      EXPECT_EQ(q.net.identification, 0);
      EXPECT_EQ(q.net.hop_limit, p.net.hop_limit);
      EXPECT_EQ(q.net.traffic_class, p.net.traffic_class);
    }
  }
  close(tap);
}

// A foreign stack with Identifications of its own, and damage.
TEST_F(Udp, ForeignIdentifications) {
  auto b = in_b();
  std::uint32_t qb = b->lease_block();
  enter(a_ns_);
  int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
  ASSERT_GE(raw, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  std::memcpy(&to.sin_addr, kB4.data() + 12, 4);
  std::mt19937 g(1);
  auto bytes = counting(1024);
  Collector c;
  std::size_t sent = 0, damaged = 0;
  for (std::uint32_t i = 0; i < 300; ++i) {
    Packet p = packet(false, qb, i, std::span(bytes).first(g() % 1025)), q;
    p.net.identification = static_cast<std::uint16_t>(64 + g() % 65472);  // smaller ones count segments
    auto f = frame_of(p);
    if (i % 3 == 0) {  // without DF
      f[20] = std::byte{0};
      std::uint32_t crc = icrc(std::span(f).subspan(14, f.size() - 18), false);
      std::memcpy(&f[f.size() - 4], &crc, 4);
    }
    bool damage = i % 5 == 0;
    if (damage) f[f.size() - 1 - g() % 4] ^= static_cast<std::byte>(1 << g() % 8);
    damaged += damage;
    enter(a_ns_);
    ASSERT_EQ(sendto(raw, f.data() + 14, f.size() - 14, 0, reinterpret_cast<sockaddr*>(&to), sizeof to), static_cast<long>(f.size() - 14));
    poll_b_until(*b, c, ++sent);
    if (damage) continue;
    ASSERT_EQ(parse(c.frames.back(), q), ParseError::kNone) << i;
    EXPECT_EQ(q.net.identification, p.net.identification);
    EXPECT_EQ(q.bth.psn, i);
  }
  std::size_t bad = 0;
  Packet q;
  for (auto& f : c.frames) bad += parse(f, q) == ParseError::kBadIcrc;
  // One of 2^15 may pass by chance; the seed is fixed and none does.
  EXPECT_EQ(bad, damaged);
  EXPECT_EQ(b->counters().ident_solved.get(), sent - damaged);
  EXPECT_EQ(b->counters().ident_unsolved.get(), damaged);
  close(raw);
}

// Several functions of one user share the port; each frame reaches the one that has the QP, whoever the kernel gave it to.
TEST_F(Udp, SharedPortHandsOn) {
  auto a = in_a();
  std::vector<std::unique_ptr<Uplink>> b;
  for (int i = 0; i < 3; ++i) b.push_back(in_b());
  std::array<Collector, 3> c;
  auto bytes = counting(100);
  constexpr std::uint32_t kFrames = 240;
  for (std::uint32_t i = 0; i < kFrames; ++i) {
    Packet p = packet(i % 2, (b[i % 3]->function_id() << 12) + i, i, bytes);
    ASSERT_EQ(send_from_a(*a, frame_of(p)), Send::kSent);
  }
  enter(b_ns_);
  auto total = [&] { return c[0].frames.size() + c[1].frames.size() + c[2].frames.size(); };
  while (total() < kFrames) {
    for (std::size_t k = 0; k < 3; ++k) b[k]->poll(c[k], 64, true);
  }
  std::uint64_t handed_on = 0;
  for (std::size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(c[k].frames.size(), kFrames / 3);
    handed_on += b[k]->counters().udp_handed_on.get();
    Packet q;
    for (auto& f : c[k].frames) {
      ASSERT_EQ(parse(f, q), ParseError::kNone);
      EXPECT_TRUE(b[k]->owns_qpn(q.bth.dest_qp));
    }
  }
  EXPECT_GT(handed_on, 0u);
}

// Another user's function holds 4791: ours receives through it, and binds when it is gone.
TEST_F(Udp, PortHeldByAnotherUser) {
  auto a = in_a();
  enter(b_ns_);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  pid_t holder = fork();
  if (holder == 0) {
    fd::abandon_all();
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    auto u = Uplink::create(*choose_netdev("ub"));
    if (!u.ok() || !(*u)->udp_bound(false)) _exit(2);
    if (write(ready[1], "r", 1) != 1) _exit(3);
    Collector c;
    for (;;) (*u)->poll(c, 64, true);
  }
  char r;
  close(ready[1]);
  ASSERT_EQ(read(ready[0], &r, 1), 1);
  close(ready[0]);

  auto b = in_b();
  EXPECT_FALSE(b->udp_bound(false));
  Collector c;
  auto bytes = counting(100);
  for (std::uint32_t i = 0; i < 50; ++i) ASSERT_EQ(send_from_a(*a, frame_of(packet(false, b->function_id() << 12, i, bytes))), Send::kSent);
  poll_b_until(*b, c, 50);
  EXPECT_EQ(b->counters().rx_switch.get(), 50u);
  kill(holder, SIGKILL);
  int st;
  waitpid(holder, &st, 0);
  EXPECT_TRUE(WIFSIGNALED(st)) << st;
  Nanos later = SystemClock::instance().now() + UdpPort::kRetry;
  EXPECT_EQ(b->service(later), kNever);
  EXPECT_TRUE(b->udp_bound(false) && b->udp_bound(true));
  ASSERT_EQ(send_from_a(*a, frame_of(packet(false, b->function_id() << 12, 50, bytes))), Send::kSent);
  poll_b_until(*b, c, 51);
  EXPECT_EQ(b->counters().rx_udp.get(), 1u);
}

TEST_F(Udp, IdleIsSilentAndArrivalsWake) {
  auto a = in_a(), b = in_b();
  Collector c;
  enter(b_ns_);
  b->service(SystemClock::instance().now());
  b->poll(c, 64, true);
  EXPECT_EQ(b->service(SystemClock::instance().now()), kNever);
  b->set_asleep(true);
  EXPECT_EQ(b->poll(c, 64, true), 0u);
  pollfd p{b->wait_fd(), POLLIN, 0};
  // The kernel may still have news of the new interface's addresses: a few wake-ups, then silence. What is never taken away wakes for ever.
  auto falls_silent = [&] {
    for (int wakes = 0; wakes < 20; ++wakes) {
      if (poll(&p, 1, 50) == 0) return true;
      b->service(SystemClock::instance().now());
    }
    return false;
  };
  EXPECT_TRUE(falls_silent());
  auto bytes = counting(10);
  ASSERT_EQ(send_from_a(*a, frame_of(packet(false, b->function_id() << 12, 1, bytes))), Send::kSent);
  EXPECT_EQ(poll(&p, 1, -1), 1);
  enter(b_ns_);
  EXPECT_FALSE(falls_silent()) << "asleep: a datagram wakes until it is taken";
  b->set_asleep(false);
  EXPECT_TRUE(falls_silent()) << "awake: UDP is polled, not waited for";
  poll_b_until(*b, c, 1);
}

TEST_F(Udp, NewAddressesAreNoticed) {
  auto a = in_a();
  Collector c;
  auto f = send_frame(kA4, gid4(10, 77, 0, 9), a->function_id() << 12, 1, 8);
  enter(a_ns_);
  ASSERT_EQ(a->send(f), Send::kSent);
  EXPECT_EQ(a->counters().tx_udp.get(), 1u);
  ASSERT_EQ(std::system(("ip -n " + na_ + " addr add 10.77.0.9/24 dev ua").c_str()), 0);
  pollfd p{a->wait_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, -1), 1);
  a->service(0);
  ASSERT_EQ(a->send(f), Send::kSent);
  EXPECT_EQ(a->counters().tx_loopback.get(), 1u);
}

// The host's own membership brings a sender its datagrams back; the HCA has looped them back already.
TEST_F(Udp, OwnDatagramsToAGroupDoNotComeBack) {
  const Gid group = gid4(239, 77, 0, 1);
  auto sender = in_a(), neighbour = in_a();
  int member[2];
  for (auto [ns, dev, m] : {std::tuple{a_ns_, "ua", &member[0]}, std::tuple{b_ns_, "ub", &member[1]}}) {
    enter(ns);
    *m = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ip_mreqn join{};
    std::memcpy(&join.imr_multiaddr, group.data() + 12, 4);
    join.imr_ifindex = static_cast<int>(if_nametoindex(dev));
    ASSERT_EQ(setsockopt(*m, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join), 0);
  }
  ASSERT_EQ(std::system(("ip -n " + na_ + " route add 239.0.0.0/8 dev ua").c_str()), 0);
  auto other_host = in_b();
  auto datagram = [&](const Uplink& from, std::uint32_t psn) {
    Packet p;
    p.net.sgid = kA4;
    p.net.dgid = group;
    p.bth.opcode = make_opcode(Service::kUD, Op::kSendOnly);
    p.bth.dest_qp = 0xffffff;
    p.bth.psn = psn;
    p.deth.src_qp = from.function_id() << 12 | 5;
    return frame_of(p);
  };
  ASSERT_EQ(send_from_a(*sender, datagram(*sender, 1)), Send::kSent);
  ASSERT_EQ(send_from_a(*sender, datagram(*neighbour, 2)), Send::kSent);
  auto psns = [](Uplink& u, std::size_t n) {
    Collector c;
    while (c.frames.size() < n)
      if (u.poll(c, 64, true) == 0) std::this_thread::yield();
    std::vector<std::uint32_t> all;
    for (auto& f : c.frames) {
      Packet q;
      EXPECT_EQ(parse(f, q), ParseError::kNone);
      all.push_back(q.bth.psn);
    }
    return all;
  };
  using Psns = std::vector<std::uint32_t>;
  enter(a_ns_);
  EXPECT_EQ(psns(*sender, 1), Psns{2}) << "not its own";
  EXPECT_EQ(psns(*neighbour, 1), Psns{1}) << "another function of the host";
  enter(b_ns_);
  EXPECT_EQ(psns(*other_host, 2), (Psns{1, 2}));
  for (int m : member) close(m);
}

TEST_F(Udp, WhatTheNetdevCannotCarryIsLost) {
  auto a = in_a();
  enter(a_ns_);
  ASSERT_EQ(std::system(("ip -n " + na_ + " link set ua mtu 1500").c_str()), 0);
  auto bytes = counting(4096);
  std::uint64_t lost = 0;
  auto loses = [&](const Packet& p, unsigned times = 1) {
    for (unsigned i = 0; i < times; ++i) EXPECT_EQ(a->send(frame_of(p)), Send::kSent);
    a->flush();
    std::uint64_t before = std::exchange(lost, a->counters().tx_unreachable.get());
    return lost - before;
  };
  EXPECT_EQ(loses(packet(false, 0x5000, 1, bytes)), 1u);
  EXPECT_EQ(loses(packet(true, 0x5000, 1, bytes)), 1u);
  EXPECT_EQ(loses(packet(false, 0x5000, 1, bytes), 3), 3u);
  auto small = std::span(bytes).first(1024);
  EXPECT_EQ(loses(packet(false, 0x5000, 2, small)), 0u);
  Packet foreign = packet(false, 0x5000, 3, small);
  foreign.net.sgid = gid4(10, 99, 0, 1);  // not an address of this host
  EXPECT_EQ(loses(foreign), 1u);
  Packet nowhere = packet(false, 0x5000, 4, small);
  nowhere.net.dgid = gid4(172, 31, 0, 1);
  EXPECT_EQ(loses(nowhere), 1u);
  EXPECT_EQ(loses(packet(false, 0x5000, 5, small), 20), 0u) << "segmentation is still in use";
}

// Frames along one path leave as one datagram of the kernel's; another path, another size in front or too many end it. Each arrives, in
// order.
TEST_F(Udp, FramesThatFollowEachOtherLeaveTogether) {
  auto a = in_a(), b = in_b();
  std::uint32_t qb = b->lease_block();
  auto bytes = counting(4096);
  Collector c;
  for (bool v6 : {false, true}) {
    c.frames.clear();
    std::uint32_t psn = 0;
    auto send = [&](std::size_t size, std::uint8_t tos = 2, std::uint16_t sport = 0xc123) {
      Packet p = packet(v6, qb, psn++, std::span(bytes).first(size));
      p.net.traffic_class = tos;
      p.net.hop_limit = 64;
      p.net.udp_sport = sport;
      ASSERT_EQ(a->send(frame_of(p)), Send::kSent);
    };
    for (int i = 0; i < 40; ++i) send(4096);  // more than one datagram holds
    for (int i = 0; i < 5; ++i) send(4096);
    send(100);  // the last, shorter one
    send(100);
    send(200);
    for (int i = 0; i < 100; ++i) send(8);  // more than there may be segments
    for (int i = 0; i < 6; ++i) send(8, static_cast<std::uint8_t>(2 + 4 * (i / 3)));
    for (int i = 0; i < 6; ++i) send(8, 2, static_cast<std::uint16_t>(0xc200 + i / 3));
    a->flush();
    poll_b_until(*b, c, psn);
    for (std::uint32_t i = 0; i < psn; ++i) {
      Packet q;
      ASSERT_EQ(parse(c.frames[i], q), ParseError::kNone) << i;
      EXPECT_EQ(q.bth.psn, i);
      ASSERT_TRUE(std::equal(q.payload.begin(), q.payload.end(), bytes.begin()));
    }
  }
  EXPECT_EQ(b->counters().ident_solved.get() + b->counters().ident_unsolved.get() + b->counters().udp_dropped.get(), 0u);
  EXPECT_EQ(a->counters().udp_ports_taken.get(), 0u);
}

// A budget that ends inside of a datagram: the rest comes with the next polls.
TEST_F(Udp, ABudgetIsKept) {
  auto a = in_a(), b = in_b();
  std::uint32_t qb = b->lease_block();
  auto bytes = counting(64);
  for (std::uint32_t i = 0; i < 30; ++i) {
    Packet p = packet(false, qb, i, bytes);
    p.net = packet(false, qb, 0, bytes).net;
    ASSERT_EQ(a->send(frame_of(p)), Send::kSent);
  }
  a->flush();
  Collector c;
  unsigned most = 0;
  for (int i = 0; i < 100000 && c.frames.size() < 30; ++i) {
    std::size_t before = c.frames.size();
    EXPECT_LE(b->poll(c, 4, true), 4u);
    most = std::max(most, static_cast<unsigned>(c.frames.size() - before));
  }
  EXPECT_EQ(c.frames.size(), 30u);
  EXPECT_EQ(most, 4u);
}

// The port that a program asks for is another one's: said, counted, and another port is used.
TEST_F(Udp, ASourcePortThatIsTaken) {
  auto a = in_a(), b = in_b();
  std::uint32_t qb = b->lease_block();
  enter(a_ns_);
  int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(0xd001);
  ASSERT_EQ(bind(other, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  Collector c;
  auto bytes = counting(64);
  std::uint32_t sent = 0;
  for (std::uint16_t sport : {0xd000, 0xd001, 0xd001}) {
    Packet p = packet(false, qb, sent, bytes), q;
    p.net.udp_sport = sport;
    ASSERT_EQ(send_from_a(*a, frame_of(p)), Send::kSent);
    poll_b_until(*b, c, ++sent);
    ASSERT_EQ(parse(c.frames.back(), q), ParseError::kNone);
    EXPECT_EQ(q.net.udp_sport == sport, sport == 0xd000);
  }
  EXPECT_GE(a->counters().udp_ports_taken.get(), 1u);
  close(other);
}

}  // namespace
}  // namespace uhca::wire::test
