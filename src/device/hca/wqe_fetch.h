// SPDX-License-Identifier: MIT
// Fetching and decoding work queue entries. Everything in them is untrusted.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/hca/objects.h"
#include "prm/wqe.h"

namespace uhca::hca {

inline constexpr unsigned kMaxWqeDs = 63;                                       // 6 bits of wqe_ctrl_seg.ds
inline constexpr std::size_t kMaxWqeBytes = (kMaxWqeDs + 1) * prm::kWqeDsUnit;  // rounded up to basic blocks
inline constexpr std::uint64_t kWholeSegment = std::uint64_t{1}
                                               << 31;  // what byte_count 0 means (libmlx5 never sends it: it skips empty sges)

struct DataSeg {
  std::uint64_t addr = 0;
  std::uint32_t lkey = 0;
  std::uint32_t len = 0;        // bytes
  std::uint16_t inline_at = 0;  // not 0: the data lies at this offset of SendWqe::raw, no key
};

// A decoded send WQE. Large (about 2.5 KiB): one per lane, never on the stack.
struct SendWqe {
  std::uint32_t qpn = 0;  // whose WQE this is; with `index` says whether a decode can be reused
  std::uint16_t index = 0;
  bool valid = false;
  std::uint8_t opcode = 0;
  std::uint8_t fm_ce_se = 0;
  std::uint8_t bbs = 1;        // basic blocks
  std::uint32_t imm = 0;       // host order
  std::uint16_t av_at = 0;     // offset of the address vector in `raw` (datagrams, DC)
  std::uint16_t umr_at = 0;    // ... of the UMR control segment
  std::uint16_t list_at = 0;   // ... of an inline translation list (UMR) ...
  std::uint16_t list_end = 0;  // ... and behind it
  std::uint32_t xrc_srqn = 0;
  std::uint64_t raddr = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  std::uint64_t length = 0;  // sum of the data segments
  unsigned nsegs = 0;
  std::array<DataSeg, kMaxWqeDs> segs;
  alignas(16) std::array<std::uint8_t, kMaxWqeBytes> raw;
};

enum class WqeFault : std::uint8_t {
  kNone,
  kUnreadable,  // the queue's memory is not mapped
  kMalformed,   // LOCAL_QP_OP
};

enum class TakeWqe : std::uint8_t {
  kTaken,
  kNone,        // nothing is posted
  kUnreadable,  // the WQE was taken but could not be read
};

// The send queue of a QP or an SQ: a ring of basic blocks.
struct SendRing {
  const QueueBuffer& buf;
  std::uint64_t offset;  // of the ring in the buffer, bytes
  unsigned log_size;     // basic blocks
  std::uint32_t number;  // that control segments must name
  BlueFlame blue_flame = {};
};
inline SendRing ring_of(const Qp& qp) {
  return {qp.buf, qp.sq_offset(), qp.log_sq_size, qp.qpn, qp.blue_flame};
}
inline SendRing ring_of(const RawQueue& sq) {
  return {sq.buf, 0, sq.log_size, sq.number, sq.blue_flame};
}

// Reads the blocks of the WQE at `index` into w.raw and decodes the control segment.
WqeFault fetch_wqe_blocks(pci::Bus& bus, const SendRing& ring, std::uint16_t index, unsigned posted, SendWqe& w, const char** why);
// Decodes data segments, pointers and inline mixed, from `at` to `end` of w.raw. What is wrong (static storage), or nullptr.
const char* decode_segments(SendWqe& w, std::size_t at, std::size_t end);

// Reads and decodes the send WQE at basic block `index` (16-bit counter) of an RC QP. `posted`: blocks available from there. On a fault
// *why (static storage) says what was wrong and w.opcode, fm_ce_se, bbs hold what could be read.
WqeFault fetch_send_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, unsigned posted, SendWqe& w, const char** why);

// The number of basic blocks of the WQE at `index` and its opcode; 1 when it cannot be told.
unsigned send_wqe_blocks(pci::Bus& bus, const SendRing& ring, std::uint16_t index, std::uint8_t* opcode);

inline constexpr std::size_t kMaxRecvWqeBytes = 512;  // cmd_hca_cap.max_wqe_sz_rq

// A decoded receive WQE: its scatter list. `segs` keeps its capacity from prepare().
struct RecvWqe {
  std::uint16_t index = 0;
  unsigned nsegs = 0;
  std::uint64_t length = 0;
  std::vector<DataSeg> segs;
  Srq* srq = nullptr;  // where it was taken from; nullptr: the QP's own receive queue

  void prepare(const Qp& qp);
};

// The WQE at `index` of the QP's own receive queue.
WqeFault fetch_recv_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, RecvWqe& w, const char** why);
// The WQE at `index` of a shared receive queue, and the index of the one that follows it.
WqeFault fetch_srq_wqe(pci::Bus& bus, const Srq& srq, std::uint16_t index, RecvWqe& w, std::uint16_t* next, const char** why);
// The WQE at `index` of an Ethernet receive queue (a ring of fixed strides).
WqeFault fetch_rq_wqe(pci::Bus& bus, const RawQueue& rq, std::uint16_t index, RecvWqe& w, const char** why);

}  // namespace uhca::hca
