// SPDX-License-Identifier: MIT
// The instruction that faulted, as an access to device memory. x86-64: MOV, MOVZX, MOVSX, MOVSXD (Intel SDM, volume 2).
#pragma once

#include <cstdint>

namespace uhca::sys {

struct MmioAccess {
  bool write = false;
  unsigned size = 0;        // bytes in memory
  std::uint64_t value = 0;  // stores
  // Loads: where the value goes, and how.
  unsigned reg = 0;        // number of the register
  bool high_byte = false;  // AH, CH, DH or BH
  bool sign = false;       // extend the sign
  unsigned reg_size = 0;   // bytes; 4 clears the upper half
  unsigned length = 0;     // of the instruction
};

// False: an instruction of another kind.
bool mmio_decode(const void* ucontext, MmioAccess* out);
// Puts the value of a load where it goes, and steps over the instruction.
void mmio_complete(void* ucontext, const MmioAccess& a, std::uint64_t value);

}  // namespace uhca::sys
