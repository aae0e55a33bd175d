// SPDX-License-Identifier: MIT
// Device registry and GID table, on this machine's loopback interface (it always has 127.0.0.1).
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {
namespace {

struct Dev : ib_device {
  std::vector<ib_gid_attr> added;
  std::vector<std::uint16_t> deleted;
  int fail_add_at = -1;
  void doorbell(std::uint64_t, std::uint64_t) override {}
  void look_at_send_queue(std::uint32_t) override {}
  void look_at_cq(std::uint32_t) override {}
  void polled_empty() override {}
  void going_to_sleep() override {}
  void watch_uar(std::uint32_t, bool) override {}
  void invalidate_range(UserPtr, std::size_t, std::string_view) override {}
  Dev() {
    name = "test_%d";
    netdev = "lo";
    ops.add_gid = [](ib_device& d, const ib_gid_attr& a) -> Status {
      auto& me = static_cast<Dev&>(d);
      if (static_cast<int>(me.added.size()) == me.fail_add_at) return Errno{EIO};
      me.added.push_back(a);
      return success();
    };
    ops.del_gid = [](ib_device& d, std::uint16_t i) -> Status {
      static_cast<Dev&>(d).deleted.push_back(i);
      return success();
    };
  }
};

ib_gid v4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  ib_gid g{};
  g[10] = g[11] = 0xff;
  g[12] = a, g[13] = b, g[14] = c, g[15] = d;
  return g;
}

TEST(Gid, LayoutPairsOfTypesAfterTheDefaultGid) {
  Dev dev;
  ASSERT_TRUE(ib_register_device(dev).ok());
  auto table = rdma_gid_table(dev, 1);
  ASSERT_GE(table.size(), 4u);
  ASSERT_EQ(table.size() % 2, 0u);
  EXPECT_EQ(dev.added.size(), table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].index, i);
    EXPECT_EQ(table[i].roce_v2, i % 2 == 1);
    EXPECT_EQ(table[i].gid, table[i & ~std::size_t{1}].gid);
    EXPECT_EQ(table[i].netdev, "lo");
  }
  // lo has an all-zero MAC: fe80::200:ff:fe00:0.
  ib_gid ll = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, 0};
  EXPECT_EQ(table[0].gid, ll);
  EXPECT_EQ(table[2].gid, v4(127, 0, 0, 1));
  // As many as the interface has addresses, counted independently.
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  std::size_t n = 0;
  for (ifaddrs* i = list; i; i = i->ifa_next)
    n += i->ifa_addr && !strncmp(i->ifa_name, "lo", 3) && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6);
  freeifaddrs(list);
  EXPECT_EQ(table.size(), 2 * (n + 1));

  EXPECT_FALSE(rdma_get_gid_attr(dev, 1, 255).valid);
  EXPECT_FALSE(rdma_get_gid_attr(dev, 2, 0).valid);
  EXPECT_FALSE(rdma_get_gid_attr(dev, 1, 256).valid);
  // Nothing changed: a refresh does nothing.
  auto before = dev.added.size();
  ASSERT_TRUE(rdma_refresh_gids(dev).ok());
  EXPECT_EQ(dev.added.size(), before);
  ib_unregister_device(dev);
  EXPECT_EQ(dev.deleted.size(), before);
}

TEST(Gid, RefreshFollowsTheNetdevWithAnEventForEachEntry) {
  Dev dev;
  ASSERT_TRUE(ib_register_device(dev).ok());
  std::size_t all = rdma_gid_table(dev, 1).size();
  std::size_t events = 0;
  ib_event_handler h;
  h.context = &events;
  h.handler = [](ib_event_handler& self, ib_device&, std::uint32_t e, std::uint32_t port) {
    EXPECT_EQ(e, 18u);  // GID_CHANGE
    EXPECT_EQ(port, 1u);
    ++*static_cast<std::size_t*>(self.context);
  };
  ib_register_event_handler(dev, h);
  dev.netdev = "no-such-dev";
  ASSERT_TRUE(rdma_refresh_gids(dev).ok());
  EXPECT_EQ(rdma_gid_table(dev, 1).size(), 0u);
  EXPECT_EQ(dev.deleted.size(), all);
  dev.netdev = "lo";
  ASSERT_TRUE(rdma_refresh_gids(dev).ok());
  EXPECT_EQ(rdma_gid_table(dev, 1).size(), all);
  EXPECT_EQ(events, 2 * all);
  ib_unregister_event_handler(dev, h);
  ib_unregister_device(dev);
}

// A namespace of its own, so that addresses may come and go: in a child process, whose exit status counts the failures.
int addresses_come_and_go() {
  if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) != 0) return 100;
  auto ip = [](const std::string& words) {
    if (std::system(("ip " + words).c_str()) != 0) _exit(101);
  };
  int wrong = 0;
  auto check = [&wrong](bool ok, int line) {
    if (ok) return;
    std::fprintf(stderr, "gid_test.cpp:%d\n", line);
    ++wrong;
  };
  ip("link set lo up");
  ip("addr add 10.9.0.1/32 dev lo");
  Dev dev;
  int news = rdma_netdev_news();
  check(news >= 0 && ib_register_device(dev).ok(), __LINE__);
  rdma_drain_netdev_news(news);
  auto readable = [news] {
    pollfd p{news, POLLIN, 0};
    return poll(&p, 1, 0) == 1;
  };
  check(!readable(), __LINE__);
  // 0, 1 default; 2, 3 127.0.0.1; 4, 5 10.9.0.1; 6, 7 ::1.
  check(rdma_gid_table(dev, 1).size() == 8, __LINE__);
  auto at = [&dev](std::uint16_t i) { return rdma_get_gid_attr(dev, 1, i); };
  check(at(4).gid == v4(10, 9, 0, 1) && !at(4).roce_v2 && at(5).gid == at(4).gid && at(5).roce_v2, __LINE__);
  auto refresh = [&](int line) {
    check(readable(), line);
    rdma_drain_netdev_news(news);
    check(rdma_refresh_gids(dev).ok(), line);
  };
  // A new address takes the first free slots, whatever its family: nothing moves.
  ip("addr add 10.9.0.2/32 dev lo");
  refresh(__LINE__);
  check(at(8).gid == v4(10, 9, 0, 2) && !at(8).roce_v2 && at(9).roce_v2, __LINE__);
  check(at(6).gid[15] == 1 && at(6).gid[11] == 0, __LINE__);
  // One that goes leaves a hole, and the next one fills it.
  ip("addr del 10.9.0.1/32 dev lo");
  refresh(__LINE__);
  check(!at(4).valid && !at(5).valid && at(8).gid == v4(10, 9, 0, 2) && at(9).valid, __LINE__);
  ip("addr add 10.9.0.3/32 dev lo");
  refresh(__LINE__);
  check(at(4).gid == v4(10, 9, 0, 3) && at(5).gid == v4(10, 9, 0, 3), __LINE__);
  check(dev.deleted == std::vector<std::uint16_t>({4, 5}), __LINE__);
  ib_unregister_device(dev);
  return wrong;
}

TEST(Gid, AddressesComeAndGoAndIndexesStay) {
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(addresses_come_and_go());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_NE(WEXITSTATUS(status), 100) << "no network namespace to be had";
  ASSERT_NE(WEXITSTATUS(status), 101) << "the ip command failed";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Device, NamesMinorsAndFailedRegistration) {
  Dev a, b, c;
  ASSERT_TRUE(ib_register_device(a).ok());
  ASSERT_TRUE(ib_register_device(b).ok());
  EXPECT_EQ(a.name, "test_0");
  EXPECT_EQ(b.name, "test_1");
  EXPECT_NE(a.uverbs_minor, b.uverbs_minor);
  EXPECT_EQ(ib_device_by_name("test_1"), &b);
  EXPECT_EQ(ib_device_by_minor(b.uverbs_minor), &b);
  EXPECT_EQ(ib_register_device(a).code(), EEXIST);
  c.name = "test_0";
  EXPECT_EQ(ib_register_device(c).code(), ENFILE);
  c.name = "test_2";
  c.fail_add_at = 2;
  EXPECT_EQ(ib_register_device(c).code(), EIO);
  EXPECT_EQ(c.deleted.size(), 2u);  // what was added before the failure
  EXPECT_EQ(ib_device_by_name("test_2"), nullptr);
  ib_unregister_device(a);
  ib_unregister_device(b);
  EXPECT_EQ(ib_device_by_name("test_0"), nullptr);
}

TEST(Address, RoceNeedsAGrhAndAFilledIndex) {
  Dev dev;
  ASSERT_TRUE(ib_register_device(dev).ok());
  rdma_ah_attr ah;
  ah.port_num = 1;
  EXPECT_EQ(rdma_resolve_ah(dev, ah, 1).code(), EINVAL);
  ah.is_global = true;
  ah.sgid_index = 200;
  EXPECT_EQ(rdma_resolve_ah(dev, ah, 1).code(), ENODATA);
  EXPECT_EQ(rdma_resolve_ah(dev, ah, 2).code(), EINVAL);
  ah.sgid_index = 3;
  ah.dgid = v4(224, 1, 2, 3);
  ASSERT_TRUE(rdma_resolve_ah(dev, ah, 1).ok());
  EXPECT_EQ(ah.dmac, (std::array<std::uint8_t, 6>{1, 0, 0x5e, 1, 2, 3}));
  ah.dgid = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa, 0xb, 0xc, 0xd};
  ASSERT_TRUE(rdma_resolve_ah(dev, ah, 1).ok());
  EXPECT_EQ(ah.dmac, (std::array<std::uint8_t, 6>{0x33, 0x33, 0xa, 0xb, 0xc, 0xd}));
  ah.dgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x52, 0x54, 0, 0xff, 0xfe, 1, 2, 3};
  ASSERT_TRUE(rdma_resolve_ah(dev, ah, 1).ok());
  EXPECT_EQ(ah.dmac, (std::array<std::uint8_t, 6>{0x50, 0x54, 0, 1, 2, 3}));
  ib_unregister_device(dev);
}

TEST(Access, FlagRules) {
  Dev dev;
  EXPECT_TRUE(ib_check_mr_access(dev, 0xf | 1 << 20).ok());
  EXPECT_EQ(ib_check_mr_access(dev, 2).code(), EINVAL);
  EXPECT_EQ(ib_check_mr_access(dev, 8).code(), EINVAL);
  EXPECT_EQ(ib_check_mr_access(dev, 1 << 15).code(), EINVAL);
  EXPECT_EQ(ib_check_mr_access(dev, 1 << 6).code(), EOPNOTSUPP);
  EXPECT_EQ(ib_check_mr_access(dev, 1 << 8).code(), EOPNOTSUPP);
}

}  // namespace
}  // namespace uhca::kernel
