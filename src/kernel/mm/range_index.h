// SPDX-License-Identifier: MIT
// Ranges by address, for "who has pinned something in [a, b)?". Ranges may overlap each other.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <set>
#include <utility>

namespace uhca::kernel::mm {

// Ranges are kept in classes by the magnitude of their length; within a class, an overlapping range starts at most one class
// width before the query: so a query looks only at neighbours, whatever mixture of lengths is registered.
// Not thread-safe. Nodes are made and freed outside, so that nothing is allocated while the owner holds its lock (an allocator
// may call munmap, which calls invalidate, which takes that lock).
class RangeIndex {
 public:
  using Key = std::pair<std::uint64_t, std::uint32_t>;  // start address, range number
  using Set = std::set<Key>;
  using Node = Set::node_type;

  static Node make_node(std::uint64_t start, std::uint32_t number) {
    Set one;
    return one.extract(one.insert({start, number}).first);
  }

  void insert(Node node, std::uint64_t length) {
    unsigned c = size_class(length);
    classes_[c].insert(std::move(node));
    used_ |= std::uint64_t{1} << c;
  }

  Node remove(std::uint64_t start, std::uint64_t length, std::uint32_t number) {
    unsigned c = size_class(length);
    Node node = classes_[c].extract(Key{start, number});
    if (classes_[c].empty()) used_ &= ~(std::uint64_t{1} << c);
    return node;
  }

  // Calls f(number) for every range that may overlap [begin, end): the caller compares ends.
  template <class F>
  void candidates(std::uint64_t begin, std::uint64_t end, F&& f) const {
    for (std::uint64_t left = used_; left != 0; left &= left - 1) {
      auto c = static_cast<unsigned>(std::countr_zero(left));
      std::uint64_t reach = c >= 63 ? ~std::uint64_t{0} : (std::uint64_t{1} << (c + 1)) - 1;
      std::uint64_t from = begin > reach ? begin - reach : 0;
      for (auto it = classes_[c].lower_bound(Key{from, 0}); it != classes_[c].end() && it->first < end; ++it) f(it->second);
    }
  }

 private:
  static unsigned size_class(std::uint64_t length) { return 63u - static_cast<unsigned>(std::countl_zero(length | 1)); }

  std::array<Set, 64> classes_;
  std::uint64_t used_ = 0;
};

}  // namespace uhca::kernel::mm
