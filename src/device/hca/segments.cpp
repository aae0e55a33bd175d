// SPDX-License-Identifier: MIT
#include "device/hca/segments.h"

#include <cstring>

namespace uhca::hca {
bool gather(Lane& lane, const KeyUser& user, const char* what, const SendWqe& w, std::uint64_t off, std::byte* dst, std::size_t len) {
  return for_pieces({w.segs.data(), w.nsegs}, off, len, [&](const DataSeg& s, std::uint64_t at, std::size_t n) {
    std::byte* to = dst;
    dst += n;
    if (s.inline_at != 0) {
      std::memcpy(to, w.raw.data() + s.inline_at + at, n);
      return true;
    }
    KeyView v = check_key(lane.objects, user, s.lkey, s.addr + at, n, KeyAccess::kLocalRead);
    if (v.ok() && !read_memory(lane.bus, v, s.addr + at, to, n)) v.fault = KeyFault::kUnmapped;
    if (!v.ok()) report_key_fault(lane.bus, user, what, s.lkey, s.addr + at, n, KeyAccess::kLocalRead, v);
    return v.ok();
  });
}

bool scatter(Lane& lane, const KeyUser& user, const char* what, std::span<const DataSeg> segs, std::uint64_t off, const std::byte* src,
             std::size_t len, bool last) {
  const std::byte* const end = src + len;
  return for_pieces(segs, off, len, [&](const DataSeg& s, std::uint64_t at, std::size_t n) {
    const std::byte* from = src;
    src += n;
    KeyView v = check_key(lane.objects, user, s.lkey, s.addr + at, n, KeyAccess::kLocalWrite);
    if (v.ok() && !write_memory(lane.bus, v, s.addr + at, from, n, last && src == end)) v.fault = KeyFault::kUnmapped;
    if (!v.ok()) report_key_fault(lane.bus, user, what, s.lkey, s.addr + at, n, KeyAccess::kLocalWrite, v);
    return v.ok();
  });
}

}  // namespace uhca::hca
