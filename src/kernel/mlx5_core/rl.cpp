// SPDX-License-Identifier: MIT
#include "kernel/mlx5_core/rl.h"

#include <algorithm>

#include "base/log.h"
#include "kernel/mlx5_core/mlx5_core.h"
#include "prm/other_caps.h"

namespace uhca::kernel::mlx5 {

Status RateTable::set(std::uint16_t index, const Context& rate, std::uint16_t uid) {
  std::uint8_t in[prm::set_pp_rate_limit_in::kBytes] = {}, out[prm::set_pp_rate_limit_out::kBytes] = {};
  prm::set<prm::set_pp_rate_limit_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::SET_PP_RATE_LIMIT));
  prm::set<prm::set_pp_rate_limit_in::uid>(in, uid);
  prm::set<prm::set_pp_rate_limit_in::rate_limit_index>(in, index);
  std::copy(rate.begin(), rate.end(), static_cast<std::uint8_t*>(prm::at<prm::set_pp_rate_limit_in::ctx>(static_cast<void*>(in))));
  return m_.cmd().exec(in, sizeof in, out, sizeof out);
}

Result<std::uint16_t> RateTable::add(const Context& rate, std::uint16_t uid, bool dedicated) {
  std::uint32_t wanted = prm::get<prm::set_pp_rate_limit_context::rate_limit>(rate.data());
  std::uint32_t least = m_.cap_qos<prm::qos_cap::packet_pacing_min_rate>(), most = m_.cap_qos<prm::qos_cap::packet_pacing_max_rate>();
  if (wanted < least || wanted > most) return refuse(EINVAL, "packet pacing: {} kb/s, the device has {} to {}", wanted, least, most);
  std::lock_guard g(lock_);
  if (entries_.empty()) entries_.resize(m_.cap_qos<prm::qos_cap::packet_pacing_rate_table_size>());
  Entry* free = nullptr;
  for (Entry& e : entries_) {
    if (e.users == 0) {
      if (free == nullptr) free = &e;
    } else if (!dedicated && !e.dedicated && e.uid == uid && e.rate == rate) {
      ++e.users;
      return static_cast<std::uint16_t>(&e - entries_.data() + 1);
    }
  }
  if (free == nullptr) return refuse(ENOSPC, "packet pacing: all {} rates are in use", entries_.size());
  auto index = static_cast<std::uint16_t>(free - entries_.data() + 1);
  UHCA_CHECK(set(index, rate, uid));
  *free = {rate, uid, dedicated, 1};
  return index;
}

void RateTable::remove(std::uint16_t index) {
  std::lock_guard g(lock_);
  Entry& e = entries_.at(index - 1u);
  if (--e.users != 0) return;
  if (Status s = set(index, Context{}, e.uid); !s.ok()) log::error("packet pacing: rate {} could not be cleared ({})", index, s.code());
}

}  // namespace uhca::kernel::mlx5
