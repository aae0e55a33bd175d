// SPDX-License-Identifier: MIT
// The QP state table against an expectation written down from IBTA volume 1, table 96 and Linux' documentation of the transitions, as text.
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>

#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {
namespace {

using S = ib_qp_state;
using T = ib_qp_type;

const std::map<std::string, std::uint32_t> kBits = {
    {"cur", 1 << 1},        {"sqd_notify", 1 << 2}, {"access", 1 << 3}, {"pkey", 1 << 4},    {"port", 1 << 5},
    {"qkey", 1 << 6},       {"av", 1 << 7},         {"mtu", 1 << 8},    {"timeout", 1 << 9}, {"retry", 1 << 10},
    {"rnr_retry", 1 << 11}, {"rq_psn", 1 << 12},    {"rd", 1 << 13},    {"alt", 1 << 14},    {"min_rnr", 1 << 15},
    {"sq_psn", 1 << 16},    {"dest_rd", 1 << 17},   {"mig", 1 << 18},   {"dqpn", 1 << 20}};

std::uint32_t bits(const std::string& words) {
  std::istringstream in(words);
  std::string w;
  std::uint32_t m = 0;
  while (in >> w) m |= kBits.at(w);
  return m;
}

struct Row {
  S from, to;
  T type;
  const char* required;
  const char* optional;
};
const Row kRows[] = {
    {S::RESET, S::INIT, T::RC, "pkey port access", ""},
    {S::RESET, S::INIT, T::UC, "pkey port access", ""},
    {S::RESET, S::INIT, T::UD, "pkey port qkey", ""},
    {S::INIT, S::INIT, T::RC, "", "pkey port access"},
    {S::INIT, S::INIT, T::UC, "", "pkey port access"},
    {S::INIT, S::INIT, T::UD, "", "pkey port qkey"},
    {S::INIT, S::RTR, T::RC, "av mtu dqpn rq_psn dest_rd min_rnr", "alt access pkey"},
    {S::INIT, S::RTR, T::UC, "av mtu dqpn rq_psn", "alt access pkey"},
    {S::INIT, S::RTR, T::UD, "", "pkey qkey"},
    {S::RTR, S::RTS, T::RC, "timeout retry rnr_retry sq_psn rd", "cur alt access min_rnr mig"},
    {S::RTR, S::RTS, T::UC, "sq_psn", "cur alt access mig"},
    {S::RTR, S::RTS, T::UD, "sq_psn", "cur qkey"},
    {S::RTS, S::RTS, T::RC, "", "cur access alt mig min_rnr"},
    {S::RTS, S::RTS, T::UC, "", "cur access alt mig"},
    {S::RTS, S::RTS, T::UD, "", "cur qkey"},
    {S::RTS, S::SQD, T::RC, "", "sqd_notify"},
    {S::RTS, S::SQD, T::UC, "", "sqd_notify"},
    {S::RTS, S::SQD, T::UD, "", "sqd_notify"},
    {S::SQD, S::RTS, T::RC, "", "cur alt access min_rnr mig"},
    {S::SQD, S::RTS, T::UC, "", "cur alt access mig"},
    {S::SQD, S::RTS, T::UD, "", "cur qkey"},
    {S::SQD, S::SQD, T::RC, "", "port av timeout retry rnr_retry rd dest_rd alt access pkey min_rnr mig"},
    {S::SQD, S::SQD, T::UC, "", "av alt access pkey mig"},
    {S::SQD, S::SQD, T::UD, "", "pkey qkey"},
    {S::SQE, S::RTS, T::RC, "", ""},
    {S::SQE, S::RTS, T::UC, "", "cur access"},
    {S::SQE, S::RTS, T::UD, "", "cur qkey"},
};

bool expected(S from, S to, T type, std::uint32_t mask) {
  if ((mask & IB_QP_CUR_STATE) && !(from == S::RTR || from == S::RTS || from == S::SQD || from == S::SQE)) return false;
  std::uint32_t req = 0, opt = 0;
  bool valid = false;
  if (to == S::RESET || (to == S::ERR && from != S::RESET)) valid = true;
  for (const Row& r : kRows) {
    if (r.from != from || r.to != to || r.type != type) continue;
    valid = true;
    req = bits(r.required);
    opt = bits(r.optional);
  }
  return valid && (mask & req) == req && !(mask & ~(req | opt | IB_QP_STATE));
}

TEST(QpState, EveryPairAgainstTheExpectation) {  // B7, B8
  int accepted = 0, tried = 0;
  for (T type : {T::RC, T::UC, T::UD}) {
    for (int from = 0; from < 7; ++from) {
      for (int to = 0; to < 7; ++to) {
        std::uint32_t base = 0;
        for (const Row& r : kRows)
          if (r.from == static_cast<S>(from) && r.to == static_cast<S>(to) && r.type == type) base = bits(r.required);
        // Around the minimal right mask: itself, each bit more, each bit less, each pair of bits flipped.
        for (int i = -1; i < 26; ++i) {
          for (int j = -1; j < 26; ++j) {
            std::uint32_t mask = base | IB_QP_STATE;
            if (i >= 0) mask ^= 1u << i;
            if (j >= 0) mask ^= 1u << j;
            std::string why;
            bool want = expected(static_cast<S>(from), static_cast<S>(to), type, mask);
            ++tried;
            accepted += want;
            ASSERT_EQ(ib_modify_qp_is_ok(static_cast<S>(from), static_cast<S>(to), type, mask, &why), want)
                << "type " << static_cast<int>(type) << " " << from << "->" << to << " mask " << std::hex << mask << " " << why;
            ASSERT_EQ(why.empty(), want);
          }
        }
      }
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_EQ(tried, 3 * 49 * 27 * 27);
}

TEST(QpState, ReasonNamesTheBits) {
  std::string why;
  EXPECT_FALSE(ib_modify_qp_is_ok(S::INIT, S::RTR, T::RC, IB_QP_STATE | IB_QP_AV | IB_QP_TIMEOUT, &why));
  EXPECT_EQ(why,
            "RC INIT -> RTR: attribute mask lacks PATH_MTU|RQ_PSN|MIN_RNR_TIMER|MAX_DEST_RD_ATOMIC|DEST_QPN and must not have TIMEOUT");
  EXPECT_FALSE(ib_modify_qp_is_ok(S::RTS, S::INIT, T::RC, IB_QP_STATE, &why));
  EXPECT_EQ(why, "there is no transition RTS -> INIT");
  EXPECT_FALSE(ib_modify_qp_is_ok(S::INIT, S::INIT, T::RC, IB_QP_STATE | IB_QP_CUR_STATE, &why));
  EXPECT_EQ(why, "CUR_STATE is not allowed in state INIT");
  EXPECT_FALSE(ib_modify_qp_is_ok(static_cast<S>(9), S::INIT, T::RC, 0, nullptr));
}

}  // namespace
}  // namespace uhca::kernel
