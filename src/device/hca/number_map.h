// SPDX-License-Identifier: MIT
// Objects by number, as the data path looks them up for every packet: a hash table behind a few places that remember who was asked for
// last.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace uhca::hca {

template <class T>
class NumberMap {
 public:
  // nullptr: nobody has that number.
  T* find(std::uint32_t n) const {
    Recent& r = recent_[n % kRecent];
    if (r.object != nullptr && r.number == n) return r.object;
    auto it = map_.find(n);
    if (it == map_.end()) return nullptr;
    r = {n, it->second.get()};
    return r.object;
  }
  void emplace(std::uint32_t n, std::unique_ptr<T> object) { map_.emplace(n, std::move(object)); }
  void erase(std::uint32_t n) {
    recent_[n % kRecent] = {};
    map_.erase(n);
  }
  void clear() {
    recent_.fill({});
    map_.clear();
  }
  std::size_t size() const { return map_.size(); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }

 private:
  struct Recent {
    std::uint32_t number = 0;
    T* object = nullptr;
  };
  static constexpr std::uint32_t kRecent = 64;
  mutable std::array<Recent, kRecent> recent_{};
  std::unordered_map<std::uint32_t, std::unique_ptr<T>> map_;
};

}  // namespace uhca::hca
