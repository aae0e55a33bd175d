// SPDX-License-Identifier: MIT
#include "device/hca/wqe_fetch.h"

#include <algorithm>
#include <cstring>

#include "base/rcu.h"
#include "base/safecopy.h"
#include "base/types.h"

namespace uhca::hca {
namespace {

using prm::kSendWqeBb;
using prm::kWqeDsUnit;
using prm::WqeOpcode;

// Copies `len` bytes of a queue's buffer. Pieces end where a page of the buffer ends.
bool read_queue(pci::Bus& bus, const QueueBuffer& buf, std::uint64_t off, void* dst, std::size_t len) {
  if (off <= buf.bytes && len <= buf.bytes - off) {
    rcu::ReadSection section;
    const std::byte* p = buf.window.at(off);
    if (p != nullptr && safecopy::copy(dst, p, len) == 0) return true;
  }
  auto* out = static_cast<std::uint8_t*>(dst);
  std::uint64_t page = std::uint64_t{1} << buf.log_page;
  while (len > 0) {
    if (off >= buf.bytes || (off + buf.page_offset) >> buf.log_page >= buf.pages.size()) return false;
    std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(len, page - ((off + buf.page_offset) & (page - 1))));
    if (!bus.dma_read(out, buf.at(off), n)) return false;
    out += n;
    off += n;
    len -= n;
  }
  return true;
}

// `blocks` basic blocks from `index` on; the ring wraps.
bool read_send_ring(pci::Bus& bus, const SendRing& ring, std::uint16_t index, unsigned blocks, std::uint8_t* dst) {
  std::uint32_t size = 1u << ring.log_size;
  std::uint32_t at = index & (size - 1);
  unsigned straight = std::min<unsigned>(blocks, size - at);
  if (!read_queue(bus, ring.buf, ring.offset + std::uint64_t{at} * kSendWqeBb, dst, straight * kSendWqeBb)) return false;
  return straight == blocks || read_queue(bus, ring.buf, ring.offset, dst + straight * kSendWqeBb, (blocks - straight) * kSendWqeBb);
}

// Services by bit.
enum : unsigned { kRc = 1, kUc = 2, kUd = 4, kXrc = 8, kDc = 16, kRegUmr = 32 };
constexpr unsigned kReliable = kRc | kXrc | kDc, kConnected = kReliable | kUc, kAll = kConnected | kUd | kRegUmr;

unsigned service_bit(QpType t) {
  switch (t) {
    case QpType::kRc: return kRc;
    case QpType::kUc: return kUc;
    case QpType::kUd:
    case QpType::kQp1: return kUd;
    case QpType::kXrc: return kXrc;
    case QpType::kDci: return kDc;
    case QpType::kRegUmr: return kRegUmr;
    case QpType::kQp0:
    case QpType::kDctSession: break;
  }
  return 0;
}

// One row per opcode that a transport send queue executes: on which services, and how many bytes of it lie between the addressing
// segments and the data segments (rdma-core providers/mlx5/qp.c: _mlx5_post_send).
struct OpcodeRow {
  WqeOpcode opcode;
  unsigned services;
  std::uint8_t fixed_bytes;
};
constexpr OpcodeRow kOpcodes[] = {
    {WqeOpcode::NOP, kAll, 0},
    {WqeOpcode::SEND, kConnected | kUd, 0},
    {WqeOpcode::SEND_IMM, kConnected | kUd, 0},
    {WqeOpcode::SEND_INVAL, kReliable, 0},
    {WqeOpcode::RDMA_WRITE, kConnected, prm::wqe_raddr_seg::kBytes},
    {WqeOpcode::RDMA_WRITE_IMM, kConnected, prm::wqe_raddr_seg::kBytes},
    {WqeOpcode::RDMA_READ, kReliable, prm::wqe_raddr_seg::kBytes},
    {WqeOpcode::ATOMIC_CS, kReliable, prm::wqe_raddr_seg::kBytes + prm::wqe_atomic_seg::kBytes},
    {WqeOpcode::ATOMIC_FA, kReliable, prm::wqe_raddr_seg::kBytes + prm::wqe_atomic_seg::kBytes},
    {WqeOpcode::UMR, kConnected | kRegUmr, prm::wqe_umr_ctrl_seg::kBytes + prm::wqe_mkey_context_seg::kBytes},
};

const OpcodeRow* find_row(WqeOpcode op, QpType type) {
  for (const OpcodeRow& r : kOpcodes)
    if (r.opcode == op) return (r.services & service_bit(type)) != 0 ? &r : nullptr;
  return nullptr;
}

// The segment between control and operation that says where to: XRC's SRQ number, or an address vector (of DC's, the short form has no
// extension). Returns its size.
std::size_t decode_addressing(SendWqe& w, QpType type, std::size_t at) {
  const std::uint8_t* p = w.raw.data() + at;
  if (type == QpType::kXrc) {
    w.xrc_srqn = static_cast<std::uint32_t>(prm::get<prm::wqe_xrc_seg::xrc_srqn>(p)) & 0xffffff;
    return prm::wqe_xrc_seg::kBytes;
  }
  if (!is_datagram(type) && type != QpType::kDci) return 0;
  w.av_at = static_cast<std::uint16_t>(at);
  return type == QpType::kDci && prm::get<prm::wqe_av::ext>(p) == 0 ? kWqeDsUnit : prm::wqe_av::kBytes;
}

void decode_operation(SendWqe& w, WqeOpcode op, std::size_t at) {
  const std::uint8_t* p = w.raw.data() + at;
  if (op == WqeOpcode::UMR) {
    w.umr_at = static_cast<std::uint16_t>(at);
    return;
  }
  w.raddr = prm::get<prm::wqe_raddr_seg::raddr>(p);
  w.rkey = prm::get<prm::wqe_raddr_seg::rkey>(p);
  if (op == WqeOpcode::ATOMIC_CS || op == WqeOpcode::ATOMIC_FA) {
    w.swap_add = prm::get<prm::wqe_atomic_seg::swap_add>(p + prm::wqe_raddr_seg::kBytes);
    w.compare = prm::get<prm::wqe_atomic_seg::compare>(p + prm::wqe_raddr_seg::kBytes);
  }
}

}  // namespace

const char* decode_segments(SendWqe& w, std::size_t at, std::size_t end) {
  while (at < end) {
    const std::uint8_t* p = w.raw.data() + at;
    DataSeg& s = w.segs[w.nsegs];
    if (prm::get<prm::wqe_inline_seg::is_inline>(p) != 0) {
      std::uint32_t n = prm::get<prm::wqe_inline_seg::byte_count>(p);
      std::size_t data = at + prm::wqe_inline_seg::kBytes;
      if (n > end - data) return "inline data reaches beyond the WQE";
      s = {0, 0, n, static_cast<std::uint16_t>(data)};
      at = align_up(data + n, kWqeDsUnit);
      if (n == 0) continue;
    } else {
      if (end - at < kWqeDsUnit) return "half a data segment";
      std::uint32_t n = prm::get<prm::wqe_data_seg::byte_count>(p);
      s.lkey = prm::get<prm::wqe_data_seg::lkey>(p);
      s.addr = prm::get<prm::wqe_data_seg::addr>(p);
      s.len = n == 0 ? static_cast<std::uint32_t>(kWholeSegment) : n;
      s.inline_at = 0;
      at += kWqeDsUnit;
      if (n == 0 && s.lkey == prm::kInvalidLkey) continue;
    }
    w.length += s.len;
    ++w.nsegs;
  }
  return nullptr;
}

unsigned send_wqe_blocks(pci::Bus& bus, const SendRing& ring, std::uint16_t index, std::uint8_t* opcode) {
  std::uint8_t block[kSendWqeBb];
  *opcode = 0;
  if (!read_send_ring(bus, ring, index, 1, block)) return 1;
  *opcode = static_cast<std::uint8_t>(prm::get<prm::wqe_ctrl_seg::opcode>(block));
  unsigned ds = prm::get<prm::wqe_ctrl_seg::ds>(block);
  return std::max(1u, (ds + 3) / 4);
}

WqeFault fetch_wqe_blocks(pci::Bus& bus, const SendRing& ring, std::uint16_t index, unsigned posted, SendWqe& w, const char** why) {
  w.valid = false;
  w.qpn = ring.number;
  w.index = index;
  w.opcode = w.fm_ce_se = 0;
  w.bbs = 1;
  w.nsegs = 0;
  w.length = 0;
  w.av_at = w.umr_at = w.list_at = w.list_end = 0;
  if (ring.blue_flame.wqe != nullptr && ring.blue_flame.index == index) {
    std::memcpy(w.raw.data(), ring.blue_flame.wqe, kSendWqeBb);
  } else if (!read_send_ring(bus, ring, index, 1, w.raw.data())) {
    *why = "the send queue's memory is not readable";
    return WqeFault::kUnreadable;
  }
  const std::uint8_t* c = w.raw.data();
  w.opcode = static_cast<std::uint8_t>(prm::get<prm::wqe_ctrl_seg::opcode>(c));
  w.fm_ce_se = static_cast<std::uint8_t>(prm::get<prm::wqe_ctrl_seg::fm_ce_se>(c));
  w.imm = prm::get<prm::wqe_ctrl_seg::imm>(c);
  unsigned ds = prm::get<prm::wqe_ctrl_seg::ds>(c);
  if (ds == 0) {
    *why = "ds is 0";
    return WqeFault::kMalformed;
  }
  unsigned bbs = (ds + 3) / 4;
  if (bbs > posted) {
    *why = "ds reaches beyond the producer index";
    return WqeFault::kMalformed;
  }
  w.bbs = static_cast<std::uint8_t>(bbs);
  if (prm::get<prm::wqe_ctrl_seg::qpn>(c) != ring.number) {
    *why = "the control segment names another QPN";
    return WqeFault::kMalformed;
  }
  if (bbs > 1 && !read_send_ring(bus, ring, static_cast<std::uint16_t>(index + 1), bbs - 1, w.raw.data() + kSendWqeBb)) {
    *why = "the send queue's memory is not readable";
    return WqeFault::kUnreadable;
  }
  return WqeFault::kNone;
}

WqeFault fetch_send_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, unsigned posted, SendWqe& w, const char** why) {
  WqeFault fault = fetch_wqe_blocks(bus, ring_of(qp), index, posted, w, why);
  if (fault != WqeFault::kNone) return fault;
  auto op = static_cast<WqeOpcode>(w.opcode);
  const OpcodeRow* row = find_row(op, qp.type);
  if (row == nullptr) {
    *why = "opcode is not executed by this kind of queue";
    return WqeFault::kMalformed;
  }
  std::size_t end = prm::get<prm::wqe_ctrl_seg::ds>(w.raw.data()) * kWqeDsUnit;
  std::size_t at = prm::wqe_ctrl_seg::kBytes;
  if (op == WqeOpcode::NOP) {
    w.valid = true;
    return WqeFault::kNone;
  }
  at += decode_addressing(w, qp.type, at);
  if (end < at + row->fixed_bytes) {
    *why = "ds is too small for the opcode";
    return WqeFault::kMalformed;
  }
  if (row->fixed_bytes > 0) decode_operation(w, op, at);
  at += row->fixed_bytes;
  if (op == WqeOpcode::UMR && (prm::get<prm::wqe_umr_ctrl_seg::flags>(w.raw.data() + w.umr_at) & prm::kUmrInline) != 0) {
    w.list_at = static_cast<std::uint16_t>(at);
    w.list_end = static_cast<std::uint16_t>(end);
    w.valid = true;
    return WqeFault::kNone;
  }
  *why = decode_segments(w, at, end);
  if (*why != nullptr) return WqeFault::kMalformed;
  w.valid = true;
  return WqeFault::kNone;
}

void RecvWqe::prepare(const Qp& qp) {
  std::size_t bytes = qp.has_rq ? std::size_t{1} << qp.log_rq_stride : qp.srq != nullptr ? kMaxRecvWqeBytes : 0;
  segs.resize(bytes / prm::kWqeDsUnit);
}

namespace {

constexpr std::uint32_t kLengthMask = 0x7fffffff;

// The scatter list in the `bytes` bytes from `at`: up to the first segment that ends it, or up to the WQE's end.
WqeFault decode_scatter_list(pci::Bus& bus, const QueueBuffer& buf, std::uint64_t at, std::size_t bytes, RecvWqe& w, const char** why) {
  w.nsegs = 0;
  w.length = 0;
  constexpr std::size_t kAtATime = 4 * kWqeDsUnit;
  std::uint8_t block[kAtATime];
  const std::size_t end = std::min(bytes / kWqeDsUnit, w.segs.size()) * kWqeDsUnit;
  for (std::size_t off = 0; off < end; off += kWqeDsUnit) {
    const std::size_t i = off / kWqeDsUnit;
    const std::uint8_t* raw = block + off % kAtATime;
    if (off % kAtATime == 0 && !read_queue(bus, buf, at + off, block, std::min(kAtATime, end - off))) {
      *why = "the receive queue's memory is not readable";
      return WqeFault::kUnreadable;
    }
    // The highest bit is no length: Linux's mlx5e sets it (MLX5_HW_START_PADDING) in every segment of its receive queues.
    std::uint32_t n = prm::get<prm::wqe_data_seg::byte_count>(raw) & kLengthMask;
    std::uint32_t lkey = prm::get<prm::wqe_data_seg::lkey>(raw);
    if (n == 0 && lkey == prm::kInvalidLkey) break;
    w.segs[i] = {prm::get<prm::wqe_data_seg::addr>(raw), lkey, n == 0 ? static_cast<std::uint32_t>(kWholeSegment) : n, 0};
    w.length += w.segs[i].len;
    ++w.nsegs;
  }
  return WqeFault::kNone;
}

}  // namespace

WqeFault fetch_recv_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, RecvWqe& w, const char** why) {
  w.index = index;
  w.srq = nullptr;
  std::uint32_t slot = index & ((1u << qp.log_rq_size) - 1);
  return decode_scatter_list(bus, qp.buf, std::uint64_t{slot} << qp.log_rq_stride, std::size_t{1} << qp.log_rq_stride, w, why);
}

WqeFault fetch_srq_wqe(pci::Bus& bus, const Srq& srq, std::uint16_t index, RecvWqe& w, std::uint16_t* next, const char** why) {
  w.index = index;
  std::uint64_t at = std::uint64_t{index} << srq.log_stride;
  std::size_t bytes = std::size_t{1} << srq.log_stride;
  std::uint32_t mask = (1u << srq.log_size) - 1;
  if (srq.cyclic) {
    *next = static_cast<std::uint16_t>((index + 1) & mask);
    return decode_scatter_list(bus, srq.buf, at, bytes, w, why);
  }
  std::uint8_t link[prm::wqe_srq_next_seg::kBytes];
  if (!read_queue(bus, srq.buf, at, link, sizeof link)) {
    *why = "the receive queue's memory is not readable";
    return WqeFault::kUnreadable;
  }
  *next = static_cast<std::uint16_t>(prm::get<prm::wqe_srq_next_seg::next_wqe_index>(link));
  if (*next > mask) {
    *why = "its link to the next one leads out of the queue";
    return WqeFault::kUnreadable;
  }
  return decode_scatter_list(bus, srq.buf, at + sizeof link, bytes - sizeof link, w, why);
}

WqeFault fetch_rq_wqe(pci::Bus& bus, const RawQueue& rq, std::uint16_t index, RecvWqe& w, const char** why) {
  w.index = index;
  std::size_t bytes = std::size_t{1} << rq.log_stride;
  w.segs.resize(bytes / kWqeDsUnit);
  std::uint32_t slot = index & ((1u << rq.log_size) - 1);
  return decode_scatter_list(bus, rq.buf, std::uint64_t{slot} << rq.log_stride, bytes, w, why);
}

}  // namespace uhca::hca
