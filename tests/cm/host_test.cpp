// SPDX-License-Identifier: MIT
// What the functions of one host share: port names, and MADs that are handed on.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <set>

#include "cm/cm_host.h"
#include "kernel/cm/early_requests.h"
#include "kernel/cm/exchange.h"
#include "kernel/cm/peer_watch.h"

namespace uhca::kernel::cm::test {
namespace {

std::string prefix(const char* test) {
  return "uhca-test/" + std::to_string(getpid()) + "/" + test + "/";
}

Sockaddr v4(std::uint8_t host, std::uint16_t port) {
  Sockaddr s;
  s.in = in4(host, port);
  return s;
}

// Two port spaces with one prefix are two processes of one host.
struct Id {
  explicit Id(PortSpace& s) : space(s) {}
  ~Id() { space.unbind(binding); }
  int bind(Sockaddr a, bool reuse = false, std::uint16_t ps = kPsTcp) {
    src = a;
    binding.afonly = a.family() == AF_INET;
    binding.reuseaddr = reuse;
    return space.bind(binding, ps, src, dst).code();
  }
  PortSpace& space;
  Sockaddr src, dst;
  PortBinding binding;
};

TEST(PortSpace, PortsBelongToTheHost) {
  PortSpace one(prefix("host"), nullptr, nullptr), two(prefix("host"), nullptr, nullptr);
  Id a(one), b(two), c(two), d(two), e(two);
  ASSERT_EQ(0, a.bind(v4(1, 7000)));
  EXPECT_EQ(EADDRINUSE, b.bind(v4(1, 7000)));
  EXPECT_EQ(EADDRNOTAVAIL, c.bind(v4(0, 7000)));  // a wildcard meets an address
  EXPECT_EQ(0, d.bind(v4(2, 7000)));              // another address
  EXPECT_EQ(0, e.bind(v4(1, 7000), false, kPsUdp));
  one.unbind(a.binding);
  EXPECT_EQ(0, b.bind(v4(1, 7000)));
}

TEST(PortSpace, FamiliesShareAPortWhenBothInsist) {
  PortSpace one(prefix("family"), nullptr, nullptr), two(prefix("family"), nullptr, nullptr);
  Id a(one), b(two);
  ASSERT_EQ(0, a.bind(v4(0, 7000)));
  b.src = Sockaddr::any(AF_INET6);
  b.src.set_port(7000);
  EXPECT_EQ(EADDRNOTAVAIL, two.bind(b.binding, kPsTcp, b.src, b.dst).code());  // [::] takes IPv4 as well
  b.binding.afonly = true;
  EXPECT_EQ(0, two.bind(b.binding, kPsTcp, b.src, b.dst).code());
}

TEST(PortSpace, ReuseInsideAProcessEndsWithListening) {
  PortSpace s(prefix("reuse"), nullptr, nullptr);
  Id a(s), b(s), c(s);
  ASSERT_EQ(0, a.bind(v4(0, 7000), true));
  EXPECT_EQ(EADDRNOTAVAIL, b.bind(v4(0, 7000)));
  ASSERT_EQ(0, c.bind(v4(0, 7000), true));
  EXPECT_EQ(EADDRNOTAVAIL, s.listen(a.binding).code());
  s.unbind(c.binding);
  EXPECT_EQ(0, s.listen(a.binding).code());
  EXPECT_TRUE(s.listens(a.binding.name->name()));
}

TEST(PortSpace, EphemeralPortsOfTwoProcessesNeverMeet) {
  PortSpace one(prefix("any"), nullptr, nullptr), two(prefix("any"), nullptr, nullptr);
  std::vector<std::unique_ptr<Id>> ids;
  std::set<std::uint16_t> seen;
  for (int i = 0; i < 400; ++i) {
    ids.push_back(std::make_unique<Id>(i % 2 ? one : two));
    ASSERT_EQ(0, ids.back()->bind(v4(0, 0)));
    EXPECT_GE(ids.back()->src.port(), 1024);
    EXPECT_TRUE(seen.insert(ids.back()->src.port()).second);
  }
  EXPECT_LE(bound_names(prefix("any")).size(), 16u);  // blocks, not ports
  ids.clear();
  EXPECT_LE(bound_names(prefix("any")).size(), 2u);
}

using Owner = Exchange::Owner;

class ExchangeTest : public ::testing::Test {
 protected:
  ExchangeTest()
      : one_ports(prefix("x"), nullptr, nullptr),
        two_ports(prefix("x"), nullptr, nullptr),
        one(prefix("x"), 1, one_ports),
        two(prefix("x"), 2, two_ports) {
    EXPECT_TRUE(one.start());
    EXPECT_TRUE(two.start());
    info.sgid = ip(9);
    info.dgid = ip(1);
    info.hop_limit = 63;
    info.flow_label = 0x12345;
  }
  static Mad mad(CmAttr attr) {
    Mad m;
    prm::set<prm::mad_hdr::attr_id>(m.hdr(), static_cast<std::uint16_t>(attr));
    return m;
  }
  static bool arrives(int fd, Mad* m, MadInfo* i) {
    int caller = accept_call(fd);
    if (caller < 0) return false;
    bool ok = Exchange::take(caller, m, i) == Exchange::Took::kMad;
    close(caller);
    return ok;
  }

  PortSpace one_ports, two_ports;
  Exchange one, two;
  MadInfo info;
};

TEST_F(ExchangeTest, RequestsFollowTheListener) {
  Mad req = mad(CmAttr::REQ);
  prm::set<prm::cm_req::service_id>(req.body(), std::uint64_t{kPsTcp} << 16 | 7100);
  EXPECT_EQ(Owner::kNobody, one.hand_on(req, info));
  Id l(two_ports);
  ASSERT_EQ(0, l.bind(v4(0, 7100)));
  EXPECT_EQ(Owner::kNobody, one.hand_on(req, info));  // bound is not listening
  ASSERT_TRUE(two_ports.listen(l.binding));
  EXPECT_EQ(Owner::kSelf, two.hand_on(req, info));  // it is ours
  ASSERT_EQ(Owner::kOther, one.hand_on(req, info));
  Mad got;
  MadInfo from;
  ASSERT_TRUE(arrives(l.binding.name->fd(), &got, &from));
  EXPECT_EQ(req.bytes, got.bytes);
  EXPECT_EQ(info.sgid, from.sgid);
  EXPECT_EQ(info.dgid, from.dgid);
  EXPECT_EQ(info.flow_label, from.flow_label);
  EXPECT_EQ(63, from.hop_limit);
  // An address comes before a wildcard; another address is not asked.
  Id exact(one_ports);
  two_ports.unbind(l.binding);
  ASSERT_EQ(0, exact.bind(v4(1, 7100)));
  ASSERT_TRUE(one_ports.listen(exact.binding));
  EXPECT_EQ(Owner::kOther, two.hand_on(req, info));
  info.dgid = ip(2);
  EXPECT_EQ(Owner::kNobody, two.hand_on(req, info));
}

TEST_F(ExchangeTest, EverythingElseFollowsTheCommunicationId) {
  for (CmAttr a : {CmAttr::MRA, CmAttr::REJ, CmAttr::REP, CmAttr::RTU, CmAttr::DREQ, CmAttr::DREP}) {
    Mad m = mad(a);
    prm::set<prm::cm_rej::remote_comm_id>(m.body(), 2u << IbCm::kIdBits | 55);
    EXPECT_EQ(Owner::kSelf, two.hand_on(m, info));
    ASSERT_EQ(Owner::kOther, one.hand_on(m, info)) << to_string(a);
    Mad got;
    MadInfo from;
    EXPECT_TRUE(arrives(two.fd(), &got, &from));
    prm::set<prm::cm_rej::remote_comm_id>(m.body(), 3u << IbCm::kIdBits | 55);
    EXPECT_EQ(Owner::kSelf, one.hand_on(m, info));  // no such function
  }
  Mad m = mad(CmAttr::SIDR_REP);
  prm::set<prm::cm_sidr_rep::request_id>(m.body(), 2u << IbCm::kIdBits | 1);
  EXPECT_EQ(Owner::kOther, one.hand_on(m, info));
}

TEST_F(ExchangeTest, RejectWithoutAnIdGoesToAll) {
  Mad m = mad(CmAttr::REJ);
  EXPECT_EQ(Owner::kSelf, one.hand_on(m, info));  // and to ourselves
  Mad got;
  MadInfo from;
  EXPECT_TRUE(arrives(two.fd(), &got, &from));
  EXPECT_FALSE(arrives(one.fd(), &got, &from));
}

TEST_F(ExchangeTest, AnOwnerOutOfReachIsNotNobody) {
  Mad drep = mad(CmAttr::DREP);
  prm::set<prm::cm_rej::remote_comm_id>(drep.body(), 2u << IbCm::kIdBits | 55);
  Mad req = mad(CmAttr::REQ);
  prm::set<prm::cm_req::service_id>(req.body(), std::uint64_t{kPsTcp} << 16 | 7101);
  Id l(two_ports);
  ASSERT_EQ(0, l.bind(v4(0, 7101)));
  ASSERT_TRUE(two_ports.listen(l.binding));
  // No descriptor left here.
  rlimit old;
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &old));
  rlimit none{0, old.rlim_max};
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &none));
  Owner drep_owner = one.hand_on(drep, info), req_owner = one.hand_on(req, info);
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &old));
  EXPECT_EQ(Owner::kOther, drep_owner);
  EXPECT_EQ(Owner::kOther, req_owner);
  Mad got;
  MadInfo from;
  EXPECT_FALSE(arrives(two.fd(), &got, &from));  // dropped
  // An owner that is stopped takes no more callers at some time.
  std::uint8_t byte = 0;
  Status s = success();
  for (int i = 0; i < 100'000 && s; ++i) s = call(prefix("x") + "fn/2", {&byte, 1});
  ASSERT_EQ(EAGAIN, s.code());
  EXPECT_EQ(Owner::kOther, one.hand_on(drep, info));
}

TEST(EarlyRequests, AreLookedAtForAWhile) {
  EarlyRequests early;
  EXPECT_EQ(kNever, early.next_deadline());
  Nanos now = 1000;
  std::vector<Nanos> looks;
  EarlyRequests::Request r;
  r.info.flow_label = 77;
  while (early.add(r, now)) {
    EXPECT_FALSE(early.due(early.next_deadline() - 1));
    now = early.next_deadline();
    looks.push_back(now);
    auto again = early.due(now);
    ASSERT_TRUE(again);
    EXPECT_EQ(77u, again->info.flow_label);
    EXPECT_EQ(kNever, early.next_deadline());
    r = *again;
  }
  EXPECT_EQ(6u, looks.size());
  EXPECT_EQ(1000u + 63'000'000u, now);
}

TEST(EarlyRequests, NoMoreThanSoManyWait) {
  EarlyRequests early;
  for (std::size_t i = 0; i < EarlyRequests::kMost; ++i) EXPECT_TRUE(early.add({}, i));
  EXPECT_FALSE(early.add({}, 0));
  EXPECT_TRUE(early.due(EarlyRequests::kFirstLook));
  EXPECT_TRUE(early.add({}, 0));
}

TEST_F(ExchangeTest, DeathIsNoticed) {
  std::set<int> polled;
  auto watch = [](void* self, int fd, bool on) {
    auto& p = *static_cast<std::set<int>*>(self);
    if (on) {
      p.insert(fd);
    } else {
      p.erase(fd);
    }
  };
  PeerWatch mine(prefix("x") + "fn/", watch, &polled);
  auto theirs = std::make_unique<PeerWatch>(prefix("x") + "fn/", watch, &polled);
  mine.add(2);
  ASSERT_EQ(1u, polled.size());
  int line = *polled.begin();
  mine.add(2);  // one line each
  ASSERT_EQ(1u, polled.size());
  int caller = accept_call(two.fd());
  ASSERT_GE(caller, 0);
  Mad m;
  MadInfo i;
  ASSERT_EQ(Exchange::Took::kWatcher, Exchange::take(caller, &m, &i));
  theirs->stays(caller);
  EXPECT_EQ(2u, polled.size());
  EXPECT_TRUE(mine.readable(line));
  EXPECT_FALSE(mine.any_dead());
  EXPECT_FALSE(mine.readable(0));
  theirs.reset();  // as the kernel closes what a dead process had open
  EXPECT_TRUE(mine.readable(line));
  EXPECT_EQ(std::vector<std::uint32_t>{2}, mine.dead());
  EXPECT_FALSE(mine.any_dead());
  EXPECT_TRUE(polled.empty());
  mine.add(77);  // has no name
  EXPECT_EQ(std::vector<std::uint32_t>{77}, mine.dead());
}

TEST_F(ExchangeTest, DeathOfOneThatNeverAnsweredIsNoticed) {
  int polled = -1;
  PeerWatch mine(
      prefix("x") + "fn/", [](void* p, int fd, bool on) { *static_cast<int*>(p) = on ? fd : -1; }, &polled);
  auto three = std::make_unique<Exchange>(prefix("x"), 3, two_ports);
  ASSERT_TRUE(three->start());
  mine.add(3);
  int line = polled;
  ASSERT_GE(line, 0);
  EXPECT_TRUE(mine.readable(line));
  EXPECT_FALSE(mine.any_dead());
  three.reset();
  EXPECT_TRUE(mine.readable(line));
  EXPECT_EQ(std::vector<std::uint32_t>{3}, mine.dead());
}

TEST_F(ExchangeTest, WhoMayNotListenIsTold) {
  rlimit files;
  ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &files));
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &files));
  PeerWatch theirs(
      prefix("x") + "fn/", [](void*, int, bool) {}, nullptr);
  std::vector<int> lines;
  for (std::size_t n = 0; n < PeerWatch::kMostListeners; ++n) {
    int p[2];
    ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_SEQPACKET, 0, p));
    theirs.stays(p[0]);
    lines.push_back(p[1]);
  }
  int polled = -1;
  PeerWatch mine(
      prefix("x") + "fn/", [](void* p, int fd, bool on) { *static_cast<int*>(p) = on ? fd : -1; }, &polled);
  mine.add(2);
  int line = polled;
  int caller = accept_call(two.fd());
  Mad m;
  MadInfo i;
  ASSERT_EQ(Exchange::Took::kWatcher, Exchange::take(caller, &m, &i));
  theirs.stays(caller);
  EXPECT_TRUE(mine.readable(line));
  EXPECT_FALSE(mine.any_dead());
  EXPECT_EQ(-1, polled);
  for (int l : lines) close(l);
}

TEST_F(ExchangeTest, WrongMessagesAreDropped) {
  std::string name = prefix("x") + "fn/2";
  std::uint8_t noise[400] = {1, 2, 3};
  for (std::size_t n : {1u, 100u, 400u}) ASSERT_TRUE(call(name, {noise, n}));
  std::vector<std::uint8_t> right(sizeof(HandedMad), 0xee);
  ASSERT_TRUE(call(name, right));
  Mad got;
  MadInfo from;
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(arrives(two.fd(), &got, &from));
  EXPECT_EQ(-1, accept_call(two.fd()));
  EXPECT_EQ(ECONNREFUSED, call(prefix("x") + "fn/3", right).code());
}

TEST(HostName, OneHolderAtATime) {
  auto a = HostName::bind(prefix("n") + "x");
  ASSERT_TRUE(a);
  EXPECT_EQ(EADDRINUSE, HostName::bind(prefix("n") + "x").code());
  EXPECT_EQ(std::vector<std::string>{"x"}, bound_names(prefix("n")));
  a->release();
  EXPECT_TRUE(HostName::bind(prefix("n") + "x"));
}

}  // namespace
}  // namespace uhca::kernel::cm::test
