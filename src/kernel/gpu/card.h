// SPDX-License-Identifier: MIT
// Which card it is: an AMD Instinct MI210 (gfx90a), or, for what NVIDIA's side shows, an A100. Numbers as their drivers report them.
#pragma once

#include <cstdint>

namespace uhca::kernel::gpu {

inline constexpr std::uint32_t kVendorId = 0x1002, kDeviceId = 0x740f, kRevision = 0x02;
inline constexpr std::uint32_t kNvVendorId = 0x10de, kNvDeviceId = 0x20b5;
inline constexpr std::uint32_t kGfxTarget = 90010;                        // 9.0.10
inline constexpr std::uint32_t kComputeUnits = 104, kEngineClock = 1700;  // MHz
inline constexpr std::uint32_t kGpuId = 0x8a2c;                           // KFD's: a hash of where and what it is
inline constexpr std::uint32_t kKfdMinor = 12;                            // of interface 1: the first with EXPORT_DMABUF

}  // namespace uhca::kernel::gpu
