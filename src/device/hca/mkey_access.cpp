// SPDX-License-Identifier: MIT
#include "device/hca/mkey_access.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "device/hca/hca.h"  // kReservedLkey

namespace uhca::hca {
namespace {

constexpr std::array kFaultNames{
    "none",          "no such key",  "wrong key variant",    "key is not valid (free)", "key of another PD", "key of another QP",
    "right missing", "out of range", "unsupported key mode", "memory not mapped"};
constexpr std::array kAccessNames{"local read", "local write", "remote read", "remote write", "remote atomic"};

bool allows(const Mkey& m, KeyAccess need) {
  switch (need) {
    case KeyAccess::kLocalRead: return m.lr;
    case KeyAccess::kLocalWrite: return m.lw;
    case KeyAccess::kRemoteRead: return m.rr;
    case KeyAccess::kRemoteWrite: return m.rw;
    case KeyAccess::kRemoteAtomic: return m.atomic;
  }
  return false;
}

bool in_range(const Mkey& m, std::uint64_t va, std::uint64_t len) {
  if (m.length64) return true;
  if (va < m.start) return false;
  std::uint64_t off = va - m.start;
  return off <= m.len && len <= m.len - off;
}

}  // namespace

const char* key_fault_name(KeyFault f) {
  return kFaultNames[static_cast<std::size_t>(f)];
}

KeyView check_key(const Objects& objects, const KeyUser& user, std::uint32_t key, std::uint64_t va, std::uint64_t len, KeyAccess need) {
  if (key == kReservedLkey && user.rlky && (need == KeyAccess::kLocalRead || need == KeyAccess::kLocalWrite)) return {};
  const Mkey* m = objects.mkey(key);
  if (m == nullptr) return {nullptr, KeyFault::kNoKey};
  if (m->key != key) return {m, KeyFault::kVariant};
  if (m->free) return {m, KeyFault::kFree};
  if (m->pd != user.pd) return {m, KeyFault::kPd};
  if (m->qpn != 0xffffff && m->qpn != user.qpn) return {m, KeyFault::kQp};
  if (!allows(*m, need)) return {m, KeyFault::kAccess};
  if (!in_range(*m, va, len)) return {m, KeyFault::kRange};
  if (m->mode != MkeyMode::kPa && m->mode != MkeyMode::kMtt) return {m, KeyFault::kMode};
  return {m, KeyFault::kNone};
}

pci::DmaAddr translate(const KeyView& view, std::uint64_t va, std::size_t len, std::size_t* piece) {
  if (view.mkey == nullptr || view.mkey->mode == MkeyMode::kPa) {
    *piece = len;
    return va;
  }
  const Mkey& m = *view.mkey;
  // Page numbers relative to the page of `start`: MTT entry 0.
  std::uint64_t index = (va >> m.log_page) - (m.start >> m.log_page);
  if (m.log_page >= 64 || index >= m.mtt.size()) {
    *piece = 0;
    return 0;
  }
  std::uint64_t page = std::uint64_t{1} << m.log_page;
  std::uint64_t off = va & (page - 1);
  *piece = static_cast<std::size_t>(std::min<std::uint64_t>(len, page - off));
  return m.mtt[index] + off;
}

bool read_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, void* dst, std::size_t len) {
  auto* out = static_cast<std::uint8_t*>(dst);
  while (len > 0) {
    std::size_t n;
    pci::DmaAddr at = translate(view, va, len, &n);
    if (n == 0 || !bus.dma_read(out, at, n)) return false;
    out += n;
    va += n;
    len -= n;
  }
  return true;
}

bool write_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, const void* src, std::size_t len, bool last_byte_last) {
  const auto* in = static_cast<const std::uint8_t*>(src);
  // The tail that goes last: at most 64 bytes within one 4 KiB page.
  std::size_t tail = 0;
  if (last_byte_last && len > 0) {
    std::uint64_t in_page = ((va + len - 1) & 4095) + 1;
    tail = static_cast<std::size_t>(std::min<std::uint64_t>({len, 64, in_page}));
  }
  std::size_t body = len - tail;
  while (body > 0) {
    std::size_t n;
    pci::DmaAddr at = translate(view, va, body, &n);
    if (n == 0 || !bus.dma_write(at, in, n)) return false;
    in += n;
    va += n;
    body -= n;
  }
  if (tail == 0) return true;
  std::size_t n;
  pci::DmaAddr at = translate(view, va, tail, &n);
  return n == tail && bus.dma_write_last_byte_last(at, in, tail);
}

void report_key_fault(pci::Bus& bus, const KeyUser& user, const char* what, std::uint32_t key, std::uint64_t va, std::uint64_t len,
                      KeyAccess need, const KeyView& view) {
  const Mkey* m = view.mkey;
  const char* wants = kAccessNames[static_cast<std::size_t>(need)];
  if (m == nullptr || view.fault == KeyFault::kNoKey) {
    static_cast<void>(refuse(EACCES, "QP {:#x}: {}: {} of mkey {:#x} (PD {}), bytes [{:#x}, +{:#x}): {}{}", user.qpn, what, wants, key,
                             user.pd, va, len, key_fault_name(view.fault), view.fault == KeyFault::kUnmapped ? bus.last_fault() : ""));
    return;
  }
  static_cast<void>(refuse(EACCES,
                           "QP {:#x}: {}: {} of mkey {:#x}, bytes [{:#x}, +{:#x}): {}{}{}; the key {:#x} covers [{:#x}, +{:#x}) of PD {} "
                           "with rights{}{}{}{}{}, the QP "
                           "has PD {}",
                           user.qpn, what, wants, key, va, len, key_fault_name(view.fault), view.fault == KeyFault::kUnmapped ? ": " : "",
                           view.fault == KeyFault::kUnmapped ? bus.last_fault() : "", m->key, m->start, m->len, m->pd, m->lr ? " lr" : "",
                           m->lw ? " lw" : "", m->rr ? " rr" : "", m->rw ? " rw" : "", m->atomic ? " a" : "", user.pd));
}

}  // namespace uhca::hca
