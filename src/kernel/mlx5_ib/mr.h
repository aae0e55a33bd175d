// SPDX-License-Identifier: MIT
// What the kinds of memory regions have in common. Linux: hw/mlx5/mr.c.
#pragma once

#include <span>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"

namespace uhca::kernel::mlx5 {

// Pages of keys are of this size where bus addresses agree with iovas modulo it (kernel/mm): one translation for each 2 GiB.
inline constexpr unsigned kLogLargePage = 31;

// A key with page translations: entry 0 of `pages` holds iova. What memory it is of is the caller's to add to the answer.
struct MttKey {
  std::span<const pci::DmaAddr> pages;
  unsigned log_page = kLogLargePage;
  std::uint64_t iova = 0, length = 0;
  std::uint32_t access = 0;
};
Result<std::unique_ptr<mlx5_ib_mr>> create_mtt_mr(ib_pd& pd, const MttKey& key);
// The large pages around [dma, dma + length).
std::vector<pci::DmaAddr> large_pages(pci::DmaAddr dma, std::uint64_t length);
bool needs_writing(std::uint32_t access);
// The key goes; the memory is still the MR's.
Status destroy_mr(mlx5_ib_mr& mr);

// odp.cpp
Result<std::unique_ptr<ib_mr>> reg_odp_mr(ib_pd& pd, std::uint64_t start, std::uint64_t length, std::uint64_t iova, std::uint32_t access);
// The MR is about to go: no prefetch finds it any more, or runs on it.
void forget_odp_mr(mlx5_ib_mr& mr);
void remember_odp_mr(mlx5_ib_mr& mr);
Status advise_mr(ib_pd& pd, std::uint32_t advice, std::uint32_t flags, const ::ib_uverbs_sge* sges, std::size_t n, uverbs_attr_bundle*);
void fill_odp_caps(const mlx5_ib_dev& dev, ib_device_attr& a);

}  // namespace uhca::kernel::mlx5
