// SPDX-License-Identifier: MIT
#include "device/hca/eth_packet.h"

#include <algorithm>
#include <cstring>

#include "device/hca/eth_headers.h"
#include "device/hca/inet_sum.h"
#include "device/hca/raw_queue.h"
#include "device/hca/segments.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

constexpr std::size_t kMinFrame = 60;  // without FCS; shorter ones are padded with zeros (IEEE 802.3)
constexpr std::size_t kAddresses = 12;
// TCP flags (RFC 9293, RFC 3168).
constexpr std::uint8_t kFin = 0x01, kPsh = 0x08, kCwr = 0x80;

bool is_tso(const EthSendWqe& w) {
  return static_cast<prm::WqeOpcode>(w.wqe.opcode) == prm::WqeOpcode::TSO;
}

void insert_tag(std::byte* frame, std::size_t& size, std::uint16_t type, std::uint16_t tci) {
  std::memmove(frame + kAddresses + kVlanTag, frame + kAddresses, size - kAddresses);
  store_be(frame + kAddresses, type);
  store_be(frame + kAddresses + 2, tci);
  size += kVlanTag;
}

// Lengths, identification, sequence number and flags of packet `i` of `n`, whose headers are copies of the WQE's. `size`: of the frame.
// In the template, IP lengths count the whole message or nothing, so the headers are found by their kinds only.
void fix_segment_headers(std::byte* frame, std::size_t header, std::size_t size, std::uint32_t i, std::uint32_t n, std::uint32_t mss) {
  auto* p = reinterpret_cast<std::uint8_t*>(frame);
  std::size_t l3 = kMacHeader;
  auto type = load_be<std::uint16_t>(p + 12);
  while ((type == kEtherCvlan || type == kEtherSvlan) && l3 + kVlanTag <= header) {
    type = load_be<std::uint16_t>(p + l3 + 2);
    l3 += kVlanTag;
  }
  if (type == kEtherIpv4 && l3 + 20 <= header) {
    store_be(p + l3 + 2, static_cast<std::uint16_t>(size - l3));
    store_be(p + l3 + 4, static_cast<std::uint16_t>(load_be<std::uint16_t>(p + l3 + 4) + i));
  } else if (type == kEtherIpv6 && l3 + 40 <= header) {
    store_be(p + l3 + 4, static_cast<std::uint16_t>(size - l3 - 40));
  } else {
    return;
  }
  EthHeaders h = parse_ethernet({frame, size});
  std::uint8_t* l4 = p + h.l4_at;
  if (h.l4 == L4::kUdp) {
    store_be(l4 + 4, static_cast<std::uint16_t>(size - h.l4_at));
  } else if (h.l4 == L4::kTcp) {
    store_be(l4 + 4, load_be<std::uint32_t>(l4 + 4) + i * mss);
    if (i + 1 < n) l4[13] = static_cast<std::uint8_t>(l4[13] & ~(kFin | kPsh));
    if (i > 0) l4[13] = static_cast<std::uint8_t>(l4[13] & ~kCwr);
  }
}

void fill_checksums(std::byte* frame, std::size_t size, std::uint8_t wanted) {
  EthHeaders h = parse_ethernet({frame, size});
  auto* p = reinterpret_cast<std::uint8_t*>(frame);
  if ((wanted & prm::kEthWqeL4Csum) && h.l4 != L4::kNone) {
    std::uint8_t* field = p + h.l4_at + (h.l4 == L4::kTcp ? 16 : 6);
    store_be<std::uint16_t>(field, 0);
    auto sum = static_cast<std::uint16_t>(~l4_sum({frame, size}, h, h.l3_end));
    // UDP's 0 means "none" (RFC 768).
    store_be<std::uint16_t>(field, sum == 0 && h.l4 == L4::kUdp ? 0xffff : sum);
  }
  if ((wanted & prm::kEthWqeL3Csum) && h.l3 == L3::kIpv4) {
    store_be<std::uint16_t>(p + h.l3_at + 10, 0);
    store_be<std::uint16_t>(p + h.l3_at + 10, InetSum().add(p + h.l3_at, h.l4_at - h.l3_at).checksum());
  }
}

}  // namespace

std::uint32_t packets_of(const EthSendWqe& w) {
  if (!is_tso(w)) return 1;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (w.wqe.length + w.mss - 1) / w.mss));
}

BuildFault build_packet(Lane& lane, const RawQueue& sq, const EthSendWqe& w, std::uint32_t i, std::span<std::byte> out, std::size_t* size) {
  std::uint64_t off = is_tso(w) ? std::uint64_t{i} * w.mss : 0;
  std::uint64_t data = is_tso(w) ? std::min<std::uint64_t>(w.mss, w.wqe.length - off) : w.wqe.length;
  std::uint64_t total = w.inline_len + data;
  if (total + (w.insert_type != 0 ? kVlanTag : 0) > out.size()) return BuildFault::kTooLong;
  std::memcpy(out.data(), w.wqe.raw.data() + w.inline_at, w.inline_len);
  if (!gather(lane, key_user(sq), "Ethernet send", w.wqe, off, out.data() + w.inline_len, static_cast<std::size_t>(data)))
    return BuildFault::kMemory;
  *size = static_cast<std::size_t>(total);
  if (w.insert_type != 0) insert_tag(out.data(), *size, w.insert_type, w.insert_tci);
  if (is_tso(w)) fix_segment_headers(out.data(), w.inline_len, *size, i, packets_of(w), w.mss);
  if (w.checksums != 0) fill_checksums(out.data(), *size, w.checksums);
  if (*size < kMinFrame) {
    std::memset(out.data() + *size, 0, kMinFrame - *size);
    *size = kMinFrame;
  }
  return BuildFault::kNone;
}

}  // namespace uhca::hca
