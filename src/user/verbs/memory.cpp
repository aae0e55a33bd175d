// SPDX-License-Identifier: MIT
// Verbs on memory regions and buffers. Registered pages are kept out of children of fork when the program asked for it (fork.cpp).
#include <fcntl.h>

#include "user/verbs/internal.h"

using namespace uhca::verbs;

namespace {

// Access bits that an old kernel may ignore are not shown to it.
unsigned known_access(ibv_pd* pd, unsigned access) {
  if (verbs_get_device(pd->context->device)->core_support & IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS) return access;
  return access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
}

// A buffer of ibv_alloc_buf becomes an address or a dma-buf with its offset. False with EINVAL when the range does not lie in it.
bool resolve_buf(ibv_pd* pd, ibv_mr_init_attr* attr) {
  const ibv_buf* buf = attr->buf;
  const auto base = reinterpret_cast<std::uintptr_t>(buf->addr), addr = reinterpret_cast<std::uintptr_t>(attr->addr);
  const bool bad = pd != buf->pd || !(attr->comp_mask & IBV_REG_MR_MASK_ADDR) || addr < base || addr - base > buf->size ||
                   attr->length > buf->size - (addr - base) || (attr->comp_mask & (IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET)) ||
                   (buf->dmabuf_fd != -1 && (attr->comp_mask & IBV_REG_MR_MASK_IOVA));
  if (bad) {
    errno = EINVAL;
    return false;
  }
  attr->comp_mask &= ~std::uint64_t{IBV_REG_MR_MASK_BUF};
  if (buf->dmabuf_fd != -1) {
    attr->comp_mask &= ~std::uint64_t{IBV_REG_MR_MASK_ADDR};
    attr->comp_mask |= IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_IOVA;
    attr->fd = buf->dmabuf_fd;
    attr->fd_offset = addr - base;
    attr->iova = addr;
  }
  return true;
}

}  // namespace

UHCA_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, unsigned int access) {
  const bool on_demand = access & IBV_ACCESS_ON_DEMAND;
  access = known_access(pd, access);
  if (!on_demand && ibv_dontfork_range(addr, length)) return nullptr;
  ibv_mr* mr = get_ops(pd->context)->reg_mr(pd, addr, length, iova, static_cast<int>(access));
  if (mr) {
    mr->context = pd->context;
    mr->pd = pd;
    mr->addr = addr;
    mr->length = length;
  } else if (!on_demand) {
    int saved = errno;
    ibv_dofork_range(addr, length);
    errno = saved;
  }
  return mr;
}

UHCA_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, std::size_t length, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, reinterpret_cast<std::uintptr_t>(addr), static_cast<unsigned>(access));
}

UHCA_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, std::size_t length, std::uint64_t iova, int access) {
  return ibv_reg_mr_iova2(pd, addr, length, iova, static_cast<unsigned>(access));
}

UHCA_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  ibv_mr* mr = get_ops(pd->context)->reg_dmabuf_mr(pd, offset, length, iova, fd, access);
  if (!mr) return nullptr;
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = reinterpret_cast<void*>(offset);
  mr->length = length;
  return mr;
}

UHCA_EXPORT ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* user_attr) {
  // The program's structure is read only where its mask says so, and never written.
  ibv_mr_init_attr attr{};
  attr.length = user_attr->length;
  attr.access = user_attr->access;
  attr.comp_mask = user_attr->comp_mask;
  if (attr.comp_mask & IBV_REG_MR_MASK_IOVA) attr.iova = user_attr->iova;
  if (attr.comp_mask & IBV_REG_MR_MASK_ADDR) attr.addr = user_attr->addr;
  if (attr.comp_mask & IBV_REG_MR_MASK_FD) attr.fd = user_attr->fd;
  if (attr.comp_mask & IBV_REG_MR_MASK_FD_OFFSET) attr.fd_offset = user_attr->fd_offset;
  if (attr.comp_mask & IBV_REG_MR_MASK_DMAH) attr.dmah = user_attr->dmah;
  if (attr.comp_mask & IBV_REG_MR_MASK_BUF) {
    attr.buf = user_attr->buf;
    if (!resolve_buf(pd, &attr)) return nullptr;
  }
  const bool fork_matters = !(attr.access & IBV_ACCESS_ON_DEMAND) && !(attr.comp_mask & IBV_REG_MR_MASK_FD);
  if (fork_matters && ibv_dontfork_range(attr.addr, attr.length)) return nullptr;
  attr.access = static_cast<int>(known_access(pd, static_cast<unsigned>(attr.access)));
  ibv_mr* mr = get_ops(pd->context)->reg_mr_ex(pd, &attr);
  if (mr) {
    mr->context = pd->context;
    mr->pd = pd;
    mr->length = attr.length;
    mr->addr = attr.comp_mask & IBV_REG_MR_MASK_ADDR ? attr.addr : reinterpret_cast<void*>(attr.fd_offset);
  } else if (fork_matters) {
    int saved = errno;
    ibv_dofork_range(attr.addr, attr.length);
    errno = saved;
  }
  return mr;
}

UHCA_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, std::size_t length, int access) {
  const bool translation = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  if (verbs_get_mr(mr)->mr_type != IBV_MR_TYPE_MR || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || (translation && (!length || !addr)) ||
      (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (translation && ibv_dontfork_range(addr, length)) return IBV_REREG_MR_ERR_DONT_FORK_NEW;
  void* old_addr = mr->addr;
  const std::size_t old_length = mr->length;
  if (get_ops(mr->context)->rereg_mr(verbs_get_mr(mr), flags, pd, addr, length, access)) {
    int saved = errno;
    int ret = translation && ibv_dofork_range(addr, length) ? IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW : IBV_REREG_MR_ERR_CMD;
    errno = saved;
    return ret;
  }
  if (flags & IBV_REREG_MR_CHANGE_PD) mr->pd = pd;
  if (translation) {
    mr->addr = addr;
    mr->length = length;
    if (ibv_dofork_range(old_addr, old_length)) return IBV_REREG_MR_ERR_DO_FORK_OLD;
  }
  return 0;
}

UHCA_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  void* addr = mr->addr;
  const std::size_t length = mr->length;
  const bool fork_matters = verbs_get_mr(mr)->mr_type == IBV_MR_TYPE_MR && !(verbs_get_mr(mr)->access & IBV_ACCESS_ON_DEMAND);
  int ret = get_ops(mr->context)->dereg_mr(verbs_get_mr(mr));
  if (!ret && fork_matters) ibv_dofork_range(addr, length);
  return ret;
}

UHCA_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  return get_ops(pd->context)->import_mr(pd, handle);
}

UHCA_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  get_ops(mr->context)->unimport_mr(mr);
}

UHCA_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  return get_ops(context)->import_dm(context, handle);
}

UHCA_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  get_ops(dm->context)->unimport_dm(dm);
}

UHCA_EXPORT void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** buf) {
  if (!size) return fail_null<void>(EINVAL);
  return get_ops(pd->context)->alloc_buf(pd, size, buf);
}

UHCA_EXPORT void ibv_free_buf(ibv_buf* buf) {
  get_ops(buf->pd->context)->free_buf(buf);
}

UHCA_EXPORT ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* addr, std::size_t length, int access) {
  ibv_mr_init_attr attr{};
  attr.length = length;
  attr.access = access;
  attr.comp_mask = IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_ADDR;
  attr.addr = addr;
  attr.buf = buf;
  return ibv_reg_mr_ex(pd, &attr);
}

UHCA_EXPORT int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
  return get_ops(dm->context)->dm_export_dmabuf_fd(dm);
}

UHCA_EXPORT int ibv_export_buf_dmabuf_fd(ibv_buf* buf) {
  if (buf->dmabuf_fd < 0) {
    errno = ENODATA;
    return -1;
  }
  return fcntl(buf->dmabuf_fd, F_DUPFD_CLOEXEC, 0);
}
