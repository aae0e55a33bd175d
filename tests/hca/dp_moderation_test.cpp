// SPDX-License-Identifier: MIT
// Moderation: events that are held back so that each stands for several CQEs.
#include "device/pci/idle_watch.h"
#include "hca/dp_harness.h"

namespace uhca::hcatest {
namespace {

using Numbers = std::vector<std::uint32_t>;
constexpr Nanos kUs = 1000;

class DpModeration : public DpTest {
 protected:
  Region src, dst;
  Numbers told;
  void SetUp() override {
    DpTest::SetUp();
    connect();
    src = region(64);
    dst = region(64);
    for (int i = 0; i < 16; ++i) post_recv(b, {sge(dst, 64)});
    told = {b.rcq.cqn};
  }
  void moderate(unsigned period, unsigned count, prm::CqPeriodMode mode = prm::CqPeriodMode::kEvent) {
    Request<prm::modify_cq_in> m(prm::Opcode::MODIFY_CQ);
    m.set<prm::modify_cq_in::cqn>(b.rcq.cqn);
    m.set<prm::modify_cq_in::modify_field_select_resize_field_select>(prm::kCqModifyPeriod | prm::kCqModifyCount |
                                                                      prm::kCqModifyPeriodMode);
    void* c = m.at<prm::modify_cq_in::cq_context>();
    prm::set<prm::cqc::cq_period>(c, period);
    prm::set<prm::cqc::cq_max_count>(c, count);
    prm::set<prm::cqc::cq_period_mode>(c, static_cast<unsigned>(mode));
    ASSERT_TRUE(bench.cmd.exec(m).ok());
  }
  void send(unsigned n = 1, bool solicited = false) {
    for (unsigned i = 0; i < n; ++i) {
      post(a, {.sges = {sge(src, 8)}, .signaled = false, .solicited = solicited});
      run();
    }
  }
  // The first event comes at once (there was none before): behind it the period runs.
  void first_event() {
    arm(b.rcq, 0, 0);
    send();
    ASSERT_EQ(comp_events(), told);
  }
};

TEST_F(DpModeration, FirstCqeAfterASilenceIsToldAtOnce) {
  moderate(100, 8);
  first_event();
  bench.clock.advance(100 * kUs);
  arm(b.rcq, 1, 1);
  send();
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, EventWaitsForItsNumberOfCqes) {
  moderate(100, 3);
  first_event();
  arm(b.rcq, 1, 1);
  send(2);
  EXPECT_TRUE(comp_events().empty());
  EXPECT_EQ(bench.hca.armed_cqs(), 1u);
  send();
  EXPECT_EQ(comp_events(), told);
  EXPECT_EQ(bench.hca.armed_cqs(), 0u);
  run_for(1000 * kUs);
  EXPECT_TRUE(comp_events().empty()) << "told once";
}

TEST_F(DpModeration, PeriodSinceTheLastEvent) {
  moderate(100, 8);
  first_event();
  Nanos then = bench.clock.now();
  arm(b.rcq, 1, 1);
  for (int i = 0; i < 3; ++i) {
    run_for(30 * kUs);
    send();
  }
  EXPECT_TRUE(comp_events().empty());
  EXPECT_LE(bench.hca.next_deadline(), then + 100 * kUs);
  run_for(9 * kUs);
  EXPECT_TRUE(comp_events().empty());
  run_for(1 * kUs);
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, PeriodSinceTheLastCqe) {
  moderate(100, 8, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0);
  for (int i = 0; i < 4; ++i) {
    send();
    run_for(90 * kUs);
    EXPECT_TRUE(comp_events().empty());
  }
  run_for(10 * kUs);
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, CqesBeforeTheArmCount) {
  moderate(100, 3);
  first_event();
  send();
  arm(b.rcq, 1, 1);
  EXPECT_TRUE(comp_events().empty()) << "one is not polled";
  send();
  EXPECT_TRUE(comp_events().empty());
  send();
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, WhatWasPolledMeanwhileIsNotTold) {
  moderate(100, 8);
  first_event();
  arm(b.rcq, 1, 1);
  send();
  arm(b.rcq, 2, 1);
  run_for(1000 * kUs);
  EXPECT_TRUE(comp_events().empty());
  send();
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, IdlePollsAreToldOfAHeldEvent) {
  moderate(100, 8);
  first_event();
  send();
  pci::IdleWatch idle;
  bench.hca.set_idle_watch(&idle);
  idle.publish({}, kNever);
  arm(b.rcq, 1, 1);
  EXPECT_TRUE(comp_events().empty());
  EXPECT_TRUE(idle.closed());
  bench.hca.set_idle_watch(nullptr);
}

TEST_F(DpModeration, SolicitedOnly) {
  moderate(100, 4, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0, true);
  send(5);
  EXPECT_TRUE(comp_events().empty()) << "none is solicited";
  send(1, true);
  EXPECT_EQ(comp_events(), told) << "more than 4 CQEs";
}

TEST_F(DpModeration, OneOfTheTwoAloneModeratesNothing) {
  for (auto [period, count] : {std::pair{100u, 0u}, std::pair{0u, 8u}}) {
    moderate(period, count, prm::CqPeriodMode::kCqe);
    arm(b.rcq, b.rcq_ci, 2 * (period != 0) + 1);
    send();
    EXPECT_EQ(comp_events(), told);
    ++b.rcq_ci;
  }
}

TEST_F(DpModeration, LessOfItReleasesTheEvent) {
  moderate(4095, 0xffff, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0);
  send(2);
  EXPECT_TRUE(comp_events().empty());
  moderate(4095, 3, prm::CqPeriodMode::kCqe);
  EXPECT_TRUE(comp_events().empty());
  moderate(4095, 2, prm::CqPeriodMode::kCqe);
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, OverrunReleasesTheEvent) {
  moderate(4095, 0xffff, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0);
  for (unsigned i = 0; i < 64; ++i) {
    if (i >= 16) post_recv(b, {sge(dst, 64)});
    send();
  }
  EXPECT_TRUE(comp_events().empty()) << "all of the CQ's 64 entries wait";
  async_events();
  post_recv(b, {sge(dst, 64)});
  send();
  EXPECT_EQ(async_events().front(), 0x04u);
  EXPECT_EQ(comp_events(), told);
}

TEST_F(DpModeration, DestroyedCqIsForgotten) {
  moderate(100, 8, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0);
  send();
  ASSERT_NE(bench.hca.next_deadline(), kNever);
  for (End* e : {&a, &b}) ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_QP, e->qp.qpn).ok());
  ASSERT_TRUE(bench.simple(prm::Opcode::DESTROY_CQ, b.rcq.cqn).ok());
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
  bench.clock.advance(1000 * kUs);
  run();
  EXPECT_TRUE(comp_events().empty());
}

TEST_F(DpModeration, ResetForgetsWhatWasHeld) {
  moderate(100, 8, prm::CqPeriodMode::kCqe);
  arm(b.rcq, 0, 0);
  send();
  bench.hca.reset();
  EXPECT_EQ(bench.hca.next_deadline(), kNever);
  bench.clock.advance(1000 * kUs);
  run();
}

}  // namespace
}  // namespace uhca::hcatest
