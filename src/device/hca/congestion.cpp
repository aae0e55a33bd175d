// SPDX-License-Identifier: MIT
#include "device/hca/congestion.h"

#include <algorithm>

#include "base/trace.h"
#include "device/hca/lane.h"
#include "device/hca/rc_packet.h"

namespace uhca::hca {
namespace {

enum Ecn : std::uint8_t { kNotCapable = 0, kCapable = 2, kExperienced = 3, kEcnMask = 3 };  // RFC 3168

constexpr std::uint32_t kAlphaOne = 1024;
constexpr std::uint64_t kMegabit = 125'000, kLine = 100'000 * kMegabit;  // bytes per second
constexpr Nanos kMicro = 1'000;

constexpr Nanos kBurst = 20'000;         // ahead of time: a sleeping thread cannot be woken more exactly
constexpr unsigned kStepsAtOnce = 1000;  // what a long silence leaves to be done is done by and by

using Settings = CongestionSettings;

std::uint64_t rate_of(std::uint32_t mbps) {
  return mbps == 0 ? kLine : mbps * kMegabit;
}
bool on_for(std::uint8_t priorities, const wire::NetHeader& path) {
  return (priorities >> (path.vlan == 0xffff ? 0 : path.vlan >> 13) & 1) != 0;
}

void decay(FlowRate& f, const Settings& s, Nanos now) {
  const Nanos every = s.dce_tcp_rtt * kMicro;
  for (unsigned n = 0; f.alpha != 0 && f.decayed + every <= now && n < kStepsAtOnce; ++n) {
    f.alpha -= std::max(1u, f.alpha * (kAlphaOne - s.dce_tcp_g) / kAlphaOne);
    f.decayed += every;
  }
  if (f.alpha == 0) f.decayed = now;
}

void raise(FlowRate& f, const Settings& s, Nanos now) {
  const Nanos every = s.rpg_time_reset * kMicro;
  const std::uint64_t most = rate_of(s.rpg_max_rate);
  for (unsigned n = 0; f.current != 0 && f.raised + every <= now && n < kStepsAtOnce; ++n) {
    f.raised += every;
    if (++f.steps > s.rpg_threshold)
      f.target = std::min(most, f.target + (f.steps > 2 * s.rpg_threshold ? s.rpg_hai_rate : s.rpg_ai_rate) * kMegabit);
    f.current = (f.current + f.target) / 2;
    if (f.current + s.rpg_ai_rate * kMegabit >= most) f.current = most == kLine ? 0 : most;
  }
}

void cut(FlowRate& f, const Settings& s, Nanos now) {
  bool first = f.current == 0;
  if (first) {
    f.current = rate_of(s.rate_to_set_on_first_cnp);
    f.alpha = s.initial_alpha_value;
    f.next = now;
  } else {
    decay(f, s, now);
    f.alpha += (kAlphaOne - f.alpha) * (kAlphaOne - s.dce_tcp_g) / kAlphaOne;
  }
  if (first || s.clamp_tgt_rate != 0 || (s.clamp_tgt_rate_after_time_inc != 0 && f.steps > 0)) f.target = f.current;
  std::uint64_t least = std::max(rate_of(s.rpg_min_rate), f.current * s.rpg_min_dec_fac / 100);
  f.current = std::max(least, f.current - f.current * f.alpha / (2 * kAlphaOne));
  f.steps = 0;
  f.notified = f.decayed = f.raised = now;
}

}  // namespace

std::uint8_t data_traffic_class(const Lane& lane, const wire::NetHeader& path) {
  bool untouched = path.roce_v1 || !on_for(lane.congestion.react, path) || (path.traffic_class & kEcnMask) != kNotCapable;
  return untouched ? path.traffic_class : path.traffic_class | kCapable;
}

void note_mark(Lane& lane, Qp& qp, const wire::Packet& p) {
  if (!has_peer(qp.type) || p.net.roce_v1 || (p.net.traffic_class & kEcnMask) != kExperienced) return;
  if (!on_for(lane.congestion.notify, qp.path)) return;
  ++lane.counters.np_ecn_marked;
  FlowRate& f = qp.transport->flow;
  if (lane.now < f.cnp_allowed) return;
  wire::Packet cnp;
  cnp.net = qp.path;
  cnp.net.traffic_class = static_cast<std::uint8_t>(lane.congestion.cnp_dscp << 2 | kCapable);
  cnp.bth.opcode = wire::kCnp;
  cnp.bth.becn = true;
  cnp.bth.dest_qp = qp.remote_qpn;
  begin_headers(lane, cnp, 0);
  if (finish_packet(lane, qp, cnp) != Tx::kSent) return;  // the next mark comes soon
  f.cnp_allowed = lane.now + lane.congestion.min_time_between_cnps * kMicro;
  ++lane.counters.np_cnp_sent;
}

void receive_cnp(Lane& lane, Qp& qp, const wire::Packet& p) {
  if (!has_peer(qp.type) || p.net.dgid != qp.path.sgid || !on_for(lane.congestion.react, qp.path)) {
    ++lane.counters.rp_cnp_ignored;
    return;
  }
  FlowRate& f = qp.transport->flow;
  ++lane.counters.rp_cnp_handled;
  if (f.current != 0 && lane.now < f.notified + lane.congestion.rate_reduce_monitor_period * kMicro) return;
  raise(f, lane.congestion, lane.now);
  lane.counters.rp_flows += f.current == 0;
  cut(f, lane.congestion, lane.now);
  if (trace::on()) trace::Event("state", "congestion").hex("qpn", qp.qpn).unum("rate", f.current).unum("alpha", f.alpha);
}

bool must_wait(Lane& lane, Qp& qp) {
  FlowRate& f = qp.transport->flow;
  if (f.current == 0) return false;
  raise(f, lane.congestion, lane.now);
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
