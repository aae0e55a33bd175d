// SPDX-License-Identifier: MIT
// Device memory: ibv_alloc_dm and its mlx5dv forms. The program sees it through a mapping, which only 32-bit accesses may use.
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "base/log.h"
#include "base/types.h"
#include "uapi/mlx5_next.h"
#include "user/mlx5/devx.h"

#define UHCA_EXPORT extern "C" __attribute__((visibility("default")))

namespace uhca::mlx5 {
namespace {

struct Dm {
  verbs_dm v;  // first: programs hold a pointer to its ibv_dm
  std::uint8_t* mapping;
  std::size_t mapped;  // bytes
  std::uint8_t* start;
  std::size_t length;      // as asked for
  std::uint64_t pg_off;    // of the mapping, bytes
  std::uint64_t icm_addr;  // of memory for steering, which is not mapped
};
Dm* to_dm(ibv_dm* d) {
  return reinterpret_cast<Dm*>(d);
}

std::size_t page_size() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// mmap's page number has the command in bits 8..15 and the index around it (rdma/mlx5-abi.h, Linux get_extended_index).
std::uint64_t mmap_offset(std::uint16_t index) {
  return ((std::uint64_t{index} >> 8) << 16 | std::uint64_t{MLX5_IB_MMAP_DEVICE_MEM} << 8 | (index & 0xffu)) * page_size();
}

std::uint8_t* map(ibv_context* context, std::uint64_t offset, std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, context->cmd_fd, static_cast<off_t>(offset));
  if (p != MAP_FAILED) return static_cast<std::uint8_t*>(p);
  return fail(refuse(errno, "device memory: {} bytes cannot be mapped", bytes));
}

// Words, one after another: the memory takes no other width.
template <class Copy>
int access(ibv_dm* d, std::uint64_t offset, std::size_t length, Copy copy) {
  Dm* dm = to_dm(d);
  if (offset > dm->length || length > dm->length - offset)
    return refuse(EFAULT, "device memory: {} bytes at {} of {}", length, offset, dm->length).value;
  if ((offset | length) & 3) return refuse(EINVAL, "device memory: {} bytes at {}: not whole words", length, offset).value;
  for (std::size_t i = 0; i < length; i += 4) copy(reinterpret_cast<std::uint32_t*>(dm->start + offset + i), i);
  return 0;
}

int memcpy_to_dm(ibv_dm* dm, std::uint64_t offset, const void* host, std::size_t length) {
  return access(dm, offset, length, [host](std::uint32_t* word, std::size_t i) {
    std::uint32_t v;
    std::memcpy(&v, static_cast<const std::uint8_t*>(host) + i, sizeof v);
    std::atomic_ref(*word).store(v, std::memory_order_relaxed);
  });
}
int memcpy_from_dm(void* host, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  return access(dm, offset, length, [host](std::uint32_t* word, std::size_t i) {
    std::uint32_t v = std::atomic_ref(*word).load(std::memory_order_relaxed);
    std::memcpy(static_cast<std::uint8_t*>(host) + i, &v, sizeof v);
  });
}

// Maps the DM behind its handle; 0 or an errno.
int show(Dm* dm, ibv_context* context, std::uint16_t index, std::uint64_t start_offset, std::size_t length) {
  dm->pg_off = mmap_offset(index);
  dm->mapped = align_up(length, page_size());
  dm->mapping = map(context, dm->pg_off, dm->mapped);
  if (!dm->mapping) return errno;
  dm->start = dm->mapping + (start_offset & (page_size() - 1));
  dm->length = length;
  dm->v.dm.memcpy_to_dm = memcpy_to_dm;
  dm->v.dm.memcpy_from_dm = memcpy_from_dm;
  return 0;
}

int alloc_memic(Dm* dm, ibv_context* context, const ibv_alloc_dm_attr* attr, ibv_command_buffer* driver) {
  if (attr->length > to_ctx(context)->max_dm_size)
    return refuse(EINVAL, "alloc_dm: {} bytes, at most {}", attr->length, to_ctx(context)->max_dm_size).value;
  std::uint64_t start = 0;
  std::uint16_t index = 0;
  driver->out_struct(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &start);
  driver->out_struct(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, &index);
  if (int err = ibv_cmd_alloc_dm(context, attr, &dm->v, driver)) return err;
  if (int err = show(dm, context, index, start, attr->length)) {
    ibv_cmd_free_dm(&dm->v);
    return refuse(ENOMEM, "alloc_dm: no mapping, errno {}", err).value;
  }
  return 0;
}

int alloc_sw_icm(Dm* dm, ibv_context* context, const ibv_alloc_dm_attr* attr, ibv_command_buffer* driver) {
  driver->out_struct(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, &dm->icm_addr);
  dm->length = attr->length;
  return ibv_cmd_alloc_dm(context, attr, &dm->v, driver);
}

ibv_dm* alloc(ibv_context* context, const ibv_alloc_dm_attr* attr, const mlx5dv_alloc_dm_attr& dv) {
  // The values are the kernel's.
  if (static_cast<unsigned>(dv.type) > uapi::MLX5_IB_UAPI_DM_TYPE_ENCAP_SW_ICM)
    return fail(refuse(EOPNOTSUPP, "alloc_dm: type {}", static_cast<unsigned>(dv.type)));
  if (attr->comp_mask || dv.comp_mask) return fail(refuse(EINVAL, "alloc_dm: comp_mask {:#x} and {:#x}", attr->comp_mask, dv.comp_mask));
  Dm* dm = make<Dm>();
  if (!dm) return nullptr;
  ibv_command_buffer driver(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
  ib_uverbs_attr* type = driver.const_in(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, static_cast<std::uint64_t>(dv.type));
  int err;
  if (dv.type == MLX5DV_DM_TYPE_MEMIC) {
    ibv_command_buffer::optional(type);  // older kernels know no other
    err = alloc_memic(dm, context, attr, &driver);
  } else {
    err = alloc_sw_icm(dm, context, attr, &driver);
  }
  if (!err) return &dm->v.dm;
  delete dm;
  errno = err;
  return nullptr;
}

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  return alloc(context, attr, {MLX5DV_DM_TYPE_MEMIC, 0});
}

int free_dm(ibv_dm* d) {
  Dm* dm = to_dm(d);
  if (int err = ibv_cmd_free_dm(&dm->v)) return err;
  if (dm->mapping) munmap(dm->mapping, dm->mapped);
  delete dm;
  return 0;
}

ibv_dm* import_dm(ibv_context* context, std::uint32_t handle) {
  Dm* dm = make<Dm>();
  if (!dm) return nullptr;
  std::uint64_t start = 0, length = 0;
  std::uint16_t index = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY);
  cmd.in_obj(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, handle);
  cmd.out_struct(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, &start);
  cmd.out_struct(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, &index);
  cmd.out_struct(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, &length);
  int err = execute_ioctl(context, &cmd);
  if (!err) err = show(dm, context, index, start, length);
  if (err) {
    delete dm;
    errno = err;
    return nullptr;
  }
  dm->v.dm.context = context;
  dm->v.handle = dm->v.dm.handle = handle;
  return &dm->v.dm;
}

void unimport_dm(ibv_dm* d) {
  Dm* dm = to_dm(d);
  munmap(dm->mapping, dm->mapped);
  delete dm;
}

// The pages that its mapping shows.
int dm_export_dmabuf_fd(ibv_dm* dm) {
  return ibv_cmd_export_dmabuf_fd(dm->context, to_dm(dm)->pg_off);
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned int access_flags) {
  constexpr unsigned kAllowed = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
  if (access_flags & ~kAllowed) return fail(refuse(EINVAL, "reg_dm_mr: access {:#x}", access_flags));
  return new_mr(static_cast<int>(access_flags),
                [&](verbs_mr* mr) { return ibv_cmd_reg_dm_mr(pd, &to_dm(dm)->v, offset, length, access_flags, mr, nullptr); });
}

void* map_op_addr(ibv_dm* d, std::uint8_t op) {
  Dm* dm = to_dm(d);
  std::uint64_t start = 0;
  std::uint16_t index = 0;
  ibv_command_buffer cmd(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR);
  cmd.in_obj(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, dm->v.handle);
  cmd.in(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, &op, sizeof op);
  cmd.out_struct(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, &start);
  cmd.out_struct(MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, &index);
  if (int err = execute_ioctl(d->context, &cmd)) {
    errno = err;
    return nullptr;
  }
  std::uint8_t* p = map(d->context, mmap_offset(index), align_up(dm->length, page_size()));
  return p ? p + (start & (page_size() - 1)) : nullptr;
}

}  // namespace

void fill_dm_ops(verbs_context_ops* ops) {
  ops->alloc_dm = alloc_dm;
  ops->free_dm = free_dm;
  ops->import_dm = import_dm;
  ops->unimport_dm = unimport_dm;
  ops->reg_dm_mr = reg_dm_mr;
  ops->dm_export_dmabuf_fd = dm_export_dmabuf_fd;
}

void get_dm(ibv_dm* in, mlx5dv_dm* out) {
  Dm* dm = to_dm(in);
  const std::uint64_t asked = out->comp_mask;
  out->comp_mask = 0;
  out->buf = dm->start;
  out->length = dm->length;
  if (asked & MLX5DV_DM_MASK_REMOTE_VA) {
    out->remote_va = dm->icm_addr;
    out->comp_mask = MLX5DV_DM_MASK_REMOTE_VA;
  }
}

}  // namespace uhca::mlx5

using namespace uhca;
using namespace uhca::mlx5;

UHCA_EXPORT ibv_dm* mlx5dv_alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr, mlx5dv_alloc_dm_attr* dv) {
  if (!ours(context)) return mlx5::fail(Errno{EOPNOTSUPP});
  return mlx5::alloc(context, attr, *dv);
}

UHCA_EXPORT void* mlx5dv_dm_map_op_addr(ibv_dm* dm, std::uint8_t op) {
  if (!ours(dm->context)) return mlx5::fail(Errno{EOPNOTSUPP});
  return mlx5::map_op_addr(dm, op);
}
