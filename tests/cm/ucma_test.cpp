// SPDX-License-Identifier: MIT
// /dev/infiniband/rdma_cm command by command: two hosts over a wire without faults, and every refusal with its errno.
#include <gtest/gtest.h>

#include "cm/cm_host.h"
#include "kernel/cm/ucma_cmd.h"

namespace uhca::kernel::cm::test {
namespace {

using E = RdmaEventType;

class UcmaTest : public ::testing::Test {
 protected:
  UcmaTest() : a(net, 1), b(net, 2) {}

  std::uint32_t listener(std::uint16_t ps = kPsTcp, std::uint32_t backlog = 10) {
    std::uint32_t id = b.create(ps, 500);
    EXPECT_EQ(0, b.bind(id, in4(0, 7000)));
    EXPECT_EQ(0, b.listen(id, backlog));
    return id;
  }
  std::uint32_t routed(std::uint16_t ps = kPsTcp, std::uint8_t to = 2) {
    std::uint32_t id = a.create(ps);
    EXPECT_EQ(0, a.resolve(id, in4(to, 7000)));
    a.expect(E::ADDR_RESOLVED);
    EXPECT_EQ(0, a.route(id));
    a.expect(E::ROUTE_RESOLVED);
    return id;
  }

  FakeNet net;
  CmHost a, b;
};

TEST_F(UcmaTest, ConnectionFromBindToTimewait) {
  std::uint32_t l = listener();
  std::uint32_t c = routed();
  ASSERT_EQ(0, a.connect(c, 56));
  net.settle();
  auto req = b.expect(E::CONNECT_REQUEST);
  EXPECT_EQ(500u, req.uid);
  EXPECT_NE(l, req.id);
  EXPECT_EQ(56, req.param.conn.private_data_len);  // 92 of the REQ less 36 of the address header
  EXPECT_EQ(0x5a, req.param.conn.private_data[55]);
  EXPECT_EQ(2, req.param.conn.responder_resources);  // the peer's initiator depth
  EXPECT_EQ(3, req.param.conn.initiator_depth);
  EXPECT_EQ(0x1001u, req.param.conn.qp_num);

  ::ib_uverbs_qp_attr attr{};
  ::rdma_ucm_init_qp_attr init{reinterpret_cast<UserPtr>(&attr), req.id, 2};
  ASSERT_EQ(0, b.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, init, sizeof attr));
  EXPECT_EQ(0x1001u, attr.dest_qp_num);
  EXPECT_EQ(0x12345u, attr.rq_psn);
  EXPECT_EQ(1, attr.ah_attr.is_global);
  EXPECT_EQ(3, attr.ah_attr.grh.sgid_index);

  ASSERT_EQ(0, b.accept(req.id, 600, true));
  net.settle();
  auto rep = a.expect(E::CONNECT_RESPONSE);
  EXPECT_EQ(196, rep.param.conn.private_data_len);
  EXPECT_EQ(0x2001u, rep.param.conn.qp_num);
  ASSERT_EQ(0, a.accept(c, 0, false));
  net.settle();
  EXPECT_EQ(600u, b.expect(E::ESTABLISHED).uid);

  ASSERT_EQ(0, a.disconnect(c));
  net.settle();
  b.expect(E::DISCONNECTED);
  ASSERT_EQ(0, b.disconnect(req.id));
  net.settle();
  a.expect(E::DISCONNECTED);
  // rdma_cm passes its time on with ib_cm's.
  net.advance(2'000'000'000);
  a.expect(E::TIMEWAIT_EXIT);
  b.expect(E::TIMEWAIT_EXIT);
  EXPECT_FALSE(a.readable);
  std::uint32_t reported = 0;
  ASSERT_EQ(0, a.destroy(c, &reported));
  EXPECT_EQ(5u, reported);
  EXPECT_EQ(0, b.destroy(req.id));
  EXPECT_EQ(0, b.destroy(l));
  EXPECT_EQ(0u, a.cma.live_ids() + b.cma.live_ids() + a.dev.cm.live_ids() + b.dev.cm.live_ids());
  EXPECT_EQ(0u, a.ports.bindings() + b.ports.bindings());
}

TEST_F(UcmaTest, NoListenerIsStatus8AndARetryWorks) {
  std::uint32_t c = routed();
  ASSERT_EQ(0, a.connect(c));
  net.settle();
  a.expect(E::REJECTED, 8);
  listener();
  std::uint32_t again = routed();
  ASSERT_EQ(0, a.connect(again));
  net.settle();
  b.expect(E::CONNECT_REQUEST);
}

TEST_F(UcmaTest, PrivateDataSizes) {
  listener();
  std::uint32_t c = routed();
  EXPECT_EQ(EINVAL, a.connect(c, 57));
  EXPECT_EQ(EINVAL, a.connect(c, 255));
  ASSERT_EQ(0, a.connect(c, 1));
  net.settle();
  auto req = b.expect(E::CONNECT_REQUEST);
  EXPECT_EQ(56, req.param.conn.private_data_len);  // the transport's size, zero padded
  EXPECT_EQ(0x5a, req.param.conn.private_data[0]);
  EXPECT_EQ(0, req.param.conn.private_data[1]);
  ::rdma_ucm_reject r{};
  r.id = req.id;
  r.private_data_len = 149;
  EXPECT_EQ(EINVAL, b.write(RDMA_USER_CM_CMD_REJECT, r));
  r.private_data_len = 148;
  r.reason = 8;
  EXPECT_EQ(EINVAL, b.write(RDMA_USER_CM_CMD_REJECT, r));
  r.reason = 0;
  std::memset(r.private_data, 7, 148);
  ASSERT_EQ(0, b.write(RDMA_USER_CM_CMD_REJECT, r));
  net.settle();
  auto rej = a.expect(E::REJECTED, 28);
  EXPECT_EQ(148, rej.param.conn.private_data_len);
  EXPECT_EQ(7, rej.param.conn.private_data[147]);
}

TEST_F(UcmaTest, DatagramsResolveToAQpAndQkey) {
  listener(kPsUdp);
  std::uint32_t c = routed(kPsUdp);
  ASSERT_EQ(0, a.connect(c, 180));
  net.settle();
  auto req = b.expect(E::CONNECT_REQUEST);
  EXPECT_EQ(180, req.param.ud.private_data_len);
  ASSERT_EQ(0, b.accept(req.id, 600, true, 0x77));
  net.settle();
  auto e = a.expect(E::ESTABLISHED);
  EXPECT_EQ(0x77u, e.param.ud.qp_num);
  EXPECT_EQ(0x01234567u, e.param.ud.qkey);
  EXPECT_EQ(1, e.param.ud.ah_attr.is_global);
  EXPECT_EQ(0, std::memcmp(e.param.ud.ah_attr.grh.dgid, ip(2).data(), 16));
  // A reject is a SIDR_REP with status 2; nobody is status 1.
  std::uint32_t second = routed(kPsUdp);
  EXPECT_EQ(EINVAL, a.connect(second, 181));
  ASSERT_EQ(0, a.connect(second));
  net.settle();
  req = b.expect(E::CONNECT_REQUEST);
  ::rdma_ucm_reject r{};
  r.id = req.id;
  ASSERT_EQ(0, b.write(RDMA_USER_CM_CMD_REJECT, r));
  net.settle();
  a.expect(E::UNREACHABLE, 2);
}

TEST_F(UcmaTest, UnreachableIsATimeout) {
  net.copies = [](const FakeNet::Packet&) { return 0u; };
  std::uint32_t c = routed();
  ASSERT_EQ(0, a.connect(c));
  net.advance(16 * 4608'000'000ull);
  a.expect(E::UNREACHABLE, -ETIMEDOUT);
}

TEST_F(UcmaTest, AddressResolutionWaitsForTheNeighbour) {
  std::uint32_t c = a.create();
  ASSERT_EQ(0, a.resolve(c, in4(251, 7000), 1000));
  EXPECT_EQ(1u, a.solicited);
  ::rdma_ucm_event_resp e;
  EXPECT_EQ(EAGAIN, a.event(&e));
  a.cma.set_now(500'000'000);
  a.cma.run_timers();
  EXPECT_EQ(EAGAIN, a.event(&e));
  a.cma.set_now(1'000'000'000);
  a.cma.run_timers();
  a.expect(E::ADDR_ERROR, -ETIMEDOUT);
  EXPECT_EQ(kNever, a.cma.next_deadline());
  // Back to bound: it may be tried again.
  ASSERT_EQ(0, a.resolve(c, in4(251, 7000), 1000));
  a.neighbour = true;
  a.cma.set_now(1'100'000'000);
  a.cma.run_timers();
  a.expect(E::ADDR_RESOLVED);
  // Destroyed while it waits.
  a.neighbour = false;
  std::uint32_t d = a.create();
  ASSERT_EQ(0, a.resolve(d, in4(251, 7000), 1000));
  ASSERT_EQ(0, a.destroy(d));
  a.cma.set_now(9'000'000'000);
  a.cma.run_timers();
  EXPECT_EQ(EAGAIN, a.event(&e));
}

TEST_F(UcmaTest, LoopbackUsesTheDevice) {
  sockaddr_in lo = in4(0, 7000);
  lo.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::uint32_t l = a.create(kPsTcp, 900);
  ASSERT_EQ(0, a.bind(l, in4(0, 7000)));
  ASSERT_EQ(0, a.listen(l));
  std::uint32_t c = a.create();
  ASSERT_EQ(0, a.resolve(c, lo));
  a.expect(E::ADDR_RESOLVED);
  ASSERT_EQ(0, a.route(c));
  a.expect(E::ROUTE_RESOLVED);
  ASSERT_EQ(0, a.connect(c));
  net.settle();
  EXPECT_EQ(900u, a.expect(E::CONNECT_REQUEST).uid);
}

TEST_F(UcmaTest, BacklogDropsAndTheRetrySucceeds) {
  listener(kPsTcp, 1);
  std::uint32_t one = routed(), two = routed();
  ASSERT_EQ(0, a.connect(one, 0, 0x1001));
  ASSERT_EQ(0, a.connect(two, 0, 0x1002));
  net.settle();
  b.expect(E::CONNECT_REQUEST);
  ::rdma_ucm_event_resp e;
  EXPECT_EQ(EAGAIN, b.event(&e));
  net.advance(5'000'000'000ull);
  b.expect(E::CONNECT_REQUEST);
}

TEST_F(UcmaTest, ListenerTakesUnseenRequestsAlong) {
  std::uint32_t l = listener();
  std::uint32_t c = routed();
  ASSERT_EQ(0, a.connect(c));
  net.settle();
  EXPECT_EQ(2u, b.ucma.contexts());
  ASSERT_EQ(0, b.destroy(l));
  EXPECT_EQ(0u, b.ucma.contexts());
  net.settle();
  a.expect(E::REJECTED, 28);
  EXPECT_FALSE(b.readable);
}

TEST_F(UcmaTest, MigrationTakesEventsAlong) {
  std::uint32_t c = a.create();
  ASSERT_EQ(0, a.resolve(c, in4(2, 7000)));
  ::rdma_ucm_migrate_resp resp{99};
  ::rdma_ucm_migrate_id m{reinterpret_cast<UserPtr>(&resp), c, 1000};
  EXPECT_EQ(EINVAL, a.write(a.other, RDMA_USER_CM_CMD_MIGRATE_ID, ::rdma_ucm_migrate_id{m.response, c, 5}, sizeof resp));
  EXPECT_EQ(ENOENT, a.write(a.other, RDMA_USER_CM_CMD_MIGRATE_ID, ::rdma_ucm_migrate_id{m.response, c, ~0u}, sizeof resp));
  EXPECT_EQ(EINVAL, a.write(a.other, RDMA_USER_CM_CMD_MIGRATE_ID, ::rdma_ucm_migrate_id{m.response, c, 1001}, sizeof resp));
  ASSERT_EQ(0, a.write(a.other, RDMA_USER_CM_CMD_MIGRATE_ID, m, sizeof resp));
  EXPECT_EQ(0u, resp.events_reported);
  ::rdma_ucm_event_resp e;
  EXPECT_EQ(EAGAIN, a.event(&e));
  EXPECT_EQ(0, a.event(&e, &a.other));
  EXPECT_EQ(EINVAL, a.route(c));  // the old channel
}

TEST_F(UcmaTest, MigrationTakesUnseenRequestsAlong) {
  std::uint32_t l = listener();
  std::uint32_t one = routed(), two = routed();
  ASSERT_EQ(0, a.connect(one, 0, 0x1001));
  ASSERT_EQ(0, a.connect(two, 0, 0x1002));
  net.settle();
  ::rdma_ucm_migrate_resp resp{99};
  ::rdma_ucm_migrate_id m{reinterpret_cast<UserPtr>(&resp), l, 1000};
  ASSERT_EQ(0, b.write(b.other, RDMA_USER_CM_CMD_MIGRATE_ID, m, sizeof resp));
  b.file.close();
  EXPECT_EQ(3u, b.ucma.contexts());  // nothing of the old channel is left to it
  // The new id is the new channel's.
  ::rdma_ucm_event_resp e;
  ASSERT_EQ(0, b.event(&e, &b.other));
  EXPECT_EQ(E::CONNECT_REQUEST, static_cast<E>(e.event));
  ::rdma_ucm_accept accept{};
  accept.id = e.id;
  accept.uid = 600;
  accept.conn_param.valid = 1;
  accept.conn_param.qp_num = 0x2001;
  EXPECT_EQ(0, b.write(b.other, RDMA_USER_CM_CMD_ACCEPT, accept, 0));
  // And the one that nobody has seen goes with its listener.
  ::rdma_ucm_destroy_id_resp gone{};
  ASSERT_EQ(0, b.write(b.other, RDMA_USER_CM_CMD_DESTROY_ID, ::rdma_ucm_destroy_id{reinterpret_cast<UserPtr>(&gone), l, 0}, sizeof gone));
  EXPECT_EQ(1u, gone.events_reported);
  EXPECT_EQ(1u, b.ucma.contexts());
}

TEST_F(UcmaTest, NothingIsMadeAfterTheClose) {
  a.create();
  a.file.close();
  EXPECT_EQ(0u, a.ucma.contexts());
  ::rdma_ucm_create_id_resp resp{~0u};
  ::rdma_ucm_create_id c{1, reinterpret_cast<UserPtr>(&resp), kPsTcp, 2, {}};
  EXPECT_EQ(EBADF, a.write(RDMA_USER_CM_CMD_CREATE_ID, c, sizeof resp));
  EXPECT_EQ(0u, a.ucma.contexts());
  // Whoever was waiting for an event goes on waiting.
  ::rdma_ucm_event_resp event{};
  EXPECT_EQ(EAGAIN, a.write(RDMA_USER_CM_CMD_GET_EVENT, ::rdma_ucm_get_event{reinterpret_cast<UserPtr>(&event)}, sizeof event));
}

TEST_F(UcmaTest, MulticastJoinAndLeave) {
  std::uint32_t c = a.create(kPsUdp);
  ASSERT_EQ(0, a.bind(c, in4(1, 0)));
  ::rdma_ucm_create_id_resp resp{};
  ::rdma_ucm_join_mcast j{};
  j.response = reinterpret_cast<UserPtr>(&resp);
  j.uid = 321;
  j.id = c;
  j.addr_size = sizeof(sockaddr_in);
  sockaddr_in group = in4(0, 0);
  group.sin_addr.s_addr = htonl(0xef010101);
  std::memcpy(&j.addr, &group, sizeof group);
  j.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;  // no IGMP: that needs a netdev
  auto with = [&](auto change) {
    auto copy = j;
    change(copy);
    return a.write(RDMA_USER_CM_CMD_JOIN_MCAST, copy, sizeof resp);
  };
  EXPECT_EQ(EINVAL, with([](auto& x) { x.join_flags = 2; }));
  EXPECT_EQ(EINVAL, with([](auto& x) { x.addr_size = 5; }));
  EXPECT_EQ(ENOENT, with([](auto& x) { x.id = 999; }));
  EXPECT_EQ(EFAULT, with([](auto& x) { x.response = 8; }));
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_JOIN_MCAST, j, 3));
  EXPECT_EQ(524, with([](auto& x) {
              sockaddr_in6 six{};
              six.sin6_family = AF_INET6;
              six.sin6_addr.s6_addr[0] = 0xff;
              x.addr_size = sizeof six;
              std::memcpy(&x.addr, &six, sizeof six);
            }));
  ASSERT_EQ(0, with([](auto&) {}));
  auto e = a.expect(E::MULTICAST_JOIN);
  EXPECT_EQ(321u, e.uid);
  EXPECT_EQ(resp.id, e.id);
  EXPECT_EQ(0xffffffu, e.param.ud.qp_num);
  EXPECT_EQ(0x01234567u, e.param.ud.qkey);
  EXPECT_EQ(239, e.param.ud.ah_attr.grh.dgid[12]);
  ::rdma_ucm_destroy_id_resp left{};
  EXPECT_EQ(ENOENT, a.write(RDMA_USER_CM_CMD_LEAVE_MCAST, ::rdma_ucm_destroy_id{reinterpret_cast<UserPtr>(&left), 55, 0}, sizeof left));
  EXPECT_EQ(EINVAL, a.write(a.other, RDMA_USER_CM_CMD_LEAVE_MCAST, ::rdma_ucm_destroy_id{reinterpret_cast<UserPtr>(&left), resp.id, 0},
                            sizeof left));
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_LEAVE_MCAST, ::rdma_ucm_destroy_id{reinterpret_cast<UserPtr>(&left), resp.id, 0}, sizeof left));
  EXPECT_EQ(1u, left.events_reported);
  // Not UD; not bound.
  std::uint32_t tcp = a.create();
  ASSERT_EQ(0, a.bind(tcp, in4(1, 0)));
  EXPECT_EQ(EINVAL, with([&](auto& x) { x.id = tcp; }));
  EXPECT_EQ(EINVAL, with([&](auto& x) { x.id = a.create(kPsUdp); }));
}

TEST_F(UcmaTest, QueriesTellAddressesPathAndGids) {
  listener();
  std::uint32_t c = routed();
  ::rdma_ucm_query_addr_resp addr{};
  ::rdma_ucm_query q{reinterpret_cast<UserPtr>(&addr), c, RDMA_USER_CM_QUERY_ADDR};
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_QUERY, q, sizeof addr));
  EXPECT_EQ(byteswap(std::uint64_t{0x1122334455667788}), addr.node_guid);
  EXPECT_EQ(7u, addr.ibdev_index);
  EXPECT_EQ(1, addr.port_num);
  sockaddr_in src, dst;
  std::memcpy(&src, &addr.src_addr, sizeof src);
  std::memcpy(&dst, &addr.dst_addr, sizeof dst);
  EXPECT_EQ(in4(1, 0).sin_addr.s_addr, src.sin_addr.s_addr);
  EXPECT_NE(0, src.sin_port);
  EXPECT_EQ(htons(7000), dst.sin_port);

  struct {
    std::uint32_t n, reserved;
    ::ib_path_rec_data rec;
  } path{};
  q = {reinterpret_cast<UserPtr>(&path), c, RDMA_USER_CM_QUERY_PATH};
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_QUERY, q, sizeof path));
  EXPECT_EQ(1u, path.n);
  PathRec p = unpack_path(path.rec.path_rec);
  EXPECT_EQ(ip(2), p.dgid);
  EXPECT_EQ(3, p.mtu);
  EXPECT_EQ(16, p.packet_life_time);

  ::rdma_ucm_query_addr_resp gid{};
  q = {reinterpret_cast<UserPtr>(&gid), c, RDMA_USER_CM_QUERY_GID};
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_QUERY, q, sizeof gid));
  sockaddr_ib ib;
  std::memcpy(&ib, &gid.dst_addr, sizeof ib);
  EXPECT_EQ(kAfIb, ib.sib_family);
  EXPECT_EQ(0x01061b58u, byteswap(ib.sib_sid));

  ::rdma_ucm_query_route_resp route{};
  q = {reinterpret_cast<UserPtr>(&route), c, 0};
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_QUERY_ROUTE, q, sizeof route));
  EXPECT_EQ(1u, route.num_paths);
  EXPECT_EQ(0, std::memcmp(route.ib_route[0].dgid, ip(2).data(), 16));

  q.option = 3;
  EXPECT_EQ(ENODATA, a.write(RDMA_USER_CM_CMD_QUERY, q, 64));
  q.option = 4;
  EXPECT_EQ(ENOSYS, a.write(RDMA_USER_CM_CMD_QUERY, q, 64));
  for (std::uint32_t option : {0u, 1u, 2u, 3u}) {
    q.option = option;
    EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_QUERY, q, 4)) << option;
  }
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_QUERY_ROUTE, q, 4));
}

TEST_F(UcmaTest, OptionsAreChecked) {
  std::uint32_t c = a.create();
  auto set = [&](std::uint32_t level, std::uint32_t name, const void* value, std::uint32_t len) {
    return a.write(RDMA_USER_CM_CMD_SET_OPTION, ::rdma_ucm_set_option{reinterpret_cast<UserPtr>(value), c, level, name, len});
  };
  int on = 1;
  std::uint8_t byte = 20;
  EXPECT_EQ(0, set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, 4));
  EXPECT_EQ(0, set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, 4));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &byte, 1));
  EXPECT_EQ(0, set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, 4));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &byte, 1));
  EXPECT_EQ(0, set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &on, 4));
  EXPECT_EQ(ENOSYS, set(RDMA_OPTION_ID, 9, &on, 4));
  EXPECT_EQ(ENOSYS, set(RDMA_OPTION_IB, 9, &on, 4));
  EXPECT_EQ(ENOSYS, set(9, 0, &on, 4));
  EXPECT_EQ(EFAULT, set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, reinterpret_cast<void*>(8), 1));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, (4u << 20) + 1));
  ::ib_path_rec_data rec{};
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &rec, 10));
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &rec, sizeof rec));  // not a primary path
  rec.flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &rec, sizeof rec));  // no device
  ASSERT_EQ(0, a.resolve(c, in4(2, 7000)));
  a.expect(E::ADDR_RESOLVED);
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, 4));
  PathRec p;
  p.sgid = ip(1);
  p.dgid = ip(2);
  p.mtu = 3;
  pack_path(rec.path_rec, p);
  EXPECT_EQ(0, set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &rec, sizeof rec));
  a.expect(E::ROUTE_RESOLVED);
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &rec, sizeof rec));
  c = a.create(kPsUdp);
  EXPECT_EQ(EINVAL, set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1));
}

TEST_F(UcmaTest, BindingIsRefusedAsLinuxRefuses) {
  std::uint32_t c = a.create();
  EXPECT_EQ(EADDRNOTAVAIL, a.bind(c, in4(9, 7000)));  // not this host's
  EXPECT_EQ(ENODEV, a.bind(c, in4(200, 7000)));       // this host's, but no RDMA device has it
  sockaddr_in strange = in4(1, 7000);
  strange.sin_family = 99;
  EXPECT_EQ(EINVAL, a.bind(c, strange));
  ASSERT_EQ(0, a.bind(c, in4(1, 7000)));
  EXPECT_EQ(EINVAL, a.bind(c, in4(1, 7000)));  // bound
  EXPECT_EQ(EADDRINUSE, a.bind(a.create(), in4(1, 7000)));
  EXPECT_EQ(EADDRNOTAVAIL, a.bind(a.create(), in4(0, 7000)));  // a wildcard meets an address
  EXPECT_EQ(0, a.bind(a.create(kPsUdp), in4(1, 7000)));        // another port space
  EXPECT_EQ(EINVAL, a.bind(a.create(kPsIpoib), in4(1, 7001)));
  ::rdma_ucm_bind cmd{};
  cmd.id = c;
  cmd.addr_size = 3;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_BIND, cmd));
  cmd.addr_size = sizeof(sockaddr_in);
  cmd.reserved = 1;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_BIND, cmd));
  ::rdma_ucm_bind_ip six{};
  six.id = a.create();
  six.addr.sin6_family = AF_INET6;
  six.addr.sin6_addr.s6_addr[0] = 0xfe;
  six.addr.sin6_addr.s6_addr[1] = 0x80;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_BIND_IP, six));  // link-local without a scope
  six.addr.sin6_family = 99;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_BIND_IP, six));
}

TEST_F(UcmaTest, AfIbProbeOfLibrdmacmBinds) {
  std::uint32_t c = a.create(kPsIb);
  ::rdma_ucm_bind cmd{};
  cmd.id = c;
  cmd.addr_size = sizeof(sockaddr_ib);
  sockaddr_ib ib{};
  ib.sib_family = kAfIb;
  ib.sib_sid = byteswap(std::uint64_t{0x01060000});
  ib.sib_sid_mask = byteswap(~std::uint64_t{0xffff});
  std::memcpy(&cmd.addr, &ib, sizeof ib);
  EXPECT_EQ(0, a.write(RDMA_USER_CM_CMD_BIND, cmd));
  cmd.id = a.create(kPsUdp);  // a UDP id, a TCP service id
  EXPECT_EQ(EPROTONOSUPPORT, a.write(RDMA_USER_CM_CMD_BIND, cmd));
  cmd.id = a.create(kPsIb);
  ib.sib_addr[0] = 0xfe;
  std::memcpy(&cmd.addr, &ib, sizeof ib);
  EXPECT_EQ(ENODEV, a.write(RDMA_USER_CM_CMD_BIND, cmd));
}

TEST_F(UcmaTest, ResolvingIsRefusedAsLinuxRefuses) {
  std::uint32_t c = a.create();
  EXPECT_EQ(EINVAL, a.route(c));  // no device
  EXPECT_EQ(ENETUNREACH, a.resolve(c, in4(250, 1)));
  ASSERT_EQ(0, a.resolve(c, in4(2, 7000)));
  a.expect(E::ADDR_RESOLVED);
  EXPECT_EQ(EINVAL, a.resolve(c, in4(2, 7000)));
  EXPECT_EQ(EINVAL, a.connect(c));  // no route
  EXPECT_EQ(EINVAL, a.route(c, 0));
  a.mtu = 0;
  EXPECT_EQ(EINVAL, a.route(c));
  a.mtu = 3;
  ASSERT_EQ(0, a.route(c));
  EXPECT_EQ(EINVAL, a.route(c));
  std::uint32_t d = a.create();
  ::rdma_ucm_resolve_ip six{};
  six.id = d;
  six.src_addr.sin6_family = AF_INET6;
  std::memcpy(&six.dst_addr, std::data({in4(2, 7000)}), sizeof(sockaddr_in));
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_RESOLVE_IP, six));  // families differ
  ::rdma_ucm_resolve_addr r{};
  r.id = d;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_RESOLVE_ADDR, r));
  r.reserved = 1;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_RESOLVE_ADDR, r));
  struct {
    std::uint32_t id, rest[19];
  } service{a.create(), {}};
  EXPECT_EQ(EINVAL, a.write(23, service));
  ASSERT_EQ(0, a.bind(service.id, in4(1, 0)));
  EXPECT_EQ(EOPNOTSUPP, a.write(23, service));
}

TEST_F(UcmaTest, ConnectingIsRefusedInTheWrongState) {
  std::uint32_t c = a.create();
  EXPECT_EQ(EINVAL, a.connect(c));
  EXPECT_EQ(EINVAL, a.accept(c, 1, true));
  EXPECT_EQ(EINVAL, a.disconnect(c));
  ASSERT_EQ(0, a.bind(c, in4(1, 0)));
  EXPECT_EQ(EINVAL, a.accept(c, 1, true));
  EXPECT_EQ(EINVAL, a.disconnect(c));
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_REJECT, [&] {
    ::rdma_ucm_reject r{};
    r.id = c;
    return r;
  }()));
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_NOTIFY, ::rdma_ucm_notify{c, 4}));
  ::rdma_ucm_connect no_param{};
  no_param.id = c;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_CONNECT, no_param));
  EXPECT_EQ(EINVAL, a.write(a.file, RDMA_USER_CM_CMD_CONNECT, no_param, 0, 100));  // too short
  EXPECT_EQ(EINVAL, a.write(a.file, RDMA_USER_CM_CMD_ACCEPT, ::rdma_ucm_accept{}, 0, 100));
  ::ib_uverbs_qp_attr attr{};
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, ::rdma_ucm_init_qp_attr{reinterpret_cast<UserPtr>(&attr), c, 7}, sizeof attr));
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, ::rdma_ucm_init_qp_attr{reinterpret_cast<UserPtr>(&attr), c, 1}, 4));
  // Before there is a connection, INIT is possible: P_Key, port, no access.
  ASSERT_EQ(0, a.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, ::rdma_ucm_init_qp_attr{reinterpret_cast<UserPtr>(&attr), c, 1}, sizeof attr));
  EXPECT_EQ(IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS, attr.qp_attr_mask);
}

TEST_F(UcmaTest, UserEvents) {
  struct {
    std::uint32_t id, reserved, event, status;
    std::uint64_t arg;
    std::uint8_t rest[400];
  } w{a.create(), 0, 18, 5, 0x1234, {}};
  ASSERT_EQ(0, a.write(24, w));
  auto e = a.expect(E::USER, 5);
  EXPECT_EQ(0, std::memcmp(&e.param, &w.arg, 8));
  w.event = 4;
  EXPECT_EQ(EINVAL, a.write(24, w));
  w.event = 19;
  w.id = a.create(kPsTcp, 0);
  EXPECT_EQ(EINVAL, a.write(24, w));  // no uid
}

TEST_F(UcmaTest, WritesThatAreNoCommands) {
  std::uint8_t bytes[16] = {};
  auto raw = [&](std::uint32_t cmd, std::uint16_t in, std::size_t count) {
    ::rdma_ucm_cmd_hdr h{cmd, in, 0};
    std::memcpy(bytes, &h, sizeof h);
    return a.file.write(reinterpret_cast<UserPtr>(bytes), count, nullptr, nullptr).code();
  };
  EXPECT_EQ(EINVAL, raw(0, 0, 7));
  EXPECT_EQ(EINVAL, raw(25, 0, 8));
  EXPECT_EQ(EINVAL, raw(~0u, 0, 8));
  EXPECT_EQ(EINVAL, raw(0, 9, 16));
  EXPECT_EQ(ENOSYS, raw(RDMA_USER_CM_CMD_GET_OPTION, 0, 8));
  EXPECT_EQ(EFAULT, a.file.write(8, 64, nullptr, nullptr).code());
  ::rdma_ucm_create_id c{1, 8, kPsTcp, 2, {}};
  EXPECT_EQ(EFAULT, a.write(RDMA_USER_CM_CMD_CREATE_ID, c, 4));
  EXPECT_EQ(0u, a.ucma.contexts());
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_CREATE_ID, c, 3));
  c.ps = 0x999;
  EXPECT_EQ(EINVAL, a.write(RDMA_USER_CM_CMD_CREATE_ID, c, 4));
  ::rdma_ucm_event_resp e;
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_GET_EVENT, ::rdma_ucm_get_event{reinterpret_cast<UserPtr>(&e)}, 20));
  EXPECT_EQ(EAGAIN, a.event(&e));
  EXPECT_EQ(ENOENT, a.destroy(1234));
  EXPECT_EQ(ENOSPC, a.write(RDMA_USER_CM_CMD_DESTROY_ID, ::rdma_ucm_destroy_id{0, 0, 0}, 0));
  EXPECT_EQ(ENOENT, a.listen(1234));
  EXPECT_EQ(ENOENT, a.connect(1234));
  EXPECT_EQ(ENOENT, a.bind(1234, in4(1, 0)));
}

TEST_F(UcmaTest, RandomCommandsHarmNothing) {
  std::uint32_t x = 7;
  std::vector<std::uint8_t> m(sizeof(::rdma_ucm_cmd_hdr) + 700);
  for (int round = 0; round < 30000; ++round) {
    for (auto& byte : m) byte = static_cast<std::uint8_t>((x = x * 1664525 + 1013904223) >> 24);
    ::rdma_ucm_cmd_hdr h{(x >> 8) % 25, 600, 512};
    std::memcpy(m.data(), &h, sizeof h);
    // Ids that exist, and an answer that has a place.
    if (round % 2) std::memset(m.data() + sizeof h + 8, 0, 8);
    (void)a.file.write(
        reinterpret_cast<UserPtr>(m.data()), m.size(), [](void*, int) -> Result<UcmaFile*> { return Errno{EINVAL}; }, nullptr);
  }
  std::uint32_t c = routed();
  EXPECT_EQ(0, a.destroy(c));
}

}  // namespace
}  // namespace uhca::kernel::cm::test
