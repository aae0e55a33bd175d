// SPDX-License-Identifier: MIT
// Functions with a MAC of their own: on the host switch, and on the wire of an interface.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <thread>

#include "wire/net/function_mac.h"
#include "wire/net/netdev_port.h"
#include "wire/net/uplink.h"
#include "wire/packets.h"

namespace uhca::wire::test {
namespace {

struct Collector final : FrameSink {
  std::vector<std::vector<std::byte>> frames;
  void receive(Frame f) override { frames.emplace_back(f.begin(), f.end()); }
};

constexpr Mac kBroadcast = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

// An ARP-sized frame of no protocol that anybody looks at.
std::vector<std::byte> ethernet(const Mac& to, const Mac& from, std::uint8_t fill, std::size_t size = 60) {
  std::vector<std::byte> f(size, std::byte{fill});
  std::memcpy(f.data(), to.data(), 6);
  std::memcpy(f.data() + 6, from.data(), 6);
  f[12] = std::byte{0x88};
  f[13] = std::byte{0xb5};  // for local experiments (IEEE 802)
  return f;
}

TEST(FunctionMac, NamesTheSlotAndNothingElse) {
  const Mac netdev = {0x52, 0x54, 0x00, 0xaa, 0xbb, 0xcc};
  for (unsigned slot : {1u, 61u, 4094u}) {
    Mac m = function_mac(netdev, slot);
    EXPECT_EQ(m[0] & 3, 2) << "locally administered, unicast";
    EXPECT_EQ(slot_of(netdev, m.data()), slot);
  }
  EXPECT_EQ(slot_of(netdev, netdev.data()), 0u);
  EXPECT_EQ(slot_of(netdev, kBroadcast.data()), 0u);
  const Mac other = {0x52, 0x00, 0x05, 0xaa, 0xbb, 0xcd};
  EXPECT_EQ(slot_of(netdev, other.data()), 0u);
}

class OnTheSwitch : public testing::Test {
 protected:
  std::unique_ptr<Uplink> up(bool own_mac = true) {
    Uplink::Options o = options;
    o.ethernet = own_mac;
    auto u = Uplink::create(*choose_netdev("lo"), o);
    EXPECT_TRUE(u.ok());
    return std::move(u).value();
  }
  static Mac mac(const Uplink& u) { return function_mac(u.netdev().mac, u.function_id()); }
  static void poll_until(Uplink& u, Collector& c, std::size_t n) {
    while (c.frames.size() < n)
      if (u.poll(c, 64, true) == 0) std::this_thread::yield();
  }
  Uplink::Options options = [] {
    static int n = 0;
    Uplink::Options o;
    o.udp = false;
    std::string tag = std::to_string(getpid()) + "/" + std::to_string(n++) + "/";
    o.host_switch.prefix = "uhca-test-eth/fn/" + tag;
    o.host_switch.last_slot = 64;
    o.ethernet_prefix = "uhca-test-eth/eth/" + tag;
    return o;
  }();
};

TEST(FunctionMac, NamesItsSlotOrNone) {
  const Mac netdev = {0x02, 0x11, 0x22, 0x33, 0x44, 0x55};
  EXPECT_EQ(slot_of(netdev, function_mac(netdev, 1).data()), 1u);
  EXPECT_EQ(slot_of(netdev, function_mac(netdev, 4095).data()), 4095u);
  EXPECT_EQ(slot_of(netdev, function_mac(netdev, kOffTheSwitch).data()), 0u);
  EXPECT_NE(function_mac(netdev, kOffTheSwitch), netdev);
  EXPECT_EQ(slot_of(netdev, netdev.data()), 0u);
  const Mac other = {0x02, 0x00, 0x01, 0x33, 0x44, 0x56};
  EXPECT_EQ(slot_of(netdev, other.data()), 0u) << "of another adapter";
}

TEST_F(OnTheSwitch, FramesGoByMacAndGroupsToAllOthers) {
  auto a = up(), b = up(), c = up(), program = up(false);
  Collector at_a, at_b, at_c, at_program;
  EXPECT_EQ(a->send(ethernet(mac(*b), mac(*a), 1)), Send::kSent);
  EXPECT_EQ(a->send(ethernet(mac(*a), mac(*a), 2)), Send::kSent) << "to itself";
  EXPECT_EQ(a->send(ethernet(kBroadcast, mac(*a), 3)), Send::kSent);
  poll_until(*b, at_b, 2);
  poll_until(*c, at_c, 1);
  poll_until(*a, at_a, 1);
  EXPECT_EQ(at_b.frames[0][20], std::byte{1});
  EXPECT_EQ(at_b.frames[1][20], std::byte{3});
  EXPECT_EQ(at_c.frames[0][20], std::byte{3});
  EXPECT_EQ(at_a.frames.size(), 1u) << "not its own broadcast";
  EXPECT_EQ(at_a.frames[0][20], std::byte{2});
  EXPECT_EQ(program->poll(at_program, 64, true), 0u) << "a function that shares the netdev's MAC takes no part";
  // Nobody there, nothing known.
  const std::set<unsigned> taken = {a->function_id(), b->function_id(), c->function_id(), program->function_id()};
  unsigned vacant = 1;
  while (taken.count(vacant) != 0) ++vacant;
  EXPECT_EQ(a->send(ethernet(function_mac(a->netdev().mac, vacant), mac(*a), 4)), Send::kUnreachable);
  EXPECT_EQ(program->send(ethernet(kBroadcast, program->netdev().mac, 5)), Send::kUnreachable);
  // A RoCE frame to the MAC of another function, whatever its addresses say.
  auto roce = send_frame(gid4(10, 9, 0, 1), gid4(10, 9, 0, 2), 0x777000, 1, 64);
  Mac to_c = mac(*c);
  std::memcpy(roce.data(), to_c.data(), 6);
  EXPECT_EQ(a->send(roce), Send::kSent);
  poll_until(*c, at_c, 2);
  EXPECT_EQ(at_c.frames[1], roce);
}

// An interface whose address its owner has changed.
TEST_F(OnTheSwitch, UnknownAddressesAreFlooded) {
  auto a = up(), b = up(), c = up();
  const Mac changed = {2, 0, 0, 9, 9, 9};
  Collector at_a, at_b, at_c;
  EXPECT_EQ(a->send(ethernet(changed, mac(*a), 1)), Send::kSent);
  poll_until(*b, at_b, 1);
  poll_until(*c, at_c, 1);
  EXPECT_EQ(a->poll(at_a, 64, true), 0u);
  auto roce = send_frame(gid4(10, 9, 0, 1), gid4(10, 9, 0, 1), 0x777000, 1, 64);
  std::memcpy(roce.data(), changed.data(), 6);
  std::memcpy(roce.data() + 6, changed.data(), 6);
  EXPECT_EQ(a->send(roce), Send::kSent);
  poll_until(*a, at_a, 1);
  EXPECT_EQ(at_a.frames[0], roce);
  EXPECT_EQ(b->poll(at_b, 64, true), 0u) << "to itself, it never leaves";
}

// A RoCE frame from `from` to the group 239.1.2.3.
std::vector<std::byte> group_frame(const Mac& from, std::uint32_t psn) {
  constexpr Mac kGroup = {0x01, 0x00, 0x5e, 1, 2, 3};
  auto f = send_frame(gid4(10, 9, 0, 1), gid4(239, 1, 2, 3), 0xffffff, psn, 64);
  std::memcpy(f.data(), kGroup.data(), 6);
  std::memcpy(f.data() + 6, from.data(), 6);
  return f;
}

// kBusy would make the sender repeat what others have received already.
TEST_F(OnTheSwitch, AGroupFrameThatFindsNoRoomAtHomeIsSentAllTheSame) {
  auto a = up(), b = up();
  Collector at_a, at_b;
  const auto frame = group_frame(mac(*a), 1);
  std::size_t queued = 0;
  while (a->send(ethernet(mac(*a), mac(*a), 1, frame.size())) == Send::kSent) ++queued;
  EXPECT_EQ(a->send(frame), Send::kSent);
  poll_until(*b, at_b, 1);
  EXPECT_EQ(at_b.frames[0], frame);
  poll_until(*a, at_a, queued);
  EXPECT_EQ(a->poll(at_a, 64, true), 0u);
  EXPECT_EQ(a->send(group_frame(mac(*a), 2)), Send::kSent);
  poll_until(*a, at_a, queued + 1);
  EXPECT_EQ(at_a.frames.back(), group_frame(mac(*a), 2));
}

// In a child with a network namespace of its own: interfaces there concern nobody else. Exit status 0: fine.
int in_namespace(int (*body)()) {
  pid_t pid = fork();
  if (pid == 0) _exit(unshare(CLONE_NEWNET) == 0 ? body() : 99);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

bool set_up(const char* name) {
  int s = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq r{};
  std::strcpy(r.ifr_name, name);
  bool ok = ioctl(s, SIOCGIFFLAGS, &r) == 0;
  r.ifr_flags |= IFF_UP;
  ok = ok && ioctl(s, SIOCSIFFLAGS, &r) == 0;
  close(s);
  return ok;
}

// A persistent tap device `t0`, so that the port can attach to it.
bool make_tap() {
  int fd = open("/dev/net/tun", O_RDWR);
  ifreq r{};
  std::strcpy(r.ifr_name, "t0");
  r.ifr_flags = IFF_TAP | IFF_NO_PI;
  bool ok = fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0 && ioctl(fd, TUNSETPERSIST, 1) == 0;
  close(fd);
  return ok && set_up("t0");
}

#define CHECK_OR(code, x) \
  if (!(x)) return code

int tap_and_packet_socket() {
  CHECK_OR(1, make_tap());
  NetdevInfo t0 = std::move(*choose_netdev("t0"));
  const Mac own = function_mac(t0.mac, 1);
  auto port = NetdevPort::create(t0, own);
  CHECK_OR(2, port.ok() && (*port)->is_tap());
  CHECK_OR(3, NetdevPort::create(t0, own).code() == EBUSY);
  NetdevPort& p = **port;
  // The host's side of the tap, through the other kind of port. (A packet socket on a tap device sees what the device's owner sends.)
  int host = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, 0xb588);
  CHECK_OR(4, host >= 0);
  CHECK_OR(5, p.send(ethernet(kBroadcast, own, 7)) == Send::kSent);
  char got[128];
  ssize_t n;
  while ((n = recv(host, got, sizeof got, 0)) < 0 && errno == EAGAIN) {
  }
  CHECK_OR(6, n == 60 && got[20] == 7);
  // From the host: what it sends through the device arrives at the port.
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = t0.ifindex;
  auto frame = ethernet(own, t0.mac, 9);
  Collector c;
  auto has = [&](std::uint8_t fill) {
    for (auto& f : c.frames)
      if (f.size() == 60 && f[20] == std::byte{fill}) return true;
    return false;
  };
  while (!has(9)) {  // again and again: the kernel drops what comes before it has noticed the carrier
    CHECK_OR(7, sendto(host, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == 60);
    p.poll(c, 64, true);
  }
  // Loopback, also from inside the sink's call, and the wake-up for it.
  CHECK_OR(8, p.send(ethernet(own, own, 11)) == Send::kSent);
  while (!has(11)) p.poll(c, 64, true);
  CHECK_OR(9, p.send(std::vector<std::byte>(5)) == Send::kUnreachable);
  CHECK_OR(10, p.send(ethernet(own, own, 0, kMaxFrame + 1)) == Send::kUnreachable);
  unsigned taken = 0;
  while (p.send(ethernet(own, own, 12)) == Send::kSent && taken < 100000) ++taken;
  CHECK_OR(11, taken == 1024);
  close(host);
  return 0;
}

int packet_socket_on_loopback() {
  CHECK_OR(1, set_up("lo"));
  NetdevInfo lo = std::move(*choose_netdev("lo"));
  auto a = NetdevPort::create(lo, Mac{2, 0, 0, 0, 0, 1});
  auto b = NetdevPort::create(lo, Mac{2, 0, 0, 0, 0, 2});
  CHECK_OR(2, a.ok() && b.ok() && !(*a)->is_tap());
  Collector c;
  CHECK_OR(3, (*a)->send(ethernet(Mac{2, 0, 0, 0, 0, 2}, Mac{2, 0, 0, 0, 0, 1}, 5)) == Send::kSent);
  while (c.frames.empty()) (*b)->poll(c, 64, true);
  CHECK_OR(4, c.frames[0].size() == 60 && c.frames[0][20] == std::byte{5});
  // Longer than any frame of an adapter: only what follows it arrives.
  int host = socket(AF_PACKET, SOCK_RAW, 0);
  sockaddr_ll to{};
  to.sll_family = AF_PACKET;
  to.sll_ifindex = lo.ifindex;
  for (std::size_t size : {kMaxFrame + 1, std::size_t{40000}, kMaxFrame}) {
    auto frame = ethernet(Mac{2, 0, 0, 0, 0, 2}, Mac{2, 0, 0, 0, 0, 3}, 6, size);
    CHECK_OR(5, sendto(host, frame.data(), size, 0, reinterpret_cast<sockaddr*>(&to), sizeof to) == static_cast<ssize_t>(size));
  }
  close(host);
  c.frames.clear();
  while (c.frames.empty()) (*b)->poll(c, 64, true);
  CHECK_OR(6, c.frames[0].size() == kMaxFrame);
  return 0;
}

// A frame to a group comes back once it has been sent, and not before.
int group_frames_come_back_when_sent() {
  CHECK_OR(1, std::system("echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 && ip link add d0 type veth peer name d1 && ip link set d1 "
                          "up && ip link set d0 up") == 0);
  const Mac own = {2, 0, 0, 0, 0, 1};
  auto port = NetdevPort::create(*choose_netdev("d0"), own);
  CHECK_OR(2, port.ok());
  NetdevPort& p = **port;
  Collector c;
  CHECK_OR(3, std::system("tc qdisc add dev d0 root handle 1: pfifo limit 0") == 0);  // takes nothing
  for (int again = 0; again < 3; ++again) CHECK_OR(4, p.send(group_frame(own, 1)) == Send::kBusy);
  CHECK_OR(5, p.poll(c, 64, true) == 0);
  CHECK_OR(6, std::system("tc qdisc del dev d0 root") == 0);
  CHECK_OR(7, p.send(group_frame(own, 1)) == Send::kSent);
  while (c.frames.empty()) p.poll(c, 64, true);
  CHECK_OR(8, p.poll(c, 64, true) == 0 && c.frames.size() == 1 && c.frames[0] == group_frame(own, 1));
  CHECK_OR(9, std::system("ip link set d0 down") == 0);
  CHECK_OR(10, p.send(group_frame(own, 2)) == Send::kUnreachable && p.poll(c, 64, true) == 0);
  return 0;
}

TEST(NetdevPort, TapDevice) {
  ASSERT_EQ(geteuid(), 0u) << "needs CAP_NET_ADMIN";
  EXPECT_EQ(in_namespace(tap_and_packet_socket), 0);
}

TEST(NetdevPort, PacketSocket) {
  ASSERT_EQ(geteuid(), 0u) << "needs CAP_NET_RAW";
  EXPECT_EQ(in_namespace(packet_socket_on_loopback), 0);
}

TEST(NetdevPort, GroupFramesComeBackWhenSent) {
  ASSERT_EQ(geteuid(), 0u) << "needs CAP_NET_ADMIN";
  EXPECT_EQ(in_namespace(group_frames_come_back_when_sent), 0);
}

}  // namespace
}  // namespace uhca::wire::test
