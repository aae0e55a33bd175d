// SPDX-License-Identifier: MIT
#include "device/hca/mkey_access.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "base/rcu.h"
#include "base/safecopy.h"
#include "device/hca/memic.h"

namespace uhca::hca {
namespace {

constexpr std::array kFaultNames{"none",
                                 "no such key",
                                 "wrong key variant",
                                 "key is not valid (free)",
                                 "key of another PD",
                                 "key of another QP",
                                 "right missing",
                                 "out of range",
                                 "unsupported key mode",
                                 "indirect list too deep or too short",
                                 "memory not mapped"};
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

// One range of memory behind the whole key: consecutive pages.
static bool is_direct(const Mkey& m) {
  if (m.mode != MkeyMode::kMtt || m.free || m.length64 || m.len == 0 || m.mtt.empty() || m.log_page >= 63) return false;
  for (std::size_t i = 1; i < m.mtt.size(); ++i)
    if (m.mtt[i] != m.mtt[0] + (std::uint64_t{i} << m.log_page)) return false;
  // A UMR may have loaded fewer pages than the key is long.
  std::uint64_t in_page = m.start & ((std::uint64_t{1} << m.log_page) - 1);
  return (m.mtt.size() >> (63 - m.log_page)) == 0 && m.len <= (std::uint64_t{m.mtt.size()} << m.log_page) - in_page;
}

void open_window(pci::Bus& bus, Mkey& m) {
  m.window.close();
  if (is_direct(m)) m.window.open(bus, m.mtt[0] + (m.start & ((std::uint64_t{1} << m.log_page) - 1)), m.len);
}

void index_klms(std::vector<Klm>& klms) {
  std::uint64_t end = 0;
  for (Klm& k : klms) k.end = end += k.byte_count;
}

const char* key_fault_name(KeyFault f) {
  return kFaultNames[static_cast<std::size_t>(f)];
}

namespace {

constexpr unsigned kMaxIndirection = 4;  // cmd_hca_cap.max_indirection

bool is_indirect(const Mkey& m) {
  return m.mode == MkeyMode::kKlms || m.mode == MkeyMode::kKsm;
}

// The part of an indirect key that holds `va`.
struct Part {
  std::uint32_t key = 0;
  std::uint64_t va = 0;
  std::uint64_t left = 0;  // bytes from there; 0: none
};

Part find_part(const Mkey& m, std::uint64_t va) {
  std::uint64_t off = va - m.start;
  if (m.mode == MkeyMode::kKsm) {
    if (m.log_page >= 64 || off >> m.log_page >= m.klms.size()) return {};
    const Klm& k = m.klms[off >> m.log_page];
    std::uint64_t size = std::uint64_t{1} << m.log_page, in = off & (size - 1);
    return {k.key, k.va + in, size - in};
  }
  auto k = std::upper_bound(m.klms.begin(), m.klms.end(), off, [](std::uint64_t o, const Klm& e) { return o < e.end; });
  if (k == m.klms.end()) return {};
  std::uint64_t left = k->end - off;
  return {k->key, k->va + (k->byte_count - left), left};
}

bool is_write(KeyAccess a) {
  return a != KeyAccess::kLocalRead && a != KeyAccess::kRemoteRead;
}

KeyView check_level(const Objects& objects, const KeyUser& user, std::uint32_t key, std::uint64_t va, std::uint64_t len, KeyAccess need,
                    unsigned level) {
  if (key == kReservedLkey && user.rlky && (need == KeyAccess::kLocalRead || need == KeyAccess::kLocalWrite)) return {};
  const Mkey* m = objects.mkey(key);
  if (m == nullptr) return {nullptr, KeyFault::kNoKey};
  if (m->key != key) return {m, KeyFault::kVariant};
  if (m->free) return {m, KeyFault::kFree};
  if (m->pd != user.pd) return {m, KeyFault::kPd};
  if (m->qpn != 0xffffff && m->qpn != user.qpn) return {m, KeyFault::kQp};
  if (!allows(*m, need)) return {m, KeyFault::kAccess};
  if (!in_range(*m, va, len)) return {m, KeyFault::kRange};
  if (m->mode == MkeyMode::kPa || m->mode == MkeyMode::kMtt || m->mode == MkeyMode::kMemic) return {m, KeyFault::kNone, &objects};
  if (!is_indirect(*m)) return {m, KeyFault::kMode};
  if (level == kMaxIndirection) return {m, KeyFault::kIndirect};
  KeyAccess local = is_write(need) ? KeyAccess::kLocalWrite : KeyAccess::kLocalRead;
  while (len > 0) {
    Part p = find_part(*m, va);
    if (p.left == 0) return {m, KeyFault::kIndirect};
    std::uint64_t n = std::min(p.left, len);
    KeyView inner = check_level(objects, user, p.key, p.va, n, local, level + 1);
    if (!inner.ok()) return inner;
    va += n;
    len -= n;
  }
  return {m, KeyFault::kNone, &objects};
}

}  // namespace

KeyView check_key(const Objects& objects, const KeyUser& user, std::uint32_t key, std::uint64_t va, std::uint64_t len, KeyAccess need) {
  return check_level(objects, user, key, va, len, need, 0);
}

namespace {

// Where bytes behind a key lie: in host memory, or in the device's own.
struct Place {
  pci::DmaAddr at = 0;
  std::size_t piece = 0;  // bytes from there in one piece; 0: not translated
  std::uint8_t* own = nullptr;
};

Place locate(const KeyView& view, std::uint64_t va, std::size_t len) {
  const Mkey* m = view.mkey;
  for (unsigned level = 0; m != nullptr && is_indirect(*m); ++level) {
    Part p = find_part(*m, va);
    m = view.objects->mkey(p.key);
    if (p.left == 0 || level == kMaxIndirection || (m == nullptr && p.key != kReservedLkey)) return {};
    len = static_cast<std::size_t>(std::min<std::uint64_t>(len, p.left));
    va = p.va;
  }
  if (m == nullptr || m->mode == MkeyMode::kPa) return {va, len};
  if (m->mode == MkeyMode::kMemic) {
    std::uint8_t* own = view.objects->memic->memory(m->memic + va, len);
    return {0, own == nullptr ? 0 : len, own};
  }
  // Page numbers relative to the page of `start`: MTT entry 0.
  std::uint64_t index = (va >> m->log_page) - (m->start >> m->log_page);
  if (m->log_page >= 64 || index >= m->mtt.size()) return {};
  std::uint64_t page = std::uint64_t{1} << m->log_page;
  std::uint64_t off = va & (page - 1);
  return {(m->mtt[index] & ~(page - 1)) + off, static_cast<std::size_t>(std::min<std::uint64_t>(len, page - off))};
}

}  // namespace

pci::DmaAddr translate(const KeyView& view, std::uint64_t va, std::size_t len, std::size_t* piece) {
  Place p = locate(view, va, len);
  *piece = p.own == nullptr ? p.piece : 0;
  return p.at;
}

bool compare_and_swap(pci::Bus& bus, const KeyView& view, std::uint64_t va, std::uint64_t* expected, std::uint64_t desired) {
  Place p = locate(view, va, 8);
  if (p.piece != 8) return false;
  if (p.own == nullptr) return p.at % 8 == 0 && bus.dma_cas64(p.at, expected, desired);
  if (reinterpret_cast<std::uintptr_t>(p.own) % 8 != 0) return false;
  __atomic_compare_exchange_n(reinterpret_cast<std::uint64_t*>(p.own), expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return true;
}

bool read_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, void* dst, std::size_t len) {
  if (view.mkey != nullptr) {
    rcu::ReadSection section;
    const std::byte* at = view.mkey->window.at(va - view.mkey->start);
    if (at != nullptr && safecopy::copy(dst, at, len) == 0) return true;
  }
  auto* out = static_cast<std::uint8_t*>(dst);
  while (len > 0) {
    Place p = locate(view, va, len);
    std::size_t n = p.piece;
    if (n == 0) return false;
    if (p.own != nullptr)
      std::memcpy(out, p.own, n);
    else if (!bus.dma_read(out, p.at, n))
      return false;
    out += n;
    va += n;
    len -= n;
  }
  return true;
}

bool write_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, const void* src, std::size_t len, bool last_byte_last) {
  const auto* in = static_cast<const std::uint8_t*>(src);
  if (view.mkey != nullptr && len > 0) {
    rcu::ReadSection section;
    std::byte* at = view.mkey->window.writable_at(va - view.mkey->start);
    const std::size_t last = last_byte_last ? std::min<std::size_t>(len, 8) : 0;
    if (at != nullptr && safecopy::copy(at, in, len - last) == 0 && safecopy::copy_last_byte_last(at + len - last, in + len - last, last))
      return true;
  }
  // The tail that goes last: at most 64 bytes within one 4 KiB page.
  std::size_t tail = 0;
  if (last_byte_last && len > 0) {
    std::uint64_t in_page = ((va + len - 1) & 4095) + 1;
    tail = static_cast<std::size_t>(std::min<std::uint64_t>({len, 64, in_page}));
  }
  std::size_t body = len - tail;
  while (body > 0) {
    Place p = locate(view, va, body);
    std::size_t n = p.piece;
    if (n == 0) return false;
    if (p.own != nullptr)
      std::memcpy(p.own, in, n);
    else if (!bus.dma_write(p.at, in, n))
      return false;
    in += n;
    va += n;
    body -= n;
  }
  while (tail > 0) {
    Place p = locate(view, va, tail);
    std::size_t n = p.piece;
    if (n == 0) return false;
    pci::DmaAddr at = p.at;
    if (p.own != nullptr) {
      if (!safecopy::copy_last_byte_last(p.own, in, n)) return false;
      in += n;
      va += n;
      tail -= n;
      continue;
    }
    // An indirect key may cut the tail once more, and its parts need not lie as the virtual addresses do.
    std::size_t last = std::min<std::size_t>(n, ((at + n - 1) & 4095) + 1);
    bool all = n == tail && last == n;
    if (all) return bus.dma_write_last_byte_last(at, in, n);
    std::size_t now = n == tail ? n - last : n;
    if (!bus.dma_write(at, in, now)) return false;
    in += now;
    va += now;
    tail -= now;
  }
  return true;
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
