// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/hw_counters.h"

#include <iterator>

#include "base/log.h"
#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "prm/cmd_object.h"
#include "prm/congestion.h"
#include "prm/counter_names.h"

namespace uhca::kernel::mlx5 {
namespace {

using Q = prm::query_q_counter_out;
using Cong = prm::query_cong_statistics_out;

// Linux: cong_cnts.
constexpr prm::FieldInfo kCongCounters[] = {{"rp_cnp_ignored", Cong::rp_cnp_ignored},
                                              {"rp_cnp_handled", Cong::rp_cnp_handled},
                                              {"np_ecn_marked_roce_packets", Cong::np_ecn_marked_roce_packets},
                                              {"np_cnp_sent", Cong::np_cnp_sent}};

struct Names {
  const char* all[std::size(prm::kQCounterNames) + std::size(kCongCounters) + 1] = {};
  constexpr explicit Names(bool congestion) {
    std::size_t n = 0;
    for (const prm::FieldInfo& c : prm::kQCounterNames) all[n++] = c.name;
    if (congestion)
      for (const prm::FieldInfo& c : kCongCounters) all[n++] = c.name;
  }
};
constexpr Names kWithCongestion{true}, kWithout{false};

}  // namespace

const char* const* hw_counter_names(const mlx5_core_dev& m) {
  return m.cap_gen<prm::cmd_hca_cap::cc_query_allowed>() ? kWithCongestion.all : kWithout.all;
}

Result<std::uint64_t> read_hw_counter(ib_device& d, unsigned index) {
  auto& m = *to_mdev(d).mdev;
  if (index < std::size(prm::kQCounterNames)) {
    // Linux gives every QP of the driver's one set and reads that; here the device adds up what all QPs of the function count.
    std::uint8_t in[prm::query_q_counter_in::kBytes] = {}, out[Q::kBytes] = {};
    prm::set<prm::query_q_counter_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_Q_COUNTER));
    prm::set<prm::congestion::q_counter_aggregate>(in, 1);
    UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
    return prm::get(out, prm::kQCounterNames[index].field);
  }
  index -= std::size(prm::kQCounterNames);
  if (index >= std::size(kCongCounters)) return refuse(EINVAL, "hw counter {}", index);
  std::uint8_t in[prm::query_cong_statistics_in::kBytes] = {}, out[Cong::kBytes] = {};
  prm::set<prm::cmd_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_CONG_STATISTICS));
  UHCA_CHECK(m.cmd().exec(in, sizeof in, out, sizeof out));
  return prm::get(out, kCongCounters[index].field);
}

}  // namespace uhca::kernel::mlx5
