// SPDX-License-Identifier: MIT
#include "kernel/gpu/buddy.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace uhca::kernel::gpu {
namespace {
constexpr std::uint64_t bytes(unsigned order) {
  return Buddy::kPage << order;
}
}  // namespace

// A size that is no power of two: one root block for each bit of it, largest first, so that each lies at a multiple of its size.
Buddy::Buddy(std::uint64_t size) : size_(size) {
  free_.resize(static_cast<std::size_t>(std::bit_width(size / kPage)));
  std::uint64_t at = 0;
  for (auto order = static_cast<unsigned>(free_.size()); order-- > 0;) {
    if ((size / kPage & std::uint64_t{1} << order) == 0) continue;
    free_[order].insert(at);
    roots_.insert(at);
    at += bytes(order);
  }
}

bool Buddy::take(unsigned order, std::uint64_t limit, bool top_down, Block* out) {
  const std::uint64_t want = bytes(order);
  for (unsigned o = order; o < free_.size(); ++o) {
    auto& list = free_[o];
    // The one that begins highest, of those that have a piece below the limit; or the lowest.
    auto it = list.begin();
    if (top_down && limit >= want) {
      it = list.upper_bound(limit - want);
      if (it == list.begin()) continue;
      --it;
    }
    if (it == list.end() || *it + want > limit) continue;
    std::uint64_t at = *it;
    list.erase(it);
    while (o > order) {
      --o;
      const std::uint64_t high = at + bytes(o);
      if (top_down && high + want <= limit) {
        free_[o].insert(at);
        at = high;
      } else {
        free_[o].insert(high);
      }
    }
    *out = {at, want};
    return true;
  }
  return false;
}

void Buddy::give(Block b) {
  auto order = static_cast<unsigned>(std::countr_zero(b.size / kPage));
  std::uint64_t at = b.offset;
  while (order + 1 < free_.size()) {
    const std::uint64_t buddy = at ^ bytes(order);
    // A root has no buddy, even where a free block lies at the address that it would have.
    const std::uint64_t parent = at & ~bytes(order);
    auto root = std::prev(roots_.upper_bound(parent));
    const std::uint64_t root_end = std::next(root) == roots_.end() ? size_ : *std::next(root);
    if (parent + bytes(order + 1) > root_end) break;
    auto it = free_[order].find(buddy);
    if (it == free_[order].end()) break;
    free_[order].erase(it);
    at = parent;
    ++order;
  }
  free_[order].insert(at);
}

Result<std::vector<Block>> Buddy::alloc(std::uint64_t size, std::uint64_t limit, bool top_down) {
  std::vector<Block> got;
  std::uint64_t left = size / kPage;
  auto order = static_cast<unsigned>(free_.size());
  while (left > 0) {
    order = std::min(order, static_cast<unsigned>(std::bit_width(left)) - 1);
    Block b;
    if (take(order, limit, top_down, &b)) {
      got.push_back(b);
      left -= b.size / kPage;
    } else if (order-- == 0) {
      free(got);
      return Errno{ENOSPC};
    }
  }
  return got;
}

void Buddy::free(const std::vector<Block>& blocks) {
  for (const Block& b : blocks) give(b);
}

std::uint64_t Buddy::free_bytes(std::uint64_t limit) const {
  std::uint64_t n = 0;
  for (unsigned o = 0; o < free_.size(); ++o)
    for (std::uint64_t at : free_[o])
      if (at < limit) n += std::min(bytes(o), limit - at);
  return n;
}

}  // namespace uhca::kernel::gpu
