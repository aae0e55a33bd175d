// SPDX-License-Identifier: MIT
// The QP state table: which transitions exist, and which attributes each needs or allows, per QP type.
// Source: IBTA volume 1, 11.2.5.2 (Modify Queue Pair, tables of required and optional attributes); Linux
// drivers/infiniband/core/verbs.c (qp_state_table) for the bits that uverbs uses.
#include <fmt/format.h>

#include <string>

#include "kernel/core/ib_verbs.h"

namespace uhca::kernel {
namespace {

enum Column : unsigned { kUD, kRAW, kUC, kRC, kXRC_INI, kXRC_TGT, kQP01, kColumns };  // QP01: SMI and GSI

struct Masks {
  std::uint32_t required = 0, optional = 0;
};

struct Transition {
  bool valid = false;
  Masks by_type[kColumns];
};

struct Table {
  Transition at[7][7];
};

constexpr std::uint32_t kPath = IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN;
constexpr std::uint32_t kMigration = IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PATH_MIG_STATE;

constexpr Table make_table() {
  using S = ib_qp_state;
  Table t{};
  auto at = [&t](S a, S b) -> Transition& {
    Transition& x = t.at[static_cast<unsigned>(a)][static_cast<unsigned>(b)];
    x.valid = true;
    return x;
  };
  auto qkey_types = [](Transition& x, std::uint32_t optional) {
    x.by_type[kUD].optional = optional;
    x.by_type[kQP01].optional = optional;
  };

  at(S::RESET, S::RESET);
  for (S s : {S::INIT, S::RTR, S::RTS, S::SQD, S::SQE, S::ERR}) {
    at(s, S::RESET);
    at(s, S::ERR);
  }

  {
    Transition& x = at(S::RESET, S::INIT);
    x.by_type[kUD].required = IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY;
    x.by_type[kRAW].required = IB_QP_PORT;
    for (unsigned c : {kUC, kRC, kXRC_INI, kXRC_TGT}) x.by_type[c].required = IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
    x.by_type[kQP01].required = IB_QP_PKEY_INDEX | IB_QP_QKEY;
  }
  {
    Transition& x = at(S::INIT, S::INIT);
    x.by_type[kUD].optional = IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY;
    for (unsigned c : {kUC, kRC, kXRC_INI, kXRC_TGT}) x.by_type[c].optional = IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
    x.by_type[kQP01].optional = IB_QP_PKEY_INDEX | IB_QP_QKEY;
  }
  {
    Transition& x = at(S::INIT, S::RTR);
    qkey_types(x, IB_QP_PKEY_INDEX | IB_QP_QKEY);
    for (unsigned c : {kUC, kRC, kXRC_INI, kXRC_TGT}) {
      x.by_type[c].required = kPath;
      x.by_type[c].optional = IB_QP_ALT_PATH | IB_QP_ACCESS_FLAGS | IB_QP_PKEY_INDEX;
    }
    for (unsigned c : {kRC, kXRC_TGT}) x.by_type[c].required |= IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
  }
  {
    Transition& x = at(S::RTR, S::RTS);
    for (unsigned c : {kUD, kUC, kQP01}) x.by_type[c].required = IB_QP_SQ_PSN;
    for (unsigned c : {kRC, kXRC_INI})
      x.by_type[c].required = IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN | IB_QP_MAX_QP_RD_ATOMIC;
    x.by_type[kXRC_TGT].required = IB_QP_TIMEOUT | IB_QP_SQ_PSN;
  }
  // Back to, or staying in, RTS: the same optional attributes.
  for (S from : {S::RTR, S::RTS, S::SQD}) {
    Transition& x = at(from, S::RTS);
    qkey_types(x, IB_QP_CUR_STATE | IB_QP_QKEY);
    for (unsigned c : {kUC, kRC, kXRC_INI, kXRC_TGT}) x.by_type[c].optional = IB_QP_CUR_STATE | kMigration;
    for (unsigned c : {kRC, kXRC_TGT}) x.by_type[c].optional |= IB_QP_MIN_RNR_TIMER;
    if (from != S::SQD) x.by_type[kRAW].optional = IB_QP_RATE_LIMIT;
  }
  {
    Transition& x = at(S::SQE, S::RTS);
    qkey_types(x, IB_QP_CUR_STATE | IB_QP_QKEY);
    x.by_type[kUC].optional = IB_QP_CUR_STATE | IB_QP_ACCESS_FLAGS;
  }
  {
    Transition& x = at(S::RTS, S::SQD);
    for (unsigned c : {kUD, kUC, kRC, kXRC_INI, kXRC_TGT, kQP01}) x.by_type[c].optional = IB_QP_EN_SQD_ASYNC_NOTIFY;
  }
  {
    Transition& x = at(S::SQD, S::SQD);
    qkey_types(x, IB_QP_PKEY_INDEX | IB_QP_QKEY);
    x.by_type[kUC].optional = IB_QP_AV | IB_QP_PKEY_INDEX | kMigration;
    constexpr std::uint32_t reliable = IB_QP_PORT | IB_QP_AV | IB_QP_TIMEOUT | IB_QP_PKEY_INDEX | kMigration;
    constexpr std::uint32_t requester = IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_MAX_QP_RD_ATOMIC;
    constexpr std::uint32_t responder = IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
    x.by_type[kRC].optional = reliable | requester | responder;
    x.by_type[kXRC_INI].optional = reliable | requester;
    x.by_type[kXRC_TGT].optional = reliable | responder;
  }
  return t;
}

constexpr Table kTable = make_table();

// -1: a type that the table does not know (DRIVER types are checked by their driver).
int column(ib_qp_type t) {
  switch (t) {
    case ib_qp_type::SMI:
    case ib_qp_type::GSI: return kQP01;
    case ib_qp_type::RC: return kRC;
    case ib_qp_type::UC: return kUC;
    case ib_qp_type::UD: return kUD;
    case ib_qp_type::RAW_PACKET: return kRAW;
    case ib_qp_type::XRC_INI: return kXRC_INI;
    case ib_qp_type::XRC_TGT: return kXRC_TGT;
    default: return -1;
  }
}

struct BitName {
  std::uint32_t bit;
  const char* name;
};
constexpr BitName kNames[] = {
    {IB_QP_STATE, "STATE"},
    {IB_QP_CUR_STATE, "CUR_STATE"},
    {IB_QP_EN_SQD_ASYNC_NOTIFY, "EN_SQD_ASYNC_NOTIFY"},
    {IB_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
    {IB_QP_PKEY_INDEX, "PKEY_INDEX"},
    {IB_QP_PORT, "PORT"},
    {IB_QP_QKEY, "QKEY"},
    {IB_QP_AV, "AV"},
    {IB_QP_PATH_MTU, "PATH_MTU"},
    {IB_QP_TIMEOUT, "TIMEOUT"},
    {IB_QP_RETRY_CNT, "RETRY_CNT"},
    {IB_QP_RNR_RETRY, "RNR_RETRY"},
    {IB_QP_RQ_PSN, "RQ_PSN"},
    {IB_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
    {IB_QP_ALT_PATH, "ALT_PATH"},
    {IB_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
    {IB_QP_SQ_PSN, "SQ_PSN"},
    {IB_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
    {IB_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
    {IB_QP_CAP, "CAP"},
    {IB_QP_DEST_QPN, "DEST_QPN"},
    {IB_QP_RATE_LIMIT, "RATE_LIMIT"},
};

std::string names(std::uint32_t mask) {
  std::string s;
  for (const BitName& n : kNames) {
    if (!(mask & n.bit)) continue;
    mask &= ~n.bit;
    if (!s.empty()) s += '|';
    s += n.name;
  }
  if (mask) s += (s.empty() ? "" : "|") + fmt::format("{:#x}", mask);
  return s;
}

const char* type_name(ib_qp_type t) {
  switch (t) {
    case ib_qp_type::SMI: return "SMI";
    case ib_qp_type::GSI: return "GSI";
    case ib_qp_type::RC: return "RC";
    case ib_qp_type::UC: return "UC";
    case ib_qp_type::UD: return "UD";
    case ib_qp_type::RAW_PACKET: return "RAW_PACKET";
    case ib_qp_type::XRC_INI: return "XRC_INI";
    case ib_qp_type::XRC_TGT: return "XRC_TGT";
    default: return "?";
  }
}

}  // namespace

const char* to_string(ib_qp_state s) {
  constexpr const char* k[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  auto i = static_cast<unsigned>(s);
  return i < 7 ? k[i] : "?";
}

bool ib_modify_qp_is_ok(ib_qp_state cur, ib_qp_state next, ib_qp_type type, std::uint32_t mask, std::string* why) {
  auto no = [why](std::string reason) {
    if (why) *why = std::move(reason);
    return false;
  };
  if (static_cast<unsigned>(cur) > 6 || static_cast<unsigned>(next) > 6) return no("no such state");
  // CUR_STATE is meaningful only where the present state may be ambiguous.
  if ((mask & IB_QP_CUR_STATE) && cur != ib_qp_state::RTR && cur != ib_qp_state::RTS && cur != ib_qp_state::SQD && cur != ib_qp_state::SQE)
    return no(fmt::format("CUR_STATE is not allowed in state {}", to_string(cur)));
  const Transition& t = kTable.at[static_cast<unsigned>(cur)][static_cast<unsigned>(next)];
  if (!t.valid) return no(fmt::format("there is no transition {} -> {}", to_string(cur), to_string(next)));
  int c = column(type);
  if (c < 0) return no(fmt::format("no state table for QP type {}", static_cast<unsigned>(type)));
  Masks m = t.by_type[c];
  std::uint32_t missing = m.required & ~mask;
  std::uint32_t extra = mask & ~(m.required | m.optional | IB_QP_STATE);
  if (missing || extra) {
    std::string s = fmt::format("{} {} -> {}: attribute mask", type_name(type), to_string(cur), to_string(next));
    if (missing) s += " lacks " + names(missing);
    if (missing && extra) s += " and";
    if (extra) s += " must not have " + names(extra);
    return no(std::move(s));
  }
  return true;
}

}  // namespace uhca::kernel
