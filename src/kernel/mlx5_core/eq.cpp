// SPDX-License-Identifier: MIT
#include "kernel/mlx5_core/eq.h"

#include <cstring>
#include <vector>

#include "base/types.h"
#include "prm/cmd_object.h"
#include "prm/context.h"
#include "prm/event.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kPage = 4096;
// Doorbell registers of an EQ in its UAR page: consumer index with and without arming (Linux eq.c: MLX5_EQ_DOORBEL_OFFSET).
constexpr std::uint64_t kArmRegister = 0x40, kUpdateRegister = 0x48;
constexpr std::uint32_t kBudget = 128;  // EQEs between updates of the consumer index

}  // namespace

Result<std::unique_ptr<EventQueue>> EventQueue::create(CommandQueue& cmd, mm::IommuDomain& domain, pci::Endpoint& endpoint,
                                                       unsigned log_entries, unsigned vector, std::uint32_t uar, std::uint64_t event_mask,
                                                       Handler handler, void* context) {
  std::unique_ptr<EventQueue> eq(new EventQueue(cmd, endpoint));
  std::size_t bytes = prm::eqe::kBytes << log_entries;
  eq->buffer_ = UHCA_TRY(domain.alloc_coherent(bytes));
  eq->log_entries_ = log_entries;
  eq->uar_ = uar;
  eq->handler_ = handler;
  eq->context_ = context;
  // Owner bit 1: the device's, in the first round.
  for (std::size_t i = 0; i < std::size_t{1} << log_entries; ++i)
    prm::set<prm::eqe::owner>(static_cast<std::uint8_t*>(eq->buffer_->cpu()) + i * prm::eqe::kBytes, 1);

  std::size_t npages = (bytes + kPage - 1) / kPage;
  std::vector<std::uint8_t> in(prm::create_eq_in::kBytes + npages * 8);
  std::uint8_t out[prm::create_eq_out::kBytes] = {};
  prm::set<prm::create_eq_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::CREATE_EQ));
  prm::set<prm::create_eq_in::event_bitmask>(in.data(), event_mask);
  void* eqc = prm::at<prm::create_eq_in::eq_context_entry>(in.data());
  prm::set<prm::eqc::log_eq_size>(eqc, log_entries);
  prm::set<prm::eqc::uar_page>(eqc, uar);
  prm::set<prm::eqc::intr>(eqc, vector);
  prm::set<prm::eqc::log_page_size>(eqc, 0);
  for (std::size_t i = 0; i < npages; ++i) prm::set<prm::create_eq_in::pas>(in.data(), eq->buffer_->dma() + i * kPage, i);
  UHCA_CHECK(cmd.exec(in.data(), in.size(), out, sizeof out));
  eq->eqn_ = prm::get<prm::create_eq_out::eq_number>(out);
  return eq;
}

Status EventQueue::destroy() {
  std::uint8_t in[prm::destroy_eq_in::kBytes] = {}, out[prm::destroy_eq_out::kBytes] = {};
  prm::set<prm::destroy_eq_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::DESTROY_EQ));
  prm::set<prm::destroy_eq_in::eq_number>(in, eqn_);
  return cmd_.exec(in, sizeof in, out, sizeof out);
}

void EventQueue::doorbell(bool arm) {
  std::uint32_t value = (ci_.load(std::memory_order_relaxed) & 0xffffff) | eqn_ << 24;
  endpoint_.write32(std::uint64_t{uar_} * kPage + (arm ? kArmRegister : kUpdateRegister), byteswap(value));
}

void EventQueue::poll() {
  const auto* base = static_cast<const std::uint8_t*>(buffer_->cpu());
  std::uint32_t mask = (1u << log_entries_) - 1;
  std::uint32_t since = 0;
  for (;;) {
    std::uint32_t ci = ci_.load(std::memory_order_relaxed);
    const std::uint8_t* eqe = base + std::size_t{ci & mask} * prm::eqe::kBytes;
    std::uint8_t owner = __atomic_load_n(eqe + prm::eqe::kBytes - 1, __ATOMIC_ACQUIRE) & 1;
    if (owner != ((ci >> log_entries_) & 1)) break;
    handler_(context_, eqe);
    ci_.store(ci + 1, std::memory_order_relaxed);
    if (++since == kBudget) {
      doorbell(false);
      since = 0;
    }
  }
  doorbell(true);
}

}  // namespace uhca::kernel::mlx5
