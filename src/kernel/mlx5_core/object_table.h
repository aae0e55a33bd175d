// SPDX-License-Identifier: MIT
// 24-bit hardware numbers to driver objects, for event handlers. Handlers run on any thread, and inside a signal handler of the
// program, so that finding an object takes no lock: a lock might be held by the very code that was interrupted.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace uhca::kernel::mlx5 {

// Objects derive from this; a handler holds it while it uses the object.
struct TableObject {
  std::atomic<std::uint32_t> holds{0};
};

template <class T>
class ObjectTable {
 public:
  ObjectTable() = default;
  ~ObjectTable() {
    for (auto& c : chunks_) delete c.load(std::memory_order_relaxed);
  }
  ObjectTable(const ObjectTable&) = delete;
  ObjectTable& operator=(const ObjectTable&) = delete;

  // False: no memory, or the number is taken.
  bool insert(std::uint32_t number, T* object) {
    auto& at = chunks_[(number >> kBits) & kMask];
    Chunk* chunk = at.load(std::memory_order_acquire);
    if (chunk == nullptr) {
      auto* fresh = new (std::nothrow) Chunk();
      if (fresh == nullptr) return false;
      if (at.compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel)) {
        chunk = fresh;
      } else {
        delete fresh;
      }
    }
    T* none = nullptr;
    return (*chunk)[number & kMask].compare_exchange_strong(none, object, std::memory_order_seq_cst);
  }

  // After this, no handler uses the object: waits for those that do.
  void remove(std::uint32_t number, T* object) {
    Chunk* chunk = chunks_[(number >> kBits) & kMask].load(std::memory_order_acquire);
    if (chunk == nullptr) return;
    (*chunk)[number & kMask].compare_exchange_strong(object, nullptr, std::memory_order_seq_cst);
    // A handler that is between loading the pointer and holding the object counts as a reader.
    while (readers_.load(std::memory_order_seq_cst) != 0 || object->holds.load(std::memory_order_seq_cst) != 0) sched_yield();
  }

  // Calls f(object) if there is one of that number.
  template <class F>
  bool with(std::uint32_t number, F&& f) {
    readers_.fetch_add(1, std::memory_order_seq_cst);
    Chunk* chunk = chunks_[(number >> kBits) & kMask].load(std::memory_order_acquire);
    T* object = chunk == nullptr ? nullptr : (*chunk)[number & kMask].load(std::memory_order_seq_cst);
    if (object != nullptr) object->holds.fetch_add(1, std::memory_order_seq_cst);
    readers_.fetch_sub(1, std::memory_order_seq_cst);
    if (object == nullptr) return false;
    f(*object);
    object->holds.fetch_sub(1, std::memory_order_seq_cst);
    return true;
  }

 private:
  static constexpr unsigned kBits = 12;
  static constexpr std::uint32_t kMask = (1u << kBits) - 1;
  using Chunk = std::array<std::atomic<T*>, 1u << kBits>;
  std::array<std::atomic<Chunk*>, 1u << kBits> chunks_{};
  std::atomic<std::uint32_t> readers_{0};
};

}  // namespace uhca::kernel::mlx5
