// SPDX-License-Identifier: MIT
// Send and receive WQE segments, encoded. Every function writes whole segments (reserved bits zero) and reads nothing from
// the queue. Formats: prm/wqe.h; their use per operation: mlx5dv.h and IBTA 1.6, 11.4.1.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/types.h"
#include "prm/wqe.h"

namespace uhca::mlx5 {

using prm::WqeOpcode;

inline constexpr unsigned kMaxDs = 63;                                   // wqe_ctrl_seg.ds is 6 bits wide
inline constexpr std::uint64_t kMaxBindLength = std::uint64_t{1} << 31;  // a KLM carries at most 2 GB

// The send queue's memory, a whole number of basic blocks.
struct SqRing {
  std::uint8_t* start = nullptr;
  std::uint8_t* end = nullptr;
  std::uint8_t* block(std::uint32_t i) const { return start + std::size_t{i} * prm::kSendWqeBb; }
};

// Hands out the segments of one WQE in order and continues at the ring's start where the ring ends. No segment straddles the end: all
// that are longer than 16 bytes start at a multiple of their size's power of two within the WQE, which starts at a block.
class WqeCursor {
 public:
  WqeCursor() = default;
  WqeCursor(const SqRing& ring, std::uint8_t* ctrl) : start_(ring.start), end_(ring.end), cur_(ctrl) {}

  std::uint8_t* take(std::size_t bytes) {
    if (__builtin_expect(cur_ == end_, 0)) cur_ = start_;
    std::uint8_t* p = cur_;
    cur_ += bytes;
    ds_ += static_cast<unsigned>(bytes / prm::kWqeDsUnit);
    return p;
  }

  // Copies n bytes, wrapping where the ring ends; does not count them in ds.
  void copy(const void* src, std::size_t n) {
    std::size_t room = static_cast<std::size_t>(end_ - cur_);
    if (__builtin_expect(n > room, 0)) {
      std::memcpy(cur_, src, room);
      src = static_cast<const std::uint8_t*>(src) + room;
      n -= room;
      cur_ = start_;
    }
    std::memcpy(cur_, src, n);
    cur_ += n;
  }
  // Headers inside a WQE: copied, padded to 16 bytes, counted in ds.
  void put_padded(const void* src, std::size_t n) {
    if (n == 0) return;
    copy(src, n);
    cur_ += align_up(n, prm::kWqeDsUnit) - n;
    ds_ += static_cast<unsigned>(align_up(n, prm::kWqeDsUnit) / prm::kWqeDsUnit);
  }
  // The header of inline data: 4 bytes here, counted with the data by add_inline_ds().
  std::uint8_t* take_inline_header() {
    if (cur_ == end_) cur_ = start_;
    std::uint8_t* p = cur_;
    cur_ += prm::wqe_inline_seg::kBytes;
    return p;
  }
  void add_inline_ds(std::size_t data_bytes) {
    ds_ += static_cast<unsigned>((data_bytes + prm::wqe_inline_seg::kBytes + prm::kWqeDsUnit - 1) / prm::kWqeDsUnit);
  }

  unsigned ds() const { return ds_; }

 private:
  std::uint8_t* start_ = nullptr;
  std::uint8_t* end_ = nullptr;
  std::uint8_t* cur_ = nullptr;
  unsigned ds_ = 0;
};

// What the control segment says, in host order.
struct CtrlSeg {
  WqeOpcode opcode = WqeOpcode::NOP;
  std::uint8_t opmod = 0;
  std::uint16_t index = 0;  // send queue counter in basic blocks
  std::uint32_t qpn = 0;
  unsigned ds = 0;
  std::uint8_t fm_ce_se = 0;
  std::uint16_t stream = 0;  // of a DCI
  std::uint32_t imm = 0;     // immediate, key to invalidate, or the UMR's mkey
};

inline void put_ctrl(std::uint8_t* seg, const CtrlSeg& c) {
  using S = prm::wqe_ctrl_seg;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::opmod>(b, c.opmod);
  prm::set<S::wqe_index>(b, c.index);
  prm::set<S::opcode>(b, static_cast<std::uint8_t>(c.opcode));
  prm::set<S::qpn>(b, c.qpn);
  prm::set<S::ds>(b, c.ds);
  prm::set<S::fm_ce_se>(b, c.fm_ce_se);
  prm::set<S::dci_stream_channel_id>(b, c.stream);
  prm::set<S::imm>(b, c.imm);
  std::memcpy(seg, b, sizeof b);
}

inline void put_raddr(std::uint8_t* seg, std::uint64_t remote_addr, std::uint32_t rkey) {
  using S = prm::wqe_raddr_seg;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::raddr>(b, remote_addr);
  prm::set<S::rkey>(b, rkey);
  std::memcpy(seg, b, sizeof b);
}

// Fetch-and-add: swap_add = the addend, compare = 0.
inline void put_atomic(std::uint8_t* seg, std::uint64_t swap_add, std::uint64_t compare) {
  using S = prm::wqe_atomic_seg;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::swap_add>(b, swap_add);
  prm::set<S::compare>(b, compare);
  std::memcpy(seg, b, sizeof b);
}

inline void put_data(std::uint8_t* seg, std::uint32_t bytes, std::uint32_t lkey, std::uint64_t addr) {
  using S = prm::wqe_data_seg;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::byte_count>(b, bytes);
  prm::set<S::lkey>(b, lkey);
  prm::set<S::addr>(b, addr);
  std::memcpy(seg, b, sizeof b);
}

// Ends the scatter list of a receive WQE that is shorter than the stride.
inline void put_data_end(std::uint8_t* seg) {
  put_data(seg, 0, prm::kInvalidLkey, 0);
}

inline void put_inline_header(std::uint8_t* seg, std::uint32_t bytes) {
  using S = prm::wqe_inline_seg;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::is_inline>(b, 1);
  prm::set<S::byte_count>(b, bytes);
  std::memcpy(seg, b, sizeof b);
}

// The datagram segment: the address vector that the AH holds, with the destination of this work request.
// key: a Q_Key in the upper half, or the whole key of a DC target.
inline void put_address(std::uint8_t* seg, const std::uint8_t* av, std::uint32_t remote_qpn, std::uint64_t key) {
  using S = prm::wqe_av;
  std::uint8_t b[S::kBytes];
  std::memcpy(b, av, sizeof b);
  prm::set<S::qkey_or_dc_key>(b, key);
  b[prm::byte_of<S::ext>] = 0;
  prm::set<S::ext>(b, 1);
  prm::set<S::dqp_dct>(b, remote_qpn & 0xffffff);
  std::memcpy(seg, b, sizeof b);
}
inline void put_datagram(std::uint8_t* seg, const std::uint8_t* av, std::uint32_t remote_qpn, std::uint32_t qkey) {
  put_address(seg, av, remote_qpn, std::uint64_t{qkey} << 32);
}

// The Ethernet segment with `n` bytes of the frame's headers (0, or at least 2): the first two lie in the segment, the others behind it.
inline void put_ethernet(WqeCursor& w, std::uint8_t cs_flags, std::uint16_t mss, const std::uint8_t* headers, std::size_t n) {
  using S = prm::wqe_eth_seg;
  constexpr std::size_t within = 2;
  std::uint8_t b[S::kBytes] = {};
  prm::set<S::cs_flags>(b, cs_flags);
  prm::set<S::mss>(b, mss);
  prm::set<S::inline_hdr_sz>(b, n);
  if (n != 0) std::memcpy(b + prm::byte_of<S::inline_hdr_start>, headers, within);
  std::memcpy(w.take(S::kBytes), b, sizeof b);
  if (n > within) w.put_padded(headers + within, n - within);
}

inline void put_xrc(std::uint8_t* seg, std::uint32_t srqn) {
  std::uint8_t b[prm::wqe_xrc_seg::kBytes] = {};
  prm::set<prm::wqe_xrc_seg::xrc_srqn>(b, srqn);
  std::memcpy(seg, b, sizeof b);
}

// A memory window bind or an invalidation, as UMR. length 0 frees the key.
struct UmrBind {
  bool type2 = true;
  std::uint32_t new_key = 0;  // its low 8 bits become the key's variant
  std::uint32_t qpn = 0;
  std::uint64_t addr = 0;
  std::uint64_t length = 0;  // at most kMaxBindLength
  std::uint32_t lkey = 0;    // of the region underneath
  bool zero_based = false;
  bool local_write = false, remote_write = false, remote_read = false, remote_atomic = false;
};

inline void put_umr_ctrl(std::uint8_t* seg, const UmrBind& u) {
  using S = prm::wqe_umr_ctrl_seg;
  std::uint8_t b[S::kBytes] = {};
  std::uint8_t flags = prm::kUmrTranslationOffset | prm::kUmrInline;
  std::uint64_t mask = prm::kUmrMaskFree | prm::kUmrMaskMkey;
  if (u.type2) mask |= prm::kUmrMaskQpn;
  if (u.length) {
    if (u.type2) flags |= prm::kUmrCheckFree;
    mask |= prm::kUmrMaskLen | prm::kUmrMaskStartAddr | prm::kUmrMaskLocalWrite | prm::kUmrMaskRemoteRead | prm::kUmrMaskRemoteWrite |
            prm::kUmrMaskAtomic;
    prm::set<S::klm_octowords>(b, 4);  // one KLM, padded to 64 bytes
  } else if (u.type2) {
    flags |= prm::kUmrCheckQpn;
  }
  prm::set<S::flags>(b, flags);
  prm::set<S::mkey_mask>(b, mask);
  std::memcpy(seg, b, sizeof b);
}

inline void put_mkey_context(std::uint8_t* seg, const UmrBind& u) {
  using S = prm::wqe_mkey_context_seg;
  std::uint8_t b[S::kBytes] = {};
  bool any_qp = !u.type2 || !u.length;
  prm::set<S::qpn_mkey>(b, (u.new_key & 0xff) | (any_qp ? 0xffffff00u : u.qpn << 8));
  if (u.length) {
    std::uint8_t access = 0;
    if (u.local_write) access |= prm::kMkeySegLocalWrite;
    if (u.remote_write) access |= prm::kMkeySegRemoteWrite;
    if (u.remote_read) access |= prm::kMkeySegRemoteRead;
    if (u.remote_atomic) access |= prm::kMkeySegAtomic;
    prm::set<S::access_flags>(b, access);
    prm::set<S::start_addr>(b, u.zero_based ? 0 : u.addr);
    prm::set<S::len>(b, u.length);
  } else {
    prm::set<S::free>(b, prm::kMkeySegFree);
  }
  std::memcpy(seg, b, sizeof b);
}

// All segments of a bind or invalidation after the control segment.
inline void put_umr_bind(WqeCursor& w, const UmrBind& u) {
  put_umr_ctrl(w.take(prm::wqe_umr_ctrl_seg::kBytes), u);
  put_mkey_context(w.take(prm::wqe_mkey_context_seg::kBytes), u);
  if (!u.length) return;
  std::uint8_t* klm = w.take(64);
  put_data(klm, static_cast<std::uint32_t>(u.length), u.lkey, u.addr);
  std::memset(klm + prm::wqe_data_seg::kBytes, 0, 64 - prm::wqe_data_seg::kBytes);
}

// A receive WQE: its scatter list in `stride_segs` places of 16 bytes; empty elements are left out, as libmlx5 does for RQs.
// Sge is ibv_sge or looks like it.
template <class Sge>
inline void put_recv_list(std::uint8_t* wqe, const Sge* list, int n, unsigned stride_segs) {
  unsigned j = 0;
  for (int i = 0; i < n; ++i) {
    if (!list[i].length) continue;
    put_data(wqe + 16 * j++, list[i].length, list[i].lkey, list[i].addr);
  }
  if (j < stride_segs) put_data_end(wqe + 16 * j);
}

}  // namespace uhca::mlx5
