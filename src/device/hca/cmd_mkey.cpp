// SPDX-License-Identifier: MIT
// Memory keys. Sources: Linux include/linux/mlx5/mlx5_ifc.h (mkc, mtt), device.h (MLX5_MKC_ACCESS_MODE_*).
#include <algorithm>
#include <cstring>
#include <utility>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "device/hca/memic.h"
#include "device/hca/mkey_access.h"
#include "prm/umem_ref.h"

namespace uhca::hca::cmd {
namespace {

// Rights of the page in its entry of the list (Linux ib_umem_odp.h and mlx5_ib.h: MLX5_IB_MTT_READ, _WRITE); with create_mkey_in.pg_access.
constexpr std::uint64_t kMttPresent = 3;

// The translations behind the command: direct. With rights of their own (pg_access) drivers leave pages out, which are to come by page
// faults; without those (on-demand paging) every page is there. libmlx5's VFIO mode lists them so.
Status take_mtts(Command& c, Mkey& k) {
  const bool with_rights = c.get<prm::create_mkey_in::pg_access>();
  auto list = c.tail(prm::create_mkey_in::kBytes);
  std::uint64_t octwords = c.get<prm::create_mkey_in::translations_octword_actual_size>();
  if (octwords * 16 > align_up(list.size(), 16))
    return c.refuse(Status::BAD_INP_LEN, "{} octwords of translations announced, {} bytes in the list", octwords, list.size());
  // Drivers announce whole octwords; the last one may be half full, and its second half may lie beyond the input.
  std::size_t given = std::min<std::size_t>(octwords * 2, list.size() / 8);
  std::uint64_t page = std::uint64_t{1} << k.log_page;
  unsigned __int128 span = static_cast<unsigned __int128>(k.start & (page - 1)) + k.len;
  auto needed128 = (span + page - 1) >> k.log_page;
  if (k.free && given == 0 && !with_rights) return Status::OK;  // a UMR loads them later
  if (needed128 > given) {
    return c.refuse(Status::BAD_PARAM, "{} pages of 2^{} bytes given, {} needed for {:#x} bytes", given, k.log_page,
                    static_cast<std::uint64_t>(needed128), k.len);
  }
  auto needed = static_cast<std::size_t>(needed128);
  k.mtt.reserve(needed);
  for (std::size_t i = 0; i < needed; ++i) {
    const auto entry = load_be<std::uint64_t>(list.data() + i * 8);
    if (with_rights && (entry & kMttPresent) != kMttPresent)
      return c.refuse(Status::BAD_PARAM, "page {} may not be read and written: on-demand paging is not offered", i);
    pci::DmaAddr a = entry & ~kMttFlags;
    if ((a & (page - 1)) != 0) return c.refuse(Status::BAD_PARAM, "page address {:#x} is not aligned to 2^{}", a, k.log_page);
    k.mtt.push_back(a);
  }
  return Status::OK;
}

// ... of a umem: entry 0 is the page of `start`, at the given offset.
Status take_umem_mtts(Command& c, Mkey& k) {
  const std::uint64_t page = std::uint64_t{1} << k.log_page, offset = c.get<prm::umem_ref::mkey_umem_offset>();
  const auto pages128 = ((static_cast<unsigned __int128>(k.start & (page - 1)) + k.len) + page - 1) >> k.log_page;
  if (pages128 > (~std::uint64_t{0} >> k.log_page)) return c.refuse(Status::BAD_PARAM, "{:#x} bytes from {:#x} in a umem", k.len, k.start);
  const auto pages = static_cast<std::uint64_t>(pages128);
  QueueBuffer b;
  Status s = take_umem_buffer(c, c.get<prm::umem_ref::mkey_umem_id>(), offset, pages << k.log_page, b);
  if (s != Status::OK) return s;
  if (k.log_page > b.log_page)
    return c.refuse(Status::BAD_PARAM, "pages of 2^{} bytes in a umem whose pages have 2^{}", k.log_page, b.log_page);
  k.mtt.reserve(pages);
  for (std::uint64_t i = 0; i < pages; ++i) {
    pci::DmaAddr a = b.at(i << k.log_page);
    if ((a & (page - 1)) != 0) return c.refuse(Status::BAD_PARAM, "umem offset {:#x} is not aligned to 2^{}", offset, k.log_page);
    k.mtt.push_back(a);
  }
  return Status::OK;
}

// ... and indirect.
Status take_klms(Command& c, Mkey& k) {
  auto list = c.tail(prm::create_mkey_in::kBytes);
  std::uint64_t octwords = c.get<prm::create_mkey_in::translations_octword_actual_size>();
  constexpr std::uint64_t kMost = std::uint64_t{1} << kLogMaxKlmList;
  if (octwords > kMost || k.octwords > kMost)
    return c.refuse(Status::BAD_PARAM, "{} KLMs in a list for {}; {} are offered", octwords, k.octwords, kMost);
  if (octwords * 16 > list.size()) return c.refuse(Status::BAD_INP_LEN, "{} KLMs announced, {} bytes in the list", octwords, list.size());
  k.klms.reserve(octwords);
  for (std::size_t i = 0; i < octwords; ++i) {
    const std::uint8_t* p = list.data() + i * 16;
    k.klms.push_back({load_be<std::uint32_t>(p), load_be<std::uint32_t>(p + 4), load_be<std::uint64_t>(p + 8)});
  }
  index_klms(k.klms);
  return Status::OK;
}

}  // namespace

Status create_mkey(Command& c) {
  const std::uint8_t* mkc = c.at<prm::create_mkey_in::memory_key_mkey_entry>();
  auto k = std::make_unique<Mkey>();
  unsigned mode = prm::get<prm::mkc::access_mode_1_0>(mkc) | prm::get<prm::mkc::access_mode_4_2>(mkc) << 2;
  const bool memic = c.objects().memic != nullptr && mode == static_cast<unsigned>(MkeyMode::kMemic);
  if (mode > static_cast<unsigned>(MkeyMode::kKsm) && !memic) return c.refuse(Status::BAD_PARAM, "access mode {} is not offered", mode);
  if (c.get<prm::create_mkey_in::pg_access>() &&
      (mode != static_cast<unsigned>(MkeyMode::kMtt) || c.get<prm::create_mkey_in::mkey_umem_valid>()))
    return c.refuse(Status::BAD_PARAM, "rights by page without a list of pages");
  if (prm::get<prm::mkc::bsf_en>(mkc) || prm::get<prm::mkc::bsf_octword_size>(mkc))
    return c.refuse(Status::BAD_PARAM, "signature keys are not offered");
  k->mode = static_cast<MkeyMode>(mode);
  k->pd = prm::get<prm::mkc::pd>(mkc);
  if (!c.st.pds.exists(k->pd)) return c.no_such("PD", k->pd);
  if (Status s = c.may_use(Kind::kPd, k->pd); s != Status::OK) return s;
  if (Status s = c.drivers_only(k->mode == MkeyMode::kPa, "physical addressing"); s != Status::OK) return s;
  if (Status s = c.drivers_only(memic, "device memory"); s != Status::OK) return s;
  k->free = prm::get<prm::mkc::free>(mkc);
  k->lr = prm::get<prm::mkc::lr>(mkc);
  k->lw = prm::get<prm::mkc::lw>(mkc);
  k->rr = prm::get<prm::mkc::rr>(mkc);
  k->rw = prm::get<prm::mkc::rw>(mkc);
  k->atomic = prm::get<prm::mkc::a>(mkc);
  k->umr_en = prm::get<prm::mkc::umr_en>(mkc);
  k->length64 = prm::get<prm::mkc::length64>(mkc);
  k->qpn = prm::get<prm::mkc::qpn>(mkc);
  k->start = prm::get<prm::mkc::start_addr>(mkc);
  k->len = prm::get<prm::mkc::len>(mkc);
  k->log_page = prm::get<prm::mkc::log_page_size>(mkc);
  k->octwords = prm::get<prm::mkc::translations_octword_size>(mkc);
  if (!k->length64 && k->len != 0 && k->start + (k->len - 1) < k->start)
    return c.refuse(Status::BAD_PARAM, "{:#x} bytes from {:#x} wrap around", k->len, k->start);
  if (k->qpn != 0xffffff && c.objects().qp(k->qpn) == nullptr) return c.no_such("QP", k->qpn);
  if (Status s = c.may_use(Kind::kQp, k->qpn); s != Status::OK) return s;

  // Keys over a umem need not say how large its pages are (rdma-core's test_mlx5_cuda_umem.py says nothing).
  if (k->mode == MkeyMode::kMtt && k->log_page == 0 && c.get<prm::create_mkey_in::mkey_umem_valid>()) k->log_page = 12;
  if (k->mode == MkeyMode::kMtt) {
    if (k->length64) return c.refuse(Status::BAD_PARAM, "length64 needs physical addressing");
    if (k->log_page < 12 && !(k->free && k->log_page == 0)) return c.refuse(Status::BAD_PARAM, "pages of 2^{} bytes", k->log_page);
    Status s = c.get<prm::create_mkey_in::mkey_umem_valid>() ? take_umem_mtts(c, *k) : take_mtts(c, *k);
    if (s != Status::OK) return s;
  } else if (k->mode == MkeyMode::kKlms || k->mode == MkeyMode::kKsm) {
    if (Status s = take_klms(c, *k); s != Status::OK) return s;
  } else if (memic) {
    // Such a key begins at address 0; the context's start says where that lies.
    k->memic = std::exchange(k->start, 0);
    if (k->length64 || c.objects().memic->around(k->memic, k->len) == nullptr)
      return c.refuse(Status::BAD_PARAM, "{:#x} bytes at {:#x} are no allocated device memory", k->len, k->memic);
  }

  auto index = c.st.mkey_indexes.take();
  if (!index) return c.exhausted("MKey");
  k->key = *index << 8 | prm::get<prm::mkc::mkey_7_0>(mkc);
  std::memcpy(k->mkc.data(), mkc, k->mkc.size());
  c.hca.data_path().mkey_changed(*k);
  c.objects().mkeys.emplace(*index, std::move(k));
  c.set<prm::create_mkey_out::mkey_index>(*index);
  return Status::OK;
}

Status query_mkey(Command& c) {
  std::uint32_t index = c.get<prm::query_mkey_in::mkey_index>();
  Mkey* k = c.objects().mkey(index << 8);
  if (k == nullptr) return c.no_such("MKey", index);
  void* mkc = c.out_at<prm::query_mkey_out::memory_key_mkey_entry>();
  std::memcpy(mkc, k->mkc.data(), k->mkc.size());
  // What UMRs may have changed since.
  prm::set<prm::mkc::free>(mkc, k->free);
  prm::set<prm::mkc::lr>(mkc, k->lr);
  prm::set<prm::mkc::lw>(mkc, k->lw);
  prm::set<prm::mkc::rr>(mkc, k->rr);
  prm::set<prm::mkc::rw>(mkc, k->rw);
  prm::set<prm::mkc::a>(mkc, k->atomic);
  prm::set<prm::mkc::pd>(mkc, k->pd);
  prm::set<prm::mkc::qpn>(mkc, k->qpn);
  prm::set<prm::mkc::mkey_7_0>(mkc, k->key & 0xff);
  prm::set<prm::mkc::start_addr>(mkc, k->mode == MkeyMode::kMemic ? k->memic : k->start);
  prm::set<prm::mkc::len>(mkc, k->len);
  std::uint8_t* translations = c.out() + prm::query_mkey_out::bsf0_klm0_pas_mtt0_1.offset / 8;
  for (std::size_t i = 0; i < std::min<std::size_t>(4, k->mtt.size()); ++i) store_be<std::uint64_t>(translations + i * 8, k->mtt[i] | 3);
  return Status::OK;
}

Status destroy_mkey(Command& c) {
  std::uint32_t index = c.get<prm::destroy_mkey_in::mkey_index>();
  Mkey* k = c.objects().mkey(index << 8);
  if (k == nullptr) return c.no_such("MKey", index);
  c.hca.data_path().mkey_destroyed(*k);
  c.objects().mkeys.erase(index);
  c.st.mkey_indexes.give_back(index);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
