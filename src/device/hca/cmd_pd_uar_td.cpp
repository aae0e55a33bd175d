// SPDX-License-Identifier: MIT
// Objects that are numbers with users: PD, UAR, transport domain, XRC domain; counter sets.
#include <algorithm>
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/cmd_object.h"
#include "prm/congestion.h"

namespace uhca::hca::cmd {
namespace {

// All of these answer and take the number in bits 0x48..0x5f.
Status alloc(Command& c, NumberedObjects& objects, const char* what) {
  auto n = objects.create();
  if (!n) return c.exhausted(what);
  c.set<prm::alloc_pd_out::pd>(*n);
  return Status::OK;
}

Status dealloc(Command& c, NumberedObjects& objects, const char* what) {
  std::uint32_t n = c.get<prm::dealloc_pd_in::pd>();
  if (!objects.exists(n)) return c.no_such(what, n);
  if (objects.users(n) != 0) return c.in_use(what, n, objects.users(n));
  objects.destroy(n);
  return Status::OK;
}

}  // namespace

Status alloc_pd(Command& c) {
  return alloc(c, c.st.pds, "PD");
}
// Keys move between PDs by work requests (UMR), so that they are counted only here.
Status dealloc_pd(Command& c) {
  std::uint32_t n = c.get<prm::dealloc_pd_in::pd>();
  auto keys = std::count_if(c.objects().mkeys.begin(), c.objects().mkeys.end(), [n](const auto& k) { return k.second->pd == n; });
  if (keys != 0 && c.st.pds.exists(n)) return c.in_use("PD", n, static_cast<unsigned>(keys));
  return dealloc(c, c.st.pds, "PD");
}
Status alloc_uar(Command& c) {
  return alloc(c, c.st.uars, "UAR");
}
// Queues of it do not hinder: a program that closes its context and leaves them to the kernel makes that free the UAR first, and Linux asks
// only once (mlx5_ib main.c: mlx5_ib_mmap_free).
Status dealloc_uar(Command& c) {
  std::uint32_t n = c.get<prm::dealloc_uar_in::uar>();
  if (!c.st.uars.exists(n)) return c.no_such("UAR", n);
  c.st.uars.retire(n);
  return Status::OK;
}
Status alloc_transport_domain(Command& c) {
  return alloc(c, c.st.transport_domains, "transport domain");
}
Status dealloc_transport_domain(Command& c) {
  return dealloc(c, c.st.transport_domains, "transport domain");
}
Status alloc_xrcd(Command& c) {
  return alloc(c, c.st.xrcds, "XRCD");
}
Status dealloc_xrcd(Command& c) {
  return dealloc(c, c.st.xrcds, "XRCD");
}

Status alloc_q_counter(Command& c) {
  auto n = c.st.counter_ids.take();
  if (!n) return c.exhausted("counter set");
  c.objects().counter_sets[*n];
  c.set<prm::alloc_q_counter_out::counter_set_id>(*n);
  return Status::OK;
}

Status dealloc_q_counter(Command& c) {
  std::uint32_t n = c.get<prm::dealloc_q_counter_in::counter_set_id>();
  if (c.objects().counter_set(n) == nullptr) return c.no_such("counter set", n);
  for (auto& [qpn, qp] : c.objects().qps)
    if (qp->counter_set == n) return c.refuse(Status::BAD_RES_STATE, "counter set {} counts QP {:#x}", n, qpn);
  c.objects().counter_sets.erase(n);
  c.st.counter_ids.give_back(n);
  return Status::OK;
}

Status query_q_counter(Command& c) {
  std::uint32_t n = c.get<prm::query_q_counter_in::counter_set_id>();
  bool all = c.get<prm::congestion::q_counter_aggregate>();
  CounterSet* set = all ? &c.hca.data_path().counters().totals : c.objects().counter_set(n);
  if (set == nullptr) return c.no_such("counter set", n);
  if (Status s = c.drivers_only(all && c.get<prm::query_q_counter_in::clear>(), "clearing everybody's counters"); s != Status::OK) return s;
  std::memcpy(c.out(), set->raw.data(), set->raw.size());
  if (c.get<prm::query_q_counter_in::clear>()) set->raw.fill(0);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
