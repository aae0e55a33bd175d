// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/queue_pages.h"

#include "base/log.h"
#include "base/types.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr unsigned kMinShift = 12, kMaxShift = 31;  // bus and virtual addresses agree up to 2 GiB

bool begins_well(pci::DmaAddr dma, unsigned shift) {
  std::uint64_t page = std::uint64_t{1} << shift;
  return dma % page % (page / 64) == 0;
}

}  // namespace

Result<QueuePages> queue_pages(const mm::Umem& umem, unsigned offset_bits) {
  if (!begins_well(umem.dma(), kMinShift)) return refuse(EINVAL, "queue buffer at {:#x}: not aligned to 64 bytes", umem.va());
  // The smallest page that holds it all, or the largest in which it may begin.
  unsigned shift = kMinShift;
  auto one_page = [&umem](unsigned s) { return umem.dma() >> s == (umem.dma() + umem.length() - 1) >> s; };
  while (!one_page(shift) && shift < kMaxShift && begins_well(umem.dma(), shift + 1)) ++shift;
  // In a smaller page the buffer begins nearer to the page's start.
  auto offset = [&umem](unsigned s) { return umem.dma() % (std::uint64_t{1} << s) >> (s - 6); };
  while (offset(shift) >> offset_bits && shift > kMinShift) --shift;
  if (offset(shift) >> offset_bits) return refuse(EINVAL, "queue buffer at {:#x}: begins too far inside its page", umem.va());
  std::uint64_t page = std::uint64_t{1} << shift;
  QueuePages q;
  q.log_page_size = shift - kMinShift;
  q.page_offset = static_cast<std::uint32_t>(umem.dma() % page / (page / 64));
  for (pci::DmaAddr a = align_down(umem.dma(), page); a < umem.dma() + umem.length(); a += page) q.pas.push_back(a);
  return q;
}

}  // namespace uhca::kernel::mlx5
