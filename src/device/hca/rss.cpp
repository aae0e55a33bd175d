// SPDX-License-Identifier: MIT
#include "device/hca/rss.h"

#include <cstring>

#include "base/types.h"
#include "prm/queue_context.h"

namespace uhca::hca {
namespace {

// tirc.rx_hash_fn (Linux mlx5_ifc.h: MLX5_RX_HASH_FN_*).
enum HashFunction : unsigned { kNone = 0, kInvertedXor8 = 1, kToeplitz = 2 };
// rx_hash_field_select.selected_fields (MLX5_HASH_FIELD_SEL_*) and its protocol types.
enum Selected : std::uint32_t { kSrcIp = 1, kDstIp = 2, kSport = 4, kDport = 8 };
enum ProtocolType : unsigned { kTypeIpv4 = 0, kTypeIpv6 = 1, kTypeTcp = 0, kTypeUdp = 1 };
// CQE_RSS_HTYPE_IP and CQE_RSS_HTYPE_L4: two bits each.
enum TypeShift : unsigned { kIpShift = 2, kL4Shift = 6 };

// The input of the hash: at most two IPv6 addresses and two ports.
struct Tuple {
  std::uint8_t bytes[36];
  std::size_t len = 0;

  void add(const std::uint8_t* p, std::size_t n) {
    std::memcpy(bytes + len, p, n);
    len += n;
  }
  // Source and destination; `sorted`: the smaller first, so that both directions hash alike.
  void add_pair(const std::uint8_t* src, bool has_src, const std::uint8_t* dst, bool has_dst, std::size_t n, bool sorted) {
    if (sorted && has_src && has_dst && std::memcmp(src, dst, n) > 0) std::swap(src, dst);
    if (has_src) add(src, n);
    if (has_dst) add(dst, n);
  }
};

// "Inverted": the order of the bits, not their value; drivers permute the indirection table to match (Linux en/rss.c).
std::uint32_t inverted_xor8(const Tuple& t) {
  std::uint8_t x = 0;
  for (std::size_t i = 0; i < t.len; ++i) x ^= t.bytes[i];
  std::uint8_t r = 0;
  for (unsigned bit = 0; bit < 8; ++bit) r = static_cast<std::uint8_t>(r << 1 | (x >> bit & 1));
  return r;
}

}  // namespace

std::uint32_t toeplitz(const std::uint8_t* key, const std::uint8_t* data, std::size_t len) {
  std::uint64_t window = load_be<std::uint64_t>(key);  // the top 32 bits are the part in use
  std::uint32_t hash = 0;
  for (std::size_t i = 0; i < len; ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      if (data[i] >> (7 - bit) & 1) hash ^= static_cast<std::uint32_t>(window >> 32);
      window <<= 1;
    }
    // Eight bits of the window are used up: the key byte behind it moves in.
    window |= key[(i + 8) % 40];
  }
  return hash;
}

RssHash rss_hash(const void* tirc, wire::Frame frame, const EthHeaders& h) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(frame.data());
  unsigned fn = prm::get<prm::tirc::rx_hash_fn>(tirc);
  const void* select = prm::at<prm::tirc::rx_hash_field_selector_outer>(tirc);
  std::uint32_t fields = prm::get<prm::rx_hash_field_select::selected_fields>(select);
  bool ipv6 = prm::get<prm::rx_hash_field_select::l3_prot_type>(select) == kTypeIpv6;
  bool udp = prm::get<prm::rx_hash_field_select::l4_prot_type>(select) == kTypeUdp;
  if (fn == kNone || fields == 0 || h.l3 != (ipv6 ? L3::kIpv6 : L3::kIpv4)) return {};

  Tuple t;
  RssHash r;
  bool sorted = fn == kToeplitz && prm::get<prm::tirc::rx_hash_symmetric>(tirc) != 0;
  const std::uint8_t* ip = p + h.l3_at;
  t.add_pair(ip + (ipv6 ? 8 : 12), fields & kSrcIp, ip + (ipv6 ? 24 : 16), fields & kDstIp, ipv6 ? 16 : 4, sorted);
  if (fields & (kSrcIp | kDstIp)) r.type = static_cast<std::uint8_t>((ipv6 ? 2u : 1u) << kIpShift);
  if ((fields & (kSport | kDport)) && h.l4 == (udp ? L4::kUdp : L4::kTcp)) {
    t.add_pair(p + h.l4_at, fields & kSport, p + h.l4_at + 2, fields & kDport, 2, sorted);
    r.type = static_cast<std::uint8_t>(r.type | (udp ? 2u : 1u) << kL4Shift);
  }
  const auto* key = static_cast<const std::uint8_t*>(prm::at<prm::tirc::rx_hash_toeplitz_key>(tirc));
  r.value = fn == kToeplitz ? toeplitz(key, t.bytes, t.len) : inverted_xor8(t);
  return r;
}

}  // namespace uhca::hca
