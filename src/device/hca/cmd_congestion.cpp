// SPDX-License-Identifier: MIT
// Congestion control as the driver sees and sets it: parameters of the two roles of the port, on and off by priority, statistics.
#include <span>

#include "device/hca/cmd_handlers.h"
#include "device/hca/congestion.h"
#include "device/hca/data_path.h"
#include "device/hca/qp_transport.h"
#include "prm/cmd_vport.h"
#include "prm/congestion.h"

namespace uhca::hca::cmd {
namespace {

namespace cong = prm::congestion;

struct Setting {
  cong::Parameter parameter;
  std::uint32_t CongestionSettings::*member;
  std::uint32_t least, most;
};
using C = CongestionSettings;
constexpr std::uint32_t kLineMbps = 100'000, kSecond = 1'000'000;
constexpr Setting kReaction[] = {{cong::clamp_tgt_rate, &C::clamp_tgt_rate, 0, 1},
                                 {cong::clamp_tgt_rate_after_time_inc, &C::clamp_tgt_rate_after_time_inc, 0, 1},
                                 {cong::rpg_time_reset, &C::rpg_time_reset, 1, kSecond},
                                 {cong::rpg_threshold, &C::rpg_threshold, 1, 31},
                                 {cong::rpg_max_rate, &C::rpg_max_rate, 0, kLineMbps},
                                 {cong::rpg_ai_rate, &C::rpg_ai_rate, 1, kLineMbps},
                                 {cong::rpg_hai_rate, &C::rpg_hai_rate, 1, kLineMbps},
                                 {cong::rpg_min_dec_fac, &C::rpg_min_dec_fac, 1, 100},
                                 {cong::rpg_min_rate, &C::rpg_min_rate, 1, kLineMbps},
                                 {cong::rate_to_set_on_first_cnp, &C::rate_to_set_on_first_cnp, 0, kLineMbps},
                                 {cong::dce_tcp_g, &C::dce_tcp_g, 0, 1023},
                                 {cong::dce_tcp_rtt, &C::dce_tcp_rtt, 1, kSecond},
                                 {cong::rate_reduce_monitor_period, &C::rate_reduce_monitor_period, 0, kSecond},
                                 {cong::initial_alpha_value, &C::initial_alpha_value, 0, 1023}};
constexpr Setting kNotification[] = {{cong::min_time_between_cnps, &C::min_time_between_cnps, 0, kSecond},
                                     {cong::cnp_dscp, &C::cnp_dscp, 0, 63}};

// Empty: no such role.
std::span<const Setting> settings_of(std::uint32_t protocol) {
  if (protocol == cong::kReactionPoint) return kReaction;
  if (protocol == cong::kNotificationPoint) return kNotification;
  return {};
}
Status no_protocol(Command& c, std::uint32_t protocol) {
  return c.refuse(Status::BAD_PARAM, "congestion protocol {} is not offered", protocol);
}
// The bits of one role, by priority; nullptr: no such role.
std::uint8_t* enabled(Command& c, std::uint32_t protocol) {
  CongestionSettings& s = c.hca.data_path().congestion();
  return protocol == cong::kReactionPoint ? &s.react : protocol == cong::kNotificationPoint ? &s.notify : nullptr;
}

}  // namespace

Status query_cong_params(Command& c) {
  std::uint32_t protocol = c.get<prm::query_cong_params_in::cong_protocol>();
  auto settings = settings_of(protocol);
  if (settings.empty()) return no_protocol(c, protocol);
  std::uint8_t* out = c.out_at<prm::query_cong_params_out::congestion_parameters>();
  const CongestionSettings& now = c.hca.data_path().congestion();
  for (const Setting& s : settings) prm::set(out, s.parameter.field, now.*s.member);
  return Status::OK;
}

Status modify_cong_params(Command& c) {
  if (Status s = c.drivers_only(true, "the parameters of congestion control"); s != Status::OK) return s;
  std::uint32_t protocol = c.get<prm::modify_cong_params_in::cong_protocol>();
  std::uint32_t select = c.get<prm::modify_cong_params_in::field_select>();
  auto settings = settings_of(protocol);
  if (settings.empty()) return no_protocol(c, protocol);
  const std::uint8_t* in = c.at<prm::modify_cong_params_in::congestion_parameters>();
  CongestionSettings next = c.hca.data_path().congestion();
  for (const Setting& s : settings) {
    if ((select & s.parameter.select) == 0) continue;
    select &= ~s.parameter.select;
    auto v = static_cast<std::uint32_t>(prm::get(in, s.parameter.field));
    if (v < s.least || v > s.most)
      return c.refuse(Status::BAD_PARAM, "congestion parameter {:#x}: {}, must be {} to {}", s.parameter.select, v, s.least, s.most);
    next.*s.member = v;
  }
  // The byte counter, rpg_gd and the CNPs' own priority have no part in what the engine does.
  if (select != 0) return c.refuse(Status::BAD_PARAM, "congestion parameters {:#x} are not offered", select);
  c.hca.data_path().congestion() = next;
  return Status::OK;
}

Status query_cong_status(Command& c) {
  std::uint32_t protocol = c.get<prm::query_cong_status_in::cong_protocol>(), priority = c.get<prm::query_cong_status_in::priority>();
  const std::uint8_t* on = enabled(c, protocol);
  if (on == nullptr) return no_protocol(c, protocol);
  if (priority > 7) return c.refuse(Status::BAD_PARAM, "priority {}", priority);
  c.set<prm::query_cong_status_out::enable>(*on >> priority & 1);
  return Status::OK;
}

Status modify_cong_status(Command& c) {
  if (Status s = c.drivers_only(true, "switching congestion control"); s != Status::OK) return s;
  std::uint32_t protocol = c.get<prm::modify_cong_status_in::cong_protocol>(), priority = c.get<prm::modify_cong_status_in::priority>();
  std::uint8_t* on = enabled(c, protocol);
  if (on == nullptr) return no_protocol(c, protocol);
  if (priority > 7) return c.refuse(Status::BAD_PARAM, "priority {}", priority);
  if (c.get<prm::modify_cong_status_in::tag_enable>()) return c.refuse(Status::BAD_PARAM, "congestion tags are not of RoCE");
  auto bit = static_cast<std::uint8_t>(1u << priority);
  *on = static_cast<std::uint8_t>(c.get<prm::modify_cong_status_in::enable>() ? *on | bit : *on & ~bit);
  return Status::OK;
}

Status query_cong_statistics(Command& c) {
  Counters& n = c.hca.data_path().counters();
  std::uint32_t slowed = 0;
  for (auto& [qpn, qp] : c.objects().qps) slowed += qp->transport->flow.current != 0;
  c.set<prm::query_cong_statistics_out::rp_cur_flows>(slowed);
  c.set<prm::query_cong_statistics_out::sum_flows>(static_cast<std::uint32_t>(n.rp_flows));
  c.set<prm::query_cong_statistics_out::rp_cnp_ignored>(n.rp_cnp_ignored);
  c.set<prm::query_cong_statistics_out::rp_cnp_handled>(n.rp_cnp_handled);
  c.set<prm::query_cong_statistics_out::np_ecn_marked_roce_packets>(n.np_ecn_marked);
  c.set<prm::query_cong_statistics_out::np_cnp_sent>(n.np_cnp_sent);
  if (c.get<prm::query_cong_statistics_in::clear>()) n.rp_cnp_ignored = n.rp_cnp_handled = n.np_ecn_marked = n.np_cnp_sent = n.rp_flows = 0;
  return Status::OK;
}

}  // namespace uhca::hca::cmd
