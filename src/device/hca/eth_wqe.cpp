// SPDX-License-Identifier: MIT
#include "device/hca/eth_wqe.h"

#include "device/hca/eth_headers.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

using prm::kWqeDsUnit;
using prm::WqeOpcode;
constexpr std::size_t kCtrl = prm::wqe_ctrl_seg::kBytes;

// The Ethernet segment at kCtrl. Sets *at behind it and its inlined headers.
const char* decode_eth_segment(EthSendWqe& w, std::size_t end, std::size_t* at) {
  using seg = prm::wqe_eth_seg;
  if (end < kCtrl + seg::kBytes) return "ds is too small for an Ethernet segment";
  const std::uint8_t* p = w.wqe.raw.data() + kCtrl;
  w.checksums = static_cast<std::uint8_t>(prm::get<seg::cs_flags>(p));
  w.mss = static_cast<std::uint16_t>(prm::get<seg::mss>(p));
  if (prm::get<seg::swp_flags>(p) != 0) return "software parsing is not offered";
  if (w.checksums & (prm::kEthWqeL3InnerCsum | prm::kEthWqeL4InnerCsum)) return "tunnels are not offered";
  auto size = static_cast<std::uint16_t>(prm::get<seg::inline_hdr_sz>(p));
  *at = kCtrl + seg::kBytes;
  if (size & prm::kEthWqeInsertVlan) {
    w.insert_type = size & prm::kEthWqeSvlan ? kEtherSvlan : kEtherCvlan;
    w.insert_tci = static_cast<std::uint16_t>(prm::get<seg::vlan_tci>(p));
    return nullptr;
  }
  // The first two bytes lie in the segment itself.
  w.inline_at = kCtrl + seg::inline_hdr_start.offset / 8;
  w.inline_len = size;
  std::size_t inline_end = w.inline_at + std::size_t{size};
  if (inline_end > end) return "inlined headers reach beyond the WQE";
  if (inline_end > *at) *at = align_up(inline_end, kWqeDsUnit);
  return *at > end ? "inlined headers reach beyond the WQE" : nullptr;
}

}  // namespace

WqeFault fetch_eth_wqe(pci::Bus& bus, const RawQueue& sq, std::uint16_t index, unsigned posted, EthSendWqe& w, const char** why) {
  w.checksums = 0;
  w.mss = w.inline_at = w.inline_len = w.insert_type = w.insert_tci = 0;
  WqeFault fault = fetch_wqe_blocks(bus, ring_of(sq), index, posted, w.wqe, why);
  if (fault != WqeFault::kNone) return fault;
  auto op = static_cast<WqeOpcode>(w.wqe.opcode);
  if (op == WqeOpcode::NOP) return WqeFault::kNone;
  if (op != WqeOpcode::SEND && op != WqeOpcode::TSO) {
    *why = "opcode is not executed by an Ethernet send queue";
    return WqeFault::kMalformed;
  }
  std::size_t end = prm::get<prm::wqe_ctrl_seg::ds>(w.wqe.raw.data()) * kWqeDsUnit, at = 0;
  *why = decode_eth_segment(w, end, &at);
  if (*why == nullptr) *why = decode_segments(w.wqe, at, end);
  if (*why == nullptr && op == WqeOpcode::TSO && (w.mss == 0 || w.inline_len < kMacHeader)) *why = "TSO without mss or inlined headers";
  if (*why == nullptr && w.length() < kMacHeader) *why = "a frame without an Ethernet header";
  return *why == nullptr ? WqeFault::kNone : WqeFault::kMalformed;
}

}  // namespace uhca::hca
