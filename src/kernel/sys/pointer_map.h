// SPDX-License-Identifier: MIT
// Pointer -> small value, read without a lock on the data path; fixed size, in .bss.
#pragma once

#include <atomic>
#include <cstdint>

namespace uhca::sys {

// Writers are serialised by the caller. A reader of a key that is being removed may still see its value.
template <class Value, unsigned kSlots>
class PointerMap {
  static_assert((kSlots & (kSlots - 1)) == 0);

 public:
  // nullptr: not there.
  const Value* find(const void* key) const {
    auto k = reinterpret_cast<std::uintptr_t>(key);
    for (unsigned i = at(k), n = 0; n < kSlots; i = (i + 1) & (kSlots - 1), ++n) {
      std::uintptr_t v = slots_[i].key.load(std::memory_order_acquire);
      if (v == k) return &slots_[i].value;
      if (v == 0) return nullptr;
    }
    return nullptr;
  }
  // false: full.
  bool insert(const void* key, const Value& value) {
    auto k = reinterpret_cast<std::uintptr_t>(key);
    remove(key);
    for (unsigned i = at(k), n = 0; n < kSlots; i = (i + 1) & (kSlots - 1), ++n) {
      if (slots_[i].key.load(std::memory_order_relaxed) > 1) continue;
      slots_[i].value = value;
      slots_[i].key.store(k, std::memory_order_release);
      return true;
    }
    return false;
  }
  void remove(const void* key) {
    if (auto* v = find(key)) reinterpret_cast<Slot*>(reinterpret_cast<char*>(const_cast<Value*>(v)) - offsetof_value())->key.store(1);
  }

 private:
  struct Slot {
    std::atomic<std::uintptr_t> key{0};  // 0 free, 1 removed
    Value value{};
  };
  static constexpr std::size_t offsetof_value() { return __builtin_offsetof(Slot, value); }
  static unsigned at(std::uintptr_t k) { return static_cast<unsigned>((k >> 4) * 0x9e3779b97f4a7c15u >> 44) & (kSlots - 1); }
  Slot slots_[kSlots]{};
};

}  // namespace uhca::sys
