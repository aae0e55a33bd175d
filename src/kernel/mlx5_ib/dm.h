// SPDX-License-Identifier: MIT
// Device memory: allocation by page of the window, addresses of operations on it, MRs. Linux: hw/mlx5/dm.c.
#pragma once

#include <bitset>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kernel/mlx5_ib/mlx5_ib_dev.h"

namespace uhca::kernel {
struct uverbs_object_def;
}

namespace uhca::kernel::mlx5 {

// Which pages of the device memory's window are taken. Linux: struct mlx5_dm.
class DmPages {
 public:
  static constexpr std::size_t kMax = 256;  // MLX5_MAX_MEMIC_PAGES
  explicit DmPages(std::size_t count) : count_(count < kMax ? count : kMax) {}
  // The first run of `n` free pages from page `from` on, which becomes taken.
  std::optional<std::size_t> take(std::size_t from, std::size_t n);
  void give_back(std::size_t first, std::size_t n);

 private:
  std::mutex lock_;
  std::size_t count_;
  std::bitset<kMax> taken_;
};

// Allocated device memory; mappings keep it after its DM is gone, as do the addresses of its operations.
struct MemicBlock {
  mlx5_ib_dev* dev = nullptr;
  std::uint64_t addr = 0, size = 0;  // offset in BAR 0; bytes
  ~MemicBlock();
};

// An address whose accesses are operations.
struct MemicOp {
  std::shared_ptr<MemicBlock> block;
  std::uint8_t op = 0;
  std::uint64_t addr = 0;
  ~MemicOp();
};

struct mlx5_ib_dm final : ib_dm {
  std::shared_ptr<MemicBlock> block;
  MmapEntry entry;
  std::mutex ops_lock;
  std::map<std::uint8_t, MmapEntry> ops;  // by operation; each holds its MemicOp
};
inline mlx5_ib_dm& to_mdm(ib_dm& d) {
  return static_cast<mlx5_ib_dm&>(d);
}

Result<std::unique_ptr<ib_dm>> alloc_dm(ib_ucontext&, const ib_dm_alloc_attr&, uverbs_attr_bundle*);
Status dealloc_dm(ib_dm&, ib_ucontext&);
Result<std::unique_ptr<ib_mr>> reg_dm_mr(ib_pd&, ib_dm&, const ib_dm_mr_attr&, uverbs_attr_bundle*);
extern const uverbs_object_def dm_object_def;

}  // namespace uhca::kernel::mlx5
