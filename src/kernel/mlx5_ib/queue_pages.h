// SPDX-License-Identifier: MIT
// How a pinned queue buffer is told to the device: pages of 4096 << log_page_size bytes, and where in the first one it begins, in
// 64ths of a page. Linux: mlx5_umem_find_best_quantized_pgoff (hw/mlx5/mem.c).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "device/pci/bus.h"
#include "kernel/mm/umem.h"

namespace uhca::kernel::mlx5 {

struct QueuePages {
  unsigned log_page_size = 0;     // of 4096 bytes
  std::uint32_t page_offset = 0;  // in 64ths of a page
  std::vector<pci::DmaAddr> pas;
};

// offset_bits: width of the context's page_offset field (5 in a wq, else 6). EINVAL: the buffer does not begin on 64 bytes.
Result<QueuePages> queue_pages(const mm::Umem& umem, unsigned offset_bits = 6);

}  // namespace uhca::kernel::mlx5
