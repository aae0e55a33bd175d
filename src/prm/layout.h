// SPDX-License-Identifier: MIT
// Layouts are data (DESIGN, decision 8): every bit field of the hardware's structures is declared once, as a constexpr
// descriptor; accessors are generated from it, and tests compare the same table with independent oracles.
//
//   prm::set<prm::cqc::log_cq_size>(ctx, 8);      prm::get<prm::cqc::c_eqn_or_apu_element>(ctx)
//   void* qpc = prm::at<prm::create_qp_in::qpc>(in);
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/types.h"

namespace uhca::prm {

// Bit offset from the structure's start (bit 0 = most significant bit of byte 0) and width in bits; `count` elements of
// that width (0: open-ended array).
struct Field {
  std::uint32_t offset;
  std::uint32_t width;
  std::uint32_t count;
};

struct FieldInfo {
  const char* name;
  Field field;
};

// A layout as a value, for tables (the oracle test, the trace decoder).
struct LayoutInfo {
  const char* name;
  std::uint32_t bits;
  const FieldInfo* fields;
  std::size_t nfields;
};

#define UHCA_PRM_FIELD_DECL(name_, off_, width_, count_) static constexpr ::uhca::prm::Field name_{off_, width_, count_};
#define UHCA_PRM_FIELD_INFO(name_, off_, width_, count_) {#name_, ::uhca::prm::Field{off_, width_, count_}},
#define UHCA_PRM_LAYOUT(layout_, bits_)                                                                    \
  namespace uhca::prm {                                                                                    \
  struct layout_ {                                                                                         \
    static constexpr std::uint32_t kBits = bits_;                                                          \
    static constexpr std::size_t kBytes = bits_ / 8;                                                       \
    UHCA_PRM_##layout_(UHCA_PRM_FIELD_DECL)                                                                \
  };                                                                                                       \
  struct layout_##_table {                                                                                 \
    static constexpr FieldInfo kFields[] = {UHCA_PRM_##layout_(UHCA_PRM_FIELD_INFO)};                      \
    static constexpr LayoutInfo kInfo{#layout_, bits_, kFields, sizeof kFields / sizeof kFields[0]};       \
  };                                                                                                       \
  }

// Element `i` of a field of up to 64 bits. A field may not straddle a 32-bit word unless it is 64 bits wide and aligned to 32.
inline std::uint64_t get(const void* p, Field f, std::size_t i = 0) {
  const auto* b = static_cast<const std::uint8_t*>(p);
  std::size_t bit = f.offset + i * f.width;
  if (f.width == 64) return load_be<std::uint64_t>(b + bit / 8);
  std::uint32_t word = load_be<std::uint32_t>(b + bit / 32 * 4);
  unsigned shift = 32 - static_cast<unsigned>(bit % 32) - f.width;
  return f.width == 32 ? word : (word >> shift) & ((1u << f.width) - 1);
}

inline void set(void* p, Field f, std::uint64_t v, std::size_t i = 0) {
  auto* b = static_cast<std::uint8_t*>(p);
  std::size_t bit = f.offset + i * f.width;
  if (f.width == 64) return store_be<std::uint64_t>(b + bit / 8, v);
  std::uint8_t* w = b + bit / 32 * 4;
  if (f.width == 32) return store_be<std::uint32_t>(w, static_cast<std::uint32_t>(v));
  unsigned shift = 32 - static_cast<unsigned>(bit % 32) - f.width;
  std::uint32_t mask = ((1u << f.width) - 1) << shift;
  std::uint32_t word = load_be<std::uint32_t>(w);
  store_be<std::uint32_t>(w, (word & ~mask) | ((static_cast<std::uint32_t>(v) << shift) & mask));
}

template <Field F>
inline auto get(const void* p, std::size_t i = 0) {
  static_assert(F.width <= 32 || F.width == 64, "use at<> for wide fields");
  static_assert(F.width == 64 || F.offset % 32 + F.width <= 32, "field straddles a word");
  if constexpr (F.width == 64) {
    return get(p, F, i);
  } else {
    return static_cast<std::uint32_t>(get(p, F, i));
  }
}

template <Field F>
inline void set(void* p, std::uint64_t v, std::size_t i = 0) {
  static_assert(F.width <= 32 || F.width == 64, "use at<> for wide fields");
  static_assert(F.width == 64 || F.offset % 32 + F.width <= 32, "field straddles a word");
  set(p, F, v, i);
}

// The address of a byte-aligned field (an embedded structure or an array).
template <Field F>
inline void* at(void* p, std::size_t i = 0) {
  static_assert(F.offset % 8 == 0 && F.width % 8 == 0);
  return static_cast<std::uint8_t*>(p) + F.offset / 8 + i * (F.width / 8);
}
template <Field F>
inline const void* at(const void* p, std::size_t i = 0) {
  static_assert(F.offset % 8 == 0 && F.width % 8 == 0);
  return static_cast<const std::uint8_t*>(p) + F.offset / 8 + i * (F.width / 8);
}

template <Field F>
inline constexpr std::size_t byte_of = F.offset / 8;

}  // namespace uhca::prm
