// SPDX-License-Identifier: MIT
// Memory that is brought in when the device needs it (on-demand paging): which pages of a range the device may use, and the faults that
// make them so. Linux: core/umem_odp.c (the page list of a struct ib_umem_odp) and mm/hmm.c.
//
// Thread-safe; access() allocates nothing but by mmap and takes no lock, so that the data path may fault.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernel/mm/uaccess.h"

namespace uhca::kernel::mm {

class OdpPages {
 public:
  // The pages of [begin, end), page-aligned.
  OdpPages(UserPtr begin, UserPtr end);
  ~OdpPages();
  OdpPages(const OdpPages&) = delete;
  OdpPages& operator=(const OdpPages&) = delete;

  struct Stats {
    std::uint64_t faults = 0, invalidations = 0, prefetches = 0;  // pages
  };
  Stats stats() const;

  // The device is about to use [va, va + len), inside of the range: pages that it may not use yet are brought in by page faults of this
  // process. 0, or the errno of the fault: EFAULT no such mapping, or not for `write`; ENOMEM.
  int access(UserPtr va, std::size_t len, bool write);

  enum class Prefetch : std::uint8_t { kRead, kWrite, kNoFault };
  // The same ahead of time. kNoFault: only what is in memory already.
  int prefetch(UserPtr va, std::size_t len, Prefetch how);

  // The program takes these pages away, or changes them: the device has to ask again. How many it could use.
  std::uint64_t invalidate(UserPtr va, std::size_t len);

 private:
  static constexpr unsigned kLogPage = 12, kLogChunk = 17;  // pages of a chunk
  static constexpr std::uint64_t kPresent = 1, kWritable = 2;
  using Word = std::atomic<std::uint64_t>;  // 2 bits a page
  static constexpr std::uint64_t kPagesPerWord = 32;

  // The word of a page; nullptr: none was made yet, or (with `make`) there is no memory.
  Word* word(std::uint64_t page, bool make);
  // f(word, bits of the first of `n` pages in it, n) for each word's share of [first, last); false from it ends the walk.
  template <class F>
  bool walk(std::uint64_t first, std::uint64_t last, bool make, F&& f);
  // Sets bits; how many pages did not have them all. -1: no memory.
  std::int64_t add(std::uint64_t first, std::uint64_t last, std::uint64_t bits);
  bool all(std::uint64_t first, std::uint64_t last, std::uint64_t bits);

  UserPtr begin_;
  std::size_t chunks_;
  std::atomic<Word*>* table_;
  std::atomic<std::uint64_t> faults_{0}, invalidations_{0}, prefetches_{0};
};

}  // namespace uhca::kernel::mm
