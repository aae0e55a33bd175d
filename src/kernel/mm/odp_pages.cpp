// SPDX-License-Identifier: MIT
#include "kernel/mm/odp_pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/safecopy.h"
#include "base/trace.h"

namespace uhca::kernel::mm {
namespace {

constexpr std::uint64_t kPage = 4096;
// Linux 5.14 (asm-generic/mman-common.h).
constexpr int kMadvPopulateRead = 22, kMadvPopulateWrite = 23;

// Raw: no wrapper of the program's calls, no lock of an allocator.
void* map_zero(std::size_t bytes) {
  long r = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  return r == -1 ? nullptr : reinterpret_cast<void*>(r);
}

// Where the kernel cannot populate: a load, or an exchange of a word by itself, makes the same page fault.
int touch(UserPtr page, bool write) {
  auto* p = reinterpret_cast<std::uint64_t*>(page);
  std::uint32_t seen = 0;
  if (!write) return safecopy::load32(p, &seen) ? 0 : EFAULT;
  std::uint64_t expected = 0;
  return safecopy::cas64(p, &expected, 0) ? 0 : EFAULT;
}

// EINVAL says either that the mapping does not allow it, or that this kernel is older: asked once, of a page that allows it.
bool can_populate() {
  static constinit std::atomic<int> known{-1};
  int can = known.load(std::memory_order_relaxed);
  if (can < 0) {
    void* page = map_zero(kPage);
    can = page != nullptr && syscall(SYS_madvise, page, kPage, kMadvPopulateWrite) == 0;
    if (page != nullptr) syscall(SYS_munmap, page, kPage);
    known.store(can, std::memory_order_relaxed);
  }
  return can != 0;
}

int bring_in(UserPtr first, UserPtr end, bool write) {
  const int saved = errno;
  int error = 0;
  long r;
  do r = syscall(SYS_madvise, first, end - first, write ? kMadvPopulateWrite : kMadvPopulateRead);
  while (r != 0 && (errno == EINTR || errno == EAGAIN));
  if (r != 0) error = errno == ENOMEM ? EFAULT : errno;  // ENOMEM here: a hole
  if (error == EINVAL && can_populate()) error = EFAULT;
  if (error == EINVAL) {
    error = 0;
    for (UserPtr p = first; p < end && error == 0; p += kPage) error = touch(p, write);
  }
  errno = saved;
  return error;
}

}  // namespace

OdpPages::OdpPages(UserPtr begin, UserPtr end) : begin_(begin) {
  const std::uint64_t pages = (end - begin) >> kLogPage;
  chunks_ = (pages + (std::uint64_t{1} << kLogChunk) - 1) >> kLogChunk;
  table_ = static_cast<std::atomic<Word*>*>(map_zero(chunks_ * sizeof(std::atomic<Word*>)));
}

constexpr std::size_t chunk_bytes(unsigned log_pages) {
  return (std::size_t{1} << log_pages) * 2 / 8;
}

OdpPages::~OdpPages() {
  if (table_ == nullptr) return;
  for (std::size_t i = 0; i < chunks_; ++i)
    if (Word* c = table_[i].load(std::memory_order_relaxed)) syscall(SYS_munmap, c, chunk_bytes(kLogChunk));
  syscall(SYS_munmap, table_, chunks_ * sizeof(std::atomic<Word*>));
}

OdpPages::Stats OdpPages::stats() const {
  return {faults_.load(std::memory_order_relaxed), invalidations_.load(std::memory_order_relaxed),
          prefetches_.load(std::memory_order_relaxed)};
}

OdpPages::Word* OdpPages::word(std::uint64_t page, bool make) {
  if (table_ == nullptr) return nullptr;
  std::atomic<Word*>& slot = table_[page >> kLogChunk];
  Word* chunk = slot.load(std::memory_order_acquire);
  if (chunk == nullptr) {
    if (!make) return nullptr;
    auto* fresh = static_cast<Word*>(map_zero(chunk_bytes(kLogChunk)));
    if (fresh == nullptr) return nullptr;
    if (slot.compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel))
      chunk = fresh;
    else
      syscall(SYS_munmap, fresh, chunk_bytes(kLogChunk));
  }
  return chunk + (page & ((std::uint64_t{1} << kLogChunk) - 1)) / kPagesPerWord;
}

template <class F>
bool OdpPages::walk(std::uint64_t first, std::uint64_t last, bool make, F&& f) {
  constexpr std::uint64_t kChunk = std::uint64_t{1} << kLogChunk;
  while (first < last) {
    const std::uint64_t in = first % kPagesPerWord, n = std::min(kPagesPerWord - in, last - first);
    Word* w = word(first, make);
    if (w == nullptr && !make) {
      first = std::min(last, (first / kChunk + 1) * kChunk);  // nothing in this whole chunk
      if (!f(nullptr, 0u, std::uint64_t{0})) return false;
      continue;
    }
    if (!f(w, static_cast<unsigned>(2 * in), n)) return false;
    first += n;
  }
  return true;
}

namespace {

// `bits` repeated for n pages from a shift on.
std::uint64_t spread(std::uint64_t bits, unsigned shift, std::uint64_t n) {
  const std::uint64_t pattern = bits * 0x5555'5555'5555'5555u;
  const std::uint64_t mask = n == 32 ? ~std::uint64_t{0} : (std::uint64_t{1} << (2 * n)) - 1;
  return (pattern & mask) << shift;
}

// Pages of which `missing` (in 2-bit fields) has any bit.
std::uint64_t count_pages(std::uint64_t missing) {
  return static_cast<std::uint64_t>(std::popcount((missing | missing >> 1) & 0x5555'5555'5555'5555u));
}

}  // namespace

std::int64_t OdpPages::add(std::uint64_t first, std::uint64_t last, std::uint64_t bits) {
  std::int64_t added = 0;
  bool ok = walk(first, last, true, [&](Word* w, unsigned shift, std::uint64_t n) {
    if (w == nullptr) return false;
    const std::uint64_t want = spread(bits, shift, n);
    added += static_cast<std::int64_t>(count_pages(want & ~w->fetch_or(want, std::memory_order_acq_rel)));
    return true;
  });
  return ok ? added : -1;
}

bool OdpPages::all(std::uint64_t first, std::uint64_t last, std::uint64_t bits) {
  return walk(first, last, false, [&](Word* w, unsigned shift, std::uint64_t n) {
    if (w == nullptr) return false;
    const std::uint64_t want = spread(bits, shift, n);
    return (w->load(std::memory_order_acquire) & want) == want;
  });
}

int OdpPages::access(UserPtr va, std::size_t len, bool write) {
  if (len == 0) return 0;
  const std::uint64_t first = (va - begin_) >> kLogPage, last = ((va + len - 1 - begin_) >> kLogPage) + 1;
  const std::uint64_t bits = write ? kPresent | kWritable : kPresent;
  if (__builtin_expect(all(first, last, bits), 1)) return 0;
  int error = bring_in(begin_ + (first << kLogPage), begin_ + (last << kLogPage), write);
  std::int64_t pages = 0;
  if (error == 0) {
    pages = add(first, last, bits);
    if (pages < 0) error = ENOMEM;
  }
  if (error == 0) faults_.fetch_add(static_cast<std::uint64_t>(pages), std::memory_order_relaxed);
  if (trace::on())
    trace::Event("mm", "page_fault").hex("va", va).unum("len", len).flag("write", write).num("pages", pages).num("errno", error);
  return error;
}

int OdpPages::prefetch(UserPtr va, std::size_t len, Prefetch how) {
  if (len == 0) return 0;
  const std::uint64_t first = (va - begin_) >> kLogPage, last = ((va + len - 1 - begin_) >> kLogPage) + 1;
  const UserPtr from = begin_ + (first << kLogPage), to = begin_ + (last << kLogPage);
  std::int64_t pages = 0;
  if (how != Prefetch::kNoFault) {
    const bool write = how == Prefetch::kWrite;
    if (int e = bring_in(from, to, write)) return e;
    pages = add(first, last, write ? kPresent | kWritable : kPresent);
  } else {
    unsigned char in_memory[256];
    for (UserPtr at = from; at < to && pages >= 0; at += sizeof in_memory * kPage) {
      const std::uint64_t n = std::min<std::uint64_t>(sizeof in_memory, (to - at) / kPage);
      if (syscall(SYS_mincore, at, n * kPage, in_memory) != 0) continue;  // a hole: nothing that could be taken over
      for (std::uint64_t i = 0; i < n && pages >= 0; ++i) {
        const std::uint64_t page = (at - begin_) / kPage + i;
        if (in_memory[i] & 1) {
          std::int64_t one = add(page, page + 1, kPresent);
          pages = one < 0 ? one : pages + one;
        }
      }
    }
  }
  if (pages < 0) return ENOMEM;
  prefetches_.fetch_add(static_cast<std::uint64_t>(pages), std::memory_order_relaxed);
  if (trace::on())
    trace::Event("mm", "prefetch").hex("va", va).unum("len", len).unum("how", static_cast<unsigned>(how)).num("pages", pages);
  return 0;
}

std::uint64_t OdpPages::invalidate(UserPtr va, std::size_t len) {
  const std::uint64_t pages_here = chunks_ << kLogChunk;
  const UserPtr end = va + len;
  if (end <= begin_ || len == 0) return 0;
  const std::uint64_t first = va <= begin_ ? 0 : (va - begin_) >> kLogPage;
  const std::uint64_t last = std::min(((end - 1 - begin_) >> kLogPage) + 1, pages_here);
  if (first >= last) return 0;
  std::uint64_t gone = 0;
  walk(first, last, false, [&](Word* w, unsigned shift, std::uint64_t n) {
    if (w == nullptr) return true;
    const std::uint64_t mask = spread(kPresent | kWritable, shift, n);
    gone += count_pages(w->fetch_and(~mask, std::memory_order_acq_rel) & mask);
    return true;
  });
  if (gone != 0) {
    invalidations_.fetch_add(gone, std::memory_order_relaxed);
    if (trace::on()) trace::Event("mm", "invalidate").hex("va", va).unum("len", len).unum("pages", gone);
  }
  return gone;
}

}  // namespace uhca::kernel::mm
