// SPDX-License-Identifier: MIT
// DC targets. Their transport is in dc.h.
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "device/hca/ece.h"
#include "prm/cmd_qp.h"
#include "prm/event.h"

namespace uhca::hca::cmd {
namespace {

constexpr std::uint8_t kEventDctDrained = 0x1c;
enum DctState : unsigned { kActive = 0, kDrained = 2 };

Dct* find(Command& c, std::uint32_t n) {
  return c.hca.config().offer_dc ? c.objects().dct(n) : nullptr;
}

}  // namespace

Status create_dct(Command& c) {
  if (!c.hca.config().offer_dc) return c.refuse(Status::BAD_OP, "the DC transport is not offered");
  const std::uint8_t* ctx = c.at<prm::create_dct_in::dct_context_entry>();
  auto dct = std::make_unique<Dct>();
  dct->pd = prm::get<prm::dctc::pd>(ctx);
  std::uint32_t cqn = prm::get<prm::dctc::cqn>(ctx), srqn = prm::get<prm::dctc::srqn_xrqn>(ctx), mtu = prm::get<prm::dctc::mtu>(ctx);
  if (!c.st.pds.exists(dct->pd)) return c.no_such("PD", dct->pd);
  dct->cq = c.objects().cq(cqn);
  if (dct->cq == nullptr) return c.no_such("CQ", cqn);
  dct->srq = c.objects().srq(srqn);
  if (dct->srq == nullptr) return c.no_such("SRQ", srqn);
  if (mtu < 1 || mtu > 5) return c.refuse(Status::BAD_PARAM, "MTU code {}", mtu);
  std::uint32_t set = prm::get<prm::dctc::counter_set_id>(ctx);
  if (set != 0 && c.objects().counter_set(set) == nullptr) return c.no_such("counter set", set);
  if (Status s = c.drivers_only(prm::get<prm::dctc::rlky>(ctx), "the reserved lkey"); s != Status::OK) return s;
  Status s = c.may_use_all({{Kind::kPd, dct->pd}, {Kind::kCq, cqn}, {Kind::kSrq, srqn}, {Kind::kCounterSet, set}});
  if (s != Status::OK) return s;
  auto n = c.st.take_qpn(c.hca.lease());
  if (!n) return c.exhausted("QPN");
  dct->dctn = *n;
  std::memcpy(dct->context.data(), ctx, prm::dctc::kBytes);
  c.st.pds.hold(dct->pd);
  ++dct->cq->users;
  ++dct->srq->users;
  c.objects().dcts.emplace(*n, std::move(dct));
  c.set<prm::create_dct_out::dctn>(*n);
  c.set<prm::create_dct_out::ece>(granted_ece(prm::get<prm::dctc::ece>(ctx)));
  return Status::OK;
}

// No initiator gets in any more; the event says that none is inside. Sessions have no state that anybody waits for: at once.
Status drain_dct(Command& c) {
  std::uint32_t n = c.get<prm::drain_dct_in::dctn>();
  Dct* dct = find(c, n);
  if (dct == nullptr) return c.no_such("DCT", n);
  if (dct->drained) return c.refuse(Status::BAD_RES_STATE, "DCT {:#x} was drained", n);
  dct->drained = true;
  c.hca.data_path().dct_drained(*dct);
  std::uint8_t data[prm::dct_events::kBytes]{};
  prm::set<prm::dct_events::dct_number>(data, n);
  c.hca.data_path().async_event(kEventDctDrained, 0, data, sizeof data);
  return Status::OK;
}

Status query_dct(Command& c) {
  std::uint32_t n = c.get<prm::query_dct_in::dctn>();
  const Dct* dct = find(c, n);
  if (dct == nullptr) return c.no_such("DCT", n);
  void* ctx = c.out_at<prm::query_dct_out::dct_context_entry>();
  std::memcpy(ctx, dct->context.data(), prm::dctc::kBytes);
  prm::set<prm::dctc::state>(ctx, dct->drained ? kDrained : kActive);
  prm::set<prm::dctc::dc_access_key_violation_count>(ctx, dct->key_violations);
  return Status::OK;
}

Status destroy_dct(Command& c) {
  std::uint32_t n = c.get<prm::destroy_dct_in::dctn>();
  Dct* dct = find(c, n);
  if (dct == nullptr) return c.no_such("DCT", n);
  if (!dct->drained) return c.refuse(Status::BAD_RES_STATE, "DCT {:#x} was not drained", n);
  c.st.pds.drop(dct->pd);
  --dct->cq->users;
  --dct->srq->users;
  c.objects().dcts.erase(n);
  c.st.freed_qpns.push_back(n);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
