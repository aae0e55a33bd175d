// SPDX-License-Identifier: MIT
// The device's free-running clock (a page of the BAR, mapped read-only) and the kernel's conversion of it to nanoseconds.
#include "base/log.h"
#include "user/mlx5/objects.h"

namespace uhca::mlx5 {

// Two big-endian halves that the device updates: read until the high one is stable.
int read_core_clock(Context* ctx, std::uint64_t* cycles) {
  if (!ctx->hca_core_clock) return refuse(EOPNOTSUPP, "the kernel offers no mapping of the device's clock").value;
  auto* p = static_cast<const volatile std::uint32_t*>(ctx->hca_core_clock);
  for (int i = 0; i < 2; ++i) {
    std::uint32_t high = __builtin_bswap32(p[0]);
    std::uint32_t low = __builtin_bswap32(p[1]);
    std::uint32_t again = __builtin_bswap32(p[0]);
    *cycles = std::uint64_t{again} << 32 | (high == again ? low : __builtin_bswap32(p[1]));
    if (high == again) break;
  }
  return 0;
}

// EBUSY: the kernel kept updating the page for ten tries in a row, as libmlx5 counts.
int read_clock_info(Context* ctx, mlx5dv_clock_info* info) {
  const mlx5_ib_clock_info* ci = ctx->clock_info;
  if (!ci) return refuse(EINVAL, "the kernel offers no clock page").value;
  std::uint32_t sign = 0;
  do {
    int retry = 10;
    while ((sign = __atomic_load_n(&ci->sign, __ATOMIC_ACQUIRE)) & MLX5_IB_CLOCK_INFO_KERNEL_UPDATING) {
      if (!--retry) return EBUSY;
      sched_yield();
    }
    info->nsec = ci->nsec;
    info->last_cycles = ci->cycles;
    info->frac = ci->frac;
    info->mult = ci->mult;
    info->shift = ci->shift;
    info->mask = ci->mask;
    std::atomic_thread_fence(std::memory_order_acquire);
  } while (__atomic_load_n(&ci->sign, __ATOMIC_RELAXED) != sign);
  return 0;
}

}  // namespace uhca::mlx5
