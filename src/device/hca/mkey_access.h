// SPDX-License-Identifier: MIT
// Memory keys at work: checks, translation (MKey -> MTT -> bus address), copies. IBTA vol. 1 10.6 and 9.4.1.1.3 say what is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/hca/objects.h"

namespace uhca::hca {

enum class KeyAccess : std::uint8_t { kLocalRead, kLocalWrite, kRemoteRead, kRemoteWrite, kRemoteAtomic };

enum class KeyFault : std::uint8_t {
  kNone,
  kNoKey,     // no key with this index: never created, or destroyed
  kVariant,   // the index exists, its variant byte is another one
  kFree,      // allocated, or invalidated: not usable
  kPd,        // another protection domain
  kQp,        // bound to another QP
  kAccess,    // right missing
  kRange,     // outside of [start, start + len)
  kMode,      // access mode that the engine does not translate
  kIndirect,  // an indirect key's list: too deep, or shorter than the range
  kUnmapped,  // translated, but the bus refused (Bus::last_fault says why)
};
const char* key_fault_name(KeyFault f);

inline constexpr std::uint64_t kMttFlags = 0xff;  // of a translation entry: rd_en, wr_en, reserved bits; the address is above

// After the key has been created, or changed.
void open_window(pci::Bus& bus, Mkey& m);

// After the list has changed: the ends of its entries, by which they are found.
void index_klms(std::vector<Klm>& klms);

// On whose behalf a key is used: a QP, or a shared receive queue (its own protection domain) towards a QP.
struct KeyUser {
  std::uint32_t pd = 0;
  std::uint32_t qpn = 0;
  bool rlky = false;  // the reserved lkey is allowed
  KeyUser(const Qp& qp) : pd(qp.pd), qpn(qp.qpn), rlky(qp.rlky) {}
  KeyUser(std::uint32_t pd_, std::uint32_t qpn_, bool rlky_) : pd(pd_), qpn(qpn_), rlky(rlky_) {}
};

// The outcome of a check; on success it can be used for copies inside the range that was checked, during this call only.
struct KeyView {
  const Mkey* mkey = nullptr;  // nullptr with kNone: the reserved lkey (bus addresses)
  KeyFault fault = KeyFault::kNone;
  const Objects* objects = nullptr;  // where the keys behind an indirect one are
  bool ok() const { return fault == KeyFault::kNone; }
};

// Checks [va, va + len) of `key` for a work request or a request packet of this user. `len` is in bytes, sums in 64 bits, the range
// is compared by subtraction (va + len may wrap). Behind an indirect key (KLMs), every key of its list that the range touches must be of
// the same PD, cover its part and allow local access of that kind.
KeyView check_key(const Objects& objects, const KeyUser& user, std::uint32_t key, std::uint64_t va, std::uint64_t len, KeyAccess need);

// Bus address of `va` and how many bytes from there lie in one piece (at most `len`). 0 bytes: not translated, or not host memory.
pci::DmaAddr translate(const KeyView& view, std::uint64_t va, std::size_t len, std::size_t* piece);

// The 8 aligned bytes behind a checked key, in host order: replaces *expected by what was found. False: not mapped, or not aligned.
bool compare_and_swap(pci::Bus& bus, const KeyView& view, std::uint64_t va, std::uint64_t* expected, std::uint64_t desired);

// Copies out of / into the memory behind a checked key. False: the bus refused. With `last_byte_last` the final bytes (at most 64)
// become visible after everything else.
bool read_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, void* dst, std::size_t len);
bool write_memory(pci::Bus& bus, const KeyView& view, std::uint64_t va, const void* src, std::size_t len, bool last_byte_last);

// The reason for people: key, PD, byte range, what was wrong (cases A7, A8, A14).
void report_key_fault(pci::Bus& bus, const KeyUser& user, const char* what, std::uint32_t key, std::uint64_t va, std::uint64_t len,
                      KeyAccess need, const KeyView& view);

}  // namespace uhca::hca
