// SPDX-License-Identifier: MIT
#include "kernel/mlx5_core/pages.h"

#include <algorithm>
#include <vector>

#include "base/log.h"
#include "prm/cmd_core.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::size_t kPage = 4096;
// MANAGE_PAGES op_mod.
constexpr std::uint16_t kCannotGive = 0, kGive = 1, kTake = 2;
// QUERY_PAGES op_mod.
constexpr std::uint16_t kBootPages = 1, kInitPages = 2;
constexpr std::size_t kGiveBatch = 1024;
constexpr std::size_t kTakeBatch = 768;  // as many addresses as twelve mailboxes hold (Linux: optimal_reclaimed_pages)

std::vector<std::uint8_t> manage(std::uint16_t op_mod, std::size_t entries, std::size_t room) {
  std::vector<std::uint8_t> in(prm::manage_pages_in::kBytes + room * 8);
  prm::set<prm::manage_pages_in::opcode>(in.data(), static_cast<std::uint16_t>(prm::Opcode::MANAGE_PAGES));
  prm::set<prm::manage_pages_in::op_mod>(in.data(), op_mod);
  prm::set<prm::manage_pages_in::input_num_entries>(in.data(), entries);
  return in;
}

}  // namespace

std::size_t FirmwarePages::outstanding() const {
  std::lock_guard g(lock_);
  return pages_.size();
}

Status FirmwarePages::satisfy_startup(bool boot) {
  std::uint8_t in[prm::query_pages_in::kBytes] = {}, out[prm::query_pages_out::kBytes] = {};
  prm::set<prm::query_pages_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::QUERY_PAGES));
  prm::set<prm::query_pages_in::op_mod>(in, boot ? kBootPages : kInitPages);
  UHCA_CHECK(cmd_.exec(in, sizeof in, out, sizeof out));
  auto n = static_cast<std::int32_t>(prm::get<prm::query_pages_out::num_pages>(out));
  if (n < 0) return refuse(EIO, "QUERY_PAGES: the firmware asks for {} pages at startup", n);
  return give(static_cast<std::size_t>(n));
}

Status FirmwarePages::give(std::size_t npages) {
  while (npages > 0) {
    std::size_t n = std::min(npages, kGiveBatch);
    auto buffer = domain_.alloc_coherent(n * kPage);
    if (!buffer) {
      auto in = manage(kCannotGive, 0, 0);
      std::uint8_t out[prm::manage_pages_out::kBytes] = {};
      if (Status told = cmd_.exec(in.data(), in.size(), out, sizeof out); !told)
        log::warn("the firmware could not be told of the shortage");
      return buffer.error();
    }
    std::shared_ptr<mm::DmaBuffer> chunk = std::move(buffer).value();
    auto in = manage(kGive, n, n);
    std::uint8_t out[prm::manage_pages_out::kBytes] = {};
    for (std::size_t i = 0; i < n; ++i) prm::set<prm::manage_pages_in::pas>(in.data(), chunk->dma() + i * kPage, i);
    UHCA_CHECK(cmd_.exec(in.data(), in.size(), out, sizeof out));
    std::lock_guard g(lock_);
    for (std::size_t i = 0; i < n; ++i) pages_.emplace(chunk->dma() + i * kPage, chunk);
    npages -= n;
  }
  return success();
}

Result<std::size_t> FirmwarePages::take(std::size_t npages) {
  std::size_t n = std::min(npages, kTakeBatch);
  auto in = manage(kTake, n, 0);
  std::vector<std::uint8_t> out(prm::manage_pages_out::kBytes + n * 8);
  UHCA_CHECK(cmd_.exec(in.data(), in.size(), out.data(), out.size()));
  std::size_t got = prm::get<prm::manage_pages_out::output_num_entries>(out.data());
  if (got > n) return refuse(EINVAL, "MANAGE_PAGES: {} pages came back where {} were asked for", got, n);
  std::lock_guard g(lock_);
  for (std::size_t i = 0; i < got; ++i) {
    std::uint64_t pa = prm::get<prm::manage_pages_out::pas>(out.data(), i);
    if (pages_.erase(pa) == 0) return refuse(EIO, "MANAGE_PAGES: page {:#x} came back, but it was never given", pa);
  }
  return got;
}

Status FirmwarePages::reclaim_all() {
  while (std::size_t n = outstanding()) {
    if (UHCA_TRY(take(n)) == 0) return refuse(EIO, "the firmware keeps {} pages", n);
  }
  return success();
}

void FirmwarePages::request(std::int32_t npages) {
  requested_.fetch_add(npages, std::memory_order_acq_rel);
}

void FirmwarePages::serve() {
  if (requested_.load(std::memory_order_relaxed) == 0) return;
  std::int32_t n = requested_.exchange(0, std::memory_order_acq_rel);
  if (n > 0) {
    if (Status s = give(static_cast<std::size_t>(n)); !s) log::error("{} pages that the firmware asked for could not be given", n);
  } else if (n < 0) {
    if (auto r = take(static_cast<std::size_t>(-n)); !r) log::error("{} pages that the firmware offered could not be taken", -n);
  }
}

}  // namespace uhca::kernel::mlx5
