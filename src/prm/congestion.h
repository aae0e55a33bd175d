// SPDX-License-Identifier: MIT
// Congestion control of RoCE and what is counted of it; the sum over all counter sets. Linux 6.1's mlx5_ifc.h has these only in part.
// Source: Linux 7.2 mlx5_ifc.h (cong_control_r_roce_ecn_rp and _np, query_cong_statistics, query_q_counter_in), drivers/infiniband/hw/
// mlx5/cong.c (which bit of field_select names which parameter).
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_modify_cong_status_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(priority, 0x58, 0x4, 1) \
  F(cong_protocol, 0x5c, 0x4, 1) \
  F(enable, 0x60, 0x1, 1) \
  F(tag_enable, 0x61, 0x1, 1)
UHCA_PRM_LAYOUT(modify_cong_status_in, 0x80)

#define UHCA_PRM_modify_cong_status_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(modify_cong_status_out, 0x80)

#define UHCA_PRM_query_cong_statistics_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(clear, 0x40, 0x1, 1)
UHCA_PRM_LAYOUT(query_cong_statistics_in, 0x80)

#define UHCA_PRM_query_cong_statistics_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(rp_cur_flows, 0x80, 0x20, 1) \
  F(sum_flows, 0xa0, 0x20, 1) \
  F(rp_cnp_ignored, 0xc0, 0x40, 1) \
  F(rp_cnp_handled, 0x100, 0x40, 1) \
  F(time_stamp, 0x240, 0x40, 1) \
  F(accumulators_period, 0x280, 0x20, 1) \
  F(np_ecn_marked_roce_packets, 0x2a0, 0x40, 1) \
  F(np_cnp_sent, 0x2e0, 0x40, 1)
UHCA_PRM_LAYOUT(query_cong_statistics_out, 0x880)
// clang-format on

#define UHCA_PRM_LAYOUTS_congestion(L) \
  L(modify_cong_status_in) L(modify_cong_status_out) L(query_cong_statistics_in) L(query_cong_statistics_out)

namespace uhca::prm::congestion {

inline constexpr std::uint32_t kReactionPoint = 1, kNotificationPoint = 2;  // cong_protocol

// A parameter: where it lies in congestion_parameters, and its bit in field_select.
struct Parameter {
  Field field;
  std::uint32_t select;
};
// The reaction point's. Times in microseconds, rates in Mb/s (0: that of the line), byte counts in units of 64.
inline constexpr Parameter clamp_tgt_rate{{0x64, 1, 1}, 1 << 1}, clamp_tgt_rate_after_time_inc{{0x68, 1, 1}, 1 << 2},
    rpg_time_reset{{0xa0, 0x20, 1}, 1 << 3}, rpg_byte_reset{{0xc0, 0x20, 1}, 1 << 4}, rpg_threshold{{0xe0, 0x20, 1}, 1 << 5},
    rpg_max_rate{{0x100, 0x20, 1}, 1 << 6}, rpg_ai_rate{{0x120, 0x20, 1}, 1 << 7}, rpg_hai_rate{{0x140, 0x20, 1}, 1 << 8},
    rpg_gd{{0x160, 0x20, 1}, 1 << 16}, rpg_min_dec_fac{{0x180, 0x20, 1}, 1 << 9}, rpg_min_rate{{0x1a0, 0x20, 1}, 1 << 10},
    rate_to_set_on_first_cnp{{0x2a0, 0x20, 1}, 1 << 11}, dce_tcp_g{{0x2c0, 0x20, 1}, 1 << 12}, dce_tcp_rtt{{0x2e0, 0x20, 1}, 1 << 13},
    rate_reduce_monitor_period{{0x300, 0x20, 1}, 1 << 14}, initial_alpha_value{{0x340, 0x20, 1}, 1 << 15};
// The notification point's.
inline constexpr Parameter min_time_between_cnps{{0xa0, 0x20, 1}, 1 << 2}, cnp_dscp{{0xd2, 0x6, 1}, 1 << 3};

inline constexpr Field cap_q_counter_aggregation{0x339, 0x1, 1}, q_counter_aggregate{0xc1, 0x1, 1};

}  // namespace uhca::prm::congestion
