// SPDX-License-Identifier: MIT
#include "device/hca/umr.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/trace.h"
#include "device/hca/caps.h"
#include "device/hca/mkey_access.h"
#include "device/hca/qp_error.h"
#include "prm/context.h"
#include "prm/wqe.h"

namespace uhca::hca {
namespace {

// Bits of mkey_mask beyond those of prm/wqe.h (Linux device.h: MLX5_MKEY_MASK_*).
constexpr std::uint64_t kMaskPageSize = 1 << 1, kMaskPd = 1 << 7, kMaskEnRinval = 1 << 8, kMaskLocalRead = 1 << 17;
// Bits 6:5 of the flags (Linux device.h: MLX5_UMR_CHECK_NOT_FREE complains about a key that is not free, MLX5_UMR_CHECK_FREE about one that
// is).
constexpr std::uint8_t kMustBeFree = 1 << 5, kMustBeInUse = 2 << 5;
// Drivers fill lists up to 64 bytes, whatever the size of the key (Linux umr.h: MLX5_IB_UMR_XLT_ALIGNMENT).
constexpr std::uint64_t kListUnit = 64 / prm::kWqeDsUnit;
constexpr std::size_t kChunk = 1024;        // bytes of a translation list that are read at a time
constexpr std::uint32_t kAnyQp = 0xffffff;  // mkc.qpn
// In the place of the first entry's key: the list is a pattern that repeats (mlx5dv.h: mlx5_wqe_umr_repeat_block_seg).
constexpr std::uint32_t kRepeat = 0x400;

struct Umr {
  Lane& lane;
  Qp& qp;
  const SendWqe& w;
  std::uint8_t flags = 0;
  std::uint64_t mask = 0;
  std::uint32_t octwords = 0;  // of 16 bytes: of the list ...
  std::uint32_t first = 0;     // ... and where in the key it goes
  const std::uint8_t* mkc = nullptr;

  bool has(std::uint64_t bit) const { return (mask & bit) != 0; }
  bool privileged() const { return qp.type == QpType::kRegUmr; }
};

Umr decode(Lane& lane, Qp& qp, const SendWqe& w) {
  const std::uint8_t* c = w.raw.data() + w.umr_at;
  Umr u{lane, qp, w};
  u.flags = static_cast<std::uint8_t>(prm::get<prm::wqe_umr_ctrl_seg::flags>(c));
  u.mask = prm::get<prm::wqe_umr_ctrl_seg::mkey_mask>(c);
  u.octwords = prm::get<prm::wqe_umr_ctrl_seg::klm_octowords>(c);
  if ((u.flags & prm::kUmrTranslationOffset) != 0) u.first = prm::get<prm::wqe_umr_ctrl_seg::translation_offset>(c);
  u.mkc = c + prm::wqe_umr_ctrl_seg::kBytes;
  return u;
}

// Why the key may not be changed like that; nullptr: it may.
const char* check(const Umr& u, const Mkey* m) {
  if (m == nullptr) return "no such key";
  if (!u.has(prm::kUmrMaskMkey) && m->key != u.w.imm) return "wrong key variant";
  if (!m->umr_en) return "the key does not allow UMRs (mkc.umr_en)";
  if (!u.privileged()) {
    if (m->pd != u.qp.pd) return "key of another PD";
    if (u.has(kMaskPd)) return "only a UMR QP moves keys between PDs";
    // A page list names memory by bus address: nothing that a program may say.
    if (m->mode != MkeyMode::kKlms && m->mode != MkeyMode::kKsm && !u.qp.fre)
      return "page lists need a QP with fast registration (qpc.fre)";
  }
  if ((u.flags & kMustBeFree) != 0 && !m->free) return "the key is in use";
  if ((u.flags & kMustBeInUse) != 0 && m->free) return "the key is free";
  if ((u.flags & prm::kUmrCheckQpn) != 0 && m->qpn != kAnyQp && m->qpn != u.qp.qpn) return "the key is bound to another QP";
  if (std::uint64_t{u.first} + u.octwords > align_up(std::uint64_t{m->octwords}, kListUnit) && u.octwords > 0)
    return "more translations than the key has room for";
  if (m->mode == MkeyMode::kMemic && (u.has(prm::kUmrMaskStartAddr) || u.has(prm::kUmrMaskLen))) return "device memory does not move";
  std::uint64_t start = u.has(prm::kUmrMaskStartAddr) ? prm::get<prm::mkc::start_addr>(u.mkc) : m->start;
  std::uint64_t len = u.has(prm::kUmrMaskLen) ? prm::get<prm::mkc::len>(u.mkc) : m->len;
  if (len != 0 && start + (len - 1) < start) return "the range wraps around";
  if (m->mode == MkeyMode::kMtt && u.has(kMaskPageSize) && prm::get<prm::mkc::log_page_size>(u.mkc) < 12) return "pages of less than 4 KiB";
  return nullptr;
}

// Bytes [off, off + n) of the translation list. False: its memory is not readable (reported).
bool read_list(const Umr& u, std::size_t off, std::uint8_t* dst, std::size_t n) {
  if (u.w.list_at != 0) {
    std::copy_n(u.w.raw.data() + u.w.list_at + off, n, dst);
    return true;
  }
  const DataSeg& s = u.w.segs[0];
  KeyView v = check_key(u.lane.objects, u.qp, s.lkey, s.addr + off, n, KeyAccess::kLocalRead);
  if (v.ok() && !read_memory(u.lane.bus, v, s.addr + off, dst, n)) v.fault = KeyFault::kUnmapped;
  if (!v.ok()) report_key_fault(u.lane.bus, u.qp, "UMR translation list", s.lkey, s.addr + off, n, KeyAccess::kLocalRead, v);
  return v.ok();
}

std::size_t list_bytes(const Umr& u) {
  if (u.w.list_at != 0) return u.w.list_end - u.w.list_at;
  return u.w.nsegs == 1 && u.w.segs[0].inline_at == 0 ? u.w.segs[0].len : 0;
}

// A window must lie in memory that its owner may use like that (IBTA 10.6.7.2): known here, not only when a peer comes.
const char* check_klm(const Umr& u, const Mkey& m, const Klm& k) {
  if (k.byte_count == 0) return nullptr;
  bool writes =
      (u.has(prm::kUmrMaskRemoteWrite) && prm::get<prm::mkc::rw>(u.mkc)) || (u.has(prm::kUmrMaskAtomic) && prm::get<prm::mkc::a>(u.mkc));
  KeyUser owner{u.privileged() ? m.pd : u.qp.pd, u.qp.qpn, u.qp.rlky};
  KeyAccess need = writes ? KeyAccess::kLocalWrite : KeyAccess::kLocalRead;
  KeyView v = check_key(u.lane.objects, owner, k.key, k.va, k.byte_count, need);
  if (v.ok()) return nullptr;
  report_key_fault(u.lane.bus, owner, "UMR", k.key, k.va, k.byte_count, need, v);
  return key_fault_name(v.fault);
}

struct Translations {
  std::vector<pci::DmaAddr> mtt;
  std::vector<Klm> klms;
};

// Writes a pattern out. Its head says how often (upper half of the address) and how many pieces (the last 16 bits); pieces hold their
// stride in the upper half of the length (mlx5dv.h: mlx5_wqe_umr_repeat_ent_seg).
const char* write_out(const Umr& u, const Mkey& m, std::vector<Klm>& klms) {
  const std::uint64_t repeat = klms[0].va >> 32, n = klms[0].va & 0xffff;
  if (n == 0 || n >= klms.size()) return "a pattern longer than its list";
  if (repeat * n > std::uint64_t{1} << kLogMaxKlmList) return "a pattern of more pieces than keys can have";
  std::vector<Klm> all;
  all.reserve(repeat * n);
  for (std::uint64_t r = 0; r < repeat; ++r) {
    for (std::uint64_t i = 1; i <= n; ++i) {
      const Klm& e = klms[i];
      Klm k{e.byte_count & 0xffff, e.key, e.va + r * (e.byte_count >> 16)};
      if (const char* why = check_klm(u, m, k)) return why;
      all.push_back(k);
    }
  }
  klms = std::move(all);
  return nullptr;
}

// Reads the list into copies of the key's translations.
WcError load(const Umr& u, const Mkey& m, Translations& t, const char** why) {
  bool direct = m.mode == MkeyMode::kMtt;
  t.mtt = m.mtt;
  t.klms = m.klms;
  bool partly = (u.flags & prm::kUmrTranslationOffset) != 0;
  std::size_t entries = direct ? std::size_t{2} * u.octwords : u.octwords, first = direct ? std::size_t{2} * u.first : u.first;
  std::size_t held = direct ? t.mtt.size() : t.klms.size();
  std::size_t now = partly ? std::max(held, first + entries) : entries;
  if (direct) {
    t.mtt.resize(now);
  } else {
    t.klms.resize(now);
  }
  bool pattern = false;
  std::array<std::uint8_t, kChunk> chunk;
  std::size_t bytes = std::size_t{u.octwords} * prm::kWqeDsUnit;
  for (std::size_t off = 0; off < bytes; off += chunk.size()) {
    std::size_t n = std::min(chunk.size(), bytes - off);
    if (!read_list(u, off, chunk.data(), n)) return kLocalProtSend;
    for (std::size_t i = 0; direct && i < n / 8; ++i) t.mtt[first++] = load_be<std::uint64_t>(chunk.data() + 8 * i) & ~kMttFlags;
    for (std::size_t i = 0; !direct && i < n / 16; ++i) {
      const std::uint8_t* p = chunk.data() + 16 * i;
      Klm k{load_be<std::uint32_t>(p), load_be<std::uint32_t>(p + 4), load_be<std::uint64_t>(p + 8)};
      if (m.mode == MkeyMode::kKlms && !partly && first == 0 && k.key == kRepeat) pattern = true;
      if (m.mode == MkeyMode::kKlms && !pattern) *why = check_klm(u, m, k);
      if (*why != nullptr) return kMwBind;
      t.klms[first++] = k;
    }
  }
  if (pattern) *why = write_out(u, m, t.klms);
  if (*why != nullptr) return kMwBind;
  index_klms(t.klms);
  return {};
}

void apply(const Umr& u, Mkey& m) {
  const std::uint8_t* c = u.mkc;
  auto take = [&](std::uint64_t bit, bool& field, bool value) {
    if (u.has(bit)) field = value;
  };
  take(kMaskLocalRead, m.lr, prm::get<prm::mkc::lr>(c));
  take(prm::kUmrMaskLocalWrite, m.lw, prm::get<prm::mkc::lw>(c));
  take(prm::kUmrMaskRemoteRead, m.rr, prm::get<prm::mkc::rr>(c));
  take(prm::kUmrMaskRemoteWrite, m.rw, prm::get<prm::mkc::rw>(c));
  take(prm::kUmrMaskAtomic, m.atomic, prm::get<prm::mkc::a>(c));
  take(prm::kUmrMaskFree, m.free, prm::get<prm::mkc::free>(c));
  if (u.has(prm::kUmrMaskLen)) m.len = prm::get<prm::mkc::len>(c);
  if (u.has(kMaskPageSize)) m.log_page = prm::get<prm::mkc::log_page_size>(c);
  if (u.has(prm::kUmrMaskStartAddr)) m.start = prm::get<prm::mkc::start_addr>(c);
  if (u.has(kMaskPd)) m.pd = prm::get<prm::mkc::pd>(c);
  if (u.has(prm::kUmrMaskQpn)) m.qpn = prm::get<prm::mkc::qpn>(c);
  if (u.has(prm::kUmrMaskMkey)) m.key = (m.key & ~0xffu) | prm::get<prm::mkc::mkey_7_0>(c);
  if (u.has(kMaskEnRinval)) prm::set<prm::mkc::en_rinval>(m.mkc.data(), prm::get<prm::mkc::en_rinval>(c));
}

}  // namespace

WcError execute_umr(Lane& lane, Qp& qp, const SendWqe& w) {
  Umr u = decode(lane, qp, w);
  Mkey* m = lane.objects.mkey(w.imm);
  const char* why = check(u, m);
  WcError error = why != nullptr ? kMwBind : WcError{};
  if (!error && u.octwords > 0) {
    if (list_bytes(u) < std::size_t{u.octwords} * prm::kWqeDsUnit) {
      why = "its translation list is shorter than it says";
      error = kLocalQpOp;
    } else if (m->mode == MkeyMode::kPa || m->mode == MkeyMode::kMemic) {
      why = "a key of that access mode has no translations";
      error = kMwBind;
    } else {
      Translations t;
      error = load(u, *m, t, &why);
      if (!error) {
        m->mtt = std::move(t.mtt);
        m->klms = std::move(t.klms);
      }
    }
  }
  if (error) {
    if (why != nullptr) static_cast<void>(refuse(EINVAL, "QP {:#x}: UMR of mkey {:#x} (WQE {}): {}", qp.qpn, w.imm, w.index, why));
    return error;
  }
  apply(u, *m);
  open_window(lane.bus, *m);
  lane.publisher.mkey(*m);  // one-sided initiators see the new state or nothing
  if (trace::on()) {
    trace::Event("state", "mkey")
        .hex("mkey", m->key)
        .hex("qpn", qp.qpn)
        .flag("free", m->free)
        .hex("start", m->start)
        .unum("len", m->len)
        .unum("translations", u.octwords);
  }
  return {};
}

}  // namespace uhca::hca
