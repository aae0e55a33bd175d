// SPDX-License-Identifier: MIT
#include "kernel/cm/exchange.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "base/trace.h"
#include "kernel/cm/ib_cm.h"
#include "kernel/cm/peer_watch.h"

namespace uhca::kernel::cm {
namespace {

std::span<const std::uint8_t> bytes_of(const HandedMad& m) {
  return {reinterpret_cast<const std::uint8_t*>(&m), sizeof m};
}

HandedMad pack(const Mad& mad, const MadInfo& info) {
  HandedMad m;
  m.roce_v2 = info.roce_v2;
  m.traffic_class = info.traffic_class;
  m.hop_limit = info.hop_limit;
  m.sl = info.sl;
  m.flow_label = info.flow_label;
  m.src_qp = info.src_qp;
  m.sgid = info.sgid;
  m.dgid = info.dgid;
  m.mad = mad.bytes;
  return m;
}

}  // namespace

std::string Exchange::name_of(std::uint32_t function) const {
  return fmt::format("{}fn/{}", prefix_, function);
}

Status Exchange::start() {
  own_ = UHCA_TRY(HostName::bind(name_of(function_)));
  return own_.listen();
}

bool Exchange::give(const std::string& name, const HandedMad& m) {
  Status s = call(name, bytes_of(m));
  if (s.code() == ECONNREFUSED) return false;
  if (!s) {
    // Descriptors that we lack, an owner that is stopped: none of that makes it nobody's.
    (void)refuse(s.code(), "cm: a MAD cannot be handed on to {}: dropped", name);
  } else if (trace::on()) {
    Mad mad;
    mad.bytes = m.mad;
    trace::Event("mad", "hand_on").str("attr", to_string(cm_attr(mad))).hex("remote_comm_id", cm_remote_comm_id(mad));
  }
  return true;
}

Exchange::Owner Exchange::by_service_id(std::uint64_t service_id, const HandedMad& m, const MadInfo& info) {
  auto ps = static_cast<std::uint16_t>(service_id >> 16);
  auto port = static_cast<std::uint16_t>(service_id);
  for (const std::string& name : ports_.names_for(ps, port, info.dgid)) {
    if (ports_.listens(name)) return Owner::kSelf;
    if (give(name, m)) return Owner::kOther;
  }
  return Owner::kNobody;
}

Exchange::Owner Exchange::by_function(std::uint32_t function, const HandedMad& m) {
  if (function == function_) return Owner::kSelf;
  if (give(name_of(function), m)) return Owner::kOther;
  (void)refuse(ECONNREFUSED, "cm: a MAD for function {}, which does not exist", function);
  return Owner::kSelf;
}

Exchange::Owner Exchange::hand_on(const Mad& mad, const MadInfo& info) {
  HandedMad m = pack(mad, info);
  Owner owner = Owner::kSelf;
  switch (cm_attr(mad)) {
    case CmAttr::REQ: owner = by_service_id(prm::get<prm::cm_req::service_id>(mad.body()), m, info); break;
    case CmAttr::SIDR_REQ: owner = by_service_id(prm::get<prm::cm_sidr_req::service_id>(mad.body()), m, info); break;
    case CmAttr::SIDR_REP: owner = by_function(prm::get<prm::cm_sidr_rep::request_id>(mad.body()) >> IbCm::kIdBits, m); break;
    default: {
      std::uint32_t id = cm_remote_comm_id(mad);
      if (id != 0) {
        owner = by_function(id >> IbCm::kIdBits, m);
        break;
      }
      // A requester that gave up does not know our id: it names itself, and whoever has its request recognises it.
      for (const std::string& f : bound_names(prefix_ + "fn/"))
        if (auto n = static_cast<std::uint32_t>(std::strtoul(f.c_str(), nullptr, 10)); n != function_) by_function(n, m);
    }
  }
  return owner;
}

Exchange::Took Exchange::take(int caller_fd, Mad* mad, MadInfo* info) {
  HandedMad m;
  long n = read_call(caller_fd, {reinterpret_cast<std::uint8_t*>(&m), sizeof m});
  if (n < 0) return Took::kNotYet;
  if (n == sizeof m.magic && m.magic == PeerWatch::kGreeting) return Took::kWatcher;
  if (n != static_cast<long>(sizeof m) || m.magic != HandedMad::kMagic) return Took::kNothing;
  *info = {};
  info->roce_v2 = m.roce_v2;
  info->traffic_class = m.traffic_class;
  info->hop_limit = m.hop_limit;
  info->sl = m.sl;
  info->flow_label = m.flow_label & 0xfffff;
  info->src_qp = m.src_qp & 0xffffff;
  info->sgid = m.sgid;
  info->dgid = m.dgid;
  mad->bytes = m.mad;
  return Took::kMad;
}

}  // namespace uhca::kernel::cm
