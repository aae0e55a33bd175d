// SPDX-License-Identifier: MIT
#include "device/hca/memic.h"

#include <cstring>
#include <iterator>

#include "base/types.h"

namespace uhca::hca {
namespace {

template <class T>
std::uint64_t load_word(std::uint8_t* p) {
  return __atomic_load_n(reinterpret_cast<T*>(p), __ATOMIC_ACQUIRE);
}
template <class T>
void store_word(std::uint8_t* p, std::uint64_t v) {
  __atomic_store_n(reinterpret_cast<T*>(p), static_cast<T>(v), __ATOMIC_RELEASE);
}

// f(T{}) with the type of that many bytes.
template <class F>
auto with_width(unsigned size, F&& f) {
  switch (size) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

}  // namespace

Memic::Memic(std::uint8_t* memory) : own_(memory == nullptr ? new std::uint8_t[Hca::kMemicBytes]() : nullptr) {
  memory_ = memory == nullptr ? own_.get() : memory;
}

std::optional<std::uint64_t> Memic::allocate(std::uint64_t first, std::uint64_t range, std::uint64_t size, std::uint64_t align) {
  const std::uint64_t end = first + range;
  std::uint64_t at = align_up(first, align);
  // Blocks in order of address: the first gap that is large enough.
  auto it = blocks_.upper_bound(at);
  if (it != blocks_.begin()) {
    auto before = std::prev(it);
    if (before->first + before->second.bytes > at) at = align_up(before->first + before->second.bytes, align);
  }
  for (; it != blocks_.end() && it->first < end; ++it) {
    if (at + size <= it->first) break;
    at = align_up(it->first + it->second.bytes, align);
  }
  if (at + size > end) return std::nullopt;
  std::uint8_t* m = memory(at, size);
  if (m == nullptr) return std::nullopt;
  std::memset(m, 0, size);
  blocks_[at] = {size, 0};
  return at;
}

Memic::Block* Memic::at(std::uint64_t start) {
  auto it = blocks_.find(start);
  return it == blocks_.end() ? nullptr : &it->second;
}

const Memic::Block* Memic::around(std::uint64_t start, std::uint64_t bytes) const {
  auto it = blocks_.upper_bound(start);
  if (it == blocks_.begin()) return nullptr;
  --it;
  const std::uint64_t off = start - it->first;
  return off <= it->second.bytes && bytes <= it->second.bytes - off ? &it->second : nullptr;
}

std::uint8_t* Memic::memory(std::uint64_t start, std::uint64_t bytes) const {
  const std::uint64_t off = start - Hca::kMemicStart;
  if (start < Hca::kMemicStart || off > Hca::kMemicBytes || bytes > Hca::kMemicBytes - off) return nullptr;
  return memory_ + off;
}

std::uint8_t* Memic::target(std::uint64_t offset, unsigned size, std::uint64_t* window) const {
  *window = (offset - Hca::kMemicStart) / Hca::kMemicBytes;
  const std::uint64_t start = offset - *window * Hca::kMemicBytes;
  const Block* block = around(start, size);
  if (block == nullptr || (*window != 0 && (block->operations >> (*window - 1) & 1) == 0)) return nullptr;
  return memory(start, size);
}

std::uint64_t Memic::load(std::uint64_t offset, unsigned size) {
  std::uint64_t window;
  std::uint8_t* p = target(offset, size, &window);
  const bool test_and_set = window == prm::kMemicTestAndSet + 1u;
  if (p == nullptr || (window != 0 && !test_and_set)) return kOnes;
  return with_width(size, [&](auto w) -> std::uint64_t {
    using T = decltype(w);
    if (test_and_set) return __atomic_exchange_n(reinterpret_cast<T*>(p), static_cast<T>(~T{0}), __ATOMIC_SEQ_CST);
    return load_word<T>(p);
  });
}

void Memic::store(std::uint64_t offset, std::uint64_t value, unsigned size) {
  std::uint64_t window;
  std::uint8_t* p = target(offset, size, &window);
  const bool increment = window == prm::kMemicIncrement + 1u;
  if (p == nullptr || (window != 0 && !increment)) return;
  with_width(size, [&](auto w) {
    using T = decltype(w);
    if (increment)
      __atomic_fetch_add(reinterpret_cast<T*>(p), static_cast<T>(value), __ATOMIC_SEQ_CST);
    else
      store_word<T>(p, value);
  });
}

}  // namespace uhca::hca
