// SPDX-License-Identifier: MIT
// A single-producer single-consumer ring of frames in memory that two processes may share. Neither end trusts the other:
// each keeps its own index privately, publishes it, and checks what the other publishes.
//
// Records lie at multiples of 64 bytes: 8 bytes of header (the frame's length, or kSkip: go on at the start), then the
// frame. They never wrap. Indexes count bytes and only grow. The producer publishes its index last, so a producer that
// dies in the middle of a push leaves the ring as it was.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/types.h"
#include "wire/net/port.h"

namespace uhca::wire {

// The first page of a ring. Zero is a valid empty ring whose consumer is awake.
struct RingHeader {
  alignas(64) std::atomic<std::uint64_t> tail;       // written by the producer
  alignas(64) std::atomic<std::uint64_t> head;       // written by the consumer
  std::atomic<std::uint32_t> asleep;                 // consumer: wake me after the next push. Taken back by whoever wakes.
  alignas(64) std::atomic<std::uint32_t> want_room;  // producer: wake me after the next release
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

inline constexpr std::size_t kRingHeaderBytes = 4096;
inline constexpr std::size_t kRingDataBytes = 1 << 20;
// Not a multiple of any huge page, so that a descriptor of this size is no hugetlb file.
inline constexpr std::size_t kRingBytes = kRingHeaderBytes + kRingDataBytes;
static_assert(sizeof(RingHeader) <= kRingHeaderBytes);

inline constexpr std::size_t kRecordAlign = 64;
inline constexpr std::size_t kRecordHeader = 8;
inline constexpr std::uint32_t kSkip = 0xffffffff;

constexpr std::size_t record_bytes(std::size_t frame) {
  return align_up(kRecordHeader + frame, kRecordAlign);
}

class RingProducer {
 public:
  enum class Push : std::uint8_t { kDone, kFull, kCorrupt };

  // `memory`: kRingBytes, zero at first.
  void attach(void* memory) {
    header_ = static_cast<RingHeader*>(memory);
    data_ = static_cast<std::byte*>(memory) + kRingHeaderBytes;
  }
  RingHeader& header() { return *header_; }

  // kFull leaves want_room set. *wake: the consumer slept and must be woken.
  Push push(Frame f, bool* wake) {
    *wake = false;
    const std::size_t at = tail_ % kRingDataBytes;
    const std::size_t need = record_bytes(f.size());
    const std::size_t skip = at + need > kRingDataBytes ? kRingDataBytes - at : 0;
    if (Push p = make_room(skip + need); p != Push::kDone) return p;

    if (skip) store_length(at, kSkip);
    std::byte* record = data_ + (skip ? 0 : at);
    std::memcpy(record + kRecordHeader, f.data(), f.size());
    store_length(static_cast<std::size_t>(record - data_), static_cast<std::uint32_t>(f.size()));
    tail_ += skip + need;
    header_->tail.store(tail_, std::memory_order_release);
    // Against the consumer's "asleep = 1; fence; look at tail": one of the two sees the other.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (header_->asleep.load(std::memory_order_relaxed)) *wake = header_->asleep.exchange(0, std::memory_order_acq_rel) != 0;
    return Push::kDone;
  }

 private:
  Push make_room(std::size_t bytes) {
    if (tail_ + bytes - head_ <= kRingDataBytes) return Push::kDone;
    if (!reload_head()) return Push::kCorrupt;
    if (tail_ + bytes - head_ <= kRingDataBytes) return Push::kDone;
    header_->want_room.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
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
  void store_length(std::size_t at, std::uint32_t n) { std::memcpy(data_ + at, &n, sizeof n); }

  RingHeader* header_ = nullptr;
  std::byte* data_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
};

class RingConsumer {
 public:
  void attach(void* memory) {
    header_ = static_cast<RingHeader*>(memory);
    data_ = static_cast<const std::byte*>(memory) + kRingHeaderBytes;
  }
  RingHeader& header() { return *header_; }
  bool corrupt() const { return corrupt_; }

  // Whether peek() would find something (a frame, or a broken rule).
  bool pending() const { return taken_ != header_->tail.load(std::memory_order_acquire); }

  // The next frame, in place, or an empty one. Stays valid until release(); the producer may change it meanwhile if it is
  // another process (copy first, then look). Sets corrupt() when the producer broke the rules; nothing more comes then.
  Frame peek() {
    if (corrupt_) return {};
    if (taken_ == tail_) {
      std::uint64_t t = header_->tail.load(std::memory_order_acquire);
      if (t == tail_) return {};
      if (t < taken_ || t - head_ > kRingDataBytes || t % kRecordAlign) return broken();
      tail_ = t;
    }
    std::size_t at = taken_ % kRingDataBytes;
    std::uint32_t n = length_at(at);
    if (n == kSkip) {
      if (kRingDataBytes - at >= tail_ - taken_) return broken();  // a skip without a record behind it
      taken_ += kRingDataBytes - at;
      at = 0;
      n = length_at(0);
    }
    if (n == 0 || n > kMaxFrame || record_bytes(n) > tail_ - taken_ || at + record_bytes(n) > kRingDataBytes) return broken();
    taken_ += record_bytes(n);
    return {data_ + at + kRecordHeader, n};
  }

  // Gives everything that peek() returned back to the producer. Returns whether the producer waits for room and must be woken.
  bool release() {
    if (head_ == taken_) return false;
    head_ = taken_;
    header_->head.store(head_, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return header_->want_room.load(std::memory_order_relaxed) && header_->want_room.exchange(0, std::memory_order_acq_rel) != 0;
  }

 private:
  Frame broken() {
    corrupt_ = true;
    return {};
  }
  // Once, from memory that the producer may be changing.
  std::uint32_t length_at(std::size_t at) const {
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(data_ + at), __ATOMIC_RELAXED);
  }

  RingHeader* header_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint64_t head_ = 0;   // released
  std::uint64_t taken_ = 0;  // returned by peek()
  std::uint64_t tail_ = 0;   // last seen
  bool corrupt_ = false;
};

}  // namespace uhca::wire
