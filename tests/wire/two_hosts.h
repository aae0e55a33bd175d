// SPDX-License-Identifier: MIT
// Two hosts (network namespaces) that a veth joins, each with an uplink on its end. Needs root.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "wire/net/uplink.h"
#include "wire/packets.h"

namespace uhca::wire::test {

struct Collector final : FrameSink {
  std::vector<std::vector<std::byte>> frames;
  void receive(Frame f) override { frames.emplace_back(f.begin(), f.end()); }
};

inline const Gid kA4 = gid4(10, 77, 0, 1), kB4 = gid4(10, 77, 0, 2);
inline const Gid kA6{0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, kB6{0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};

class TwoHosts {
 protected:
  void begin() {
    ASSERT_EQ(geteuid(), 0u) << "network namespaces need root";
    home_ = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    na_ = "uhcaA" + std::to_string(getpid());
    nb_ = "uhcaB" + std::to_string(getpid());
    for (const std::string& c : {"ip netns add " + na_, "ip netns add " + nb_,
                                 "ip link add ua netns " + na_ + " mtu 9000 type veth peer name ub netns " + nb_ + " mtu 9000"}) {
      ASSERT_EQ(std::system(c.c_str()), 0) << c;
    }
    for (auto [ns, dev, n] : {std::tuple{na_, "ua", "1"}, std::tuple{nb_, "ub", "2"}}) {
      for (const std::string& c :
           {std::string("link set lo up"), std::string("link set ") + dev + " up", std::string("addr add 10.77.0.") + n + "/24 dev " + dev,
            std::string("-6 addr add fd77::") + n + "/64 dev " + dev + " nodad"}) {
        ASSERT_EQ(std::system(("ip -n " + ns + " " + c).c_str()), 0) << c;
      }
    }
    a_ns_ = open(("/run/netns/" + na_).c_str(), O_RDONLY | O_CLOEXEC);
    b_ns_ = open(("/run/netns/" + nb_).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(a_ns_, 0);
    ASSERT_GE(b_ns_, 0);
  }
  void end() {
    setns(home_, CLONE_NEWNET);
    for (int f : {a_ns_, b_ns_, home_}) close(f);
    for (auto& n : {na_, nb_}) EXPECT_EQ(std::system(("ip netns del " + n).c_str()), 0);
  }
  void enter(int ns) { ASSERT_EQ(setns(ns, CLONE_NEWNET), 0); }
  std::unique_ptr<Uplink> in(int ns, const char* dev) {
    enter(ns);
    auto u = Uplink::create(*choose_netdev(dev));
    EXPECT_TRUE(u.ok());
    return std::move(u).value();
  }
  std::unique_ptr<Uplink> in_a() { return in(a_ns_, "ua"); }
  std::unique_ptr<Uplink> in_b() { return in(b_ns_, "ub"); }
  Send send_from(int ns, Uplink& u, Frame f) {
    enter(ns);
    Send s;
    while ((s = u.send(f)) == Send::kBusy) std::this_thread::yield();
    u.flush();
    return s;
  }
  Send send_from_a(Uplink& a, Frame f) { return send_from(a_ns_, a, f); }
  void poll_until(int ns, Uplink& u, Collector& c, std::size_t n) {
    enter(ns);
    while (c.frames.size() < n) {
      if (u.poll(c, 64, true) == 0) std::this_thread::yield();
    }
  }
  void poll_b_until(Uplink& b, Collector& c, std::size_t n) { poll_until(b_ns_, b, c, n); }

  int home_ = -1, a_ns_ = -1, b_ns_ = -1;
  std::string na_, nb_;
};

}  // namespace uhca::wire::test
