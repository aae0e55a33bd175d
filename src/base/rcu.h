// SPDX-License-Identifier: MIT
// Read-copy-update, as far as DMA needs it: a DMA access translates an address and copies, and whoever takes the memory away must
// wait until no access that may still hold the old translation is under way. Linux: kernel/rcu; the barrier is membarrier(2)'s.
#pragma once

#include <atomic>
#include <cstdint>

namespace uhca::rcu {

namespace detail {

// One thread's state on a cache line of its own. `seq` is odd inside a read section.
struct alignas(64) Slot {
  std::atomic<std::uint32_t> seq{0};
  std::atomic<std::int32_t> owner{0};  // thread id, 0: never used
};

struct Self {
  Slot* slot;
  unsigned depth;
};
extern constinit thread_local Self self __attribute__((tls_model("initial-exec")));

// True once synchronize() can order the readers by membarrier(2): entering a section is then two plain stores.
extern constinit std::atomic<bool> expedited;

void claim();         // gives this thread its slot
void enter_shared();  // more threads than slots
void leave_shared();

inline void enter() {
  Self& me = self;
  if (me.depth++ != 0) return;
  if (__builtin_expect(me.slot == nullptr, 0)) claim();
  if (__builtin_expect(me.slot == nullptr, 0)) return enter_shared();
  std::uint32_t next = me.slot->seq.load(std::memory_order_relaxed) + 1;
  if (__builtin_expect(!expedited.load(std::memory_order_relaxed), 0)) {
    me.slot->seq.exchange(next, std::memory_order_seq_cst);
    return;
  }
  me.slot->seq.store(next, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

inline void leave() {
  Self& me = self;
  if (--me.depth != 0) return;
  if (__builtin_expect(me.slot == nullptr, 0)) return leave_shared();
  me.slot->seq.store(me.slot->seq.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace detail

// A section in which a translation may be used. Never blocks, preserves errno, nests.
class ReadSection {
 public:
  ReadSection() { detail::enter(); }
  ~ReadSection() { detail::leave(); }
  ReadSection(const ReadSection&) = delete;
  ReadSection& operator=(const ReadSection&) = delete;
};

// Whether this thread is in a section.
inline bool in_section() {
  return detail::self.depth != 0;
}

// Returns when every section of another thread that had begun before the call has ended. Sections that begin later see what the caller
// stored before the call. Preserves errno. Inside a section of its own the caller is not waited for.
void synchronize();

// In the child after fork: the other threads, and the sections that they were in, are gone.
void after_fork();

}  // namespace uhca::rcu
