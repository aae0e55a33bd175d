// SPDX-License-Identifier: MIT
// dma-bufs as memory of the device's objects, and the device's own pages as dma-bufs.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"
#include "kernel/mm/umem_dmabuf.h"

namespace uhca::kernel::mlx5 {

// A buffer where the device finds it, wherever it moves.
struct DmabufMemory {
  static Result<std::unique_ptr<DmabufMemory>> make(mlx5_ib_dev& dev, std::unique_ptr<mm::UmemDmabuf> umem, std::uint64_t like);
  ~DmabufMemory();
  Status fault();
  std::unique_ptr<mm::UmemDmabuf> umem;
  std::unique_ptr<mm::IovaWindow> window;  // of whole pages
  std::uint64_t in_page = 0;               // where in its first page the umem begins
};

Result<std::unique_ptr<ib_mr>> reg_user_mr_dmabuf(ib_pd&, std::uint64_t offset, std::uint64_t length, std::uint64_t iova, int fd,
                                                  std::uint32_t access, uverbs_attr_bundle*);

// The exports of one piece of the device that programs may map: they end with it. Linux: the dmabufs of a rdma_user_mmap_entry.
class PageExports {
 public:
  ~PageExports() { revoke(); }
  // Pages of BAR 0 as a dma-buf; `hold` is kept as long as it.
  Result<std::shared_ptr<mm::DmaBuf>> add(int bar_fd, std::uint64_t offset, std::uint64_t length, std::shared_ptr<void> hold);
  // From now on nobody maps them, and no DMA reaches them by way of an export.
  void revoke();

 private:
  std::mutex lock_;
  bool removed_ = false;
  std::vector<std::weak_ptr<mm::DmaBuf>> all_;
};

Result<std::shared_ptr<mm::DmaBuf>> export_mmap(ib_ucontext&, std::uint64_t pgoff);

}  // namespace uhca::kernel::mlx5
