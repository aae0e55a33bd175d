// SPDX-License-Identifier: MIT
#include "device/hca/direct.h"

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/hca.h"
#include "device/hca/segments.h"

namespace uhca::hca {
namespace {

bool reachable(wire::PeerFunction& peer) {
  using Access = wire::PeerFunction::Access;
  if (peer.access == Access::kUntried) {
    peer.access = peer.number < pci::SharedArea::kHolds && pci::SharedArea::reachable(peer.area, peer.pid) ? Access::kYes : Access::kNo;
    log::info("direct access to process {}: {}", peer.pid,
              peer.access == Access::kYes ? "possible" : "not permitted (Yama, seccomp or namespaces): frames instead");
  }
  return peer.access == Access::kYes;
}

// Within one aligned word, which becomes visible as a whole.
bool is_word(const RangePiece& p) {
  return p.bytes <= 8 && p.address / 8 == (p.address + p.bytes - 1) / 8;
}

std::size_t to_iovecs(std::span<const RangePiece> pieces, std::span<iovec> out) {
  std::size_t n = 0;
  for (const RangePiece& p : pieces) out[n++] = {reinterpret_cast<void*>(p.address), p.bytes};
  return n;
}

}  // namespace

wire::PeerFunction* direct_peer(Lane& lane, const Qp& qp) {
  if (qp.type != QpType::kRc || !lane.hca.config().one_sided) return nullptr;
  // Frames that can be looked at are asked for.
  if (trace::on() || trace::capturing()) return nullptr;
  wire::PeerFunction* peer = lane.port.peer(qp.path.dgid, qp.remote_qpn);
  return peer != nullptr && reachable(*peer) ? peer : nullptr;
}

bool still_there(void* area, const RangePiece& p) {
  return p.range < pci::SharedArea::kRanges && pci::SharedArea::range_states_of(area)[p.range].load(std::memory_order_acquire) == p.state;
}

bool Pieces::add(pci::Bus& bus, const KeyView& view, std::uint64_t va, std::uint64_t len, pci::DmaDir dir) {
  if (view.mkey != nullptr) {
    const pci::HostWindow& w = view.mkey->window;
    const std::uint64_t off = va - view.mkey->start;
    if (const std::byte* at = dir == pci::DmaDir::kFromDevice ? w.writable_at(off) : w.at(off)) {
      if (n_ == pieces_.size()) return false;
      pieces_[n_++] = {reinterpret_cast<std::uintptr_t>(at), w.range().state, len, w.range().range};
      return true;
    }
  }
  while (len > 0) {
    std::size_t piece;
    pci::DmaAddr at = translate(view, va, len, &piece);
    pci::HostRange r;
    if (piece == 0 || !bus.resolve(at, piece, dir, &r)) return false;
    RangePiece* last = n_ > 0 ? &pieces_[n_ - 1] : nullptr;
    if (last != nullptr && last->address + last->bytes == r.address && last->range == r.range && last->state == r.state) {
      last->bytes += piece;  // one more page of the same
    } else if (n_ < pieces_.size()) {
      pieces_[n_++] = {r.address, r.state, piece, r.range};
    } else {
      return false;
    }
    va += piece;
    len -= piece;
  }
  return true;
}

bool Pieces::add(Lane& lane, const KeyUser& user, std::span<const DataSeg> segs, const std::uint8_t* raw, std::uint64_t off,
                 std::uint64_t len, pci::DmaDir dir) {
  const KeyAccess need = dir == pci::DmaDir::kFromDevice ? KeyAccess::kLocalWrite : KeyAccess::kLocalRead;
  return for_pieces(segs, off, len, [&](const DataSeg& s, std::uint64_t at, std::size_t n) {
    if (s.inline_at != 0) return raw != nullptr && add(raw + s.inline_at + at, n);
    KeyView v = check_key(lane.objects, user, s.lkey, s.addr + at, n, need);
    return v.ok() && add(lane.bus, v, s.addr + at, n, dir);
  });
}

bool Pieces::add(const void* at, std::size_t len) {
  if (n_ == pieces_.size()) return false;
  pieces_[n_++] = {reinterpret_cast<std::uintptr_t>(at), 0, len, 0};
  return true;
}

bool copy_between(pid_t pid, CopyWay way, std::span<const RangePiece> ours, std::span<const RangePiece> theirs) {
  std::array<iovec, kMaxPieces + 1> near;
  std::array<iovec, kMaxPieces> far;
  if (ours.empty() || ours.size() > kMaxPieces || theirs.empty() || theirs.size() > kMaxPieces) return false;
  std::size_t nnear = to_iovecs(ours, near), nfar = to_iovecs(theirs, far);
  // The last byte that lands with a peer is a copy of its own, as its program may wait for it (ours learns of the end from the
  // completion). Each piece of the near side is one: the kernel's string instructions order their stores among each other, not within
  // (Intel SDM vol. 3, 9.2.4). Cutting the far side would make it look the page up again.
  if (iovec& last = near[nnear - 1]; way == CopyWay::kToThem && last.iov_len > 1 && !is_word(theirs.back())) {
    --last.iov_len;
    near[nnear++] = {static_cast<std::byte*>(last.iov_base) + last.iov_len, 1};
  }
  std::uint64_t len = 0;
  for (const RangePiece& p : ours) len += p.bytes;
  int saved = errno;
  long done =
      syscall(way == CopyWay::kFromThem ? SYS_process_vm_readv : SYS_process_vm_writev, pid, near.data(), nnear, far.data(), nfar, 0ul);
  errno = saved;
  return done >= 0 && static_cast<std::uint64_t>(done) == len;
}

}  // namespace uhca::hca
