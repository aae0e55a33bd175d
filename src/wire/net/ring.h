// SPDX-License-Identifier: MIT
// A single-producer single-consumer ring of records in memory that two processes may share: frames, and what functions of one host tell
// each other instead (port.h). Neither end trusts the other: each keeps its own index privately and checks what the other wrote.
//
// Records lie at multiples of 64 bytes: 8 bytes of header, whose first word says that the record is there and how long it is, then its
// bytes. They never wrap: kSkip says "go on at the start". A short record is thus one cache line that the consumer waits for. The word at
// the producer's place is zero until the record behind it is whole, so a producer that dies in the middle of a push leaves the ring as it
// was.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/far_fence.h"
#include "base/types.h"
#include "wire/net/port.h"

namespace uhca::wire {

// The first page of a ring. Zero is a valid empty ring whose consumer is awake.
struct RingHeader {
  alignas(64) std::atomic<std::uint64_t> head;       // bytes that the consumer has released; only grows
  alignas(64) std::atomic<std::uint32_t> asleep;     // consumer: wake me after the next push. Taken back by whoever wakes.
  std::atomic<std::uint32_t> far_fence;              // consumer: not 0: heavy() stands behind `asleep` (base/far_fence.h)
  alignas(64) std::atomic<std::uint32_t> want_room;  // producer: wake me after the next release
  std::atomic<std::uint32_t> far_fence_for_room;     // producer: not 0: heavy() stands behind `want_room`
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::size_t kRingHeaderBytes = 4096;
inline constexpr std::size_t kRingDataBytes = 1 << 20;
// Not a multiple of any huge page, so that a descriptor of this size is no hugetlb file.
inline constexpr std::size_t kRingBytes = kRingHeaderBytes + kRingDataBytes;
static_assert(sizeof(RingHeader) <= kRingHeaderBytes);

inline constexpr std::size_t kRecordAlign = 64;
inline constexpr std::size_t kRecordHeader = 8;
// The header's first word: 0 (nothing yet), kSkip, or the length in bytes and what it is.
inline constexpr std::uint32_t kSkip = 0xffffffff;
inline constexpr std::uint32_t kHostRecord = 0x80000000;  // not a frame
inline constexpr std::size_t kMaxHostRecord = 8192 + 256;

constexpr std::size_t record_bytes(std::size_t payload) {
  return align_up(kRecordHeader + payload, kRecordAlign);
}

class RingProducer {
 public:
  enum class Push : std::uint8_t { kDone, kFull, kCorrupt };

  // `memory`: kRingBytes, zero at first.
  void attach(void* memory) {
    header_ = static_cast<RingHeader*>(memory);
    data_ = static_cast<std::byte*>(memory) + kRingHeaderBytes;
    header_->far_fence_for_room.store(far_fence::joined() ? 1 : 0, std::memory_order_relaxed);
  }
  RingHeader& header() { return *header_; }

  // Where a record of that many bytes is to be written; commit() publishes it, another reserve() forgets it. kFull leaves want_room set.
  Push reserve(std::size_t bytes, std::byte** at) {
    const std::size_t place = tail_ % kRingDataBytes;
    need_ = record_bytes(bytes);
    skip_ = place + need_ > kRingDataBytes || starts_over(place) ? kRingDataBytes - place : 0;
    bytes_ = bytes;
    // And the word behind it, which is going to be the consumer's place.
    if (Push p = make_room(skip_ + need_ + kRecordAlign); p != Push::kDone) return p;
    *at = bytes <= sizeof stage_ ? stage_ : data_ + (skip_ ? 0 : place) + kRecordHeader;
    return Push::kDone;
  }

  // Publishes the reserved record. True: the consumer slept and must be woken.
  bool commit(bool host_record) {
    const std::size_t place = tail_ % kRingDataBytes;
    const std::size_t record = skip_ ? 0 : place;
    const std::uint32_t word = static_cast<std::uint32_t>(bytes_) | (host_record ? kHostRecord : 0);
    if (bytes_ <= sizeof stage_) std::memcpy(data_ + record + kRecordHeader, stage_, align_up(bytes_, 8));
    __atomic_store_n(word_at((record + need_) % kRingDataBytes), 0u, __ATOMIC_RELAXED);
    if (skip_) __atomic_store_n(word_at(record), word, __ATOMIC_RELAXED);
    __atomic_store_n(word_at(place), skip_ ? kSkip : word, __ATOMIC_RELEASE);
    tail_ += skip_ + need_;
    prepare_next();
    // Against the consumer's "asleep = 1; fence; look at its place": one of the two sees the other. A fence here would wait until the
    // record's line has come over from the consumer.
    far_fence::light(header_->far_fence.load(std::memory_order_relaxed) != 0);
    return header_->asleep.load(std::memory_order_relaxed) != 0 && header_->asleep.exchange(0, std::memory_order_acq_rel) != 0;
  }

  // A whole frame. *wake: as commit() says.
  Push push(Frame f, bool* wake) {
    *wake = false;
    std::byte* at;
    if (Push p = reserve(f.size(), &at); p != Push::kDone) return p;
    std::memcpy(at, f.data(), f.size());
    *wake = commit(false);
    return Push::kDone;
  }

 private:
  // A consumer that keeps up needs little of the ring: starting over early keeps that little in the caches.
  bool starts_over(std::size_t place) {
    if (place < kShortLap) look_again_ = kShortLap;
    if (place < look_again_) return false;
    look_again_ = place + kShortLap;
    return reload_head() && tail_ - head_ <= kShortLap / 2;
  }
  Push make_room(std::size_t bytes) {
    if (tail_ + bytes - head_ <= kRingDataBytes) return Push::kDone;
    if (!reload_head()) return Push::kCorrupt;
    if (tail_ + bytes - head_ <= kRingDataBytes) return Push::kDone;
    if (header_->want_room.load(std::memory_order_relaxed) == 0) {
      header_->want_room.store(1, std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (header_->far_fence_for_room.load(std::memory_order_relaxed) != 0 && !far_fence::heavy()) header_->far_fence_for_room.store(0);
    }
    if (!reload_head()) return Push::kCorrupt;
    if (tail_ + bytes - head_ > kRingDataBytes) return Push::kFull;
    header_->want_room.store(0, std::memory_order_relaxed);
    return Push::kDone;
  }
  // The consumer may have released no more than was pushed, and never takes back.
  bool reload_head() {
    std::uint64_t h = header_->head.load(std::memory_order_acquire);
    if (h < head_ || h > tail_) return false;
    head_ = h;
    return true;
  }
  std::uint32_t* word_at(std::size_t at) { return reinterpret_cast<std::uint32_t*>(data_ + at); }

  // The lines behind the consumer's place lie in its cache since the last lap. Asked for now, they are here when the next records are
  // written; the place itself is what the consumer waits on.
  void prepare_next() {
    for (std::size_t line = 1; line <= 2; ++line) __builtin_prefetch(data_ + (tail_ + line * kRecordAlign) % kRingDataBytes, 1);
  }

  RingHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
  std::size_t bytes_ = 0, need_ = 0, skip_ = 0;  // of the reserved record
  // The consumer waits on the record's first line, and takes it away whenever it looks: a short record is put together here, and goes there
  // in one go.
  alignas(8) std::byte stage_[256 - kRecordHeader] = {};
  static constexpr std::size_t kShortLap = 32768;
  std::size_t look_again_ = kShortLap;  // where starting over is thought of next
};

class RingConsumer {
 public:
  struct Record {
    Frame bytes;  // empty: none
    bool host_record = false;
  };

  void attach(void* memory) {
    header_ = static_cast<RingHeader*>(memory);
    data_ = static_cast<const std::byte*>(memory) + kRingHeaderBytes;
  }
  RingHeader& header() { return *header_; }
  bool corrupt() const { return corrupt_; }
  // What was returned last is nothing that this producer may send.
  void forbid() { corrupt_ = true; }

  // Whether peek() would find something (a record, or a broken rule).
  bool pending() const { return word_at(taken_ % kRingDataBytes) != 0; }

  // The next record, in place, or an empty one. Stays valid until release(); the producer may change it meanwhile if it is
  // another process (copy first, then look). Sets corrupt() when the producer broke the rules; nothing more comes then.
  Record peek() {
    if (corrupt_) return {};
    std::size_t at = taken_ % kRingDataBytes;
    std::uint32_t word = word_at(at);
    if (word == 0) return {};
    std::size_t skipped = 0;
    if (word == kSkip) {
      if (at == 0) return broken();
      skipped = kRingDataBytes - at;
      at = 0;
      word = word_at(0);
    }
    const bool host_record = (word & kHostRecord) != 0;
    const std::size_t n = word & ~kHostRecord;
    const std::size_t limit = host_record ? kMaxHostRecord : kMaxFrame;
    if (n == 0 || n > limit || at + record_bytes(n) > kRingDataBytes) return broken();
    taken_ += skipped + record_bytes(n);
    return {{data_ + at + kRecordHeader, n}, host_record};
  }

  // The word that is not zero when pending().
  const std::uint32_t* place() const { return reinterpret_cast<const std::uint32_t*>(data_ + taken_ % kRingDataBytes); }

  // Gives everything that peek() returned back to the producer. Returns whether the producer waits for room and must be woken.
  bool release() {
    if (head_ == taken_) return false;
    head_ = taken_;
    header_->head.store(head_, std::memory_order_release);
    far_fence::light(header_->far_fence_for_room.load(std::memory_order_relaxed) != 0);
    return header_->want_room.load(std::memory_order_relaxed) && header_->want_room.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  Record broken() {
    corrupt_ = true;
    return {};
  }
  // Once, from memory that the producer may be changing.
  std::uint32_t word_at(std::size_t at) const {
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(data_ + at), __ATOMIC_ACQUIRE);
  }

  RingHeader* header_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t head_ = 0;   // released
  std::uint64_t taken_ = 0;  // returned by peek()
  bool corrupt_ = false;
};

}  // namespace uhca::wire
