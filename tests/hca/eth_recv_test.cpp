// SPDX-License-Identifier: MIT
// Ethernet frames that arrive: steering, RSS, receive queues, CQEs, and the border to the RDMA transport.
#include "device/hca/rss.h"
#include "hca/eth_harness.h"
#include "prm/reg.h"
#include "wire/roce/roce.h"

namespace uhca::hcatest {
namespace {

using prm::CqeOpcode;
using Outer = prm::fte_match_set_lyr_2_4;
using Misc = prm::fte_match_set_misc;
using C = prm::cqe64;

constexpr std::uint32_t kIpv6 = 1u << 31, kUdpPorts = 1u << 30, kAddresses = 3, kPorts = 12;
const std::string kRssKey =
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";  // Microsoft's verification suite

class EthRecv : public EthTest {};

TEST(Rss, MicrosoftsVectors) {
  Bytes key = hex(kRssKey);
  auto h = [&](const Bytes& in) {
    return hca::toeplitz(reinterpret_cast<const std::uint8_t*>(key.data()), reinterpret_cast<const std::uint8_t*>(in.data()), in.size());
  };
  EXPECT_EQ(h(hex("42 09 95 bb a1 8e 64 50 0a ea 06 e6")), 0x51ccc178u);
  EXPECT_EQ(h(hex("42 09 95 bb a1 8e 64 50")), 0x323e8fc2u);
  EXPECT_EQ(h(hex("c7 5c 6f 02 41 45 8c 53 37 96 12 83")), 0xc626b0eau);
  EXPECT_EQ(h(hex("3ffe2501 02001fff 00000000 00000007 3ffe2501 02000003 00000000 00000001 0aea 06e6")), 0x40207d3du) << "IPv6, TCP";
  EXPECT_EQ(h(hex("3ffe2501 02001fff 00000000 00000007 3ffe2501 02000003 00000000 00000001")), 0x2cc18cd5u);
}

TEST_F(EthRecv, AFrameAndItsCqe) {
  RawQueueHandle rq = create_rq();
  everything_to(create_tir(0, rq.number));
  auto at = post_recv(rq, {100, 2000});
  Bytes seg = tcp(counting(501));
  Bytes f = ipv4_frame(6, seg);
  store_be<std::uint16_t>(f.data() + 50, static_cast<std::uint16_t>(~l4_check(f, 14, 34, 6)));
  arrive(f);
  auto c = poll(rq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::RESP_SEND);
  EXPECT_EQ(c->get<C::byte_cnt>(), f.size());
  EXPECT_EQ(c->get<C::wqe_counter>(), 0u);
  EXPECT_EQ(c->get<C::srqn_uidx>(), 0xabcu);
  EXPECT_EQ(c->get<C::qpn>(), 0u) << "the flow tag's place";
  EXPECT_EQ(c->get<C::hds_ip_ext>(), 7u) << "L2, L3 and L4 are fine";
  EXPECT_EQ(c->get<C::l4_hdr_type_etc>(), 4u << 4 | 2u << 2) << "TCP with data and ACK, IPv4";
  EXPECT_EQ(c->get<C::check_sum>(), plain_sum(part(f, 14, f.size() - 14)));
  EXPECT_EQ(memory(at[0], 100) + memory(at[1], f.size() - 100), f);
}

TEST_F(EthRecv, ChecksumsAndHeaderTypes) {
  RawQueueHandle rq = create_rq();
  everything_to(create_tir(0, rq.number));
  auto sum4 = [](Bytes f, std::size_t at, unsigned protocol) {
    store_be<std::uint16_t>(f.data() + at, static_cast<std::uint16_t>(~l4_check(f, 14, 34, protocol)));
    return f;
  };
  Bytes bad_ip = sum4(ipv4_frame(17, udp(counting(60))), 40, 17);
  bad_ip[24] ^= std::byte{1};
  Bytes v6 = ipv6_frame(17, udp(counting(60)));
  store_be<std::uint16_t>(v6.data() + 60, static_cast<std::uint16_t>(~l4_check(v6, 14, 54, 17, true)));
  // A hop-by-hop header of 8 bytes before UDP.
  Bytes ext = ipv6_frame(0, hex("11 00 01 04 00 00 00 00") + udp(counting(60)));
  struct Case {
    const char* what;
    Bytes frame;
    unsigned ok, type;
  };
  const Case cases[] = {
      {"UDP without checksum", ipv4_frame(17, udp(counting(60))), 7, 2 << 4 | 2 << 2},
      {"UDP, wrong checksum", sum4(ipv4_frame(17, udp(counting(61))), 40, 6), 3, 2 << 4 | 2 << 2},
      {"wrong IP checksum", bad_ip, 5, 2 << 4 | 2 << 2},
      {"TCP SYN", sum4(ipv4_frame(6, tcp(counting(20), "02")), 50, 6), 7, 1 << 4 | 2 << 2},
      {"TCP ACK without data", sum4(ipv4_frame(6, tcp({})), 50, 6), 7, 3 << 4 | 2 << 2},
      {"fragment", ipv4_frame(17, udp(counting(60)), "", kMyMac, "2000"), 3, 2 << 2},
      {"UDP over IPv6", v6, 7, 2 << 4 | 1 << 2},
      {"IPv6 extension header, checksum 0", ext, 3, 2 << 4 | 1 << 2},
      {"ARP", hex("ff ff ff ff ff ff" + kPeerMac + "08 06") + counting(46), 1, 0},
      {"IP longer than its frame", part(ipv4_frame(17, udp(counting(100))), 0, 90), 1, 2 << 4 | 2 << 2},
      {"IPv6 longer than its frame", part(ipv6_frame(17, udp(counting(100))), 0, 110), 1, 2 << 4 | 1 << 2},
      {"an IP header that its frame cuts", part(ipv4_frame(17, udp(counting(100))), 0, 30), 1, 0},
  };
  for (const Case& k : cases) {
    post_recv(rq, {2000});
    arrive(k.frame);
    auto c = poll(rq);
    ASSERT_TRUE(c) << k.what;
    EXPECT_EQ(c->get<C::hds_ip_ext>(), k.ok) << k.what;
    EXPECT_EQ(c->get<C::l4_hdr_type_etc>(), k.type) << k.what;
    EXPECT_EQ(c->get<C::check_sum>(), plain_sum(part(k.frame, 14, k.frame.size() - 14))) << k.what;
  }
  // The padding of a short packet does not count.
  Bytes small = ipv4_frame(17, udp(counting(4)));
  Bytes padded = small + hex("aa bb cc dd ee ff 01 02 03 04 05 06 07 08");
  post_recv(rq, {2000});
  arrive(padded);
  auto c = poll(rq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<C::byte_cnt>(), padded.size());
  EXPECT_EQ(c->get<C::check_sum>(), plain_sum(part(small, 14, small.size() - 14)));
}

TEST_F(EthRecv, VlanTagsAreStrippedUnlessDisabled) {
  RawQueueHandle rq = create_rq();
  everything_to(create_tir(0, rq.number));
  Bytes tagged = ipv4_frame(17, udp(counting(60)), "81 00 a0 2a"), plain = ipv4_frame(17, udp(counting(60)));
  auto at = post_recv(rq, {2000});
  arrive(tagged);
  auto c = poll(rq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<C::l4_hdr_type_etc>() & 1, 1u);
  EXPECT_EQ(c->get<C::vlan_info>(), 0xa02au);
  EXPECT_EQ(c->get<C::byte_cnt>(), plain.size());
  EXPECT_EQ(memory(at[0], plain.size()), plain);
  std::uint32_t sum = c->get<C::check_sum>();
  EXPECT_EQ(sum, plain_sum(part(plain, 14, plain.size() - 14)));
  EXPECT_EQ(modify_rq(rq, 1, 1, 1 << 1, true), S::OK);
  at = post_recv(rq, {2000});
  arrive(tagged);
  ASSERT_TRUE(c = poll(rq));
  EXPECT_EQ(c->get<C::l4_hdr_type_etc>() & 1, 0u);
  EXPECT_EQ(memory(at[0], tagged.size()), tagged);
  EXPECT_EQ(c->get<C::check_sum>(), sum) << "from the IP header on";
}

TEST_F(EthRecv, RssSpreadsByHash) {
  std::vector<RawQueueHandle> rqs;
  std::vector<std::uint32_t> rqns;
  for (int i = 0; i < 4; ++i) {
    rqs.push_back(create_rq());
    rqns.push_back(rqs.back().number);
    post_recv(rqs.back(), {2000});
    post_recv(rqs.back(), {2000});
  }
  Bytes key = hex(kRssKey);
  std::uint32_t rqt = create_rqt(rqns);
  auto receive = [&](std::uint32_t tir, const Bytes& f) {
    Request<prm::modify_flow_table_in> none(Op::MODIFY_FLOW_TABLE);
    everything_to(tir);
    arrive(f);
    for (unsigned i = 0; i < 4; ++i) {
      if (auto c = poll(rqs[i])) {
        EXPECT_EQ(i, c->get<C::rss_hash_result>() % 4);
        post_recv(rqs[i], {2000});
        return *c;
      }
    }
    ADD_FAILURE() << "nobody received it";
    return EthCqe{};
  };
  Bytes f = hex(kMyMac + kPeerMac + "0800 4500 0030 0000 4000 40 06 0000 420995bb a18e6450 0aea 06e6") +
            hex("00000000 00000000 5010 ffff 0000 0000") + counting(8);
  EthCqe c = receive(create_tir(rqt, 0, 2, kAddresses | kPorts, key), f);
  EXPECT_EQ(c.get<C::rss_hash_result>(), 0x51ccc178u);
  EXPECT_EQ(c.get<C::rss_hash_type>(), 1u << 2 | 1u << 6) << "IPv4, TCP";
  c = receive(create_tir(rqt, 0, 2, kAddresses, key), f);
  EXPECT_EQ(c.get<C::rss_hash_result>(), 0x323e8fc2u);
  EXPECT_EQ(c.get<C::rss_hash_type>(), 1u << 2);
  c = receive(create_tir(rqt, 0, 2, kAddresses | kPorts | kUdpPorts, key), f);
  EXPECT_EQ(c.get<C::rss_hash_result>(), 0x323e8fc2u) << "no UDP ports in it";
  c = receive(create_tir(rqt, 0, 2, kAddresses | kIpv6, key), f);
  EXPECT_EQ(c.get<C::rss_hash_result>(), 0u) << "not IPv6";
  EXPECT_EQ(c.get<C::rss_hash_type>(), 0u);
  // Symmetric: the same for both directions.
  Bytes back = hex(kMyMac + kPeerMac + "0800 4500 0030 0000 4000 40 06 0000 a18e6450 420995bb 06e6 0aea") +
               hex("00000000 00000000 5010 ffff 0000 0000") + counting(8);
  std::uint32_t sym = create_tir(rqt, 0, 2, kAddresses | kPorts, key, true);
  std::uint32_t there = receive(sym, f).get<C::rss_hash_result>();
  EXPECT_EQ(receive(sym, back).get<C::rss_hash_result>(), there);
  EXPECT_NE(receive(create_tir(rqt, 0, 2, kAddresses | kPorts, key), back).get<C::rss_hash_result>(), 0x51ccc178u);
  // XOR of all bytes, bits in reverse order.
  unsigned x = 0;
  for (std::size_t i = 26; i < 38; ++i) x ^= u8(f, i);
  unsigned reversed = 0;
  for (unsigned b = 0; b < 8; ++b) reversed = reversed << 1 | (x >> b & 1);
  EXPECT_EQ(receive(create_tir(rqt, 0, 1, kAddresses | kPorts), f).get<C::rss_hash_result>(), reversed);
}

// As mlx5e builds it: VLAN table -> MAC table -> protocol table -> TIRs, misses to an empty anchor table.
TEST_F(EthRecv, TheDriversChain) {
  RawQueueHandle tcp_rq = create_rq(), udp_rq = create_rq(), other_rq = create_rq();
  for (RawQueueHandle* q : {&tcp_rq, &udp_rq, &other_rq})
    for (int i = 0; i < 8; ++i) post_recv(*q, {2000});
  std::uint32_t anchor = create_table(67, 0);
  std::uint32_t ttc = create_table(57, 7, anchor), l2 = create_table(56, 10, anchor), vlan = create_table(55, 14, anchor);
  auto protocol = [](unsigned version, unsigned proto) {
    return [=](void* o, void*) {
      prm::set<Outer::ip_version>(o, version);
      prm::set<Outer::ip_protocol>(o, proto);
    };
  };
  std::uint32_t by_protocol = create_group(ttc, 0, 13, protocol(0xf, 0xff)), any = create_group(ttc, 14, 14);
  EXPECT_EQ(set_entry(ttc, 0, by_protocol, protocol(4, 6), {{2, create_tir(0, tcp_rq.number)}}), S::OK);
  EXPECT_EQ(set_entry(ttc, 1, by_protocol, protocol(4, 17), {{2, create_tir(0, udp_rq.number)}}), S::OK);
  EXPECT_EQ(set_entry(ttc, 14, any, {}, {{2, create_tir(0, other_rq.number)}}), S::OK);
  auto dmac = [](std::uint64_t mac) {
    return [=](void* o, void*) {
      prm::set<Outer::dmac_47_16>(o, mac >> 16);
      prm::set<Outer::dmac_15_0>(o, mac & 0xffff);
    };
  };
  std::uint32_t full = create_group(l2, 0, 511, dmac(0xffffffffffff)), allmulti = create_group(l2, 512, 512, dmac(0x010000000000));
  EXPECT_EQ(set_entry(l2, 0, full, dmac(0xffffffffffff), {{1, ttc}}), S::OK);
  EXPECT_EQ(set_entry(l2, 1, full, dmac(0x021020304050), {{1, ttc}}), S::OK);
  auto cvlan = [](unsigned vid, bool with_vid) {
    return [=](void* o, void*) {
      prm::set<Outer::cvlan_tag>(o, 1);
      if (with_vid) prm::set<Outer::first_vid>(o, vid);
    };
  };
  std::uint32_t vids = create_group(vlan, 0, 4095, cvlan(0xfff, true));
  std::uint32_t untagged = create_group(vlan, 8192, 8193, [](void* o, void*) { prm::set<Outer::cvlan_tag>(o, 1); });
  EXPECT_EQ(set_entry(vlan, 8192, untagged, {}, {{1, l2}}), S::OK);
  set_root(vlan);

  auto received = [&](const Bytes& f) {
    arrive(f);
    std::string who;
    if (poll(tcp_rq)) who += "tcp";
    if (poll(udp_rq)) who += "udp";
    if (poll(other_rq)) who += "other";
    return who;
  };
  EXPECT_EQ(received(ipv4_frame(6, tcp(counting(20)))), "tcp");
  EXPECT_EQ(received(ipv4_frame(17, udp(counting(20)))), "udp");
  EXPECT_EQ(received(ipv4_frame(1, counting(20))), "other") << "ICMP";
  EXPECT_EQ(received(ipv6_frame(6, tcp(counting(20)))), "other");
  EXPECT_EQ(received(hex("ff ff ff ff ff ff" + kPeerMac + "0806") + counting(46)), "other") << "ARP";
  EXPECT_EQ(received(ipv4_frame(6, tcp({}), "", kPeerMac)), "") << "another station";
  EXPECT_EQ(received(ipv4_frame(6, tcp({}), "", "01 00 5e 00 00 01")), "") << "a group that nobody joined";
  EXPECT_EQ(set_entry(l2, 512, allmulti, dmac(0x010000000000), {{1, ttc}}), S::OK);
  EXPECT_EQ(received(ipv4_frame(17, udp(counting(20)), "", "01 00 5e 00 00 01")), "udp");
  EXPECT_EQ(received(ipv4_frame(6, tcp(counting(20)), "81 00 00 07")), "") << "VLAN 7 is unknown";
  EXPECT_EQ(set_entry(vlan, 7, vids, cvlan(7, true), {{1, l2}}), S::OK);
  EXPECT_EQ(received(ipv4_frame(6, tcp(counting(20)), "81 00 00 07")), "tcp");
  EXPECT_EQ(received(ipv4_frame(6, tcp(counting(20)), "81 00 00 08")), "");
  Request<prm::delete_fte_in> de(Op::DELETE_FLOW_TABLE_ENTRY);
  EXPECT_TRUE(bench.cmd.exec(de.set<prm::delete_fte_in::table_id>(vlan).set<prm::delete_fte_in::flow_index>(7)).ok());
  EXPECT_EQ(received(ipv4_frame(6, tcp(counting(20)), "81 00 00 07")), "") << "deleted";
}

TEST_F(EthRecv, CountersTagsDropsMirrorsAndMisses) {
  RawQueueHandle a = create_rq(), b = create_rq();
  for (RawQueueHandle* q : {&a, &b})
    for (int i = 0; i < 8; ++i) post_recv(*q, {2000});
  std::uint32_t to_a = create_tir(0, a.number), to_b = create_tir(0, b.number);
  Reply alloc = bench.cmd.exec(Request<prm::alloc_flow_counter_in>(Op::ALLOC_FLOW_COUNTER));
  ASSERT_TRUE(alloc.ok());
  std::uint32_t counter = alloc.get<prm::alloc_flow_counter_out::flow_counter_id>();
  auto port = [](unsigned n) { return [=](void* o, void*) { prm::set<Outer::udp_dport>(o, n); }; };
  std::uint32_t last = create_table(9, 2), t = create_table(1, 4, last);
  std::uint32_t g = create_group(t, 0, 7, port(0xffff));
  EXPECT_EQ(set_entry(t, 0, g, port(1000), {{2, to_a}}, 4, counter, 0x1234), S::OK);
  EXPECT_EQ(set_entry(t, 1, g, port(2000), {}, 2, counter), S::OK) << "drop";
  EXPECT_EQ(set_entry(t, 2, g, port(3000), {{2, to_a}, {2, to_b}}), S::OK);
  EXPECT_EQ(set_entry(last, 0, create_group(last, 0, 0), {}, {{2, to_b}}), S::OK) << "what misses";
  set_root(t);
  auto to = [](unsigned n) {
    return ipv4_frame(17, udp(counting(40), "1111 " + std::string(n == 1000 ? "03e8" : n == 2000 ? "07d0" : n == 3000 ? "0bb8" : "0fa0")));
  };
  arrive(to(1000));
  auto c = poll(a);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->get<C::qpn>(), 0x1234u);
  arrive(to(2000));
  EXPECT_FALSE(poll(a) || poll(b));
  arrive(to(3000));
  EXPECT_TRUE(poll(a) && poll(b));
  arrive(to(4000));
  EXPECT_TRUE(poll(b));
  EXPECT_FALSE(poll(a));
  auto query = [&](bool clear) {
    Request<prm::query_flow_counter_in> q(Op::QUERY_FLOW_COUNTER);
    q.set<prm::query_flow_counter_in::flow_counter_id>(counter).set<prm::query_flow_counter_in::clear>(clear);
    Reply r = bench.cmd.exec(q, 32);
    EXPECT_TRUE(r.ok());
    return std::pair{load_be<std::uint64_t>(r.out.data() + 16), load_be<std::uint64_t>(r.out.data() + 24)};
  };
  std::uint64_t size = to(1000).size();
  EXPECT_EQ(query(true), (std::pair<std::uint64_t, std::uint64_t>{2, 2 * size}));
  EXPECT_EQ(query(false), (std::pair<std::uint64_t, std::uint64_t>{0, 0}));
  // The entry's action is changed; what it matches stays.
  EXPECT_EQ(set_entry(t, 0, g, port(9), {{2, to_b}}, 4, 0, 0, 1), S::OK);
  arrive(to(1000));
  EXPECT_TRUE(poll(b));
  EXPECT_FALSE(poll(a));
  // MODIFY_FLOW_TABLE: no miss table any more.
  Request<prm::modify_flow_table_in> m(Op::MODIFY_FLOW_TABLE);
  EXPECT_TRUE(bench.cmd.exec(m.set<prm::modify_flow_table_in::table_id>(t).set<prm::modify_flow_table_in::modify_field_select>(1)).ok());
  arrive(to(4000));
  EXPECT_FALSE(poll(a) || poll(b));
}

TEST_F(EthRecv, EveryFieldMatches) {
  RawQueueHandle rq = create_rq();
  std::uint32_t tir = create_tir(0, rq.number);
  Bytes f4 = hex(kMyMac + kPeerMac + "88a8 6003 8100 a02a 0800 4563") + be16(20 + 20) + hex("0001 4000 3f 06 0000 0a090001 0a090002") +
             hex("1111 2222 00000000 00000000 5152 ffff 0000 0000");
  Bytes f6 = hex(kMyMac + kPeerMac + "86dd 6ab54321") + be16(8 + 12) +
             hex("11 05 fe800000000000000000000000000001 fe800000000000000000000000000002") +
             hex("c001 12b7 0014 0000 0a40ffff 00123456 00000000");
  struct Case {
    const char* what;
    const Bytes& frame;
    unsigned criteria;
    Match mask, value;
  };
  auto o = [](prm::Field f, std::uint64_t v) { return [=](void* outer, void*) { prm::set(outer, f, v); }; };
  auto x = [](prm::Field f, std::uint64_t v) { return [=](void*, void* misc) { prm::set(misc, f, v); }; };
  constexpr std::uint64_t all = ~std::uint64_t{0};
  const Case cases[] = {
      {"smac", f4, 1, o(Outer::smac_47_16, all), o(Outer::smac_47_16, 0x02102030)},
      {"dmac", f4, 1, o(Outer::dmac_15_0, all), o(Outer::dmac_15_0, 0x4050)},
      {"ethertype", f4, 1, o(Outer::ethertype, all), o(Outer::ethertype, 0x0800)},
      {"svlan", f4, 1, o(Outer::svlan_tag, 1), o(Outer::svlan_tag, 1)},
      {"not cvlan", f4, 1, o(Outer::cvlan_tag, 1), o(Outer::cvlan_tag, 0)},
      {"first vid", f4, 1, o(Outer::first_vid, all), o(Outer::first_vid, 3)},
      {"first prio", f4, 1, o(Outer::first_prio, all), o(Outer::first_prio, 3)},
      {"second vid", f4, 2, x(Misc::outer_second_vid, all), x(Misc::outer_second_vid, 0x02a)},
      {"second cvlan", f4, 2, x(Misc::outer_second_cvlan_tag, 1), x(Misc::outer_second_cvlan_tag, 1)},
      {"version", f4, 1, o(Outer::ip_version, all), o(Outer::ip_version, 4)},
      {"ihl", f4, 1, o(Outer::ipv4_ihl, all), o(Outer::ipv4_ihl, 5)},
      {"dscp", f4, 1, o(Outer::ip_dscp, all), o(Outer::ip_dscp, 0x63 >> 2)},
      {"ecn", f4, 1, o(Outer::ip_ecn, all), o(Outer::ip_ecn, 3)},
      {"ttl", f4, 1, o(Outer::ttl_hoplimit, all), o(Outer::ttl_hoplimit, 0x3f)},
      {"frag", f4, 1, o(Outer::frag, 1), o(Outer::frag, 0)},
      {"TCP ports", f4, 1, o(Outer::tcp_dport, all), o(Outer::tcp_dport, 0x2222)},
      {"TCP flags", f4, 1, o(Outer::tcp_flags, all), o(Outer::tcp_flags, 0x152)},
      {"IPv4 source", f4, 1, [](void* m, void*) { std::memset(static_cast<char*>(m) + 44, 0xff, 4); },
       [](void* m, void*) { store_be<std::uint32_t>(static_cast<char*>(m) + 44, 0x0a090001); }},
      {"IPv6 destination", f6, 1, [](void* m, void*) { std::memset(static_cast<char*>(m) + 48, 0xff, 16); },
       [](void* m, void*) {
         store_be<std::uint64_t>(static_cast<char*>(m) + 48, 0xfe80000000000000);
         store_be<std::uint64_t>(static_cast<char*>(m) + 56, 2);
       }},
      {"flow label", f6, 2, x(Misc::outer_ipv6_flow_label, all), x(Misc::outer_ipv6_flow_label, 0x54321)},
      {"UDP port", f6, 1, o(Outer::udp_dport, all), o(Outer::udp_dport, 4791)},
      {"BTH opcode", f6, 2, x(Misc::bth_opcode, all), x(Misc::bth_opcode, 0x0a)},
      {"BTH QP", f6, 2, x(Misc::bth_dst_qp, all), x(Misc::bth_dst_qp, 0x123456)},
  };
  for (const Case& k : cases) {
    std::uint32_t t = create_table(1, 2);
    std::uint32_t g = create_group(t, 0, 1, k.mask, k.criteria);
    set_root(t);
    // The opposite of every value must not match.
    EXPECT_EQ(set_entry(t, 0, g,
                        [&](void* m, void* misc) {
                          k.mask(m, misc);
                          std::uint8_t want[128] = {};
                          k.value(want, want + 64);
                          for (int i = 0; i < 128; ++i) static_cast<std::uint8_t*>(m)[i] ^= want[i];
                        },
                        {{2, tir}}),
              S::OK);
    post_recv(rq, {2000});
    arrive(k.frame);
    EXPECT_FALSE(poll(rq)) << k.what;
    EXPECT_EQ(set_entry(t, 1, g, k.value, {{2, tir}}), S::OK);
    arrive(k.frame);
    EXPECT_TRUE(poll(rq)) << k.what;
    Request<prm::delete_fte_in> de(Op::DELETE_FLOW_TABLE_ENTRY);
    for (unsigned i = 0; i < 2; ++i)
      EXPECT_TRUE(bench.cmd.exec(de.set<prm::delete_fte_in::table_id>(t).set<prm::delete_fte_in::flow_index>(i)).ok());
  }
  std::uint32_t t = create_table(1, 2);
  EXPECT_EQ(try_group(t, 0, 0, x(Misc::vxlan_vni, all), 2).status(), S::BAD_PARAM) << "not parsed";
  EXPECT_EQ(try_group(t, 0, 0, x(Misc::source_port, all), 2).status(), S::BAD_PARAM);
  EXPECT_EQ(try_group(t, 0, 0, {}, 4).status(), S::BAD_PARAM) << "inner headers";
  EXPECT_TRUE(try_group(t, 0, 0, x(Misc::vxlan_vni, all), 1).ok()) << "what the criteria leave out does not count";
}

TEST_F(EthRecv, MissesInARingEnd) {
  RawQueueHandle rq = create_rq();
  std::uint32_t a = create_table(1, 2), b = create_table(2, 2, a);
  Request<prm::modify_flow_table_in> m(Op::MODIFY_FLOW_TABLE);
  m.set<prm::modify_flow_table_in::table_id>(a).set<prm::modify_flow_table_in::modify_field_select>(1);
  void* c = m.at<prm::modify_flow_table_in::flow_table_context>();
  prm::set<prm::flow_table_context::table_miss_action>(c, 1);
  prm::set<prm::flow_table_context::table_miss_id>(c, b);
  ASSERT_TRUE(bench.cmd.exec(m).ok());
  set_root(a);
  arrive(ipv4_frame(17, udp(counting(20))));
  EXPECT_FALSE(poll(rq));
}

TEST_F(EthRecv, EntriesMayIgnoreLevels) {
  RawQueueHandle rq = create_rq();
  std::uint32_t high = create_table(5, 2), low = create_table(2, 2);
  std::uint32_t g = create_group(high, 0, 0);
  EXPECT_EQ(set_entry(high, 0, g, {}, {{1, low}}), S::BAD_PARAM) << "downwards";
  EXPECT_EQ(set_entry(high, 0, g, {}, {{1, low}}, 4, 0, 0, 0, true), S::OK);
  std::uint32_t to_tir = create_group(low, 0, 0);
  ASSERT_EQ(set_entry(low, 0, to_tir, {}, {{2, create_tir(0, rq.number)}}), S::OK);
  post_recv(rq, {2048});
  post_recv(rq, {2048});
  set_root(high);
  arrive(ipv4_frame(17, udp(counting(20))));
  EXPECT_TRUE(poll(rq));
  // A ring of entries: the frame is dropped in the end.
  ASSERT_EQ(set_entry(low, 0, to_tir, {}, {{1, high}}, 4, 0, 0, 1, true), S::OK);
  arrive(ipv4_frame(17, udp(counting(20))));
  EXPECT_FALSE(poll(rq));
}

TEST_F(EthRecv, WithoutBuffersFramesAreLostAndCounted) {
  Reply alloc = bench.cmd.exec(Request<prm::alloc_q_counter_in>(Op::ALLOC_Q_COUNTER));
  std::uint32_t set = alloc.get<prm::alloc_q_counter_out::counter_set_id>();
  RawQueueHandle rq = create_rq(4, 5, false, set);
  everything_to(create_tir(0, rq.number));
  Bytes f = ipv4_frame(17, udp(counting(40)));
  arrive(f);
  arrive(f);
  EXPECT_FALSE(poll(rq));
  post_recv(rq, {2000});
  arrive(f);
  EXPECT_TRUE(poll(rq));
  Request<prm::query_q_counter_in> q(Op::QUERY_Q_COUNTER);
  Reply r = bench.cmd.exec(q.set<prm::query_q_counter_in::counter_set_id>(set), prm::query_q_counter_out::kBytes);
  EXPECT_EQ(r.get<prm::query_q_counter_out::out_of_buffer>(), 2u);
}

TEST_F(EthRecv, FaultsOfReceiveWqes) {
  Bytes f = ipv4_frame(17, udp(counting(300)));
  for (bool too_small : {true, false}) {
    RawQueueHandle rq = create_rq();
    everything_to(create_tir(0, rq.number));
    post_recv(rq, {too_small ? 100u : 2000u}, too_small ? 0 : 0xdead00);
    post_recv(rq, {2000});
    arrive(f);
    auto c = poll(rq);
    ASSERT_TRUE(c);
    EXPECT_EQ(c->opcode, CqeOpcode::RESP_ERR);
    EXPECT_EQ(c->get<prm::err_cqe::syndrome>(),
              static_cast<unsigned>(too_small ? prm::CqeSyndrome::LOCAL_LENGTH : prm::CqeSyndrome::LOCAL_PROT));
    ASSERT_TRUE(c = poll(rq)) << "the rest is flushed";
    EXPECT_EQ(c->get<prm::err_cqe::syndrome>(), static_cast<unsigned>(prm::CqeSyndrome::WR_FLUSH));
    EXPECT_EQ(c->get<prm::err_cqe::wqe_counter>(), 1u);
    post_recv(rq, {2000});
    arrive(f);
    ASSERT_TRUE(c = poll(rq)) << "and what is posted later";
    EXPECT_EQ(c->opcode, CqeOpcode::RESP_ERR);
    // RST and RDY: a new life.
    EXPECT_EQ(modify_rq(rq, 3, 0), S::OK);
    rq.pi = 0;
    bench.bus.put_be32(rq.dbr, 0);
    EXPECT_EQ(modify_rq(rq, 0, 1), S::OK);
    post_recv(rq, {2000});
    arrive(f);
    ASSERT_TRUE(c = poll(rq));
    EXPECT_EQ(c->opcode, CqeOpcode::RESP_SEND);
  }
}

// As mlx5_ib destroys a raw packet QP: without an error, and nothing is flushed.
TEST_F(EthRecv, AReadyQueueMayBeReset) {
  RawQueueHandle rq = create_rq();
  everything_to(create_tir(0, rq.number));
  post_recv(rq, {2000});
  EXPECT_EQ(modify_rq(rq, 1, 0), S::OK);
  EXPECT_FALSE(poll(rq));
  Bytes f = ipv4_frame(17, udp(counting(30)));
  arrive(f);
  EXPECT_FALSE(poll(rq)) << "a queue in RST receives nothing";
  rq.pi = 0;
  bench.bus.put_be32(rq.dbr, 0);
  EXPECT_EQ(modify_rq(rq, 0, 1), S::OK);
  post_recv(rq, {2000});
  arrive(f);
  auto c = poll(rq);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->opcode, CqeOpcode::RESP_SEND);
  EXPECT_EQ(c->get<C::wqe_counter>(), 0u);
}

TEST_F(EthRecv, RefusedQueues) {
  RawQueueHandle q;
  auto made = [&](const std::function<void(void*)>& change) {
    auto r = queue_request<prm::create_rq_in>(Op::CREATE_RQ, q);
    change(r.at<prm::create_rq_in::ctx>());
    return bench.cmd.exec(r).status();
  };
  EXPECT_EQ(made([](void* c) { prm::set<prm::rqc::mem_rq_type>(c, 1); }), S::BAD_PARAM) << "RMP";
  EXPECT_EQ(made([](void* c) { prm::set<prm::wq::wq_type>(prm::at<prm::rqc::wq>(c), 0); }), S::BAD_PARAM) << "linked list";
  EXPECT_EQ(made([](void* c) { prm::set<prm::wq::wq_type>(prm::at<prm::rqc::wq>(c), 2); }), S::BAD_PARAM) << "striding";
  EXPECT_EQ(made([](void* c) { prm::set<prm::rqc::scatter_fcs>(c, 1); }), S::BAD_PARAM);
  EXPECT_EQ(made([](void* c) { prm::set<prm::rqc::delay_drop_en>(c, 1); }), S::BAD_PARAM);
  RawQueueHandle rq = create_rq();
  EXPECT_EQ(modify_rq(rq, 1, 1, 1 << 5), S::BAD_PARAM) << "a field that is not there";
}

TEST_F(EthRecv, RoceForAQpIsTheTransports) {
  RawQueueHandle rq = create_rq();
  everything_to(create_tir(0, rq.number));
  for (int i = 0; i < 8; ++i) post_recv(rq, {2000});
  CqHandle cq = bench.create_cq(4);
  QpHandle qp = bench.create_qp({.send_cqn = cq.cqn, .recv_cqn = cq.cqn});
  auto roce = [&](std::uint32_t qpn, const std::string& dmac = kMyMac) {
    Bytes bth = hex("04 40 ff ff 00 00 00 00 00 00 00 00") + counting(20);
    store_be<std::uint32_t>(bth.data() + 4, qpn);
    return ipv4_frame(17, udp(bth, "c000 12b7"), "", dmac);
  };
  auto frames = [&] { return bench.hca.data_path().counters().rx_frames; };
  arrive(roce(qp.qpn));
  EXPECT_FALSE(poll(rq));
  EXPECT_EQ(frames(), 1u);
  arrive(roce(qp.qpn + 5));
  EXPECT_TRUE(poll(rq)) << "no QP of ours: a datagram like any other";
  arrive(roce(qp.qpn, kPeerMac));
  EXPECT_TRUE(poll(rq)) << "another station's";
  EXPECT_EQ(frames(), 1u);
  Request<prm::create_rmp_in> rmp(prm::Opcode::CREATE_RMP, 0, 8);
  prm::set<prm::rmpc::state>(rmp.at<prm::create_rmp_in::ctx>(), 1);
  void* wq = prm::at<prm::rmpc::wq>(rmp.at<prm::create_rmp_in::ctx>());
  prm::set<prm::wq::log_wq_sz>(wq, 4);
  prm::set<prm::wq::log_wq_stride>(wq, 6);
  prm::set<prm::wq::pd>(wq, bench.pd);
  prm::set<prm::wq::dbr_addr>(wq, bench.bus.alloc(64));
  store_be<std::uint64_t>(rmp.bytes.data() + prm::create_rmp_in::kBytes, bench.bus.alloc(4096));
  Request<prm::create_dct_in> dct(prm::Opcode::CREATE_DCT);
  void* c = dct.at<prm::create_dct_in::dct_context_entry>();
  prm::set<prm::dctc::pd>(c, bench.pd);
  prm::set<prm::dctc::cqn>(c, cq.cqn);
  prm::set<prm::dctc::srqn_xrqn>(c, bench.cmd.exec(rmp).get<prm::create_rmp_out::rmpn>());
  prm::set<prm::dctc::mtu>(c, 3);
  Reply made = bench.cmd.exec(dct);
  ASSERT_TRUE(made.ok());
  arrive(roce(made.get<prm::create_dct_out::dctn>()));
  EXPECT_FALSE(poll(rq)) << "a DCT's";
  EXPECT_EQ(frames(), 2u);
  set_roce(false);
  arrive(roce(qp.qpn));
  EXPECT_TRUE(poll(rq)) << "RoCE is off";
  EXPECT_EQ(frames(), 2u);
}

TEST_F(EthRecv, WithoutADriverPlainEthernetIsDiscarded) {
  arrive(hex("ff ff ff ff ff ff" + kPeerMac + "0806") + counting(46));
  arrive(ipv4_frame(6, tcp(counting(20))));
  const hca::Counters& c = bench.hca.data_path().counters();
  EXPECT_EQ(c.rx_discards, 2u);
  EXPECT_EQ(c.rx_malformed, 0u);
}

TEST_F(EthRecv, LocalLoopback) {
  RawQueueHandle rq = create_rq(), sq = create_sq();
  for (int i = 0; i < 8; ++i) post_recv(rq, {2000});
  constexpr unsigned kUnicast = 1, kMulticast = 2;
  auto allow = [&](unsigned bits) { everything_to(create_tir(0, rq.number, 0, 0, {}, false, bits)); };
  Bytes to_me = ipv4_frame(17, udp(counting(40))), to_all = ipv4_frame(17, udp(counting(40)), "", "ff ff ff ff ff ff");
  allow(kUnicast | kMulticast);
  post_send(sq, {.inlined = to_me});
  EXPECT_TRUE(poll(rq));
  EXPECT_TRUE(bench.port.sent.empty()) << "it never leaves";
  post_send(sq, {.inlined = to_all});
  EXPECT_TRUE(poll(rq));
  EXPECT_EQ(bench.port.sent.size(), 1u);
  // The TIR's bits concern its own transport domain.
  allow(kMulticast);
  post_send(sq, {.inlined = to_me});
  EXPECT_FALSE(poll(rq));
  post_send(sq, {.inlined = to_all});
  EXPECT_TRUE(poll(rq));
  allow(0);
  post_send(sq, {.inlined = to_all});
  EXPECT_FALSE(poll(rq));
  arrive(to_me);
  EXPECT_TRUE(poll(rq)) << "from the wire";
  Reply other = bench.cmd.exec(Request<prm::alloc_transport_domain_in>(Op::ALLOC_TRANSPORT_DOMAIN));
  td = other.get<prm::alloc_transport_domain_out::transport_domain>();
  allow(0);
  post_send(sq, {.inlined = to_me});
  EXPECT_TRUE(poll(rq)) << "another domain than the sender's";
  // The vport's own switches, as drivers set them by default.
  set_local_loopback(false);
  std::size_t before = bench.port.sent.size();
  post_send(sq, {.inlined = to_me});
  post_send(sq, {.inlined = to_all});
  EXPECT_FALSE(poll(rq));
  EXPECT_EQ(bench.port.sent.size(), before + 2);
}

TEST_F(EthRecv, PortAndVportCount) {
  RawQueueHandle rq = create_rq(), sq = create_sq();
  everything_to(create_tir(0, rq.number));
  for (int i = 0; i < 8; ++i) post_recv(rq, {2000});
  Bytes uni = ipv4_frame(17, udp(counting(100))), broad = ipv4_frame(17, udp(counting(20)), "", "ff ff ff ff ff ff");
  arrive(uni);
  arrive(uni);
  arrive(broad);
  Bytes out = ipv4_frame(17, udp(counting(60)), "", kPeerMac);
  post_send(sq, {.inlined = out});
  Reply v = bench.cmd.exec(Request<prm::query_vport_counter_in>(Op::QUERY_VPORT_COUNTER), prm::query_vport_counter_out::kBytes);
  ASSERT_TRUE(v.ok());
  using o = prm::query_vport_counter_out;
  auto pair = [&](const void* at) {
    return std::pair{load_be<std::uint64_t>(at), load_be<std::uint64_t>(static_cast<const char*>(at) + 8)};
  };
  using P = std::pair<std::uint64_t, std::uint64_t>;
  EXPECT_EQ(pair(v.at<o::received_eth_unicast>()), (P{2, 2 * uni.size()}));
  EXPECT_EQ(pair(v.at<o::received_eth_broadcast>()), (P{1, broad.size()}));
  EXPECT_EQ(pair(v.at<o::transmitted_eth_unicast>()), (P{1, out.size()}));
  auto ppcnt = [&](unsigned group, std::size_t at) {
    Request<prm::access_register_in> r(Op::ACCESS_REG, 1, prm::ppcnt_reg::kBytes);
    r.set<prm::access_register_in::register_id>(0x5008);
    prm::set<prm::ppcnt_reg::local_port>(r.bytes.data() + 16, 1);
    prm::set<prm::ppcnt_reg::grp>(r.bytes.data() + 16, group);
    Reply reply = bench.cmd.exec(r, 16 + prm::ppcnt_reg::kBytes);
    EXPECT_TRUE(reply.ok());
    return load_be<std::uint64_t>(reply.out.data() + 16 + 8 + at / 8);
  };
  EXPECT_EQ(ppcnt(0, prm::eth_802_3_cntrs_grp_data_layout::a_frames_received_ok_high.offset), 3u);
  EXPECT_EQ(ppcnt(0, prm::eth_802_3_cntrs_grp_data_layout::a_octets_received_ok_high.offset), 2 * uni.size() + broad.size() + 12);
  EXPECT_EQ(ppcnt(1, prm::eth_2863_cntrs_grp_data_layout::if_out_ucast_pkts_high.offset), 1u);
  EXPECT_EQ(ppcnt(2, prm::eth_2819_cntrs_grp_data_layout::ether_stats_pkts128to255octets_high.offset), 2u);
  EXPECT_EQ(ppcnt(0x10, prm::eth_per_prio_grp_data_layout::rx_frames_high.offset), 3u);
}

TEST_F(EthRecv, APortThatIsDownCarriesNothing) {
  RawQueueHandle rq = create_rq(), sq = create_sq();
  everything_to(create_tir(0, rq.number));
  post_recv(rq, {2000});
  auto admin = [&](unsigned status) {
    Request<prm::access_register_in> r(Op::ACCESS_REG, 0, prm::paos_reg::kBytes);
    r.set<prm::access_register_in::register_id>(0x5006);
    void* d = r.bytes.data() + 16;
    prm::set<prm::paos_reg::local_port>(d, 1);
    prm::set<prm::paos_reg::ase>(d, 1);
    prm::set<prm::paos_reg::admin_status>(d, status);
    ASSERT_TRUE(bench.cmd.exec(r, 32).ok());
  };
  admin(2);
  Bytes f = ipv4_frame(17, udp(counting(100)));
  arrive(f);
  EXPECT_FALSE(poll(rq));
  post_send(sq, {.inlined = f});
  EXPECT_TRUE(poll(sq)) << "the WQE completes";
  EXPECT_TRUE(bench.port.sent.empty());
  admin(1);
  arrive(f);
  EXPECT_TRUE(poll(rq));
  arrive(Bytes(1600));
  EXPECT_FALSE(poll(rq)) << "longer than the port's MTU";
}

TEST_F(EthRecv, FramesOfAnySizeAndContent) {
  RawQueueHandle rq = create_rq(10);
  everything_to(create_tir(0, rq.number, 2, kAddresses | kPorts, hex(kRssKey)));
  std::uint32_t seed = 1;
  auto random = [&] { return seed = seed * 1664525 + 1013904223, seed >> 8; };
  std::vector<Bytes> seeds = {ipv4_frame(6, tcp(counting(40))), ipv6_frame(17, udp(counting(40))),
                              ipv6_frame(0, hex("2c 00 01 04 00 00 00 00") + counting(40)),
                              ipv4_frame(17, udp(counting(40)), "8100 0001 8100 0002")};
  for (int i = 0; i < 3000; ++i) {
    Bytes f = seeds[random() % seeds.size()];
    for (unsigned k = random() % 6; k > 0; --k) f[12 + random() % (f.size() - 12)] = static_cast<std::byte>(random());
    f.resize(random() % (f.size() + 1));
    if (rq.pi - rq.ci < 512) post_recv(rq, {1600});
    arrive(f);
    while (poll(rq)) {
    }
  }
  EXPECT_EQ(bench.bus.faults(), 0u);
}

}  // namespace
}  // namespace uhca::hcatest
