// SPDX-License-Identifier: MIT
// Big-endian loads and stores, and integer types that stay big-endian in memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace uhca {

static_assert(std::endian::native == std::endian::little, "only little-endian hosts are modelled");

template <class T>
constexpr T byteswap(T v) {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (sizeof(T) == 1) return v;
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(v);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(v);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(v);
}

// An unaligned big-endian load from memory; p needs sizeof(T) readable bytes.
template <class T>
inline T load_be(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return byteswap(v);
}

// An unaligned big-endian store.
template <class T>
inline void store_be(void* p, T v) {
  v = byteswap(v);
  std::memcpy(p, &v, sizeof v);
}

// An integer kept big-endian in memory, for structures that mirror wire or hardware formats.
template <class T>
class big_endian {
 public:
  constexpr big_endian() = default;
  constexpr big_endian(T v) : raw_(byteswap(v)) {}  // NOLINT: implicit, as an integer would be
  constexpr operator T() const { return byteswap(raw_); }  // NOLINT

 private:
  T raw_ = 0;
};

using be16 = big_endian<std::uint16_t>;
using be32 = big_endian<std::uint32_t>;
using be64 = big_endian<std::uint64_t>;

constexpr std::uint64_t align_up(std::uint64_t v, std::uint64_t a) { return (v + a - 1) & ~(a - 1); }
constexpr std::uint64_t align_down(std::uint64_t v, std::uint64_t a) { return v & ~(a - 1); }

}  // namespace uhca
