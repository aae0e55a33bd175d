// SPDX-License-Identifier: MIT
// Copies between packets and the memory that a WQE's data segments name. Keys are checked piece by piece, at the moment of use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"

namespace uhca::hca {

// Calls copy(segment, offset in it, bytes) for every piece of [off, off + len); false from it ends the walk. False, too: the segments are
// shorter.
template <class Copy>
bool for_pieces(std::span<const DataSeg> segs, std::uint64_t off, std::uint64_t len, Copy copy) {
  for (const DataSeg& s : segs) {
    if (len == 0) break;
    if (off >= s.len) {
      off -= s.len;
      continue;
    }
    auto n = static_cast<std::size_t>(std::min<std::uint64_t>(len, s.len - off));
    if (!copy(s, off, n)) return false;
    len -= n;
    off = 0;
  }
  return len == 0;
}

// Bytes [off, off + len) of what the WQE's segments hold, pointers and inline data. `what` names the access in reasons. False: a
// protection fault (reported), or the segments are shorter.
bool gather(Lane& lane, const KeyUser& user, const char* what, const SendWqe& w, std::uint64_t off, std::byte* dst, std::size_t len);

// `len` bytes to the segments from byte `off` on; inline segments do not take any. With `last` the final byte becomes visible last. False
// as with gather(), pieces before the fault have been written.
bool scatter(Lane& lane, const KeyUser& user, const char* what, std::span<const DataSeg> segs, std::uint64_t off, const std::byte* src,
             std::size_t len, bool last);

}  // namespace uhca::hca
