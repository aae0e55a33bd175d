// SPDX-License-Identifier: MIT
// Event queues, and what all queues have in common: the list of their pages.
#include <cstring>

#include "device/hca/cmd_handlers.h"
#include "device/hca/data_path.h"
#include "prm/event.h"

namespace uhca::hca::cmd {

Status take_queue_buffer(Command& c, std::span<const std::uint8_t> pas, unsigned log_page, unsigned page_offset, std::uint64_t bytes,
                         QueueBuffer& out) {
  std::uint64_t page = std::uint64_t{1} << log_page;
  out.log_page = log_page;
  std::uint64_t offset = page_offset * (page / 64);
  if (offset >= page || offset > 0xffffffff) return c.refuse(Status::BAD_PARAM, "page offset {:#x} in pages of {:#x}", offset, page);
  out.page_offset = static_cast<std::uint32_t>(offset);
  out.bytes = bytes;
  std::uint64_t n = (out.page_offset + bytes + page - 1) >> log_page;
  if (n > pas.size() / 8) return c.refuse(Status::BAD_INP_LEN, "{} pages of {:#x} bytes listed, {} needed", pas.size() / 8, page, n);
  out.pages.reserve(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    pci::DmaAddr a = load_be<std::uint64_t>(pas.data() + i * 8);
    if (a == 0 || (a & (page - 1)) != 0) return c.refuse(Status::BAD_PARAM, "page {} at {:#x} is not aligned to {:#x}", i, a, page);
    out.pages.push_back(a);
  }
  out.open_window(c.hca.bus());
  return Status::OK;
}

void put_pages(Command& c, std::size_t from, const QueueBuffer& buf) {
  for (std::size_t i = 0; i < buf.pages.size() && from + (i + 1) * 8 <= c.out_bytes.size(); ++i)
    store_be<std::uint64_t>(c.out() + from + i * 8, buf.pages[i]);
}

bool bad_dbr(pci::DmaAddr dbr) {
  return dbr == 0 || dbr % 8 != 0;
}

Status create_eq(Command& c) {
  const std::uint8_t* eqc = c.at<prm::create_eq_in::eq_context_entry>();
  auto eq = std::make_unique<Eq>();
  eq->log_size = prm::get<prm::eqc::log_eq_size>(eqc);
  eq->uar = prm::get<prm::eqc::uar_page>(eqc);
  eq->vector = prm::get<prm::eqc::intr>(eqc);
  eq->event_mask = c.get<prm::create_eq_in::event_bitmask>(0);
  if (eq->log_size > kLogMaxEqSize) return c.refuse(Status::BAD_PARAM, "2^{} entries", eq->log_size);
  if (!c.st.uars.exists(eq->uar)) return c.no_such("UAR", eq->uar);
  if (eq->vector >= c.hca.config().num_vectors)
    return c.refuse(Status::BAD_PARAM, "vector {} of {}", eq->vector, c.hca.config().num_vectors);
  Status s = take_queue_buffer(c, c.tail(prm::create_eq_in::kBytes), prm::get<prm::eqc::log_page_size>(eqc) + 12,
                               prm::get<prm::eqc::page_offset>(eqc), prm::eqe::kBytes << eq->log_size, eq->buf);
  if (s != Status::OK) return s;
  auto n = c.st.eqns.take();
  if (!n) return c.exhausted("EQ");
  eq->eqn = *n;
  std::memcpy(eq->eqc.data(), eqc, eq->eqc.size());
  c.st.uars.hold(eq->uar);
  c.objects().eqs.emplace(*n, std::move(eq));
  c.set<prm::create_eq_out::eq_number>(*n);
  return Status::OK;
}

Status query_eq(Command& c) {
  std::uint32_t n = c.get<prm::query_eq_in::eq_number>();
  Eq* eq = c.objects().eq(n);
  if (eq == nullptr) return c.no_such("EQ", n);
  void* eqc = c.out_at<prm::query_eq_out::eq_context_entry>();
  std::memcpy(eqc, eq->eqc.data(), eq->eqc.size());
  prm::set<prm::eqc::st>(eqc, eq->armed ? 9 : 10);  // armed, fired
  prm::set<prm::eqc::consumer_counter>(eqc, eq->ci);
  prm::set<prm::eqc::producer_counter>(eqc, eq->pi);
  c.set<prm::query_eq_out::event_bitmask>(eq->event_mask);
  put_pages(c, prm::query_eq_out::kBytes, eq->buf);
  return Status::OK;
}

Status destroy_eq(Command& c) {
  std::uint32_t n = c.get<prm::destroy_eq_in::eq_number>();
  Eq* eq = c.objects().eq(n);
  if (eq == nullptr) return c.no_such("EQ", n);
  if (eq->users != 0) return c.in_use("EQ", n, eq->users);
  c.st.uars.drop(eq->uar);
  c.objects().eqs.erase(n);
  c.st.eqns.give_back(n);
  return Status::OK;
}

}  // namespace uhca::hca::cmd
