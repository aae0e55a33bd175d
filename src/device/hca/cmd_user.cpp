// SPDX-License-Identifier: MIT
// User contexts and user memory (DEVX): who may name what (ownership.h), and buffers that programs register once and name by number.
#include "device/hca/cmd_handlers.h"
#include "device/hca/mkey_access.h"
#include "prm/hca_cap.h"
#include "prm/wqe.h"

namespace uhca::hca::cmd {
Status create_uctx(Command& c) {
  const void* uctx = c.at<prm::create_uctx_in::uctx>();
  std::uint32_t wanted = prm::get<prm::uctx::cap>(uctx);
  std::uint32_t offered = prm::get<prm::cmd_hca_cap::uctx_cap>(c.st.caps.current(0)->data());
  if (wanted & ~offered) return c.refuse(Status::BAD_PARAM, "user context capabilities {:#x}, {:#x} are offered", wanted, offered);
  std::uint16_t uid;
  if (c.st.ownership.users() >= 1u << kLogMaxUctx || !c.st.ownership.create_user(&uid, wanted)) return c.exhausted("user context");
  c.set<prm::create_uctx_out::uid>(uid);
  return Status::OK;
}

Status destroy_uctx(Command& c) {
  auto uid = static_cast<std::uint16_t>(c.get<prm::destroy_uctx_in::uid>());
  if (uid == 0 || !c.st.ownership.user_exists(uid)) return c.no_such("user context", uid);
  if (unsigned n = c.st.ownership.objects_of(uid)) return c.in_use("user context", uid, n);
  c.st.ownership.destroy_user(uid);
  return Status::OK;
}

Status create_umem(Command& c) {
  const void* u = c.at<prm::create_umem_in::umem>();
  Umem m;
  m.uid = c.uid;
  unsigned log_page = prm::get<prm::umem::log_page_size>(u) + 12;
  std::uint64_t n = prm::get<prm::umem::num_of_mtt>(u), page = std::uint64_t{1} << log_page;
  auto list = c.tail(prm::create_umem_in::kBytes);
  if (prm::get<prm::umem::ats>(u)) return c.refuse(Status::BAD_PARAM, "address translation services are not offered");
  if (n == 0 || n > list.size() / 8) return c.refuse(Status::BAD_INP_LEN, "{} pages announced, {} in the list", n, list.size() / 8);
  m.buf.log_page = log_page;
  m.buf.page_offset = prm::get<prm::umem::page_offset>(u);
  if (m.buf.page_offset >= page) return c.refuse(Status::BAD_PARAM, "offset {:#x} in pages of {:#x}", m.buf.page_offset, page);
  m.buf.bytes = (n << log_page) - m.buf.page_offset;
  m.buf.pages.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    pci::DmaAddr a = load_be<std::uint64_t>(list.data() + i * 8) & ~kMttFlags;
    if ((a & (page - 1)) != 0) return c.refuse(Status::BAD_PARAM, "page {} at {:#x} is not aligned to {:#x}", i, a, page);
    m.buf.pages.push_back(a);
  }
  auto id = c.st.umem_ids.take();
  if (!id) return c.exhausted("umem");
  c.st.umems.emplace(*id, std::move(m));
  c.set<prm::create_umem_out::umem_id>(*id);
  return Status::OK;
}

Status destroy_umem(Command& c) {
  std::uint32_t id = c.get<prm::destroy_umem_in::umem_id>();
  auto it = c.st.umems.find(id);
  if (it == c.st.umems.end()) return c.no_such("umem", id);
  if (it->second.users != 0) return c.in_use("umem", id, it->second.users);
  c.st.umems.erase(it);
  c.st.umem_ids.give_back(id);
  return Status::OK;
}

Status take_umem_buffer(Command& c, std::uint32_t id, std::uint64_t offset, std::uint64_t bytes, QueueBuffer& out) {
  auto it = c.st.umems.find(id);
  if (it == c.st.umems.end() || it->second.uid != c.uid) return c.no_such("umem", id);
  const QueueBuffer& m = it->second.buf;
  if (offset > m.bytes || bytes > m.bytes - offset)
    return c.refuse(Status::BAD_PARAM, "{:#x} bytes at {:#x} of umem {:#x}, which has {:#x}", bytes, offset, id, m.bytes);
  const std::uint64_t from = m.page_offset + offset, page = std::uint64_t{1} << m.log_page;
  const std::uint64_t first = from >> m.log_page, last = bytes == 0 ? first : (from + bytes - 1) >> m.log_page;
  out.log_page = m.log_page;
  out.page_offset = static_cast<std::uint32_t>(from & (page - 1));
  out.bytes = bytes;
  out.pages.assign(m.pages.begin() + static_cast<std::ptrdiff_t>(first), m.pages.begin() + static_cast<std::ptrdiff_t>(last + 1));
  out.open_window(c.hca.bus());
  c.umems.push_back(id);
  return Status::OK;
}

Status take_umem_dbr(Command& c, std::uint32_t id, std::uint64_t offset, pci::DmaAddr& dbr) {
  QueueBuffer b;
  if (Status s = take_umem_buffer(c, id, offset, prm::kDoorbellRecord, b); s != Status::OK) return s;
  dbr = b.at(0);
  // Aligned, it lies in one page.
  return bad_dbr(dbr) ? c.refuse(Status::BAD_PARAM, "doorbell record at {:#x} of umem {:#x}", offset, id) : Status::OK;
}

}  // namespace uhca::hca::cmd
