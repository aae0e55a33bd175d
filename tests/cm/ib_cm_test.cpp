// SPDX-License-Identifier: MIT
// The states of the communication manager, against a second one, over a wire with faults.
#include <gtest/gtest.h>

#include <algorithm>

#include "cm/fake_net.h"

namespace uhca::kernel::cm::test {
namespace {

constexpr std::uint64_t kService = 0x0106'1234;
constexpr Nanos kSecond = 1'000'000'000;

class Recorder final : public CmHandler {
 public:
  struct Got {
    CmEventType type;
    CmId* id;
    CmEvent event;
    std::vector<std::uint8_t> data;
  };
  Status cm_event(CmId& id, const CmEvent& e) override {
    got.push_back({e.type, &id, e, {e.private_data.begin(), e.private_data.end()}});
    if (answer) return Errno{answer};
    if (adopt) id.handler = adopt;
    return success();
  }
  bool has(CmEventType t) const {
    return std::any_of(got.begin(), got.end(), [&](const Got& g) { return g.type == t; });
  }
  // Of the newest REJ; 0: there was none.
  int reject_reason() const {
    for (auto g = got.rbegin(); g != got.rend(); ++g)
      if (g->type == CmEventType::REJ_RECEIVED) return g->event.rej_reason;
    return 0;
  }
  const Got& last() const { return got.back(); }
  std::vector<Got> got;
  CmHandler* adopt = nullptr;
  int answer = 0;
};

class IbCmTest : public ::testing::Test {
 protected:
  IbCmTest() : a(net.add(1)), b(net.add(2)) { listener.adopt = &passive; }

  CmReqParam req(std::uint32_t qpn = 0x1001) {
    CmReqParam p;
    p.path.sgid = ip(a.host());
    p.path.dgid = ip(b.host());
    p.path.hop_limit = 64;
    p.path.mtu = 3;
    p.path.packet_life_time = 16;
    p.service_id = kService;
    p.qp_num = qpn;
    p.starting_psn = 0x123456;
    p.responder_resources = 4;
    p.initiator_depth = 5;
    p.remote_cm_response_timeout = 20;
    p.local_cm_response_timeout = 20;
    p.retry_count = 6;
    p.rnr_retry_count = 7;
    p.max_cm_retries = 15;
    p.private_data = hello;
    p.ece = {0x12345, 0x6789};
    return p;
  }
  CmRepParam rep(std::uint32_t qpn = 0x2001) {
    CmRepParam p;
    p.qp_num = qpn;
    p.starting_psn = 0x654321;
    p.responder_resources = 5;
    p.initiator_depth = 4;
    p.rnr_retry_count = 3;
    p.private_data = hello;
    p.ece = {0xabcdef, 1};
    return p;
  }
  void listen() { ASSERT_TRUE(b.cm.insert_listen(listener, kService)); }
  // Up to REQ_RCVD on the passive side.
  void request() {
    listen();
    client = &a.cm.create_id(&active);
    ASSERT_TRUE(a.cm.send_req(*client, req()));
    net.settle();
    ASSERT_EQ(1u, listener.got.size());
    server = listener.got[0].id;
  }
  void connect() {
    request();
    ASSERT_TRUE(b.cm.send_rep(*server, rep()));
    net.settle();
    ASSERT_EQ(CmState::REP_RCVD, client->state);
    ASSERT_TRUE(a.cm.send_rtu(*client, {}));
    net.settle();
    ASSERT_EQ(CmState::ESTABLISHED, server->state);
  }

  FakeNet net;
  FakeDevice& a;
  FakeDevice& b;
  Recorder active, passive, listener;
  CmId* client = nullptr;
  CmId* server = nullptr;
  std::vector<std::uint8_t> hello = {'h', 'e', 'l', 'l', 'o'};
};

TEST_F(IbCmTest, ConnectionCarriesParametersOfBothSides) {
  connect();
  const CmEvent& r = listener.got[0].event;
  EXPECT_EQ(0x1001u, r.remote_qpn);
  EXPECT_EQ(0x123456u, r.starting_psn);
  EXPECT_EQ(5, r.responder_resources);  // the peer's initiator depth
  EXPECT_EQ(4, r.initiator_depth);
  EXPECT_EQ(6, r.retry_count);
  EXPECT_EQ(7, r.rnr_retry_count);
  EXPECT_EQ(ib_qp_type::RC, r.qp_type);
  EXPECT_EQ(0x12345u, r.ece.vendor_id);
  EXPECT_EQ(0x6789u, r.ece.attr_mod);
  EXPECT_EQ(ip(2), r.path.sgid);
  EXPECT_EQ(ip(1), r.path.dgid);
  EXPECT_EQ(3, r.path.mtu);
  EXPECT_EQ(kReqPrivateData, listener.got[0].data.size());
  EXPECT_TRUE(std::equal(hello.begin(), hello.end(), listener.got[0].data.begin()));
  EXPECT_EQ(0, listener.got[0].data[5]);

  ASSERT_EQ(CmEventType::REP_RECEIVED, active.got[0].type);
  EXPECT_EQ(0x2001u, active.got[0].event.remote_qpn);
  EXPECT_EQ(0x654321u, active.got[0].event.starting_psn);
  EXPECT_EQ(0xabcdefu, active.got[0].event.ece.vendor_id);
  EXPECT_EQ(kRepPrivateData, active.got[0].data.size());
  EXPECT_EQ(CmEventType::RTU_RECEIVED, passive.last().type);
  EXPECT_EQ(3u, net.sent.size());
}

TEST_F(IbCmTest, TransportTypesOfAllConnectedQps) {
  listen();
  for (auto [sent, got] : {std::pair{ib_qp_type::UC, ib_qp_type::UC}, std::pair{ib_qp_type::XRC_INI, ib_qp_type::XRC_TGT}}) {
    CmId& id = a.cm.create_id(&active);
    auto p = req(0x1100 + static_cast<std::uint32_t>(sent));
    p.qp_type = sent;
    ASSERT_TRUE(a.cm.send_req(id, p));
    net.settle();
    EXPECT_EQ(got, listener.last().event.qp_type);
  }
  CmId& id = a.cm.create_id(&active);
  auto p = req();
  p.qp_type = ib_qp_type::UD;
  EXPECT_EQ(EINVAL, a.cm.send_req(id, p).code());
}

TEST_F(IbCmTest, QpAttributesFollowTheStates) {
  request();
  ib_qp_attr attr;
  std::uint32_t mask = 0;
  attr.qp_state = ib_qp_state::INIT;
  ASSERT_TRUE(a.cm.init_qp_attr(*client, attr, mask));
  EXPECT_EQ(IB_QP_STATE | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX | IB_QP_PORT, mask);
  EXPECT_EQ(2u | 4u | 8u, attr.qp_access_flags);
  attr.qp_state = ib_qp_state::RTR;
  EXPECT_EQ(EINVAL, a.cm.init_qp_attr(*client, attr, mask).code());  // the peer's QPN is not known yet

  ASSERT_TRUE(b.cm.init_qp_attr(*server, attr, mask));
  EXPECT_EQ(IB_QP_STATE | IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN | IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER, mask);
  EXPECT_EQ(0x1001u, attr.dest_qp_num);
  EXPECT_EQ(ip(1), attr.ah_attr.dgid);
  EXPECT_EQ(5, attr.max_dest_rd_atomic);
  attr.qp_state = ib_qp_state::RTS;
  ASSERT_TRUE(b.cm.init_qp_attr(*server, attr, mask));
  EXPECT_EQ(0x123456u, attr.sq_psn);
  EXPECT_EQ(4, attr.max_rd_atomic);
  EXPECT_EQ(6, attr.retry_cnt);
  EXPECT_EQ(17, attr.timeout);  // the requester's local ACK timeout: 2 * 2^16
  attr.qp_state = ib_qp_state::ERR;
  EXPECT_EQ(EINVAL, b.cm.init_qp_attr(*server, attr, mask).code());

  ASSERT_TRUE(b.cm.send_rep(*server, rep()));
  net.settle();
  attr.qp_state = ib_qp_state::RTR;
  ASSERT_TRUE(a.cm.init_qp_attr(*client, attr, mask));
  EXPECT_EQ(0x2001u, attr.dest_qp_num);
  EXPECT_EQ(0x123456u, attr.rq_psn);
}

TEST_F(IbCmTest, NobodyListensIsRejectedWithReason8) {
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req()));
  net.settle();
  ASSERT_EQ(CmEventType::REJ_RECEIVED, active.last().type);
  EXPECT_EQ(8, active.last().event.rej_reason);
  EXPECT_EQ(CmState::IDLE, client->state);
  EXPECT_EQ(0u, b.cm.live_ids());
  // A retry after listen works with the same id.
  listen();
  ASSERT_TRUE(a.cm.send_req(*client, req()));
  net.settle();
  EXPECT_TRUE(listener.has(CmEventType::REQ_RECEIVED));
}

TEST_F(IbCmTest, ConsumerRejectCarriesPrivateData) {
  request();
  std::vector<std::uint8_t> why(kRejPrivateData, 0x5a);
  ASSERT_TRUE(b.cm.send_rej(*server, CmRej::CONSUMER_DEFINED, {}, why));
  net.settle();
  ASSERT_EQ(CmEventType::REJ_RECEIVED, active.last().type);
  EXPECT_EQ(28, active.last().event.rej_reason);
  EXPECT_EQ(why, active.last().data);
  EXPECT_EQ(CmState::IDLE, server->state);
}

TEST_F(IbCmTest, RequestIsRetriedAndGivesUp) {
  net.copies = [](const FakeNet::Packet&) { return 0u; };
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req()));
  // One try lasts 2 * 2^(16-8) + 2^(20-8) ms.
  net.advance(4608'000'000LL - 1);
  EXPECT_EQ(1u, net.count(CmAttr::REQ));
  net.advance(1);
  EXPECT_EQ(2u, net.count(CmAttr::REQ));
  net.advance(14 * 4608'000'000LL);
  EXPECT_EQ(16u, net.count(CmAttr::REQ));
  EXPECT_TRUE(active.got.empty());
  net.advance(4608'000'000LL);
  ASSERT_EQ(1u, active.got.size());
  EXPECT_EQ(CmEventType::REQ_ERROR, active.got[0].type);
  EXPECT_EQ(CmState::IDLE, client->state);
  EXPECT_EQ(kNever, a.cm.next_deadline());
}

TEST_F(IbCmTest, EachLostMessageIsRecovered) {
  for (CmAttr lost : {CmAttr::REQ, CmAttr::REP, CmAttr::RTU, CmAttr::DREQ, CmAttr::DREP}) {
    SCOPED_TRACE(to_string(lost));
    bool dropped = false;
    net.copies = [&](const FakeNet::Packet& p) {
      if (cm_attr(p.mad) == lost && !dropped) {
        dropped = true;
        return 0u;
      }
      return 1u;
    };
    Recorder here, there, accept;
    accept.adopt = &there;
    auto l = b.cm.insert_listen(accept, kService);
    ASSERT_TRUE(l);
    CmId& c = a.cm.create_id(&here);
    ASSERT_TRUE(a.cm.send_req(c, req(0x1001 + static_cast<std::uint32_t>(lost))));
    net.advance(10 * kSecond);
    ASSERT_EQ(1u, accept.got.size());
    CmId& s = *accept.got[0].id;
    ASSERT_TRUE(b.cm.send_rep(s, rep(0x2001 + static_cast<std::uint32_t>(lost))));
    net.advance(10 * kSecond);
    ASSERT_EQ(CmState::REP_RCVD, c.state);
    ASSERT_TRUE(a.cm.send_rtu(c, hello));
    net.advance(10 * kSecond);
    ASSERT_EQ(CmState::ESTABLISHED, s.state);
    ASSERT_TRUE(a.cm.send_dreq(c, {}));
    net.settle();
    ASSERT_EQ(lost == CmAttr::DREQ ? CmState::ESTABLISHED : CmState::DREQ_RCVD, s.state);
    net.advance(5 * kSecond);
    ASSERT_EQ(CmState::DREQ_RCVD, s.state);
    ASSERT_TRUE(b.cm.send_drep(s, {}));
    // As a consumer does; whoever then asks again is answered all the same.
    b.cm.destroy_id(s);
    net.advance(10 * kSecond);
    EXPECT_TRUE(here.has(CmEventType::DREP_RECEIVED));
    EXPECT_TRUE(here.has(CmEventType::TIMEWAIT_EXIT));
    EXPECT_TRUE(dropped);
    a.cm.destroy_id(c);
    b.cm.destroy_id(**l);
    net.settle();
    EXPECT_EQ(0u, a.cm.live_ids());
    EXPECT_EQ(0u, b.cm.live_ids());
  }
}

TEST_F(IbCmTest, DuplicatesOfEverythingChangeNothing) {
  net.copies = [](const FakeNet::Packet&) { return 3u; };
  connect();
  ASSERT_TRUE(a.cm.send_dreq(*client, {}));
  net.settle();
  ASSERT_TRUE(b.cm.send_drep(*server, {}));
  net.settle();
  net.advance(3 * kSecond);
  EXPECT_EQ(1u, listener.got.size());
  std::vector<CmEventType> seen;
  for (auto& g : active.got) seen.push_back(g.type);
  EXPECT_EQ((std::vector{CmEventType::REP_RECEIVED, CmEventType::DREP_RECEIVED, CmEventType::TIMEWAIT_EXIT}), seen);
  seen.clear();
  for (auto& g : passive.got) seen.push_back(g.type);
  EXPECT_EQ((std::vector{CmEventType::RTU_RECEIVED, CmEventType::DREQ_RECEIVED, CmEventType::TIMEWAIT_EXIT}), seen);
  EXPECT_GT(b.cm.counters().duplicates, 3u);
}

TEST_F(IbCmTest, MraHoldsTheRequesterForAsLongAsItPromises) {
  request();
  ASSERT_TRUE(b.cm.prepare_mra(*server));
  EXPECT_EQ(0u, net.count(CmAttr::MRA));  // only duplicates are answered
  net.advance(4608'000'000LL);
  EXPECT_EQ(1u, net.count(CmAttr::MRA));
  EXPECT_EQ(CmState::MRA_REQ_RCVD, client->state);
  net.advance(60 * kSecond);
  EXPECT_EQ(2u, net.count(CmAttr::REQ));  // 2^(24-8) ms = 65.5 s of silence
  net.advance(10 * kSecond);
  EXPECT_EQ(3u, net.count(CmAttr::REQ));
  ASSERT_TRUE(b.cm.send_rep(*server, rep()));
  net.settle();
  EXPECT_EQ(CmState::REP_RCVD, client->state);
  EXPECT_EQ(EINVAL, b.cm.prepare_mra(*server).code());
}

TEST_F(IbCmTest, RequestFromAConnectedQpIsStaleAndEndsTheOldConnection) {
  connect();
  // The peer lost its memory of the connection (a crash) and connects again from the same QP.
  CmId& again = a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(again, req()));
  net.settle();
  EXPECT_EQ(10, active.reject_reason());
  EXPECT_EQ(CmState::TIMEWAIT, again.state);
  EXPECT_EQ(CmState::DREQ_SENT, server->state);
  EXPECT_EQ(CmState::DREQ_RCVD, client->state);
  EXPECT_EQ(1u, listener.got.size());
}

TEST_F(IbCmTest, StaleReplyIsRejected) {
  connect();
  CmId& second = a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(second, req(0x1002)));
  net.settle();
  CmId* s2 = listener.last().id;
  ASSERT_TRUE(b.cm.send_rep(*s2, rep(0x2001)));  // the QP of the first connection
  net.settle();
  EXPECT_EQ(10, passive.reject_reason());
  EXPECT_EQ(CmState::REQ_SENT, second.state);
}

TEST_F(IbCmTest, DestroyTellsThePeerInEveryState) {
  // REQ_SENT: the passive side learns that nobody waits any more.
  request();
  a.cm.destroy_id(*client);
  net.settle();
  EXPECT_EQ(CmEventType::REJ_RECEIVED, passive.last().type);
  EXPECT_EQ(4, passive.last().event.rej_reason);
  b.cm.destroy_id(*server);
  // REQ_RCVD
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req(0x1010)));
  net.settle();
  b.cm.destroy_id(*listener.last().id);
  net.settle();
  EXPECT_EQ(28, active.last().event.rej_reason);
  // REP_SENT
  ASSERT_TRUE(a.cm.send_req(*client, req(0x1011)));
  net.settle();
  server = listener.last().id;
  ASSERT_TRUE(b.cm.send_rep(*server, rep(0x2011)));
  b.cm.destroy_id(*server);
  net.settle();
  EXPECT_EQ(28, active.last().event.rej_reason);
  a.cm.destroy_id(*client);
  // REP_RCVD
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req(0x1012)));
  net.settle();
  server = listener.last().id;
  ASSERT_TRUE(b.cm.send_rep(*server, rep(0x2012)));
  net.settle();
  a.cm.destroy_id(*client);
  net.settle();
  EXPECT_EQ(CmEventType::REJ_RECEIVED, passive.last().type);
  b.cm.destroy_id(*server);
  // ESTABLISHED
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req(0x1013)));
  net.settle();
  server = listener.last().id;
  ASSERT_TRUE(b.cm.send_rep(*server, rep(0x2013)));
  net.settle();
  ASSERT_TRUE(a.cm.send_rtu(*client, {}));
  net.settle();
  a.cm.destroy_id(*client);
  net.settle();
  EXPECT_EQ(CmEventType::DREQ_RECEIVED, passive.last().type);
  b.cm.destroy_id(*server);
  EXPECT_EQ(0u, a.cm.live_ids());
  EXPECT_EQ(1u, b.cm.live_ids());  // the listener
}

TEST_F(IbCmTest, HandlerThatHasNoMemoryAnswersNothingSoThatTheRetrySucceeds) {
  listen();
  listener.answer = ENOMEM;
  client = &a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(*client, req()));
  net.settle();
  EXPECT_EQ(0u, net.count(CmAttr::REJ));
  listener.answer = 0;
  net.advance(5 * kSecond);
  EXPECT_EQ(2u, listener.got.size());
  listener.answer = EINVAL;
  CmId& other = a.cm.create_id(&active);
  ASSERT_TRUE(a.cm.send_req(other, req(0x1002)));
  net.settle();
  EXPECT_EQ(28, active.last().event.rej_reason);
}

TEST_F(IbCmTest, BothSidesDisconnectAtOnce) {
  connect();
  ASSERT_TRUE(a.cm.send_dreq(*client, {}));
  ASSERT_TRUE(b.cm.send_dreq(*server, {}));
  net.settle();
  EXPECT_EQ(CmState::DREQ_RCVD, client->state);
  EXPECT_EQ(CmState::DREQ_RCVD, server->state);
  ASSERT_TRUE(a.cm.send_drep(*client, {}));
  net.settle();
  EXPECT_EQ(CmState::TIMEWAIT, server->state);
}

TEST_F(IbCmTest, DisconnectOfADeadPeerTimesOut) {
  connect();
  net.copies = [](const FakeNet::Packet&) { return 0u; };
  ASSERT_TRUE(a.cm.send_dreq(*client, {}));
  net.advance(16 * 4608'000'000LL);
  EXPECT_EQ(16u, net.count(CmAttr::DREQ));
  EXPECT_EQ(CmEventType::DREQ_ERROR, active.last().type);
  EXPECT_EQ(CmState::TIMEWAIT, client->state);
  net.advance(3 * kSecond);
  EXPECT_EQ(CmEventType::TIMEWAIT_EXIT, active.last().type);
}

TEST_F(IbCmTest, DreqForAnUnknownConnectionIsAnswered) {
  connect();
  b.cm.destroy_id(*server);
  net.settle();  // its DREQ: the client is in DREQ_RCVD now
  ASSERT_TRUE(a.cm.send_drep(*client, {}));
  net.settle();
  EXPECT_EQ(CmState::TIMEWAIT, client->state);
}

// What a kernel says for a process that is killed, in each state.
class LastWords : public IbCmTest {
 protected:
  LastWords() { net.one_host = true; }
  void expect_rej(const Recorder& r, unsigned reason) {
    EXPECT_EQ(CmEventType::REJ_RECEIVED, r.last().type);
    EXPECT_EQ(reason, r.last().event.rej_reason);
  }
};

TEST_F(LastWords, OfAnEstablishedConnection) {
  connect();
  EXPECT_EQ(std::vector<std::uint32_t>{2}, a.functions_met);
  EXPECT_EQ(std::vector<std::uint32_t>{1}, b.functions_met);
  a.cm.last_words(3);  // somebody else
  EXPECT_EQ(CmState::ESTABLISHED, client->state);
  a.cm.last_words(2);
  EXPECT_EQ(CmEventType::DREQ_RECEIVED, active.last().type);
  b.cm.last_words(1);
  EXPECT_EQ(CmEventType::DREQ_RECEIVED, passive.last().type);
}

TEST_F(LastWords, OfARequester) {
  request();
  b.cm.last_words(1);
  expect_rej(passive, 4);  // timeout: the requester gave up
}

TEST_F(LastWords, OfARequesterThatKnowsItMustWait) {
  request();
  ASSERT_TRUE(b.cm.prepare_mra(*server));
  b.cm.last_words(1);
  expect_rej(passive, 4);
}

TEST_F(LastWords, OfARequesterThatWasAnswered) {
  request();
  ASSERT_TRUE(b.cm.send_rep(*server, rep()));
  b.cm.last_words(1);
  expect_rej(passive, 28);
}

TEST_F(LastWords, OfAnAnswerer) {
  request();
  ASSERT_TRUE(b.cm.send_rep(*server, rep()));
  net.settle();
  a.cm.last_words(2);
  expect_rej(active, 28);
}

TEST_F(LastWords, OfOneThatWasAskedToDisconnect) {
  connect();
  net.copies = [](const FakeNet::Packet&) { return 0u; };
  ASSERT_TRUE(a.cm.send_dreq(*client, {}));
  a.cm.last_words(2);
  EXPECT_EQ(CmEventType::DREP_RECEIVED, active.last().type);
}

TEST_F(LastWords, AreNotSpokenForOtherHosts) {
  net.one_host = false;
  connect();
  EXPECT_TRUE(a.functions_met.empty());
  a.cm.last_words(2);
  EXPECT_EQ(CmState::ESTABLISHED, client->state);
}

TEST_F(IbCmTest, CommEstablishedReplacesTheLostRtu) {
  request();
  EXPECT_EQ(EINVAL, b.cm.notify(*server, 4).code());
  ASSERT_TRUE(b.cm.send_rep(*server, rep()));
  EXPECT_EQ(EINVAL, b.cm.notify(*server, 6).code());
  EXPECT_EQ(EINVAL, b.cm.notify(*server, 1).code());
  ASSERT_TRUE(b.cm.notify(*server, 4));
  EXPECT_EQ(CmEventType::USER_ESTABLISHED, passive.last().type);
  EXPECT_EQ(EISCONN, b.cm.notify(*server, 4).code());
  EXPECT_EQ(kNever, b.cm.next_deadline());
}

TEST_F(IbCmTest, LateRejectOfTheRequestDoesNotHurtTheConnection) {
  connect();
  Mad rej;
  prm::set<prm::mad_hdr::base_version>(rej.hdr(), kMgmtBaseVersion);
  prm::set<prm::mad_hdr::mgmt_class>(rej.hdr(), kMgmtClassCm);
  prm::set<prm::mad_hdr::class_version>(rej.hdr(), kCmClassVersion);
  prm::set<prm::mad_hdr::method>(rej.hdr(), kMgmtMethodSend);
  prm::set<prm::mad_hdr::attr_id>(rej.hdr(), 0x12);
  prm::set<prm::cm_rej::remote_comm_id>(rej.body(), client->local_id);
  prm::set<prm::cm_rej::reason>(rej.body(), 8);
  a.cm.receive(rej, {});
  EXPECT_EQ(CmState::ESTABLISHED, client->state);
}

TEST_F(IbCmTest, ForeignAndMalformedMadsAreDropped) {
  connect();
  std::uint64_t before = b.cm.counters().dropped;
  Mad m;
  b.cm.receive(m, {});
  for (auto& byte : m.bytes) byte = 0xff;
  b.cm.receive(m, {});
  EXPECT_EQ(before + 2, b.cm.counters().dropped);
  // Every attribute with random content: nothing may crash or change the connection.
  std::uint32_t x = 1;
  for (int round = 0; round < 20000; ++round) {
    for (auto& byte : m.bytes) byte = static_cast<std::uint8_t>((x = x * 1664525 + 1013904223) >> 24);
    prm::set<prm::mad_hdr::base_version>(m.hdr(), kMgmtBaseVersion);
    prm::set<prm::mad_hdr::mgmt_class>(m.hdr(), kMgmtClassCm);
    prm::set<prm::mad_hdr::class_version>(m.hdr(), kCmClassVersion);
    prm::set<prm::mad_hdr::method>(m.hdr(), kMgmtMethodSend);
    prm::set<prm::mad_hdr::attr_id>(m.hdr(), 0x10 + x % 11);
    MadInfo info;
    info.sgid = ip(1);
    info.dgid = ip(2);
    b.cm.receive(m, info);
  }
  EXPECT_EQ(CmState::ESTABLISHED, server->state);
  EXPECT_EQ(2u, b.cm.live_ids());
}

TEST_F(IbCmTest, PrivateDataHasLimits) {
  std::vector<std::uint8_t> data(225, 1);
  auto first = [&](std::size_t n) { return std::span<const std::uint8_t>(data.data(), n); };
  listen();
  client = &a.cm.create_id(&active);
  auto p = req();
  p.private_data = first(93);
  EXPECT_EQ(EINVAL, a.cm.send_req(*client, p).code());
  p.private_data = first(92);
  EXPECT_TRUE(a.cm.send_req(*client, p));
  net.settle();
  server = listener.last().id;
  auto r = rep();
  r.private_data = first(197);
  EXPECT_EQ(EINVAL, b.cm.send_rep(*server, r).code());
  EXPECT_EQ(EINVAL, b.cm.send_rej(*server, CmRej::CONSUMER_DEFINED, {}, first(149)).code());
  EXPECT_EQ(EINVAL, b.cm.send_rej(*server, CmRej::CONSUMER_DEFINED, first(73), {}).code());
  r.private_data = first(196);
  EXPECT_TRUE(b.cm.send_rep(*server, r));
  net.settle();
  EXPECT_EQ(EINVAL, a.cm.send_rtu(*client, first(225)).code());
  EXPECT_TRUE(a.cm.send_rtu(*client, first(224)));
  EXPECT_EQ(EINVAL, a.cm.send_dreq(*client, first(221)).code());
  net.settle();
  EXPECT_TRUE(a.cm.send_dreq(*client, first(220)));
  net.settle();
  EXPECT_EQ(EINVAL, b.cm.send_drep(*server, first(225)).code());
}

TEST_F(IbCmTest, WrongStatesAreRefused) {
  client = &a.cm.create_id(&active);
  EXPECT_EQ(EINVAL, a.cm.send_rep(*client, rep()).code());
  EXPECT_EQ(EINVAL, a.cm.send_rtu(*client, {}).code());
  EXPECT_EQ(EINVAL, a.cm.send_dreq(*client, {}).code());
  EXPECT_EQ(EINVAL, a.cm.send_drep(*client, {}).code());
  EXPECT_EQ(EINVAL, a.cm.send_rej(*client, CmRej::CONSUMER_DEFINED, {}, {}).code());
  EXPECT_EQ(EINVAL, a.cm.send_sidr_rep(*client, {}).code());
  auto p = req();
  p.path.sgid = ip(9);
  EXPECT_EQ(ENOENT, a.cm.send_req(*client, p).code());
  p = req();
  p.path.pkey = 0x1234;
  EXPECT_EQ(ENOENT, a.cm.send_req(*client, p).code());
  a.send_error = ENOMEM;
  EXPECT_EQ(ENOMEM, a.cm.send_req(*client, req()).code());
  a.send_error = 0;
  ASSERT_TRUE(a.cm.send_req(*client, req()));
  EXPECT_EQ(EINVAL, a.cm.send_req(*client, req()).code());
}

TEST_F(IbCmTest, ListenersShareAServiceIdOnlyWithTheSameHandler) {
  auto one = b.cm.insert_listen(listener, kService);
  auto two = b.cm.insert_listen(listener, kService);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(*one, *two);
  EXPECT_EQ(EINVAL, b.cm.insert_listen(passive, kService).code());
  b.cm.destroy_id(**one);
  EXPECT_TRUE(b.cm.listens(kService));
  b.cm.destroy_id(**two);
  EXPECT_FALSE(b.cm.listens(kService));
}

TEST_F(IbCmTest, ServiceIdResolutionGivesQpnAndQkey) {
  listen();
  client = &a.cm.create_id(&active);
  CmSidrReqParam p;
  p.path = req().path;
  p.service_id = kService;
  p.timeout = 4096'000'000LL;
  p.max_cm_retries = 15;
  p.private_data = hello;
  ASSERT_TRUE(a.cm.send_sidr_req(*client, p));
  net.settle();
  ASSERT_EQ(CmEventType::SIDR_REQ_RECEIVED, listener.last().type);
  EXPECT_EQ(kSidrReqPrivateData, listener.last().data.size());
  server = listener.last().id;
  net.advance(5 * kSecond);  // the retry is a duplicate
  EXPECT_EQ(1u, listener.got.size());
  ASSERT_TRUE(b.cm.send_sidr_rep(*server, {.qp_num = 0x77, .qkey = 0x1234567, .private_data = hello}));
  net.settle();
  ASSERT_EQ(CmEventType::SIDR_REP_RECEIVED, active.last().type);
  EXPECT_EQ(0, active.last().event.sidr_status);
  EXPECT_EQ(0x77u, active.last().event.remote_qpn);
  EXPECT_EQ(0x1234567u, active.last().event.qkey);
  EXPECT_EQ(kSidrRepPrivateData, active.last().data.size());

  p.service_id = kService + 1;
  ASSERT_TRUE(a.cm.send_sidr_req(*client, p));
  net.settle();
  EXPECT_EQ(1, active.last().event.sidr_status);  // unsupported
  net.copies = [](const FakeNet::Packet&) { return 0u; };
  ASSERT_TRUE(a.cm.send_sidr_req(*client, p));
  net.advance(16 * 4096'000'000LL);
  EXPECT_EQ(CmEventType::SIDR_REQ_ERROR, active.last().type);
}

TEST_F(IbCmTest, StormOfConnectionsOverALossyWireLeavesNothingBehind) {
  std::uint32_t x = 12345;
  net.copies = [&](const FakeNet::Packet&) {
    x = x * 1664525 + 1013904223;
    unsigned dice = (x >> 16) % 10;
    return dice < 2 ? 0u : dice < 4 ? 2u : 1u;
  };
  listen();
  unsigned established = 0;
  for (std::uint32_t round = 0; round < 500; ++round) {
    active.got.clear();
    listener.got.clear();
    client = &a.cm.create_id(&active);
    ASSERT_TRUE(a.cm.send_req(*client, req(0x1000 + round)));
    net.advance(30 * kSecond);
    if (!listener.got.empty() && listener.got[0].id->state == CmState::REQ_RCVD) {
      server = listener.got[0].id;
      ASSERT_TRUE(b.cm.send_rep(*server, rep(0x2000 + round)));
      net.advance(30 * kSecond);
      if (client->state == CmState::REP_RCVD && a.cm.send_rtu(*client, {})) {
        net.advance(30 * kSecond);
        established += server->state == CmState::ESTABLISHED;
      }
      b.cm.destroy_id(*server);
    }
    a.cm.destroy_id(*client);
    net.advance(100 * kSecond);
  }
  EXPECT_GT(established, 490u);
  EXPECT_EQ(0u, a.cm.live_ids());
  EXPECT_EQ(1u, b.cm.live_ids());
  EXPECT_EQ(kNever, a.cm.next_deadline());
  EXPECT_EQ(kNever, b.cm.next_deadline());
}

}  // namespace
}  // namespace uhca::kernel::cm::test
