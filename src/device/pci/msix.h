// SPDX-License-Identifier: MIT
// MSI-X: vectors that are event descriptors of the client, with everything that can hold one back. Source: PCI Express Base 6.0,
// section 6.1.4 and 7.7.2 (table, pending bits), linux/vfio.h (masking by the client).
#pragma once

#include <array>
#include <cstdint>

#include "base/result.h"

namespace uhca::pci {

// A vector that fires while it is masked becomes pending, and is delivered when the last mask goes. Masks are: the function's (config
// space), the client's (SET_IRQS), and the table's own vector control, once the client has written that entry (clients that emulate
// the table themselves never do, and its reset value is "masked"). Not thread-safe.
class Msix {
 public:
  static constexpr unsigned kVectors = 64;
  static constexpr std::uint64_t kEntryBytes = 16, kTableBytes = kVectors * kEntryBytes, kPbaBytes = kVectors / 8;

  Msix() = default;
  ~Msix() { forget_client(); }
  Msix(const Msix&) = delete;
  Msix& operator=(const Msix&) = delete;

  // Records only; deliver() does the rest.
  void raise(unsigned vector) {
    if (vector < kVectors) pending_ |= std::uint64_t{1} << vector;
  }
  // Signals every pending vector that nothing holds back. One without a descriptor loses its interrupt, as a message to nowhere does.
  void deliver();

  // Takes the descriptor; -1: none from now on. EINVAL: not an eventfd (writing to anything else could block the device).
  Status connect(unsigned vector, int eventfd);
  void set_client_mask(unsigned vector, bool masked);
  void set_function_mask(bool masked);

  // The table and the pending bits as they lie in the BAR. 4-byte aligned words; `offset` from the start of each.
  std::uint32_t read_table(std::uint64_t offset) const;
  void write_table(std::uint64_t offset, std::uint32_t value);
  std::uint32_t read_pba(std::uint64_t offset) const { return static_cast<std::uint32_t>(pending_ >> (8 * offset)); }

  // Table and pending bits as after power-on; what the client connected and masked stays (a function level reset does not undo it).
  void reset();
  // The client is gone.
  void forget_client();

 private:
  std::uint64_t held_back() const { return function_mask_ ? ~std::uint64_t{0} : client_mask_ | table_mask_; }

  std::array<int, kVectors> eventfd_ = filled(-1);
  std::array<std::array<std::uint32_t, 3>, kVectors> message_{};  // address low, high, data
  std::uint64_t pending_ = 0;
  std::uint64_t client_mask_ = 0;
  std::uint64_t table_mask_ = 0;                     // of entries that were written
  std::uint64_t table_control_ = ~std::uint64_t{0};  // vector control, mask bit, as it reads
  bool function_mask_ = false;

  static constexpr std::array<int, kVectors> filled(int v) {
    std::array<int, kVectors> a{};
    for (int& e : a) e = v;
    return a;
  }
};

}  // namespace uhca::pci
