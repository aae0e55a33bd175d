// SPDX-License-Identifier: MIT
#include "kernel/mlx5_ib/dm.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>

#include "base/log.h"
#include "base/types.h"
#include "kernel/mlx5_ib/mkey_fields.h"
#include "kernel/uverbs/attr_bundle.h"
#include "kernel/uverbs/capable.h"
#include "kernel/uverbs/uapi_def.h"
#include "prm/cmd_object.h"
#include "prm/memic.h"
#include "uapi/mlx5_next.h"

namespace uhca::kernel::mlx5 {
namespace {

constexpr std::uint64_t kPage = 4096, kUnit = std::uint64_t{1} << prm::kLogMemicUnit;
using Cap = prm::device_mem_cap;

std::uint64_t window_of(const mlx5_ib_dev& dev) {
  return dev.mdev->cap_dev_mem<Cap::memic_bar_start_addr>();
}

// Linux: mlx5_cmd_alloc_memic. The driver proposes pages of the window until the device takes some.
Result<std::shared_ptr<MemicBlock>> alloc_memic(mlx5_ib_dev& dev, std::uint64_t length, std::uint32_t alignment) {
  const auto& m = *dev.mdev;
  // Lengths wrap where they are rounded up, as in Linux.
  const std::uint64_t size = align_up(length, kUnit);
  if (size == 0) return refuse(EINVAL, "alloc_dm: {} bytes", length);
  const std::uint32_t log_align = alignment < prm::kLogMemicUnit ? 0 : alignment - prm::kLogMemicUnit;
  if (log_align > m.cap_dev_mem<Cap::log_max_memic_addr_alignment>()) return refuse(EINVAL, "alloc_dm: alignment to 2^{} bytes", alignment);
  const std::uint64_t pages = (size + kPage - 1) / kPage;
  auto block = std::make_shared<MemicBlock>();
  for (std::size_t from = 0; pages <= DmPages::kMax;) {
    auto first = dev.dm->take(from, pages);
    if (!first) break;
    std::uint8_t in[prm::alloc_memic_in::kBytes] = {}, out[prm::alloc_memic_out::kBytes] = {};
    prm::set<prm::alloc_memic_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::ALLOC_MEMIC));
    prm::set<prm::alloc_memic_in::range_start_addr>(in, window_of(dev) + *first * kPage);
    prm::set<prm::alloc_memic_in::range_size>(in, pages * kPage);
    prm::set<prm::alloc_memic_in::memic_size>(in, size);
    prm::set<prm::alloc_memic_in::log_memic_addr_alignment>(in, log_align);
    Status s = dev.mdev->cmd().exec(in, sizeof in, out, sizeof out);
    if (s.ok()) {
      block->dev = &dev;
      block->addr = prm::get<prm::alloc_memic_out::memic_start_addr>(out);
      block->size = size;
      return block;
    }
    dev.dm->give_back(*first, pages);
    if (s.code() != EAGAIN) return s.error();
    from = *first + 1;
  }
  return refuse(ENOMEM, "alloc_dm: {} bytes: no {} adjacent pages of device memory are free", length, pages);
}

// Under the page offsets of MLX5_IB_MMAP_DEVICE_MEM. ENOMEM.
Status add_entry(mlx5_ib_ucontext& c, MmapEntry& e, std::uint64_t addr, std::uint64_t size) {
  e.bar_offset = align_down(addr, kPage);
  e.length = align_up(size, kPage);
  return add_device_memory_entry(c, e);
}

std::uint16_t page_index(const MmapEntry& e) {
  return static_cast<std::uint16_t>((e.pgoff >> 16 & 0xff) << 8 | (e.pgoff & 0xff));
}

void remove_entries(mlx5_ib_ucontext& c, mlx5_ib_dm& dm) {
  std::lock_guard g(dm.ops_lock);
  for (auto& [op, e] : dm.ops) remove_mmap_entry(c, e);
  dm.ops.clear();
  remove_mmap_entry(c, dm.entry);
  dm.entry.hold.reset();
}

Status alloc_sw_icm(std::uint32_t type) {
  if (!rdma_uattrs_has_raw_cap()) return refuse(EPERM, "alloc_dm: type {} is for the privileged", type);
  return refuse(EOPNOTSUPP, "alloc_dm: type {}: the device lets no software own its steering", type);
}

Status map_op_addr(uverbs_attr_bundle& b) {
  ib_uobject* uobj = uverbs_attr_get_uobject(b, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE);
  auto& dm = to_mdm(*static_cast<ib_dm*>(uobj->object));
  auto& c = to_mucontext(*uobj->context);
  auto& dev = to_mdev(*dm.device);
  std::uint8_t op;
  UHCA_CHECK(uverbs_copy_from(&op, b, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP));
  if (op >= 32 || !(dev.mdev->cap_dev_mem<Cap::memic_operations>() >> op & 1))
    return refuse(EOPNOTSUPP, "dm_map_op_addr: the device has no operation {}", op);
  std::lock_guard g(dm.ops_lock);
  auto it = dm.ops.find(op);
  const bool fresh = it == dm.ops.end();
  if (fresh) {
    std::uint8_t in[prm::modify_memic_in::kBytes] = {}, out[prm::modify_memic_out::kBytes] = {};
    prm::set<prm::modify_memic_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::MODIFY_MEMIC));
    prm::set<prm::modify_memic_in::op_mod>(in, prm::kMemicOpAlloc);
    prm::set<prm::modify_memic_in::memic_operation_type>(in, op);
    prm::set<prm::modify_memic_in::memic_start_addr>(in, dm.block->addr);
    UHCA_CHECK(dev.mdev->cmd().exec(in, sizeof in, out, sizeof out));
    auto address = std::make_shared<MemicOp>();
    address->block = dm.block;
    address->op = op;
    address->addr = prm::get<prm::modify_memic_out::memic_operation_addr>(out);
    it = dm.ops.try_emplace(op).first;
    it->second.trapped = true;
    it->second.hold = address;
    if (Status s = add_entry(c, it->second, address->addr, dm.block->size); !s.ok()) {
      dm.ops.erase(it);
      return s;
    }
  }
  const MmapEntry& e = it->second;
  const std::uint64_t start = static_cast<MemicOp*>(e.hold.get())->addr % kPage;
  const std::uint16_t index = page_index(e);
  Status s = uverbs_ignore_enoent(uverbs_copy_to(b, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, index));
  if (s.ok()) s = uverbs_copy_to(b, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, start);
  if (!s.ok() && fresh) {
    remove_mmap_entry(c, it->second);
    dm.ops.erase(it);
  }
  return s;
}

Status dm_query(uverbs_attr_bundle& b) {
  auto& dm = to_mdm(*uverbs_attr_get_obj<ib_dm>(b, MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE));
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, page_index(dm.entry)));
  UHCA_CHECK(uverbs_copy_to(b, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, dm.block->addr % kPage));
  return uverbs_copy_to(b, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, dm.length);
}

constexpr uverbs_attr_def kAllocAttrs[] = {
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, UVERBS_ATTR_TYPE(std::uint16_t)),
    UVERBS_ATTR_CONST_IN(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE),
};
constexpr uverbs_attr_def kMapOpAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_IN(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, UVERBS_ATTR_TYPE(std::uint8_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, UVERBS_ATTR_TYPE(std::uint16_t)),
};
constexpr uverbs_attr_def kQueryAttrs[] = {
    UVERBS_ATTR_IDR(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, UVERBS_OBJECT_DM, UVERBS_ACCESS_READ, UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, UVERBS_ATTR_TYPE(std::uint16_t), UA_MANDATORY),
    UVERBS_ATTR_PTR_OUT(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, UVERBS_ATTR_TYPE(std::uint64_t), UA_MANDATORY),
};
constexpr uverbs_method_def kMethods[] = {
    UVERBS_METHOD(UVERBS_METHOD_DM_ALLOC, kAllocAttrs, nullptr),
    UVERBS_METHOD(MLX5_IB_METHOD_DM_MAP_OP_ADDR, kMapOpAttrs, map_op_addr),
    UVERBS_METHOD(MLX5_IB_METHOD_DM_QUERY, kQueryAttrs, dm_query),
};

}  // namespace

constinit const uverbs_object_def dm_object_def = UVERBS_OBJECT(UVERBS_OBJECT_DM, nullptr, kMethods);

std::optional<std::size_t> DmPages::take(std::size_t from, std::size_t n) {
  std::lock_guard g(lock_);
  for (std::size_t first = from, run = 0, i = from; i < count_; ++i) {
    if (taken_[i]) {
      first = i + 1;
      run = 0;
      continue;
    }
    if (++run < n) continue;
    for (std::size_t p = first; p <= i; ++p) taken_[p] = true;
    return first;
  }
  return std::nullopt;
}

void DmPages::give_back(std::size_t first, std::size_t n) {
  std::lock_guard g(lock_);
  for (std::size_t p = first; p < first + n; ++p) taken_[p] = false;
}

MemicBlock::~MemicBlock() {
  if (size == 0) return;
  std::uint8_t in[prm::dealloc_memic_in::kBytes] = {}, out[prm::dealloc_memic_out::kBytes] = {};
  prm::set<prm::dealloc_memic_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::DEALLOC_MEMIC));
  prm::set<prm::dealloc_memic_in::memic_start_addr>(in, addr);
  prm::set<prm::dealloc_memic_in::memic_size>(in, size);
  // What the device does not give back stays taken (Linux: mlx5_cmd_dealloc_memic).
  if (Status s = dev->mdev->cmd().exec(in, sizeof in, out, sizeof out); !s.ok()) {
    log::error("device memory at {:#x} could not be freed ({})", addr, s.code());
    return;
  }
  dev->dm->give_back((addr - window_of(*dev)) / kPage, (size + kPage - 1) / kPage);
}

MemicOp::~MemicOp() {
  std::uint8_t in[prm::modify_memic_in::kBytes] = {}, out[prm::modify_memic_out::kBytes] = {};
  prm::set<prm::modify_memic_in::opcode>(in, static_cast<std::uint16_t>(prm::Opcode::MODIFY_MEMIC));
  prm::set<prm::modify_memic_in::op_mod>(in, prm::kMemicOpDealloc);
  prm::set<prm::modify_memic_in::memic_operation_type>(in, op);
  prm::set<prm::modify_memic_in::memic_start_addr>(in, block->addr);
  if (Status s = block->dev->mdev->cmd().exec(in, sizeof in, out, sizeof out); !s.ok())
    log::error("operation {} on device memory at {:#x} could not be freed ({})", op, block->addr, s.code());
}

Result<std::unique_ptr<ib_dm>> alloc_dm(ib_ucontext& uctx, const ib_dm_alloc_attr& attr, uverbs_attr_bundle* attrs) {
  auto& c = to_mucontext(uctx);
  auto& dev = to_mdev(*c.device);
  std::uint32_t type;
  UHCA_CHECK(uverbs_get_const_default(&type, *attrs, MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, std::uint32_t{MLX5_IB_UAPI_DM_TYPE_MEMIC}));
  if (type > MLX5_IB_UAPI_DM_TYPE_MEMIC) {
    if (type <= uapi::MLX5_IB_UAPI_DM_TYPE_ENCAP_SW_ICM) return alloc_sw_icm(type).error();
    return refuse(EOPNOTSUPP, "alloc_dm: type {}", type);
  }
  if (!dev.mdev->cap_dev_mem<Cap::memic>()) return refuse(EOPNOTSUPP, "alloc_dm: the device has no memory of its own");
  auto dm = std::make_unique<mlx5_ib_dm>();
  dm->device = &dev;
  dm->length = attr.length;
  dm->block = UHCA_TRY(alloc_memic(dev, attr.length, attr.alignment));
  dm->entry.hold = dm->block;
  UHCA_CHECK(add_entry(c, dm->entry, dm->block->addr, dm->block->size));
  const std::uint16_t index = page_index(dm->entry);
  const std::uint64_t start = dm->block->addr % kPage;
  Status s = uverbs_ignore_enoent(uverbs_copy_to(*attrs, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, index));
  if (s.ok()) s = uverbs_copy_to(*attrs, MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, start);
  if (s.ok()) return std::unique_ptr<ib_dm>(std::move(dm));
  remove_entries(c, *dm);
  return s.error();
}

Status dealloc_dm(ib_dm& ibdm, ib_ucontext& uctx) {
  auto& dm = to_mdm(ibdm);
  remove_entries(to_mucontext(uctx), dm);
  dm.block.reset();
  return success();
}

Result<std::unique_ptr<ib_mr>> reg_dm_mr(ib_pd& pd, ib_dm& ibdm, const ib_dm_mr_attr& attr, uverbs_attr_bundle*) {
  constexpr std::uint32_t kAllowed = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessZeroBased |
                                     ::IB_UVERBS_ACCESS_OPTIONAL_RANGE;
  if (attr.access_flags & ~kAllowed) return refuse(EINVAL, "reg_dm_mr: access {:#x}", attr.access_flags);
  auto& m = *to_mdev(*pd.device).mdev;
  std::vector<std::uint8_t> in(prm::create_mkey_in::kBytes);
  void* mkc = prm::at<prm::create_mkey_in::memory_key_mkey_entry>(in.data());
  constexpr unsigned kModeMemic = 5;
  prm::set<prm::mkc::access_mode_1_0>(mkc, kModeMemic & 3);
  prm::set<prm::mkc::access_mode_4_2>(mkc, kModeMemic >> 2);
  prm::set<prm::mkc::len>(mkc, attr.length);
  const std::uint64_t start = to_mdm(ibdm).block->addr + attr.offset;
  set_mkc_access_pd_addr_fields(m, mkc, attr.access_flags, start, pd);
  auto mr = std::make_unique<mlx5_ib_mr>();
  mr->lkey = mr->rkey = UHCA_TRY(m.create_mkey(in));
  mr->access = attr.access_flags;
  mr->iova = start;
  mr->length = attr.length;
  return std::unique_ptr<ib_mr>(std::move(mr));
}

}  // namespace uhca::kernel::mlx5
