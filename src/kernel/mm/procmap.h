// SPDX-License-Identifier: MIT
// What the program has mapped where: pinning asks before it promises a range to the device, without touching a page.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/mm/uaccess.h"

namespace uhca::kernel::mm {

enum class Coverage : std::uint8_t { kOk, kHole, kNotReadable, kNotWritable };

struct CoverageResult {
  Coverage what = Coverage::kOk;
  UserPtr at = 0;  // the first address of which `what` is true, if not kOk
};

// Source of the mapping list of this process. Thread-safe.
class ProcMaps {
 public:
  ProcMaps() = default;
  ~ProcMaps();
  ProcMaps(const ProcMaps&) = delete;
  ProcMaps& operator=(const ProcMaps&) = delete;

  // Whether every page of [begin, end) lies in a readable (and, if asked, writable) mapping; adjacent mappings may form it.
  // Errors: the errno of open or read when /proc is not there.
  Result<CoverageResult> check(UserPtr begin, UserPtr end, bool writable);

  // The two ways, for tests. by_query: EOPNOTSUPP where the kernel has no PROCMAP_QUERY (before Linux 6.11).
  Result<CoverageResult> check_by_query(UserPtr begin, UserPtr end, bool writable);
  static Result<CoverageResult> check_by_text(UserPtr begin, UserPtr end, bool writable);

 private:
  static int open_maps();
  int fd_ = -1;
  bool no_query_ = false;
};

}  // namespace uhca::kernel::mm
