// SPDX-License-Identifier: MIT
#include "device/hca/wqe_fetch.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace uhca::hca {
namespace {

using prm::kSendWqeBb;
using prm::kWqeDsUnit;
using prm::WqeOpcode;

// Copies `len` bytes of the QP's buffer. Pieces end where a page of the buffer ends.
bool read_queue(pci::Bus& bus, const QueueBuffer& buf, std::uint64_t off, void* dst, std::size_t len) {
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
bool read_send_ring(pci::Bus& bus, const Qp& qp, std::uint16_t index, unsigned blocks, std::uint8_t* dst) {
  std::uint32_t size = 1u << qp.log_sq_size;
  std::uint32_t at = index & (size - 1);
  unsigned straight = std::min<unsigned>(blocks, size - at);
  if (!read_queue(bus, qp.buf, qp.sq_offset() + std::uint64_t{at} * kSendWqeBb, dst, straight * kSendWqeBb)) return false;
  return straight == blocks || read_queue(bus, qp.buf, qp.sq_offset(), dst + straight * kSendWqeBb, (blocks - straight) * kSendWqeBb);
}

// Bytes between the control segment and the data segments; -1: an opcode that this queue does not execute.
int fixed_part(WqeOpcode op) {
  switch (op) {
    case WqeOpcode::NOP:
    case WqeOpcode::SEND:
    case WqeOpcode::SEND_IMM:
    case WqeOpcode::SEND_INVAL: return 0;
    case WqeOpcode::RDMA_WRITE:
    case WqeOpcode::RDMA_WRITE_IMM:
    case WqeOpcode::RDMA_READ: return prm::wqe_raddr_seg::kBytes;
    case WqeOpcode::ATOMIC_CS:
    case WqeOpcode::ATOMIC_FA: return prm::wqe_raddr_seg::kBytes + prm::wqe_atomic_seg::kBytes;
    default: return -1;
  }
}

// Data segments, pointers and inline mixed, from `at` to `end` of w.raw.
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

}  // namespace

unsigned send_wqe_blocks(pci::Bus& bus, const Qp& qp, std::uint16_t index, std::uint8_t* opcode) {
  std::uint8_t ctrl[prm::wqe_ctrl_seg::kBytes];
  std::uint32_t size = 1u << qp.log_sq_size;
  *opcode = 0;
  if (!read_queue(bus, qp.buf, qp.sq_offset() + std::uint64_t{index & (size - 1)} * kSendWqeBb, ctrl, sizeof ctrl)) return 1;
  *opcode = static_cast<std::uint8_t>(prm::get<prm::wqe_ctrl_seg::opcode>(ctrl));
  unsigned ds = prm::get<prm::wqe_ctrl_seg::ds>(ctrl);
  return std::max(1u, (ds + 3) / 4);
}

WqeFault fetch_send_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, unsigned posted, SendWqe& w, const char** why) {
  w.valid = false;
  w.qpn = qp.qpn;
  w.index = index;
  w.opcode = w.fm_ce_se = 0;
  w.bbs = 1;
  w.nsegs = 0;
  w.length = 0;
  if (!read_send_ring(bus, qp, index, 1, w.raw.data())) {
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
  if (prm::get<prm::wqe_ctrl_seg::qpn>(c) != qp.qpn) {
    *why = "the control segment names another QPN";
    return WqeFault::kMalformed;
  }
  auto op = static_cast<WqeOpcode>(w.opcode);
  int fixed = fixed_part(op);
  if (fixed < 0) {
    *why = "opcode is not executed by this kind of queue";
    return WqeFault::kMalformed;
  }
  if (bbs > 1 && !read_send_ring(bus, qp, static_cast<std::uint16_t>(index + 1), bbs - 1, w.raw.data() + kSendWqeBb)) {
    *why = "the send queue's memory is not readable";
    return WqeFault::kUnreadable;
  }
  std::size_t end = ds * kWqeDsUnit;
  std::size_t at = prm::wqe_ctrl_seg::kBytes;
  if (end < at + static_cast<std::size_t>(fixed)) {
    *why = "ds is too small for the opcode";
    return WqeFault::kMalformed;
  }
  if (fixed > 0) {
    w.raddr = prm::get<prm::wqe_raddr_seg::raddr>(w.raw.data() + at);
    w.rkey = prm::get<prm::wqe_raddr_seg::rkey>(w.raw.data() + at);
    if (op == WqeOpcode::ATOMIC_CS || op == WqeOpcode::ATOMIC_FA) {
      const std::uint8_t* a = w.raw.data() + at + prm::wqe_raddr_seg::kBytes;
      w.swap_add = prm::get<prm::wqe_atomic_seg::swap_add>(a);
      w.compare = prm::get<prm::wqe_atomic_seg::compare>(a);
    }
    at += static_cast<std::size_t>(fixed);
  }
  if (op == WqeOpcode::NOP) {
    w.valid = true;
    return WqeFault::kNone;
  }
  *why = decode_segments(w, at, end);
  if (*why != nullptr) return WqeFault::kMalformed;
  w.valid = true;
  return WqeFault::kNone;
}

WqeFault fetch_recv_wqe(pci::Bus& bus, const Qp& qp, std::uint16_t index, RecvWqe& w, const char** why) {
  w.index = index;
  w.nsegs = 0;
  w.length = 0;
  std::uint32_t size = 1u << qp.log_rq_size;
  std::uint64_t at = std::uint64_t{index & (size - 1)} << qp.log_rq_stride;
  for (DataSeg& s : w.segs) {
    std::uint8_t raw[kWqeDsUnit];
    if (!read_queue(bus, qp.buf, at, raw, sizeof raw)) {
      *why = "the receive queue's memory is not readable";
      return WqeFault::kUnreadable;
    }
    at += kWqeDsUnit;
    std::uint32_t n = prm::get<prm::wqe_data_seg::byte_count>(raw);
    std::uint32_t lkey = prm::get<prm::wqe_data_seg::lkey>(raw);
    if (n == 0 && lkey == prm::kInvalidLkey) break;
    s = {prm::get<prm::wqe_data_seg::addr>(raw), lkey, n == 0 ? static_cast<std::uint32_t>(kWholeSegment) : n, 0};
    w.length += s.len;
    ++w.nsegs;
  }
  return WqeFault::kNone;
}

}  // namespace uhca::hca
