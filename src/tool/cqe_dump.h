// SPDX-License-Identifier: MIT
// CQEs in the text that drivers print when one completes with error:
//   libmlx5 (MLX5_DEBUG_FILE, or stderr)  four lines of four words, "00000000 93005204 0a0019a1 c0921cd2"
//   mlx5_ib (print_hex_dump)              four lines of 16 bytes, "cqe_dump: 00000030: 00 00 00 00 93 00 52 04 0a 00 19 a1 c0 92 1c d2"
//   mlx5_ib of older kernels              the words again, behind "mlx5_0:dump_cqe:272:(pid 9216): "
// Whatever stands before the numbers of a line is skipped. Often only the last line is at hand; it holds all that counts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace uhca::tool {

struct DumpedCqe {
  std::array<std::uint8_t, 64> bytes{};
  bool whole = false;  // false: only the last 16 bytes were there, the others are zero
};

std::vector<DumpedCqe> find_cqes(const std::string& text);

// One sentence about what the CQE says, and one about what usually causes it (empty for a CQE without error).
struct Explanation {
  std::string what;
  std::string cause;
};
Explanation explain(const DumpedCqe& cqe);

}  // namespace uhca::tool
