// SPDX-License-Identifier: MIT
// What the ways between functions of one host and user have in common (DESIGN, decision 5): who can be reached, and copies between two
// address spaces.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/hca/lane.h"
#include "device/hca/mkey_access.h"
#include "device/pci/shared_area.h"

namespace uhca::hca {

// Pieces of our own memory that one copy gathers from or scatters to.
inline constexpr std::size_t kMaxPieces = 32;

// The function that has the QP's peer, when its memory can be accessed and nothing asks for frames that can be looked at; else nullptr.
// Valid until the next send or poll of the port.
wire::PeerFunction* direct_peer(Lane& lane, const Qp& qp);

// The accessor's hold on another function's area, for the time of one access (decision 6).
class Holding {
 public:
  explicit Holding(const wire::PeerFunction& peer)
      : hold_(pci::SharedArea::hold_of(peer.area, peer.number)), seq_(hold_.seq.load(std::memory_order_relaxed) | 1) {
    hold_.seq.store(seq_, std::memory_order_relaxed);
    // Against the owner's "withdraw; fence; look for accessors".
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Holding() { hold_.seq.store(seq_ + 1, std::memory_order_release); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

 private:
  pci::Hold& hold_;
  std::uint32_t seq_;
};

// A piece of a function's memory, and how another function sees whether it is still there: while the range has that state.
struct RangePiece {
  std::uint64_t address;
  std::uint64_t state;
  std::uint64_t bytes;
  std::uint32_t range;
};
bool still_there(void* area, const RangePiece& p);

// Our own memory as pieces of our address space. To be used inside of the RCU read section in which it was asked for.
class Pieces {
 public:
  // Bytes [va, va + len) behind a checked key. False: too many pieces, or memory that only the bus reaches.
  bool add(pci::Bus& bus, const KeyView& view, std::uint64_t va, std::uint64_t len, pci::DmaDir dir);
  // Bytes [off, off + len) of data segments. False: likewise, or a key that does not allow it. `raw`: what inline data lies in; nullptr:
  // those are no pieces.
  bool add(Lane& lane, const KeyUser& user, std::span<const DataSeg> segs, const std::uint8_t* raw, std::uint64_t off, std::uint64_t len,
           pci::DmaDir dir);
  // Memory that no key names, of this thread.
  bool add(const void* at, std::size_t len);

  std::span<const RangePiece> get() const { return {pieces_.data(), n_}; }

 private:
  std::array<RangePiece, kMaxPieces> pieces_;
  std::size_t n_ = 0;
};

// Copies between our pieces and theirs, of process `pid`, as many bytes as ours have. False: some of it may have been copied. The last byte
// that lands with them is written after everything else (their program may poll it), but for a single word.
enum class CopyWay : std::uint8_t { kFromThem, kToThem };
bool copy_between(pid_t pid, CopyWay way, std::span<const RangePiece> ours, std::span<const RangePiece> theirs);

}  // namespace uhca::hca
