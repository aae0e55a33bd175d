// SPDX-License-Identifier: MIT
// Device memory (MEMIC): commands, and what Linux 6.1's mlx5_ifc.h lacks of its capabilities.
// Offsets and widths are in bits from the start of the structure, most significant bit first, as in mlx5_ifc.h.
#pragma once

#include "prm/layout.h"

// clang-format off
#define UHCA_PRM_alloc_memic_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(log_memic_addr_alignment, 0x78, 0x8, 1) \
  F(range_start_addr, 0x80, 0x40, 1) \
  F(range_size, 0xc0, 0x20, 1) \
  F(memic_size, 0xe0, 0x20, 1)
UHCA_PRM_LAYOUT(alloc_memic_in, 0x100)

#define UHCA_PRM_alloc_memic_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(memic_start_addr, 0x40, 0x40, 1)
UHCA_PRM_LAYOUT(alloc_memic_out, 0x80)

#define UHCA_PRM_dealloc_memic_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(memic_start_addr, 0x80, 0x40, 1) \
  F(memic_size, 0xc0, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_memic_in, 0x100)

#define UHCA_PRM_dealloc_memic_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1)
UHCA_PRM_LAYOUT(dealloc_memic_out, 0x80)

#define UHCA_PRM_modify_memic_in(F) \
  F(opcode, 0x0, 0x10, 1) \
  F(uid, 0x10, 0x10, 1) \
  F(op_mod, 0x30, 0x10, 1) \
  F(memic_operation_type, 0x78, 0x8, 1) \
  F(memic_start_addr, 0x80, 0x40, 1)
UHCA_PRM_LAYOUT(modify_memic_in, 0x200)

#define UHCA_PRM_modify_memic_out(F) \
  F(status, 0x0, 0x8, 1) \
  F(syndrome, 0x20, 0x20, 1) \
  F(memic_operation_addr, 0x80, 0x40, 1)
UHCA_PRM_LAYOUT(modify_memic_out, 0x200)

// clang-format on

#define UHCA_PRM_LAYOUTS_memic(L) \
  L(alloc_memic_in)               \
  L(alloc_memic_out)              \
  L(dealloc_memic_in)             \
  L(dealloc_memic_out)            \
  L(modify_memic_in)              \
  L(modify_memic_out)

namespace uhca::prm {

// modify_memic_in.op_mod
inline constexpr std::uint16_t kMemicOpAlloc = 0, kMemicOpDealloc = 1;
// memic_operation_type: what an access to an operation address does. A store to an increment address adds its value; a load from a
// test-and-set address answers the old value and leaves all ones (pyverbs' test_mlx5_dm_ops.py of rdma-core 44, of this device's time;
// that of v65 expects 1).
inline constexpr std::uint8_t kMemicIncrement = 0, kMemicTestAndSet = 1, kMemicOperations = 2;
// device_mem_cap: widths of access that the operations take, a bit for each power of two in bytes (the same file reads them there).
inline constexpr Field cap_memic_increment_sizes{0x20, 0x8, 1}, cap_memic_test_and_set_sizes{0x30, 0x8, 1};
// Units of allocation and of log_memic_addr_alignment (Linux: MLX5_MEMIC_BASE_SIZE, MLX5_MEMIC_BASE_ALIGN).
inline constexpr unsigned kLogMemicUnit = 6;

}  // namespace uhca::prm
