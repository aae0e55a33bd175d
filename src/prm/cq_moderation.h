// SPDX-License-Identifier: MIT
// Moderation of completion events. Source: Linux 7.2, mlx5_ifc.h and cq.h (MLX5_CQ_MODIFY_*, MLX5_CQ_PERIOD_MODE_*); the capability is not
// in 6.1's, whose driver moderates without asking for it.
#pragma once

#include <cstdint>

#include "prm/layout.h"

namespace uhca::prm {

// cmd_hca_cap: MODIFY_CQ may change the mode.
inline constexpr Field cap_cq_period_mode_modify{0x223, 0x1, 1};

// modify_cq_in.modify_field_select_resize_field_select without op_mod "resize".
inline constexpr std::uint32_t kCqModifyPeriod = 1 << 0, kCqModifyCount = 1 << 1, kCqModifyOverrun = 1 << 2, kCqModifyPeriodMode = 1 << 4;

// cqc.cq_period_mode: what the period begins with.
enum class CqPeriodMode : std::uint8_t { kEvent = 0, kCqe = 1 };

}  // namespace uhca::prm
