// SPDX-License-Identifier: MIT
#include "device/hca/congestion.h"

#include <algorithm>

#include "base/trace.h"
#include "device/hca/lane.h"
#include "device/hca/rc_packet.h"

namespace uhca::hca {
namespace {

enum Ecn : std::uint8_t { kNotCapable = 0, kCapable = 2, kExperienced = 3, kEcnMask = 3 };  // RFC 3168

// Notification point: min_time_between_cnps, cnp_dscp.
constexpr Nanos kBetweenCnps = 4'000;
constexpr std::uint8_t kCnpDscp = 48;
// Reaction point: rate_reduce_monitor_period, dce_tcp_g and its timer, rpg_time_reset, rpg_threshold, rpg_ai_rate, rpg_hai_rate,
// rpg_min_dec_fac, rpg_min_rate.
constexpr Nanos kCutEvery = 4'000, kDecayEvery = 55'000, kRaiseEvery = 300'000;
constexpr std::uint32_t kAlphaOne = 1024, kG = 1024 - 1019;
constexpr unsigned kFastSteps = 5, kAdditiveSteps = 10;
constexpr std::uint64_t kMegabit = 125'000;
constexpr std::uint64_t kAdd = 5 * kMegabit, kAddHyper = 50 * kMegabit, kLeast = 1 * kMegabit, kLine = 100'000 * kMegabit;

constexpr Nanos kBurst = 20'000;         // ahead of time: a sleeping thread cannot be woken more exactly
constexpr unsigned kStepsAtOnce = 1000;  // what a long silence leaves to be done is done by and by

void decay(FlowRate& f, Nanos now) {
  for (unsigned n = 0; f.alpha != 0 && f.decayed + kDecayEvery <= now && n < kStepsAtOnce; ++n) {
    f.alpha -= std::max(1u, f.alpha * kG / kAlphaOne);
    f.decayed += kDecayEvery;
  }
  if (f.alpha == 0) f.decayed = now;
}

void raise(FlowRate& f, Nanos now) {
  for (unsigned n = 0; f.current != 0 && f.raised + kRaiseEvery <= now && n < kStepsAtOnce; ++n) {
    f.raised += kRaiseEvery;
    if (++f.steps > kFastSteps) f.target = std::min(kLine, f.target + (f.steps > kAdditiveSteps ? kAddHyper : kAdd));
    f.current = (f.current + f.target) / 2;
    if (f.current + kAdd >= kLine) f.current = 0;
  }
}

void cut(FlowRate& f, Nanos now) {
  if (f.current == 0) {  // the first notification
    f.current = kLine;
    f.alpha = kAlphaOne - 1;
    f.next = now;
  } else {
    decay(f, now);
    f.alpha += (kAlphaOne - f.alpha) * kG / kAlphaOne;
  }
  f.target = f.current;
  f.current = std::max(kLeast, f.current - f.current * f.alpha / (2 * kAlphaOne));
  f.steps = 0;
  f.notified = f.decayed = f.raised = now;
}

}  // namespace

std::uint8_t data_traffic_class(const Lane& lane, const wire::NetHeader& path) {
  bool untouched = path.roce_v1 || !lane.congestion.react || (path.traffic_class & kEcnMask) != kNotCapable;
  return untouched ? path.traffic_class : path.traffic_class | kCapable;
}

void note_mark(Lane& lane, Qp& qp, const wire::Packet& p) {
  if (!has_peer(qp.type) || p.net.roce_v1 || (p.net.traffic_class & kEcnMask) != kExperienced || !lane.congestion.notify) return;
  ++lane.counters.np_ecn_marked;
  FlowRate& f = qp.transport->flow;
  if (lane.now < f.cnp_allowed) return;
  wire::Packet cnp;
  cnp.net = qp.path;
  cnp.net.traffic_class = kCnpDscp << 2 | kCapable;
  cnp.bth.opcode = wire::kCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qp = qp.remote_qpn;
  begin_headers(lane, cnp, 0);
  if (finish_packet(lane, qp, cnp) != Tx::kSent) return;  // the next mark comes soon
  f.cnp_allowed = lane.now + kBetweenCnps;
  ++lane.counters.np_cnp_sent;
}

void receive_cnp(Lane& lane, Qp& qp, const wire::Packet& p) {
  if (!has_peer(qp.type) || p.net.dgid != qp.path.sgid || !lane.congestion.react) {
    ++lane.counters.rp_cnp_ignored;
    return;
  }
  FlowRate& f = qp.transport->flow;
  ++lane.counters.rp_cnp_handled;
  if (f.current != 0 && lane.now < f.notified + kCutEvery) return;
  raise(f, lane.now);
  cut(f, lane.now);
  if (trace::on()) trace::Event("state", "congestion").hex("qpn", qp.qpn).unum("rate", f.current).unum("alpha", f.alpha);
}

bool must_wait(Lane& lane, Qp& qp) {
  FlowRate& f = qp.transport->flow;
  if (f.current == 0) return false;
  raise(f, lane.now);
  if (f.current == 0 || f.next <= lane.now + kBurst) return false;
  if (!f.paced) {
    f.paced = true;
    lane.paced.push_back(&qp);
  }
  lane.pace_at = std::min(lane.pace_at, f.next);
  return true;
}

void charge(const Lane& lane, Qp& qp, std::size_t bytes) {
  FlowRate& f = qp.transport->flow;
  if (f.current == 0) return;
  f.next = std::max(f.next, lane.now) + static_cast<Nanos>(bytes * 1'000'000'000 / f.current);
}

void release_paced(Lane& lane) {
  Nanos next = kNever;
  std::erase_if(lane.paced, [&](Qp* qp) {
    FlowRate& f = qp->transport->flow;
    if (f.next > lane.now) {
      next = std::min(next, f.next);
      return false;
    }
    f.paced = false;
    lane.schedule(*qp);
    return true;
  });
  lane.pace_at = next;
}

void forget_pace(Lane& lane, Qp& qp) {
  if (qp.transport->flow.paced) std::erase(lane.paced, &qp);
  qp.transport->flow = {};
  if (lane.paced.empty()) lane.pace_at = kNever;
}

}  // namespace uhca::hca
