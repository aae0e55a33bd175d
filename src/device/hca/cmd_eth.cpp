// SPDX-License-Identifier: MIT
// TIS, TIR, RQT: where Ethernet packets come from and go to.
#include "prm/cmd_eth.h"

#include <cstring>

#include "device/hca/cmd_handlers.h"

namespace uhca::hca::cmd {
namespace {

// tirc.disp_type (Linux mlx5_ifc.h: MLX5_TIRC_DISP_TYPE_*).
enum Disp : unsigned { kDirect = 0, kIndirect = 1 };

RawQueue* find_rq(Command& c, std::uint32_t n) {
  RawQueue* q = c.objects().raw_queue(n);
  return q != nullptr && !q->send ? q : nullptr;
}

void hold_tir_target(Command& c, const std::uint8_t* ctx, int d) {
  auto add = [d](unsigned& users) { users = static_cast<unsigned>(static_cast<int>(users) + d); };
  if (prm::get<prm::tirc::disp_type>(ctx) == kIndirect) {
    if (auto it = c.objects().rqts.find(prm::get<prm::tirc::indirect_table>(ctx)); it != c.objects().rqts.end()) add(it->second.users);
  } else if (RawQueue* rq = find_rq(c, prm::get<prm::tirc::inline_rqn>(ctx))) {
    add(rq->users);
  }
}

Status check_tir(Command& c, const std::uint8_t* ctx) {
  unsigned disp = prm::get<prm::tirc::disp_type>(ctx);
  if (disp > kIndirect) return c.refuse(Status::BAD_PARAM, "disp_type {}", disp);
  std::uint32_t td = prm::get<prm::tirc::transport_domain>(ctx);
  if (!c.st.transport_domains.exists(td)) return c.no_such("transport domain", td);
  if (disp == kIndirect) {
    std::uint32_t rqtn = prm::get<prm::tirc::indirect_table>(ctx);
    if (!c.objects().rqts.contains(rqtn)) return c.no_such("RQT", rqtn);
    return c.may_use_all({{Kind::kTransportDomain, td}, {Kind::kRqt, rqtn}});
  }
  std::uint32_t rqn = prm::get<prm::tirc::inline_rqn>(ctx);
  if (find_rq(c, rqn) == nullptr) return c.no_such("RQ", rqn);
  return c.may_use_all({{Kind::kTransportDomain, td}, {Kind::kRawQueue, rqn}});
}

// The RQ list behind an RQT context; every RQ must exist.
Status take_rqns(Command& c, const std::uint8_t* ctx, std::size_t list_at, std::uint32_t max, std::vector<std::uint32_t>& out) {
  std::uint32_t n = prm::get<prm::rqtc::rqt_actual_size>(ctx);
  auto list = c.tail(list_at);
  if (n > max) return c.refuse(Status::BAD_PARAM, "{} RQs in an RQT of {}", n, max);
  if (n > list.size() / 4) return c.refuse(Status::BAD_INP_LEN, "{} RQs announced, {} in the list", n, list.size() / 4);
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t rqn = load_be<std::uint32_t>(list.data() + i * 4) & 0xffffff;
    if (find_rq(c, rqn) == nullptr) return c.no_such("RQ", rqn);
    if (Status s = c.may_use(Kind::kRawQueue, rqn); s != Status::OK) return s;
    out.push_back(rqn);
  }
  return Status::OK;
}

void hold_rqns(Command& c, const std::vector<std::uint32_t>& rqns, int d) {
  for (std::uint32_t n : rqns)
    if (RawQueue* rq = find_rq(c, n)) rq->users = static_cast<unsigned>(static_cast<int>(rq->users) + d);
}

}  // namespace

Status create_tis(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_tis_in::ctx>();
  std::uint32_t td = prm::get<prm::tisc::transport_domain>(ctx), pd = prm::get<prm::tisc::pd>(ctx);
  if (!c.st.transport_domains.exists(td)) return c.no_such("transport domain", td);
  if (pd != 0 && !c.st.pds.exists(pd)) return c.no_such("PD", pd);
  if (Status s = c.may_use_all({{Kind::kTransportDomain, td}, {Kind::kPd, pd}}); s != Status::OK) return s;
  if (prm::get<prm::tisc::tls_en>(ctx)) return c.refuse(Status::BAD_PARAM, "TLS is not offered");
  auto n = c.st.tisns.take();
  if (!n) return c.exhausted("TIS");
  std::memcpy(c.objects().tises[*n].context.data(), ctx, prm::tisc::kBytes);
  c.st.transport_domains.hold(td);
  c.st.pds.hold(pd);
  c.set<prm::create_tis_out::tisn>(*n);
  return Status::OK;
}

Status modify_tis(Command& c) {
  std::uint32_t n = c.get<prm::modify_tis_in::tisn>();
  auto it = c.objects().tises.find(n);
  if (it == c.objects().tises.end()) return c.no_such("TIS", n);
  const std::uint8_t* mask = c.at<prm::modify_tis_in::bitmask>();
  const std::uint8_t* ctx = c.at<prm::modify_tis_in::ctx>();
  std::uint8_t* own = it->second.context.data();
  if (prm::get<prm::modify_tis_bitmask::prio>(mask)) prm::set<prm::tisc::prio>(own, prm::get<prm::tisc::prio>(ctx));
  if (prm::get<prm::modify_tis_bitmask::lag_tx_port_affinity>(mask))
    prm::set<prm::tisc::lag_tx_port_affinity>(own, prm::get<prm::tisc::lag_tx_port_affinity>(ctx));
  return Status::OK;
}

Status query_tis(Command& c) {
  std::uint32_t n = c.get<prm::query_tis_in::tisn>();
  auto it = c.objects().tises.find(n);
  if (it == c.objects().tises.end()) return c.no_such("TIS", n);
  std::memcpy(c.out_at<prm::query_tis_out::tis_context>(), it->second.context.data(), prm::tisc::kBytes);
  return Status::OK;
}

Status destroy_tis(Command& c) {
  std::uint32_t n = c.get<prm::destroy_tis_in::tisn>();
  auto it = c.objects().tises.find(n);
  if (it == c.objects().tises.end()) return c.no_such("TIS", n);
  if (it->second.users != 0) return c.in_use("TIS", n, it->second.users);
  c.st.transport_domains.drop(prm::get<prm::tisc::transport_domain>(it->second.context.data()));
  c.st.pds.drop(prm::get<prm::tisc::pd>(it->second.context.data()));
  c.objects().tises.erase(it);
  c.st.tisns.give_back(n);
  return Status::OK;
}

Status create_tir(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_tir_in::ctx>();
  if (Status s = check_tir(c, ctx); s != Status::OK) return s;
  if (prm::get<prm::tirc::tls_en>(ctx)) return c.refuse(Status::BAD_PARAM, "TLS is not offered");
  if (prm::get<prm::tirc::packet_merge_mask>(ctx)) return c.refuse(Status::BAD_PARAM, "LRO is not offered");
  auto n = c.st.tirns.take();
  if (!n) return c.exhausted("TIR");
  std::memcpy(c.objects().tirs[*n].context.data(), ctx, prm::tirc::kBytes);
  hold_tir_target(c, ctx, 1);
  c.st.transport_domains.hold(prm::get<prm::tirc::transport_domain>(ctx));
  c.set<prm::create_tir_out::tirn>(*n);
  return Status::OK;
}

Status modify_tir(Command& c) {
  std::uint32_t n = c.get<prm::modify_tir_in::tirn>();
  auto it = c.objects().tirs.find(n);
  if (it == c.objects().tirs.end()) return c.no_such("TIR", n);
  const std::uint8_t* mask = c.at<prm::modify_tir_in::bitmask>();
  const std::uint8_t* ctx = c.at<prm::modify_tir_in::ctx>();
  std::uint8_t* own = it->second.context.data();
  if (prm::get<prm::modify_tir_bitmask::packet_merge>(mask) && prm::get<prm::tirc::packet_merge_mask>(ctx))
    return c.refuse(Status::BAD_PARAM, "LRO is not offered");
  if (prm::get<prm::modify_tir_bitmask::self_lb_en>(mask)) prm::set<prm::tirc::self_lb_block>(own, prm::get<prm::tirc::self_lb_block>(ctx));
  if (prm::get<prm::modify_tir_bitmask::hash>(mask)) {
    prm::set<prm::tirc::rx_hash_fn>(own, prm::get<prm::tirc::rx_hash_fn>(ctx));
    prm::set<prm::tirc::rx_hash_symmetric>(own, prm::get<prm::tirc::rx_hash_symmetric>(ctx));
    std::memcpy(prm::at<prm::tirc::rx_hash_toeplitz_key>(static_cast<void*>(own)),
                prm::at<prm::tirc::rx_hash_toeplitz_key>(static_cast<const void*>(ctx)), 40);
    prm::set<prm::tirc::rx_hash_field_selector_outer>(own, prm::get<prm::tirc::rx_hash_field_selector_outer>(ctx));
    prm::set<prm::tirc::rx_hash_field_selector_inner>(own, prm::get<prm::tirc::rx_hash_field_selector_inner>(ctx));
  }
  return Status::OK;
}

Status query_tir(Command& c) {
  std::uint32_t n = c.get<prm::query_tir_in::tirn>();
  auto it = c.objects().tirs.find(n);
  if (it == c.objects().tirs.end()) return c.no_such("TIR", n);
  std::memcpy(c.out_at<prm::query_tir_out::tir_context>(), it->second.context.data(), prm::tirc::kBytes);
  return Status::OK;
}

Status destroy_tir(Command& c) {
  std::uint32_t n = c.get<prm::destroy_tir_in::tirn>();
  auto it = c.objects().tirs.find(n);
  if (it == c.objects().tirs.end()) return c.no_such("TIR", n);
  if (it->second.users != 0) return c.in_use("TIR", n, it->second.users);
  const std::uint8_t* ctx = it->second.context.data();
  hold_tir_target(c, ctx, -1);
  c.st.transport_domains.drop(prm::get<prm::tirc::transport_domain>(ctx));
  c.objects().tirs.erase(it);
  c.st.tirns.give_back(n);
  return Status::OK;
}

Status create_rqt(Command& c) {
  const std::uint8_t* ctx = c.at<prm::create_rqt_in::rqt_context>();
  std::uint32_t max = prm::get<prm::rqtc::rqt_max_size>(ctx);
  if (max == 0 || max > 1u << kLogMaxRqtSize) return c.refuse(Status::BAD_PARAM, "an RQT of {} RQs", max);
  if (prm::get<prm::rqtc::list_q_type>(ctx) != 0) return c.refuse(Status::BAD_PARAM, "an RQT of other queues than RQs");
  Rqt rqt;
  Status s = take_rqns(c, ctx, prm::create_rqt_in::kBytes, max, rqt.rqns);
  if (s != Status::OK) return s;
  auto n = c.st.rqtns.take();
  if (!n) return c.exhausted("RQT");
  std::memcpy(rqt.context.data(), ctx, rqt.context.size());
  hold_rqns(c, rqt.rqns, 1);
  c.objects().rqts.emplace(*n, std::move(rqt));
  c.set<prm::create_rqt_out::rqtn>(*n);
  return Status::OK;
}

Status modify_rqt(Command& c) {
  std::uint32_t n = c.get<prm::modify_rqt_in::rqtn>();
  auto it = c.objects().rqts.find(n);
  if (it == c.objects().rqts.end()) return c.no_such("RQT", n);
  if (!prm::get<prm::rqt_bitmask::rqn_list>(c.at<prm::modify_rqt_in::bitmask>())) return Status::OK;
  const std::uint8_t* ctx = c.at<prm::modify_rqt_in::ctx>();
  std::vector<std::uint32_t> rqns;
  std::uint32_t max = prm::get<prm::rqtc::rqt_max_size>(it->second.context.data());
  Status s = take_rqns(c, ctx, prm::modify_rqt_in::kBytes, max, rqns);
  if (s != Status::OK) return s;
  hold_rqns(c, rqns, 1);
  hold_rqns(c, it->second.rqns, -1);
  it->second.rqns = std::move(rqns);
  prm::set<prm::rqtc::rqt_actual_size>(it->second.context.data(), it->second.rqns.size());
  return Status::OK;
}

Status query_rqt(Command& c) {
  std::uint32_t n = c.get<prm::query_rqt_in::rqtn>();
  auto it = c.objects().rqts.find(n);
  if (it == c.objects().rqts.end()) return c.no_such("RQT", n);
  std::memcpy(c.out_at<prm::query_rqt_out::rqt_context>(), it->second.context.data(), prm::rqtc::kBytes);
  std::size_t at = prm::query_rqt_out::kBytes;
  for (std::uint32_t rqn : it->second.rqns) {
    if (at + 4 > c.out_bytes.size()) break;
    store_be<std::uint32_t>(c.out() + at, rqn);
    at += 4;
  }
  return Status::OK;
}

Status destroy_rqt(Command& c) {
  std::uint32_t n = c.get<prm::destroy_rqt_in::rqtn>();
  auto it = c.objects().rqts.find(n);
  if (it == c.objects().rqts.end()) return c.no_such("RQT", n);
  if (it->second.users != 0) return c.in_use("RQT", n, it->second.users);
  hold_rqns(c, it->second.rqns, -1);
  c.objects().rqts.erase(it);
  c.st.rqtns.give_back(n);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
